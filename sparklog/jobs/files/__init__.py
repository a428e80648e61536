"""Reads and writes the formats of files: Parquet, Arrow IPC, CSV and JSON lines."""
