"""Describes logs, verifies them, and makes the rows of a dump; it changes nothing."""
