"""Verifies every batch of one segment, and finds what is wrong with the bytes that are no sound batch.

Damage is a value here, a `Finding`, and never ends the scan, which goes on at the next whole batch, at whatever byte.
Batches whose checksum or content is wrong are passed on too, and marked, so that an index is not blamed for the damage
of its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np

from sparklog.errors import CorruptBatchError, CorruptLogError, SeglogError
from sparklog.log.damage import Damage, DamageKind, DamageScanner
from sparklog.log.layout import DirectoryView
from sparklog.log.segment import OffsetPosition, Segment, Window, WindowScan
from sparklog.record.decode.columns import decode_batches
from sparklog.record.format.arrays import numbers_of
from sparklog.record.format.headers import BatchHeaders
from sparklog.storage.base import ReadableFile

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Records = tuple[Numbers, Numbers, Numbers]

TORN_TAIL: Final = "torn-tail"

_COLUMNS: Final = ("key", "offset", "timestamp", "position")


class Severity(StrEnum):
    """How bad a finding is.

    An error is wrong data, or data in a wrong order; a warning, something that a broker would fail on or put right; a
    note, something that is good to know.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or good to know.

    Attributes
    ----------
    severity : Severity
    code : str
        The kind of finding, stable, such as ``batch-checksum``.
    path : str
        The file or folder.
    position : int or None
        In the file, bytes.
    offset : int or None
        The offset of the batch there, or the one that is expected there.
    message : str
    """

    severity: Severity
    code: str
    path: str
    message: str
    position: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Progress:
    """The number of bytes that were verified since the last report."""

    path: str
    checked_bytes: int


@dataclass(frozen=True)
class CheckedBatches:
    """Batches one behind the other, and whether the checksum and records of each are right: shape (n_batches,)."""

    window: Window
    is_sound: Flags

    @property
    def headers(self) -> BatchHeaders:
        return self.window.headers

    @property
    def sound(self) -> BatchHeaders:
        return self.window.headers.where(self.is_sound)


def unreadable(error: SeglogError, path: str) -> Finding:
    """Make a finding of the error because of which a file, or something in it, could not be read."""
    if isinstance(error, CorruptLogError):
        code = "corrupt-file"
        return Finding(Severity.ERROR, code, error.path or path, error.reason, error.position, error.offset)
    return Finding(Severity.ERROR, "unreadable", path, error.message)


def scan_segment(segment: Segment) -> Iterator[Finding | CheckedBatches | Progress]:
    """Check every batch and every record of a segment.

    Yields
    ------
    Finding or CheckedBatches or Progress
        The batches come in the order of the file; where some do not begin where those before them ended, a finding has
        described the bytes between them. Their bytes are valid until the next batches are asked for.

    Raises
    ------
    SeglogError
        The file cannot be opened or read.
    """
    with segment.storage.open(segment.path()) as file:
        yield from _SegmentScan(segment, file).run()


class _SegmentScan:
    """The state of a scan: the boundary that it has come to, and the batches before it whose sizes are in doubt.

    ``_boundary.offset`` is the one after the last sound batch. ``_doubtful_position`` is where the batches begin that
    stand directly before ``_boundary`` and are all damaged: where no batch follows them, a wrong size may be the cause.
    """

    def __init__(self, segment: Segment, file: ReadableFile) -> None:
        self._segment = segment
        self._file = file
        self._path = segment.path()
        self._boundary = OffsetPosition(0, segment.base_offset)
        self._doubtful_position: int | None = None
        self._damage_scanner = DamageScanner(file, is_last=segment.is_last, upper_offset=segment.reach)

    def run(self) -> Iterator[Finding | CheckedBatches | Progress]:
        reported_position, size_bytes = 0, 0
        next_position: int | None = 0
        while next_position is not None:
            self._boundary, self._doubtful_position = OffsetPosition(next_position, self._boundary.offset), None
            scan = WindowScan(self._file, next_position)
            for window in scan:
                yield from self._batches(window)
                if scan.position > reported_position:
                    yield Progress(self._path, scan.position - reported_position)
                    reported_position = scan.position
            size_bytes = scan.size_bytes
            if scan.fault is None and scan.position >= size_bytes:
                return
            damage = self._damage_scanner.judge(
                scan.position,
                self._boundary.offset,
                size_bytes,
                scan.fault,
                what=scan.what,
                doubtful_position=self._doubtful_position,
            )
            yield self._tail(damage) if damage.is_log_end else self._damaged(damage)
            next_position = damage.next_position
        yield Progress(self._path, max(size_bytes - reported_position, 0))

    def _batches(self, window: Window) -> Iterator[Finding | CheckedBatches]:
        """Check the batches of a window, and go past them."""
        records, errors = _decoded(window)
        headers = window.headers
        is_sound = np.ones(len(headers), dtype=bool)
        for row, error in errors.items():
            is_sound[row] = False
            batch = headers.table[row]
            yield self._error("corrupt-batch", error.reason, int(batch["position"]), int(batch["base_offset"]))
        sound = headers.where(is_sound)
        if len(sound):
            yield from self._offsets(sound)
            yield from self._records(sound, records)
        yield CheckedBatches(window, is_sound)
        in_range = sound.column("last_offset") < self._segment.reach
        offsets = sound.column("last_offset")[in_range]
        next_offset = int(offsets[-1]) + 1 if len(offsets) else self._boundary.offset
        self._boundary = OffsetPosition(headers.origin + headers.valid_bytes, next_offset)
        if is_sound[-1]:
            self._doubtful_position = None
        elif is_sound.any() or self._doubtful_position is None:
            self._doubtful_position = int(headers.column("position")[np.flatnonzero(np.append(True, is_sound))[-1]])

    def _offsets(self, sound: BatchHeaders) -> Iterator[Finding]:
        """Check that offsets ascend from batch to batch, and are this segment's."""
        beyond = sound.column("last_offset") >= self._segment.reach
        if beyond.any():
            batch = sound.table[int(np.argmax(beyond))]
            message = f"offsets up to {batch['last_offset']} in a segment that ends before {self._segment.reach}"
            more = _and_more(int(beyond.sum()), "batches")
            yield self._error("offset-range", message + more, int(batch["position"]), int(batch["base_offset"]))
        held = sound.where(~beyond)
        previous = np.concatenate([[self._boundary.offset - 1], held.column("last_offset")[:-1]])
        for row in np.flatnonzero(held.column("base_offset") <= previous[: len(held)]).tolist():
            batch = held.table[row]
            message = (
                f"a batch of offsets {batch['base_offset']} to {batch['last_offset']} is out of order: "
                f"expected {previous[row] + 1} or above"
            )
            yield self._error("offset-order", message, int(batch["position"]), int(previous[row]) + 1)

    def _records(self, sound: BatchHeaders, records: Records) -> Iterator[Finding]:
        """Check what headers say of their records: where the offsets begin, and the largest timestamp."""
        positions, offsets, timestamps = records
        if not len(positions):
            return
        starts = np.flatnonzero(np.append(True, positions[1:] != positions[:-1]))
        rows = np.searchsorted(sound.column("position"), positions[starts])
        yield from self._record_offsets(sound, rows, offsets[starts], offsets[np.append(starts[1:], len(offsets)) - 1])
        latest = np.maximum.reduceat(timestamps, starts)
        late = (latest > sound.column("max_timestamp")[rows]) & (sound.column("magic")[rows] > 0)
        if late.any():
            at = int(np.argmax(late))
            batch = sound.table[rows[at]]
            message = (
                f"a record is of {latest[at]} ms, later than the {batch['max_timestamp']} ms that its batch says: "
                f"looking up a time may pass over it{_and_more(int(late.sum()), 'batches')}"
            )
            place = int(batch["position"]), int(batch["base_offset"])
            yield Finding(Severity.WARNING, "batch-timestamp", self._path, message, *place)

    def _record_offsets(self, sound: BatchHeaders, rows: Numbers, firsts: Numbers, ends: Numbers) -> Iterator[Finding]:
        """Check the first and last offsets of the batches that hold records against each other and their headers.

        Findings about the headers alone have been made before. A wrapper of magic 0 or 1 does not say in its header
        where its offsets begin, and a batch may hold offsets above the last one in its header.
        """
        lasts = sound.column("last_offset").copy()
        in_order = sound.column("base_offset") > np.concatenate([[self._boundary.offset - 1], lasts[:-1]])
        for at in np.flatnonzero((ends > lasts[rows]) & (sound.column("magic")[rows] == 2)).tolist():
            batch = sound.table[rows[at]]
            message = (
                f"a record has offset {ends[at]}, above the last offset {batch['last_offset']} that its batch says: "
                f"reading from {batch['last_offset'] + 1} on passes over it"
            )
            place = int(batch["position"]), int(batch["base_offset"])
            yield Finding(Severity.WARNING, "batch-offset", self._path, message, *place)
        lasts[rows] = np.maximum(lasts[rows], ends)
        previous = np.concatenate([[self._boundary.offset - 1], lasts[:-1]])
        for at in np.flatnonzero(in_order[rows] & (firsts <= previous[rows])).tolist():
            batch, first = sound.table[rows[at]], int(firsts[at])
            message = f"the first record of a batch has offset {first}, which is in the batch before it"
            yield self._error("offset-order", message, int(batch["position"]), first)

    def _damaged(self, damage: Damage) -> Finding:
        """Make the finding of bytes that are no sound batch."""
        code = "corrupt-batch" if damage.what is DamageKind.WRONG_CHECKSUM else "not-a-batch"
        following = damage.next_position
        if following is None:
            given_up = "; the search for one was given up" if damage.is_search_given_up else ""
            message = f"{damage.reason}, and no whole batch follows: {damage.length_bytes:,} bytes are lost{given_up}"
        elif damage.position == self._doubtful_position:
            message = f"{damage.reason}, at position {following}"
        else:
            message = (
                f"{damage.reason}; the next whole batch begins at position {following}, "
                f"{damage.length_bytes:,} bytes on"
            )
        return self._error(code, message, damage.position, damage.expected_offset)

    def _tail(self, damage: Damage) -> Finding:
        """Make the finding of a log that does not end with a whole batch: a note, unless no crash can have left it."""
        position, offset, rest = damage.position, damage.expected_offset, f"{damage.length_bytes:,} bytes"
        if damage.what is DamageKind.ZEROS:
            code, message = "zero-tail", f"{rest} of zeros, preallocated: the log ends at offset {offset}"
        else:
            code = TORN_TAIL
            message = f"the last batch is cut short: {rest} are the torn end of the log, which ends at offset {offset}"
        if offset >= DirectoryView(self._segment.folder.directory).synced_offset(self._segment.folder):
            return Finding(Severity.NOTE, code, self._path, message, position, offset)
        synced = "all of it was on the disk when its writer last said so, by a clean shutdown or the recovery point"
        return self._error(code, f"{message}; but {synced}: records may be lost", position, offset)

    def _error(self, code: str, message: str, position: int, offset: int) -> Finding:
        return Finding(Severity.ERROR, code, self._path, message, position, offset)


def _decoded(window: Window) -> tuple[Records, dict[int, CorruptBatchError]]:
    """Decode every record: its batch's position, its offset and its timestamp; and the errors, by the batch's row."""
    headers = window.headers
    errors: dict[int, CorruptBatchError] = {}
    try:
        pieces = _pieces(window, headers)
    except CorruptBatchError:
        pieces = []
        for row in range(len(headers)):
            try:
                pieces += _pieces(window, headers[row : row + 1])
            except CorruptBatchError as error:
                errors[row] = error
    none = np.empty(0, dtype=np.int64)
    positions, offsets, timestamps = (np.concatenate([none, *(piece[n] for piece in pieces)]) for n in range(3))
    return (positions, offsets, timestamps), errors


def _pieces(window: Window, headers: BatchHeaders) -> list[Records]:
    return [
        (
            numbers_of(batch.column("position")),
            numbers_of(batch.column("offset")),
            numbers_of(batch.column("timestamp")),
        )
        for batch in decode_batches(window.buffer, headers, columns=_COLUMNS)
    ]


def _and_more(count: int, what: str) -> str:
    return f" ({count} {what} in all)" if count > 1 else ""
