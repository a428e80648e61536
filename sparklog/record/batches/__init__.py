"""Walks, checks and stamps whole batches, without decoding records."""
