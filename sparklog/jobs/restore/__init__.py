"""Restores log directories, also for a new cluster."""
