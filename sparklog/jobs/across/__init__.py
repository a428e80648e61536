"""Looks for faults across the files of log directories, for ``verify --deep``."""
