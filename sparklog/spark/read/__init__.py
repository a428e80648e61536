"""Plans reads, and yields Arrow batches in tasks."""
