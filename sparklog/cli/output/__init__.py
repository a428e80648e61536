"""Prints rows: as tables, JSON lines and progress."""
