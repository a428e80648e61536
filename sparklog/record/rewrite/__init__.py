"""Rewrites batches: removes records, or changes the codec or the format."""
