"""The single writer of one partition: append, recover, stage, lock."""
