"""The verb ``copy``: logs to logs."""
