"""Mirrors of log directories: exact copies that follow their sources."""
