"""Compares the files that jobs have written with their ledgers."""
