"""Scans of many batches: of a range of offsets, past damage, and of raw batches."""
