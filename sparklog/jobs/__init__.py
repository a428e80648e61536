"""Work on whole directories: a plan of tasks, tasks that run side by side, and commits that say what was done."""
