"""Turns Arrow columns into batches."""
