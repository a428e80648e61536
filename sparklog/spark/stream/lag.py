"""Measures how far a running query is behind the logs that it reads."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.topic.streams.checkpoints import lag_of
from sparklog.topic.streams.offsets import StreamOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class StreamLag:
    """The number of offsets that a query had not read after its last trigger.

    Attributes
    ----------
    partitions : mapping of TopicPartition to int
        Unread offsets by partition; a `TopicPartition` is a pair of a topic and a number.
    """

    partitions: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.partitions.values())

    @property
    def least(self) -> int:
        return min(self.partitions.values(), default=0)

    @property
    def most(self) -> int:
        return max(self.partitions.values(), default=0)

    @property
    def average(self) -> float:
        return self.total / len(self.partitions) if self.partitions else 0.0


def stream_lag(query: StreamingQuery, source: int = 0) -> StreamLag | None:
    """Return how far a query is behind, from its last progress.

    Spark asks its Kafka source for metrics, but no Python source. So this compares the end of the last batch with the
    end of the logs that the source saw then.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
    source : int
        The number of the source, if the query has several.

    Returns
    -------
    StreamLag or None
        None while the query has no progress, or only finishes a batch from before its start, for which Spark does not
        ask where the logs end.

    Raises
    ------
    InvalidOptionError
        The query does not have the source, or it is not of this format.
    """
    progress = query.lastProgress
    if progress is None:
        return None
    sources: list[Any] = progress["sources"]
    if not 0 <= source < len(sources):
        raise InvalidOptionError(f"the query has {len(sources)} sources, and not one with the number {source}")
    read, there = (_offset_in(sources[source][name]) for name in ("endOffset", "latestOffset"))
    if read is None or there is None:
        return None
    return StreamLag(lag_of(read, there.offsets))


def _offset_in(progress: Any) -> StreamOffset | None:
    """Return an offset in a query's progress, which is JSON, or the repr of parsed JSON in PySpark 4.1."""
    if isinstance(progress, str):
        try:
            progress = json.loads(progress)
        except ValueError:
            progress = ast.literal_eval(progress)
    return None if progress is None else StreamOffset.parse(progress)
