"""Transactions over many partitions."""
