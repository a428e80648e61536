"""Decodes the bytes of keys and values into typed Arrow arrays. Knows nothing of logs and their files."""
