"""Writes to many partitions at once: partitioning, staging, and one commit."""
