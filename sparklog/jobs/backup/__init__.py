"""Backups of log directories: sets of them, with manifests."""
