"""Writes to the targets of an export: folders of files, Delta Lake and Iceberg."""
