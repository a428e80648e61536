"""Replicas of one partition: their sound batches and lineages, and the one log that they are merged to."""
