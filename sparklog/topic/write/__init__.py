"""Writes to many partitions at once: chooses partitions, stages batches, and commits them together."""
