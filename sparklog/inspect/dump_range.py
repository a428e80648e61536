"""Chooses the records or batches to dump, and finds where they begin and end in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import CorruptLogError
from sparklog.inspect.describe import describe_partition
from sparklog.log.damage_rows import DamagedStretch, DamagePolicy, OnDamage
from sparklog.log.layout import PartitionLayout
from sparklog.log.reader import IsolationLevel, LogReader
from sparklog.log.scans.of_range import scan_range
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.where import Where
from sparklog.record.format.arrays import numbers_of
from sparklog.record.format.streams import Int64s

_OFFSETS_LOOKED_AT_FIRST: Final = 1024


@dataclass(frozen=True)
class DumpRange:
    """The records or batches to dump: from an offset or a time on, or only the last ones, up to an offset.

    Attributes
    ----------
    start_offset, end_offset, start_time : int or None
        The end offset is exclusive, and the time is in ms.
    last : int or None
        The number of records or batches before the end. At most one of the three ways to begin is given.
    key : bytes or None
        The key of the records; None for any.
    where : Where or None
        The filter that the records match.
    on_damage : {"fail", "skip"}
        Whether damage ends the records, or is left out.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_time: int | None = None
    isolation_level: IsolationLevel = "read_uncommitted"
    last: int | None = None
    key: bytes | None = None
    where: Where | None = None
    on_damage: OnDamage = "fail"

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with the wanted key."""
        return batch if self.key is None else batch.filter(pc.equal(batch.column("key"), pa.scalar(self.key)))

    def _bounds(self, log: LogReader, layout: PartitionLayout) -> tuple[int, int]:
        start = log.start_offset if self.start_offset is None else self.start_offset
        if self.start_time is not None:
            found = log.offset_for_time(self.start_time)
            start = layout.end_offset if found is None else found
        start = min(max(start, log.start_offset), layout.end_offset)
        end = layout.end_offset if self.end_offset is None else self.end_offset
        return start, min(max(end, start), layout.end_offset)


@dataclass(frozen=True)
class DumpedLog:
    """A log to dump, and the topic and partition that its rows name.

    Attributes
    ----------
    topic : str
        The topic; the folder's name if it does not name a partition.
    partition : int or None
        The number of the partition; None if the folder's name has none.
    is_file : bool
        Whether the log is one file of batches, and not a partition's whole folder.
    """

    layout: PartitionLayout
    topic: str
    partition: int | None
    is_file: bool = False

    @property
    def name(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    def windows(self, start: int, end: int) -> Iterator[tuple[Segment, Window]]:
        """Yield the batches of a range of offsets, and others beside it; of a merged log, only sound ones."""
        layout = self.layout
        if layout.copies:
            yield from scan_range(layout, start, end)
            return
        for segment in layout.segments[layout.segment_of(start) :]:
            if segment.base_offset >= end:
                return
            with segment.open() as log:
                for window in log.windows(log.seek(start)):
                    yield segment, window

    def record_span(self, wanted: DumpRange) -> tuple[int, int]:
        """Return the first offset of the wanted records that the log has, and the offset after the last."""

        def offsets(start: int, end: int) -> Iterator[Int64s]:
            columns = ["offset"] if wanted.key is None else ["offset", "key"]
            given = (start, end, columns, wanted.isolation_level)
            parts: Iterator[pa.RecordBatch | DamagedStretch] = log.batches(*given, where=wanted.where)
            if wanted.on_damage != "fail":
                # The dump of the records warns of damage.
                parts = log.batches_and_damage(*given, where=wanted.where)
            for part in parts:
                if not isinstance(part, DamagedStretch):
                    yield numbers_of(wanted.matching(part).column("offset"))

        with LogReader(self.layout, policy=DamagePolicy(wanted.on_damage)) as log:
            start, end = wanted._bounds(log, self.layout)
            return _start_of_last(wanted.last, start, end, offsets), end

    def batch_span(self, wanted: DumpRange) -> tuple[int, int]:
        """Return the first offset of the wanted batches that the log has, and the offset after the last."""

        def offsets(lower: int, upper: int) -> Iterator[Int64s]:
            for _, window in self.windows(lower, upper):
                last_offsets = window.headers.column("last_offset")
                # A batch that holds the end of the range is its last.
                firsts = window.headers.column("base_offset") if upper == end else last_offsets
                yield np.minimum(last_offsets[(last_offsets >= lower) & (firsts < upper)], upper - 1)
                if (last_offsets >= upper).any():
                    return

        with LogReader(self.layout) as log:
            start, end = wanted._bounds(log, self.layout)
        return _start_of_last(wanted.last, start, end, offsets), end

    def reaches(self, wanted: DumpRange) -> bool:
        """Return whether the log reaches the offset or time at which the wanted rows begin."""
        if wanted.start_time is None:
            return wanted.start_offset is None or wanted.start_offset <= self.layout.end_offset
        with LogReader(self.layout) as log:
            try:
                return log.offset_for_time(wanted.start_time) is not None
            except CorruptLogError:
                # The dump itself will raise the error of that damage.
                return True

    def max_timestamp(self) -> int | None:
        """Return the largest timestamp (ms) that `describe_partition` finds; None for a file or a merged log."""
        return (
            None if self.is_file or self.layout.copies else describe_partition(self.layout.folder).stats.max_timestamp
        )


def _start_of_last(count: int | None, start: int, end: int, offsets: Callable[[int, int], Iterator[Int64s]]) -> int:
    """Return where the last ``count`` offsets begin: search backwards, each step twice as long as the one before."""
    if count is None or start >= end:
        return start
    step, upper = max(count, _OFFSETS_LOOKED_AT_FIRST), end
    while count > 0:
        if upper <= start:
            return start
        lower = max(start, upper - step)
        found = np.empty(0, np.int64)
        for each in offsets(lower, upper):
            found = np.concatenate([found, each])[-count:]
        if len(found) == count:
            return int(found[0])
        count, upper, step = count - len(found), lower, 2 * step
    return end
