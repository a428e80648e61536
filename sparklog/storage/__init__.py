"""Reads and writes files and folders, without knowing what they mean."""
