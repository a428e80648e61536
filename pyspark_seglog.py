"""How Spark finds the format ``seglog`` by itself: it looks into modules called ``pyspark_*`` for ``DefaultSource``.

An error here would hide every other such format from the session, so it is only told.
"""

import logging

try:
    from sparklog.spark.source import SeglogDataSource as DefaultSource
except Exception as error:
    logging.getLogger("sparklog").warning("the format seglog is not available: %s", error)
else:
    __all__ = ["DefaultSource"]
