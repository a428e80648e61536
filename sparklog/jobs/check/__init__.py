"""Checks what jobs have written against what their ledgers say."""
