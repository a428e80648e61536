"""Kafka's internal topics as tables: committed offsets, groups, transactions.

>>> import sparklog.views
>>> sparklog.views.read("/logs", "consumer_offsets")  # doctest: +SKIP
"""

from sparklog.topic.views import NAMES, batches, read, schema

__all__ = ["NAMES", "batches", "read", "schema"]
