"""The verb ``clean``: retention, compaction, erasure and conversion of a directory."""
