"""Finds partitions, and divides their offsets among tasks."""
