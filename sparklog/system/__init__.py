"""Reads Kafka's internal topics: decodes their messages by Kafka's own definitions and makes tables of them."""
