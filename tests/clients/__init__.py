"""Tests of the producer and the consumer."""
