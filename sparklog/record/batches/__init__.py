"""Walks, checks and stamps whole batches; records stay closed."""
