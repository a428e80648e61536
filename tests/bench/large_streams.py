"""A stream over a large directory, without a query, for `tests.bench.large`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparklog.topic.streams.offsets import INITIAL
from tests.bench.large_meter import Meter, check
from tests.bench.stream import reader_of

_TIMES: Final = 3


def follow(meter: Meter, logs: Path, size: int, of: str, add: Callable[[int], None], new: str) -> None:
    """Plan the batches of a stream.

    Parameters
    ----------
    add : callable
        Adds records to the logs, and gets the number of its earlier calls; ``new`` says what it adds.
    """
    reader, limit = reader_of(logs), ReadAllAvailable()
    with meter("stream: the first offset", size, of):
        start = reader.latestOffset(INITIAL, limit)
    for times in range(_TIMES):
        with meter("stream: a trigger without news", size, of):
            end = reader.latestOffset(start, limit)
        check(end, start)
        add(times)
        with meter(f"stream: a trigger and plan of {new}", size, of):
            end = reader.latestOffset(start, limit)
            tasks = reader.partitions(start, end)
        before, start = start, end
    with meter("stream: a restart", size, of):
        reader_of(logs).partitions(before, end)
    meter.note_figure("stream: its offset", len(json.dumps(end)), "bytes", size, of)
    meter.note_figure("stream: the pickled tasks", sum(len(pickle.dumps(each)) for each in tasks), "bytes", size, of)
