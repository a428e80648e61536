"""Describes the bytes of the three record formats, and the columns that records become."""
