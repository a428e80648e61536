"""Makes the rows of a dump: the records or batches of a log, or the entries of an index, snapshot or checkpoint.

A row is a dict with the names of the JSON that ``sparklog dump`` prints; keys and values stay bytes. A field that the
format lacks is -1, as in Kafka; one that the header or the marker does not hold is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptLogError, InvalidOptionError
from sparklog.inspect.dump_range import DumpedLog
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs, parse_offset_checkpoint, parse_topic_id
from sparklog.log.damage_rows import DamagePolicy, OnDamage
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY, read_entries
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import PartitionFolder, split_path
from sparklog.log.producer_state import parse_snapshot
from sparklog.log.reader import IsolationLevel, LogReader
from sparklog.log.reads.columns import FILE_COLUMN
from sparklog.log.segment import RELATIVE_OFFSET_MAX, OffsetPosition, Segment
from sparklog.log.segment_listing import list_segments
from sparklog.log.windows import Window
from sparklog.record.batches.framing import is_intact
from sparklog.record.codecs.table import codec_name
from sparklog.record.decode.columns import decode_batches
from sparklog.record.decode.where import Where
from sparklog.record.format import v2
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.registry import Location

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


def log_of_folder(folder: PartitionFolder, on_damage: OnDamage = "fail") -> DumpedLog:
    """Return the log in a folder; if its end is damaged, the part before the damage."""
    try:
        layout = read_layout(folder, on_damage)
    except CorruptLogError:
        layout = _unbounded(folder, list_segments(folder))
    return DumpedLog(layout, folder.topic, folder.partition)


def log_of_file(located: Location) -> DumpedLog:
    """Return one file of batches as a log: a segment's file, or a snapshot of the cluster's metadata."""
    parent, name = split_path(located.path)
    folder = PartitionFolder.at(located.storage, parent)
    found = files.parse_offset_file(name)
    base_offset = found.offset if found else 0
    with located.storage.open(located.path) as file:
        size_bytes = file.size_bytes()
    segment = Segment(
        folder=folder,
        base_offset=base_offset,
        upper_offset=min(base_offset + RELATIVE_OFFSET_MAX + 1, OFFSET_MAX),
        size_bytes=size_bytes,
        is_last=True,
        log_path=located.path,
    )
    return DumpedLog(_unbounded(folder, (segment,)), folder.topic, folder.partition, is_file=True)


def _unbounded(folder: PartitionFolder, segments: tuple[Segment, ...]) -> PartitionLayout:
    """Return the layout of segments whose end is not known yet, or is damaged."""
    last = segments[-1]
    try:
        with last.open() as log:
            end = log.end()
    except CorruptLogError:
        end = OffsetPosition(last.size_bytes, last.upper_offset)
    return PartitionLayout(folder, segments, segments[0].base_offset, end)


def record_batches(
    dumped: DumpedLog,
    start: int,
    end: int,
    level: IsolationLevel,
    where: Where | None = None,
    on_damage: OnDamage = "fail",
) -> Iterator[pa.RecordBatch]:
    """Yield the records that a consumer would get and that match ``where``, up to the end or to a damaged batch.

    If damage is skipped, they go on after it.

    They have the columns that `record_rows` takes.
    """
    with LogReader(dumped.layout, policy=DamagePolicy(on_damage)) as log:
        try:
            for batch in log.batches(start, end, _RECORD_COLUMNS, level, where=where):
                yield batch
                start = batch.column("offset")[-1].as_py() + 1
        except CorruptLogError as error:
            # Records decoded together with damage were not yielded: decode the ones before it again.
            if error.offset is not None and start < error.offset:
                with suppress(CorruptLogError):
                    yield from log.batches(start, error.offset, _RECORD_COLUMNS, level, where=where)
            raise


def record_rows(dumped: DumpedLog, batch: pa.RecordBatch) -> Iterator[RowDict]:
    """Yield a row for each record of a batch."""
    at = batch.schema.get_field_index("timestamp")
    plain = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    for row in plain.to_pylist():
        yield {
            "topic": dumped.topic,
            "partition": dumped.partition,
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


def batch_rows(dumped: DumpedLog, start: int, end: int) -> Iterator[RowDict]:
    """Yield a row for every batch with offsets in a range, control batches too; checksums are checked."""
    if start >= end:
        return
    for segment, window in dumped.windows(start, end):
        # The replicas' files have the same names.
        file = segment.path() if dumped.layout.copies else segment.file_name()
        last_offsets = window.headers.column("last_offset")
        for row in np.flatnonzero(last_offsets >= start).tolist():
            batch = _batch_row(window, row)
            if (last_offsets[row] if batch["base_offset"] is None else batch["base_offset"]) >= end:
                return
            yield {"topic": dumped.topic, "partition": dumped.partition, "file": file} | batch


def _batch_row(window: Window, row: int) -> RowDict:
    headers = window.headers[row : row + 1]
    batch = dict(zip(headers.table.dtype.names or (), headers.table[0].tolist(), strict=True))
    base_offset, record_count = batch["base_offset"], batch["record_count"]
    if record_count < 0:
        base_offset, record_count = _first_and_count(window, row)
    base_sequence, delta = batch["base_sequence"], batch["last_offset"] - batch["base_offset"]
    horizon = batch["base_timestamp"] if batch["magic"] == 2 and batch["attributes"] & v2.DELETE_HORIZON else None
    control_type, coordinator_epoch = _control(window.batch(row)) if headers.is_control[0] else (None, None)
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


def _first_and_count(window: Window, row: int) -> tuple[int | None, int | None]:
    """Return the first offset in a compressed wrapper and the number of its messages; its header has neither.

    Both are None if the wrapper is damaged.
    """
    try:
        batches = list(decode_batches(window.buffer, window.headers[row : row + 1], columns=("offset",)))
    except CorruptLogError:
        return None, None
    count = sum(batch.num_rows for batch in batches)
    return (batches[0].column("offset")[0].as_py() if count else None), count


def _control(batch: memoryview) -> tuple[str | None, int | None]:
    """Return the kind of a control batch, and the coordinator's epoch if the batch ends a transaction."""
    kind, marker = v2.control_type(batch), v2.end_marker(batch)
    name = None if kind is None else CONTROL_TYPES.get(kind, f"UNKNOWN_{kind}")
    return name, None if marker is None else marker.coordinator_epoch


def _index_rows(located: Location, layout: np.dtype[Any], base_offset: int) -> Iterator[RowDict]:
    with located.storage.open(located.path) as index:
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


def file_rows(located: Location) -> Iterator[RowDict] | None:
    """Return the rows of a file of entries; None if the file is a log.

    Raises
    ------
    InvalidOptionError
        Kafka writes no file with such a name.
    """
    storage, path = located
    _, name = split_path(path)
    for suffix in _PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    suffix = name[name.rfind(".") :] if "." in name else ""
    small = _SMALL_FILES.get(name, _snapshot_rows if suffix == files.SNAPSHOT else None)
    if small is not None:
        return small(storage.read_small(path) or b"", path)
    if suffix in _INDEXES:
        found = files.parse_offset_file(name)
        if found is None:
            raise InvalidOptionError(f"the name of an index is the base offset of its segment, and {path} has none")
        return _index_rows(located, _INDEXES[suffix], found.offset)
    if suffix in (files.LOG, files.METADATA_SNAPSHOT):
        return None
    known = ", ".join([files.LOG, *_INDEXES, files.SNAPSHOT, *_SMALL_FILES])
    raise InvalidOptionError(f"cannot dump {path}: only these can be dumped: {known}")
