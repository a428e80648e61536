"""The job ``export``: writes logs to tables."""
