"""Handles the offsets of a stream, and recognises the logs that they belong to."""
