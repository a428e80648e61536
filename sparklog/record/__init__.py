"""Turns the bytes of batches into records in Arrow columns and back; opens no files."""
