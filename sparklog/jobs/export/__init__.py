"""The verb ``export``: logs to tables."""
