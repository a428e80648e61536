"""What the bytes of a log mean: records in Arrow columns, batches in bytes; no files."""
