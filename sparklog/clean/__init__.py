"""Cleans one partition's log: retention, compaction, erasure and conversion over one machine that swaps segments."""
