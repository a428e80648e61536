"""The job ``copy``: copies logs to a log directory."""
