"""Spark's contract: the data source, its options, plans, readers and writers."""
