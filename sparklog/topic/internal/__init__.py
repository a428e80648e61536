"""Reads and sets what Kafka keeps in its internal topics."""
