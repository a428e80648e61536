"""Reads of records: to the first damage, or past it."""
