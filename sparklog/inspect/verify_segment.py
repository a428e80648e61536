"""Every batch of one segment looked at: where the bytes are whole, and what is wrong where they are not.

Damage is a value here, a `Finding`, and never ends the walk: after it the next whole batch is looked for, byte by byte,
and the walk goes on from there. Batches whose checksum or content is wrong stay in the walk, told apart, so that an
index is not blamed for what the log has done.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptBatchError, CorruptLogError, SeglogError
from sparklog.log.damage import data_end, find_whole_batch, has_wrong_size, search_budget_bytes
from sparklog.log.layout import synced_offset
from sparklog.log.segment import RELATIVE_OFFSET_MAX, WINDOW_BYTES, OffsetPosition, Segment, Window
from sparklog.record.decode import decode_batches
from sparklog.record.framing import scan_headers
from sparklog.record.headers import BatchHeaders
from sparklog.storage.base import ReadableFile

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Records = tuple[Numbers, Numbers, Numbers]

TORN_TAIL: Final = "torn-tail"

_COLUMNS: Final = ("key", "offset", "timestamp", "position")


class Severity(StrEnum):
    """How bad a finding is: data or its order is wrong, something a broker would trip over or mend, or mere news."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """Something that was found wrong, or worth saying.

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
        Of the batch there, or the one expected there.
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
    """So many more bytes have been gone through."""

    path: str
    checked_bytes: int


@dataclass(frozen=True)
class CheckedBatches:
    """Batches one behind the other, and for each whether its checksum and its records are right: shape (n_batches,)."""

    window: Window
    is_sound: Flags

    @property
    def headers(self) -> BatchHeaders:
        return self.window.headers

    @property
    def sound(self) -> BatchHeaders:
        return self.window.headers.where(self.is_sound)


def unreadable(error: SeglogError, path: str) -> Finding:
    """Make a finding of an error that a file, or something in it, could not be read for."""
    if isinstance(error, CorruptLogError):
        code = "corrupt-file"
        return Finding(Severity.ERROR, code, error.path or path, error.reason, error.position, error.offset)
    return Finding(Severity.ERROR, "unreadable", path, error.message)


def walk_segment(segment: Segment) -> Iterator[Finding | CheckedBatches | Progress]:
    """Check every batch and every record of a segment.

    Yields
    ------
    Finding or CheckedBatches or Progress
        Stretches in the order of the file; where one does not begin where the last one ended, the bytes between are no
        batches, which a finding has told.

    Raises
    ------
    SeglogError
        The file cannot be opened or read.
    """
    with segment.storage.open(segment.path()) as file:
        yield from _Walk(segment, file).run()


class _Walk:
    """The state of a walk: where it is, and since where the sizes of batches are in doubt.

    ``_place.offset`` is the one after the last sound batch. ``_doubt`` is where the batches begin that stand before
    ``_place`` and are all damaged: where no batch follows them, a wrong size may be the cause.
    """

    def __init__(self, segment: Segment, file: ReadableFile) -> None:
        self._segment = segment
        self._file = file
        self._path = segment.path()
        self._place = OffsetPosition(0, segment.base_offset)
        self._doubt: int | None = None
        self._search_budget = search_budget_bytes(segment.size_bytes)

    def run(self) -> Iterator[Finding | CheckedBatches | Progress]:
        wanted_bytes, told_to = WINDOW_BYTES, 0
        while True:
            buffer = self._file.read(self._place.position, wanted_bytes)
            headers = scan_headers(buffer, self._place.position)
            if len(headers):
                yield from self._batches(Window(buffer, headers))
            position, size_bytes = self._place.position, self._file.size_bytes()
            if position > told_to:
                yield Progress(self._path, position - told_to)
                told_to = position
            if headers.fault is None:
                if position >= size_bytes:
                    return
                if len(buffer) == wanted_bytes and position + headers.next_batch_bytes <= size_bytes:
                    wanted_bytes = max(WINDOW_BYTES, headers.next_batch_bytes)
                    continue
            found = yield from self._resume(headers.fault, size_bytes)
            if found is None:
                yield Progress(self._path, max(size_bytes - told_to, 0))
                return
            self._place, self._doubt, wanted_bytes = OffsetPosition(found, self._place.offset), None, WINDOW_BYTES

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
        in_range = sound.column("last_offset") < self._segment.upper_offset
        offsets = sound.column("last_offset")[in_range]
        next_offset = int(offsets[-1]) + 1 if len(offsets) else self._place.offset
        self._place = OffsetPosition(headers.origin + headers.valid_bytes, next_offset)
        if is_sound[-1]:
            self._doubt = None
        elif is_sound.any() or self._doubt is None:
            self._doubt = int(headers.column("position")[np.flatnonzero(np.append(True, is_sound))[-1]])

    def _offsets(self, sound: BatchHeaders) -> Iterator[Finding]:
        """Check that offsets ascend from batch to batch, and are this segment's."""
        beyond = sound.column("last_offset") >= self._segment.upper_offset
        if beyond.any():
            batch = sound.table[int(np.argmax(beyond))]
            message = f"offsets up to {batch['last_offset']} in a segment that ends before {self._segment.upper_offset}"
            more = _and_more(int(beyond.sum()), "batches")
            yield self._error("offset-range", message + more, int(batch["position"]), int(batch["base_offset"]))
        held = sound.where(~beyond)
        previous = np.concatenate([[self._place.offset - 1], held.column("last_offset")[:-1]])
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

        What headers tell has been told. A wrapper of magic 0 or 1 does not say there where its offsets begin, and a
        batch may hold offsets above the last one that it says.
        """
        lasts = sound.column("last_offset").copy()
        in_order = sound.column("base_offset") > np.concatenate([[self._place.offset - 1], lasts[:-1]])
        for at in np.flatnonzero((ends > lasts[rows]) & (sound.column("magic")[rows] == 2)).tolist():
            batch = sound.table[rows[at]]
            message = (
                f"a record has offset {ends[at]}, above the last offset {batch['last_offset']} that its batch says: "
                f"reading from {batch['last_offset'] + 1} on passes over it"
            )
            place = int(batch["position"]), int(batch["base_offset"])
            yield Finding(Severity.WARNING, "batch-offset", self._path, message, *place)
        lasts[rows] = np.maximum(lasts[rows], ends)
        previous = np.concatenate([[self._place.offset - 1], lasts[:-1]])
        for at in np.flatnonzero(in_order[rows] & (firsts <= previous[rows])).tolist():
            batch, first = sound.table[rows[at]], int(firsts[at])
            message = f"the first record of a batch has offset {first}, which is in the batch before it"
            yield self._error("offset-order", message, int(batch["position"]), first)

    def _resume(self, fault: str | None, size_bytes: int) -> Generator[Finding, None, int | None]:
        """Say what stands where the next batch must begin, and return where the next whole one does."""
        position, offset, is_last = self._place.position, self._place.offset, self._segment.is_last
        rest = f"{size_bytes - position:,} bytes"
        zeros_from = data_end(self._file, position, size_bytes) if is_last else size_bytes
        if is_last and zeros_from == position:
            yield self._tail("zero-tail", f"{rest} of zeros, preallocated: the log ends at offset {offset}")
            return None
        begin = position + 1 if self._doubt is None else self._doubt + 1
        found, is_given_up, self._search_budget = find_whole_batch(
            self._file,
            begin,
            size_bytes,
            offset,
            min(self._segment.upper_offset - 1, offset + RELATIVE_OFFSET_MAX),
            zeros_from,
            self._search_budget,
        )
        if found is None and fault is None and is_last:
            if not has_wrong_size(self._file, position, zeros_from, size_bytes):
                message = (
                    f"the last batch is cut short: {rest} are the torn end of the log, which ends at offset {offset}"
                )
                yield self._tail(TORN_TAIL, message)
                return None
            fault = "the size of the last batch is wrong: its checksum is that of the bytes to the end of the file"
        reason = fault or "a batch is cut short"
        if found is None:
            given_up = "; the search for one was given up" if is_given_up else ""
            message = f"{reason}, and no whole batch follows: {rest} are lost{given_up}"
        elif found < position and self._doubt is not None:
            position = self._doubt
            message = f"its size cannot be right: a whole batch begins inside it, at position {found}"
        else:
            message = f"{reason}; the next whole batch begins at position {found}, {found - position:,} bytes on"
        yield self._error("not-a-batch", message, position, offset)
        return found

    def _tail(self, code: str, message: str) -> Finding:
        """Tell of a log that does not end with a whole batch: a crash leaves that, and nothing else does."""
        position, offset = self._place.position, self._place.offset
        if offset >= synced_offset(self._segment.storage, self._segment.folder):
            return Finding(Severity.NOTE, code, self._path, message, position, offset)
        synced = "all of it was on the disk when its writer last said so, by a clean shutdown or the recovery point"
        return self._error(code, f"{message}; but {synced}: records may be lost", position, offset)

    def _error(self, code: str, message: str, position: int, offset: int) -> Finding:
        return Finding(Severity.ERROR, code, self._path, message, position, offset)


def _decoded(window: Window) -> tuple[Records, dict[int, CorruptBatchError]]:
    """Decode every record; of each the position of its batch, offset and timestamp, and what is wrong by row."""
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
            np.asarray(batch.column("position")),
            np.asarray(batch.column("offset")),
            np.asarray(batch.column("timestamp").cast(pa.int64())),
        )
        for batch in decode_batches(window.buffer, headers, columns=_COLUMNS)
    ]


def _and_more(count: int, what: str) -> str:
    return f" ({count} {what} in all)" if count > 1 else ""
