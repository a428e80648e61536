"""How much a trigger of a stream reads: the arithmetic of Spark's Kafka source, and a limit on bytes.

Source: apache/spark, KafkaMicroBatchStream.scala (rateLimit, delayBatch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from sparklog.log.files import TopicPartition
from sparklog.log.properties import LONG_MAX
from sparklog.topic.streams.offsets import Offsets


def within_offsets(begin: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Return where a batch ends that is to read about so many offsets, of each partition its share.

    As in the connector a partition with anything new gives at least one, so that the sum may be above the limit.

    Parameters
    ----------
    begin, end : mapping of TopicPartition to int
        Where the batch begins, and what there is.
    """
    sizes = {at: offset - begin[at] for at, offset in end.items() if offset > begin[at]}
    total = sum(sizes.values())
    return {**end, **{at: _share(begin[at], end[at], offsets_max * (size / total)) for at, size in sizes.items()}}


def within_bytes(
    begin: Offsets, end: Offsets, bytes_max: int, size_bytes: Callable[[TopicPartition], int]
) -> dict[TopicPartition, int]:
    """Return where a batch ends that is to read about so many bytes of log, of each partition the same share.

    Parameters
    ----------
    size_bytes : callable
        Tells how many bytes of log a partition has between the two.
    """
    sizes = {at: offset - begin[at] for at, offset in end.items() if offset > begin[at]}
    total_bytes = sum(size_bytes(at) for at in sizes)
    if total_bytes <= bytes_max:
        return dict(end)
    part = bytes_max / total_bytes
    return {**end, **{at: _share(begin[at], end[at], size * part) for at, size in sizes.items()}}


def _share(begin: int, end: int, wanted: float) -> int:
    share = math.ceil(wanted) if wanted < 1 else math.floor(wanted)
    return min(end, begin + min(share, LONG_MAX - begin))


def is_too_little(current: Mapping[TopicPartition, int], latest: Offsets, offsets_min: int) -> bool:
    """Tell whether fewer offsets are new than are waited for; a partition that is new counts as its end offset."""
    return sum(offset - current.get(at, 0) for at, offset in latest.items()) < offsets_min
