"""Reads snapshots of a cluster's metadata, which replace the records of the metadata log before an offset.

A snapshot is ``<end offset>-<leader epoch>.checkpoint``, in 20 and 10 digits, beside the segments. The end offset is
exclusive: the snapshot and the log from there on make the state. It holds batches like a segment, with offsets that
begin at 0: a control batch with the snapshot's header, batches of records, and a control batch with its footer. A
snapshot without its footer was not written to its end. While it is being written its name ends with ``.part``.

Source: apache/kafka, Snapshots.java, RecordsSnapshotWriter.java; KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sparklog.errors import CorruptBatchError, CorruptLogError
from sparklog.log import files
from sparklog.log.layout import PartitionLayout
from sparklog.log.places import PartitionFolder
from sparklog.log.scans.of_range import refuse_damaged_window, scan_range
from sparklog.log.segment import Segment
from sparklog.log.windows import Window
from sparklog.record.decode.columns import decode_batches
from sparklog.record.format import v2
from sparklog.record.format.v2 import OFFSET_MAX

_FOOTER: Final = 4


@dataclass(frozen=True)
class MetadataSnapshot:
    """A snapshot that has its footer.

    Attributes
    ----------
    end_offset : int
        The first offset of the log that it does not replace.
    epoch : int
        The leader epoch of the record before that offset.
    """

    end_offset: int
    epoch: int
    _file: Segment

    @property
    def path(self) -> str:
        return self._file.path()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its records, without control batches.

        Raises
        ------
        CorruptBatchError
            A batch is damaged.
        """
        for window in _windows(self._file):
            data = Window(window.buffer, window.headers.where(~window.headers.is_control))
            yield from _decoded(self._file, data, columns)

    def control_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of its control batches; for errors see `batches`."""
        for window in _windows(self._file):
            yield from _control_records(self._file, window, columns)


def newest_snapshot(folder: PartitionFolder) -> MetadataSnapshot | None:
    """Return the newest whole snapshot in a folder, or None.

    Raises
    ------
    StorageError
        The folder cannot be listed.
    """
    found = []
    for entry in folder.storage.entries(folder.location):
        named = files.parse_metadata_snapshot(entry.name) if entry.is_file else None
        if named is not None:
            path = folder.file(entry.name)
            file = Segment(folder, 0, OFFSET_MAX, entry.size_bytes, is_last=False, log_path=path)
            found.append(MetadataSnapshot(*named, file))
    newest_first = sorted(found, key=lambda each: (each.end_offset, each.epoch), reverse=True)
    return next((each for each in newest_first if _is_whole(each._file)), None)


def control_batches(layout: PartitionLayout, start_offset: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a log's control batches from an offset on.

    Raises
    ------
    CorruptBatchError
        A control batch is damaged.
    """
    for segment, window in scan_range(layout, max(start_offset, layout.start_offset), layout.end_offset):
        yield from _control_records(segment, window, columns)


def _control_records(file: Segment, window: Window, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return _decoded(file, Window(window.buffer, window.headers.where(window.headers.is_control)), columns)


def _decoded(file: Segment, window: Window, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        yield from decode_batches(window.buffer, window.headers, columns=columns)
    except CorruptLogError as error:
        raise error.located(path=file.path()) from error


def _is_whole(file: Segment) -> bool:
    """Return whether a snapshot ends with its footer."""
    kind = None
    try:
        for window in _windows(file):
            last = window.headers[-1:]
            kind = v2.control_type(window.batch(len(window.headers) - 1)) if last.is_control[0] else None
    except CorruptBatchError:
        return False
    return kind == _FOOTER


def _windows(file: Segment) -> Iterator[Window]:
    """Yield the batches of a snapshot; the checksums of control batches are checked here."""
    with file.open() as opened:
        for window in opened.windows(opened.start):
            refuse_damaged_window(file, Window(window.buffer, window.headers.where(window.headers.is_control)))
            yield window
