"""Reads Kafka's internal topics, and sets committed offsets in them."""
