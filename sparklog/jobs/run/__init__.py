"""Runs jobs: plan, tasks, commit, on processes of this machine."""
