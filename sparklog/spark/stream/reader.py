"""The reader of a stream: its position, how many new offsets a trigger reads, and the tasks of a batch.

Spark keeps one instance in a process beside the driver for as long as a query runs, and others in its tasks. The reader
keeps its knowledge of the logs from trigger to trigger; offsets are in `sparklog.topic.streams.offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.files import TopicPartition
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.decoding import ReadColumns
from sparklog.spark.read.plan import check_quarantine, select
from sparklog.spark.stream.plan import (
    LogByPartition,
    begins,
    first_offsets,
    is_too_little,
    plan_between,
    within_bytes,
    within_offsets,
)
from sparklog.spark.worker.boundary import plain_errors
from sparklog.spark.worker.garbage_collection import first_use_freezes
from sparklog.spark.worker.process import LoadedByWorkers
from sparklog.storage.looks import one_look
from sparklog.topic.places.live import LiveLog, LiveLogs
from sparklog.topic.places.ranges import ReadRange, log_bytes
from sparklog.topic.streams.offsets import INITIAL, Identities, StreamOffset

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("sparklog")

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        # Before 4.2 Spark passes a source no read limit, and does not tell it that the trigger is AvailableNow.
        SupportsTriggerAvailableNow = None
_BASES: Final = () if SupportsTriggerAvailableNow is None else (SupportsTriggerAvailableNow,)


class SeglogStreamReader(LoadedByWorkers, DataSourceStreamReader, *_BASES):  # type: ignore[misc]
    """Reads partition logs as a stream.

    Parameters
    ----------
    options : SeglogOptions
        The options of the stream.
    schema : StructType
        The columns, checked.
    columns : ReadColumns
        The types and decoders of the columns.
    """

    def __init__(self, options: SeglogOptions, schema: StructType, columns: ReadColumns) -> None:
        if options.has_limits and not _BASES:
            raise InvalidOptionError("maxOffsetsPerTrigger and its kin need PySpark 4.2 or newer")
        self._options, self._schema, self._columns = options, schema, columns
        is_committed = options.isolation_level == "read_committed"
        self._live = LiveLogs(is_committed=is_committed, on_damage=options.on_damage)
        self._identities = Identities()
        self._logs: LogByPartition | None = None
        self._first: dict[TopicPartition, int] | None = None
        self._last: StreamOffset | None = None
        self._is_available_now = False
        self._available: dict[TopicPartition, int] | None = None
        self._triggered_ms = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        """Return a placeholder for the beginning; the first offset has the real one."""
        return INITIAL

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return a limit if the options have one. Spark hands it back, or no limit for a trigger that reads all."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadMaxRows(1) if self._options.has_limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query read up to the present ends of the logs, and then stop."""
        self._is_available_now = True

    @plain_errors()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; ``start`` if there is nothing to read."""
        logs = self._look()
        before = self._before(start, logs)
        begin = begins(before, logs, self._identities)
        latest = self._latest(logs)
        if not self._options.policy.is_fail:
            latest = {at: _not_before(before.offsets.get(at), offset, logs.get(at)) for at, offset in latest.items()}
        is_limited = type(limit).__name__ != "ReadAllAvailable"
        is_first = start is None or start == INITIAL
        if is_limited and self._waits(before, latest) and start is not None:
            return start
        end = self._admitted(begin, latest) if is_limited else latest
        topic_ids = {at.topic: log.topic_id for at, log in logs.items() if at in end and log.topic_id is not None}
        end_batches = self._identities.end_batches(end, before, logs)
        log_ids = {at: log.log_id for at, log in logs.items() if at in end and not (log.topic_id or log.log_id is None)}
        self._last = StreamOffset(end, topic_ids, self._first if is_first else None, end_batches, log_ids)
        if start is not None and not is_first and self._last == replace(before, first=None):
            return start
        return self._last.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the logs ended at the last look, for the query's progress."""
        return None if self._logs is None else _offset_of(self._logs).to_json()

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the batch between two offsets. For a repeated batch Spark does not call `latestOffset` before."""
        logs = self._look() if self._logs is None else self._logs
        until = StreamOffset.parse(end)
        since = StreamOffset(until.first or {}, until.topic_ids) if start == INITIAL else StreamOffset.parse(start)
        if self._available is not None:
            _check_available(self._available, until, logs)
        return [
            InputPartition(planned) for planned in plan_between(self._options, logs, since, until, self._identities)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task, one after the other."""
        if partition is None or partition.value is None:
            return
        from sparklog.spark.read.batches import read_ahead, read_ranges

        with plain_errors(), first_use_freezes():
            yield from read_ahead(read_ranges(partition.value, self._options, self._schema, self._columns))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the reader keeps nothing about batches that were read."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""

    def _look(self) -> LogByPartition:
        with one_look():
            self._logs = self._live.look(select(self._options, may_come_later=True))
        check_quarantine(self._options, {at: log.layout for at, log in self._logs.items()})
        return self._logs

    def _before(self, start: dict[str, Any] | None, logs: LogByPartition) -> StreamOffset:
        """Return the position of the stream; for a new stream it is decided once."""
        if start is not None and start != INITIAL:
            return StreamOffset.parse(start)
        if start is None and self._last is not None:
            return self._last
        if self._first is None:
            self._first = first_offsets(self._options, logs)
        return StreamOffset(self._first)

    def _latest(self, logs: LogByPartition) -> dict[TopicPartition, int]:
        latest = {at: log.latest for at, log in logs.items()}
        if not self._is_available_now:
            return latest
        if self._available is None:
            self._available = latest
        return self._available

    def _waits(self, before: StreamOffset, latest: dict[TopicPartition, int]) -> bool:
        """Return whether there is too little to read yet; AvailableNow does not wait for more."""
        options, now_ms = self._options, wall_clock_ms()
        least = options.min_offsets_per_trigger
        if least is not None and not self._is_available_now:
            is_early = now_ms - self._triggered_ms < options.max_trigger_delay_ms
            if is_early and is_too_little(before.offsets, latest, least):
                return True
        self._triggered_ms = now_ms
        return False

    def _admitted(
        self, begin: Mapping[TopicPartition, int], latest: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return where the batch ends under the limits."""
        options = self._options
        begin = {at: begin.get(at, offset) for at, offset in latest.items()}
        if options.max_offsets_per_trigger is not None:
            latest = within_offsets(begin, latest, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            logs = self._logs or {}

            def size_bytes(at: TopicPartition) -> int:
                layout = logs[at].layout
                return log_bytes(ReadRange(layout.folder, begin[at], latest[at], latest[at]), layout)

            latest = within_bytes(begin, latest, options.max_bytes_per_trigger, size_bytes)
        return latest


def _not_before(read: int | None, latest: int, log: LiveLog | None) -> int:
    """Return where a log ends, or where the stream is if records that it has read are damaged since."""
    return latest if read is None or log is None or not log.layout.has_bytes_after_end else max(read, latest)


def _offset_of(logs: LogByPartition) -> StreamOffset:
    return StreamOffset({at: log.latest for at, log in logs.items()})


def _check_available(available: Mapping[TopicPartition, int], end: StreamOffset, logs: LogByPartition) -> None:
    """Check that the logs still have the partitions and offsets that AvailableNow found at its start.

    Raises
    ------
    DataLossError
        The batch has another partition or later offsets than AvailableNow found, or a log is gone or shorter.
    """
    for at, offset in end.offsets.items():
        if at not in available or offset > available[at]:
            raise DataLossError(
                f"{at} is to be read up to offset {offset}, and AvailableNow began with "
                f"{available.get(at, 'no such partition')}: start the query again"
            )
        if at not in logs:
            raise DataLossError(f"{at} is gone since AvailableNow began: start the query again")
        if offset > logs[at].layout.end_offset:
            raise DataLossError(
                f"{at} ends at offset {logs[at].layout.end_offset}, and ended at {available[at]} when AvailableNow "
                f"began: start the query again"
            )
