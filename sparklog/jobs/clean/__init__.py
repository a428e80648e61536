"""The job ``clean``: retention, compaction, erasure and conversion of a directory."""
