"""Jobs on whole directories: each plans tasks, runs them in parallel, and commits and records their results."""
