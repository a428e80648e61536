"""Looks into logs and changes nothing: describes them, verifies them, and makes the rows of a dump."""
