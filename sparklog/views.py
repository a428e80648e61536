"""Shows Kafka's internal topics as tables: committed offsets, groups and transactions; and the lag of groups.

>>> import sparklog.views
>>> sparklog.views.read("/logs", "consumer_offsets")  # doctest: +SKIP
"""

from sparklog.topic.internal.lag import lag
from sparklog.topic.internal.views import NAMES, batches, read, schema

__all__ = ["NAMES", "batches", "lag", "read", "schema"]
