"""Rows of what is in a log, or in one file of it: records, batches, and the entries of indexes, snapshots, checkpoints.

A row is a dict whose names are those of the JSON that is printed; keys and values stay bytes. What a format does not
have is -1, as in Kafka; what a header does not say, or no marker has, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.cli import render
from sparklog.cli.paths import LogFolder
from sparklog.errors import CorruptLogError, InvalidOptionError, OffsetOutOfRangeError
from sparklog.inspect.describe import describe_partition
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs, parse_offset_checkpoint, parse_topic_id
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY, read_entries
from sparklog.log.layout import PartitionLayout, list_segments, read_layout
from sparklog.log.producer_state import parse_snapshot
from sparklog.log.reader import FILE_COLUMN, IsolationLevel, LogReader
from sparklog.log.segment import RELATIVE_OFFSET_MAX, OffsetPosition, Segment, Window
from sparklog.record import v2
from sparklog.record.compression import codec_name
from sparklog.record.decode import decode_batches
from sparklog.record.framing import is_intact
from sparklog.record.schema import OFFSET_MAX
from sparklog.storage.base import Storage
from sparklog.storage.registry import locate

RowDict = dict[str, Any]

TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
CONTROL_TYPES: Final = {
    v2.ABORT: "ABORT",
    v2.COMMIT: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_PASSING_SUFFIXES: Final = (files.DELETED, files.CLEANED, files.SWAP)
_METADATA_SNAPSHOT: Final = ".checkpoint"
_LOGS_TOLD_MAX: Final = 5
_RECORD_COLUMNS: Final = (
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "is_transactional",
    "compression",
    "magic",
    "base_offset",
    FILE_COLUMN,
    "position",
)


@dataclass(frozen=True)
class Span:
    """Which records or batches are wanted: from an offset or a time on, to before an offset.

    Attributes
    ----------
    start_offset, end_offset, start_time : int or None
        The time in ms; not both of the starts.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_time: int | None = None
    isolation_level: IsolationLevel = "read_uncommitted"

    def bounds(self, log: LogReader, layout: PartitionLayout) -> tuple[int, int]:
        """Return the first offset and the one after the last, as far as the log has them."""
        start = log.start_offset if self.start_offset is None else self.start_offset
        if self.start_time is not None:
            found = log.offset_for_time(self.start_time)
            start = layout.end_offset if found is None else found
        start = min(max(start, log.start_offset), layout.end_offset)
        end = layout.end_offset if self.end_offset is None else self.end_offset
        return start, min(max(end, start), layout.end_offset)


@dataclass(frozen=True)
class Source:
    """A log to dump, and what its rows are said to be of."""

    layout: PartitionLayout
    topic: str
    partition: int | None


@dataclass(frozen=True)
class _FileSegment(Segment):
    """A segment of which there is one file, whatever its name."""

    file_path: str = ""

    def path(self, suffix: str = files.LOG) -> str:
        return self.file_path if suffix == files.LOG else super().path(suffix)


def log_of_folder(folder: LogFolder) -> Source:
    """Take a partition's folder; where the end of its log is damaged, all that comes before the damage."""
    try:
        layout = read_layout(folder.path)
    except CorruptLogError:
        storage = locate(folder.path).storage
        layout = _unbounded(storage, folder.path, list_segments(storage, folder.path))
    return Source(layout, folder.topic, folder.partition)


def log_of_file(path: str) -> Source:
    """Take one file of batches: a segment's, or a snapshot of the cluster's metadata."""
    located = locate(path)
    folder, _, name = located.path.rpartition("/")
    found = files.parse_offset_file(name)
    base_offset = found.offset if found else 0
    with located.storage.open(located.path) as file:
        size_bytes = file.size_bytes()
    segment = _FileSegment(
        storage=located.storage,
        folder=folder,
        base_offset=base_offset,
        upper_offset=min(base_offset + RELATIVE_OFFSET_MAX + 1, OFFSET_MAX),
        size_bytes=size_bytes,
        is_last=True,
        file_path=located.path,
    )
    of_folder = LogFolder(folder)
    return Source(_unbounded(located.storage, folder, (segment,)), of_folder.topic, of_folder.partition)


def _unbounded(storage: Storage, folder: str, segments: tuple[Segment, ...]) -> PartitionLayout:
    """Make the layout of segments whose end is not known, or known not to be found."""
    last = segments[-1]
    try:
        with last.open() as log:
            end = log.end()
    except CorruptLogError:
        end = OffsetPosition(last.size_bytes, last.upper_offset)
    return PartitionLayout(storage, folder, None, segments, segments[0].base_offset, end)


def refuse_outside(sources: Sequence[Source], span: Span) -> None:
    """Raise unless one of the logs reaches to where the rows are to begin.

    Raises
    ------
    OffsetOutOfRangeError
        It says what the logs hold.
    """
    if not any(_reaches(source, span) for source in sources):
        where = f"--offset {span.start_offset}"
        if span.start_time is not None:
            where = f"--time {render.time_text(span.start_time)} ({span.start_time} ms)"
        raise OffsetOutOfRangeError(f"{where} is behind the end of every log: {held(sources)}")


def _reaches(source: Source, span: Span) -> bool:
    if span.start_time is None:
        return span.start_offset is None or span.start_offset <= source.layout.end_offset
    with LogReader(source.layout) as log:
        try:
            return log.offset_for_time(span.start_time) is not None
        except CorruptLogError:
            # The damage is told where the rows come to it.
            return True


def held(sources: Sequence[Source]) -> str:
    """Say which offsets some logs have, and up to which times."""
    told = [_held(source) for source in sources[:_LOGS_TOLD_MAX]]
    more = len(sources) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def _held(source: Source) -> str:
    layout = source.layout
    name = source.topic if source.partition is None else f"{source.topic}-{source.partition}"
    if layout.start_offset >= layout.end_offset:
        return f"{name} has no record, and its next offset is {layout.end_offset}"
    offsets = f"{name} has offsets {layout.start_offset} to {layout.end_offset - 1}"
    if isinstance(layout.segments[-1], _FileSegment):
        return offsets
    latest = describe_partition(layout.path).seen.max_timestamp
    return offsets if latest is None else f"{offsets}, with times up to {render.time_text(latest)} ({latest} ms)"


def record_rows(source: Source, span: Span) -> Iterator[RowDict]:
    """Give the records that a consumer would be given, one row each."""
    with LogReader(source.layout) as log:
        for batch in _record_batches(log, *span.bounds(log, source.layout), span.isolation_level):
            at = batch.schema.get_field_index("timestamp")
            plain = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
            for row in plain.to_pylist():
                yield {
                    "topic": source.topic,
                    "partition": source.partition,
                    "offset": row["offset"],
                    "timestamp": row["timestamp"],
                    "timestamp_type": TIMESTAMP_TYPES[row["timestampType"]],
                    "key": row["key"],
                    "value": row["value"],
                    "headers": row["headers"] or [],
                    "leader_epoch": row["leader_epoch"],
                    "producer_id": row["producer_id"],
                    "producer_epoch": row["producer_epoch"],
                    "sequence": row["sequence"],
                    "is_transactional": row["is_transactional"],
                    "codec": row["compression"],
                    "magic": row["magic"],
                    "base_offset": row["base_offset"],
                    "file": row[FILE_COLUMN],
                    "position": row["position"],
                }


def _record_batches(log: LogReader, start: int, end: int, level: IsolationLevel) -> Iterator[pa.RecordBatch]:
    """Read records up to the end, or to the very batch that is damaged."""
    try:
        for batch in log.batches(start, end, _RECORD_COLUMNS, level):
            yield batch
            start = batch.column("offset")[-1].as_py() + 1
    except CorruptLogError as error:
        # What is decoded together with damage is not given: decode once more what stands before it.
        if error.offset is not None and start < error.offset:
            with suppress(CorruptLogError):
                yield from log.batches(start, error.offset, _RECORD_COLUMNS, level)
        raise


def batch_rows(source: Source, span: Span) -> Iterator[RowDict]:
    """Give every batch that has offsets of the span, control batches too, one row each; checksums are checked."""
    layout = source.layout
    start, end = span.bounds(LogReader(layout), layout)
    if start >= end:
        return
    for segment in layout.segments[layout.segment_of(start) :]:
        file_name = segment.path().rpartition("/")[2]
        with segment.open() as log:
            for window in log.windows(log.seek(start)):
                last_offsets = window.headers.column("last_offset")
                for row in np.flatnonzero(last_offsets >= start).tolist():
                    batch = _batch_row(window, row)
                    if (last_offsets[row] if batch["base_offset"] is None else batch["base_offset"]) >= end:
                        return
                    yield {"topic": source.topic, "partition": source.partition, "file": file_name} | batch


def _batch_row(window: Window, row: int) -> RowDict:
    headers = window.headers[row : row + 1]
    batch = dict(zip(headers.table.dtype.names or (), headers.table[0].tolist(), strict=True))
    base_offset, record_count = batch["base_offset"], batch["record_count"]
    if record_count < 0:
        base_offset, record_count = _wrapped(window, row)
    base_sequence, delta = batch["base_sequence"], batch["last_offset"] - batch["base_offset"]
    horizon = batch["base_timestamp"] if batch["magic"] == 2 and batch["attributes"] & v2.DELETE_HORIZON else None
    control_type, coordinator_epoch = _marker(window, row) if headers.is_control[0] else (None, None)
    return {
        "position": batch["position"],
        "base_offset": base_offset,
        "last_offset": batch["last_offset"],
        "record_count": record_count,
        "size_bytes": batch["batch_bytes"],
        "magic": batch["magic"],
        "codec": codec_name(int(headers.codec_ids[0])),
        "crc": batch["crc"],
        "is_valid": is_intact(window.batch(row)),
        "timestamp_type": TIMESTAMP_TYPES[int(headers.timestamp_types[0])],
        "max_timestamp": batch["max_timestamp"],
        "leader_epoch": batch["leader_epoch"],
        "producer_id": batch["producer_id"],
        "producer_epoch": batch["producer_epoch"],
        "base_sequence": base_sequence,
        "last_sequence": -1 if base_sequence < 0 else (base_sequence + delta) & v2.SEQUENCE_MAX,
        "is_transactional": bool(headers.is_transactional[0]),
        "is_control": bool(headers.is_control[0]),
        "control_type": control_type,
        "coordinator_epoch": coordinator_epoch,
        "delete_horizon_ms": horizon,
    }


def _wrapped(window: Window, row: int) -> tuple[int | None, int | None]:
    """Return the offset of the first message in a compressed wrapper and how many there are; its header says neither.

    They are None where the wrapper is damaged.
    """
    try:
        batches = list(decode_batches(window.buffer, window.headers[row : row + 1], columns=("offset",)))
    except CorruptLogError:
        return None, None
    count = sum(batch.num_rows for batch in batches)
    return (batches[0].column("offset")[0].as_py() if count else None), count


def _marker(window: Window, row: int) -> tuple[str | None, int | None]:
    """Return what kind of control batch one is, and for the end of a transaction the coordinator's epoch."""
    kind = v2.control_type(window.batch(row))
    if kind is None:
        return None, None
    name = CONTROL_TYPES.get(kind, f"UNKNOWN_{kind}")
    if kind not in (v2.ABORT, v2.COMMIT):
        return name, None
    try:
        batches = list(decode_batches(window.buffer, window.headers[row : row + 1], columns=("value",)))
    except CorruptLogError:
        return name, None
    value = batches[0].column("value")[0].as_py() if batches else None
    return name, int.from_bytes(value[2:6], "big", signed=True) if value and len(value) >= 6 else None


def _index_rows(path: str, layout: np.dtype[Any], base_offset: int) -> Iterator[RowDict]:
    with locate(path).storage.open(path) as index:
        entries = read_entries(index, layout)
    names = layout.names or ()
    for entry in entries:
        row = dict(zip(names, entry.tolist(), strict=True))
        if "relative_offset" in row:
            row = {"offset": base_offset + row.pop("relative_offset")} | row
        yield row


def _snapshot_rows(data: bytes, path: str) -> Iterator[RowDict]:
    entries = parse_snapshot(data, path)
    for entry in entries:
        row = dict(zip(entries.dtype.names or (), entry.tolist(), strict=True))
        yield row | {"current_txn_first_offset": row.pop("first_offset")}


def _leader_epoch_rows(data: bytes, path: str) -> Iterator[RowDict]:
    for epoch, start_offset in parse_leader_epochs(data, path):
        yield {"epoch": epoch, "start_offset": start_offset}


def _offset_rows(data: bytes, path: str) -> Iterator[RowDict]:
    for (topic, partition), offset in parse_offset_checkpoint(data, path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _topic_id_rows(data: bytes, path: str) -> Iterator[RowDict]:
    yield {"topic_id": parse_topic_id(data, path)}


_INDEXES: Final = {
    files.OFFSET_INDEX: OFFSET_ENTRY,
    files.TIME_INDEX: TIME_ENTRY,
    files.TRANSACTION_INDEX: TRANSACTION_ENTRY,
}
_SMALL_FILES: Final[dict[str, Callable[[bytes, str], Iterator[RowDict]]]] = {
    files.LEADER_EPOCH_CHECKPOINT: _leader_epoch_rows,
    files.PARTITION_METADATA: _topic_id_rows,
    files.LOG_START_CHECKPOINT: _offset_rows,
    files.RECOVERY_POINT_CHECKPOINT: _offset_rows,
    files.HIGH_WATERMARK_CHECKPOINT: _offset_rows,
    files.CLEANER_CHECKPOINT: _offset_rows,
}


def file_rows(path: str) -> Iterator[RowDict] | None:
    """Give the entries of a file that is no log, or None where it is one.

    Raises
    ------
    InvalidOptionError
        Its name is not that of a file that Kafka writes.
    """
    located = locate(path)
    name = located.path.rpartition("/")[2]
    for suffix in _PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    suffix = name[name.rfind(".") :] if "." in name else ""
    small = _SMALL_FILES.get(name, _snapshot_rows if suffix == files.SNAPSHOT else None)
    if small is not None:
        return small(located.storage.read_small(located.path) or b"", located.path)
    if suffix in _INDEXES:
        found = files.parse_offset_file(name)
        if found is None:
            raise InvalidOptionError(f"the name of an index is the base offset of its segment, and {path} has none")
        return _index_rows(located.path, _INDEXES[suffix], found.offset)
    if suffix in (files.LOG, _METADATA_SNAPSHOT):
        return None
    known = ", ".join([files.LOG, *_INDEXES, files.SNAPSHOT, *_SMALL_FILES])
    raise InvalidOptionError(f"cannot dump {path}: what can be dumped is {known}")
