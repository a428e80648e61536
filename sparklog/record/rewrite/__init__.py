"""Turns batches into batches: some records leave, or the codec or the format changes."""
