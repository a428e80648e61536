"""How far a running query is behind the logs that it reads."""

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
    """How many offsets a query had not read after its last trigger.

    Attributes
    ----------
    partitions : mapping of TopicPartition to int
        Of each partition; a `TopicPartition` is a pair of a topic and a number.
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
    """Return how far a query is behind, by its last progress.

    Spark asks a Python source for no metrics, as it does its Kafka source, so this compares the end of the last batch
    with what the source then saw.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
    source : int
        Which of the query's sources, where it has several.

    Returns
    -------
    StreamLag or None
        None while the query has no progress, or just goes on with a batch of before its start, for which Spark does not
        ask where the logs end.

    Raises
    ------
    InvalidOptionError
        The query has no such source, or it is not of this format.
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
    """Return an offset of a query's progress: JSON, which PySpark 4.1 reads and hands out as Python writes it."""
    if isinstance(progress, str):
        try:
            progress = json.loads(progress)
        except ValueError:
            progress = ast.literal_eval(progress)
    return None if progress is None else StreamOffset.parse(progress)
