"""Finds partitions, and cuts their offsets into work."""
