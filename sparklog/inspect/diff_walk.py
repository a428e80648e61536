"""Walks one copy of a log, over equal bytes or batch by batch past damage, for `sparklog.inspect.diff`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from sparklog.log.directory_view import DirectoryView
from sparklog.log.layout import at_one_time
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import OffsetPosition, OpenSegment, Segment
from sparklog.log.segment_listing import list_segments
from sparklog.log.sound_batches import Unreadable, scan_sound
from sparklog.log.windows import Window
from sparklog.record.format.headers import BASE_OFFSET, BATCH_BYTES, LAST_OFFSET, POSITION, RECORD_COUNT, TABLE_FIELDS
from sparklog.record.format.streams import Int64s, Octets
from sparklog.storage.base import ReadableFile

Kinds = np.ndarray[Any, np.dtype[np.int8]]

_OFFSETS: Final = slice(BASE_OFFSET, LAST_OFFSET + 1)
_COMPARED: Final = slice(BATCH_BYTES, LAST_OFFSET + 1)
# The parts of a batch begin here: the leader epoch is between bytes that are compared.
_PARTS: Final = (0, 12, 16)


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Sound batches of a copy with no damage between them, or the damage before the next sound batch.

    Attributes
    ----------
    start_offset, end_offset : int
        The offsets of the first batch, or the ones that damaged bytes may have held; the end is exclusive. Damage at
        the end of the last segment has the largest possible end.
    position, length_bytes : int
        The place of the bytes in the file of the walk.
    window : Window or None
        The batches; None for damage.
    reason : str
        The damage in a few words.
    """

    start_offset: int
    end_offset: int
    position: int
    length_bytes: int
    window: Window | None = None
    reason: str = ""

    @property
    def table(self) -> Int64s:
        """The headers of the batches."""
        return np.zeros((0, TABLE_FIELDS), np.int64) if self.window is None else self.window.headers.numbers

    def octets(self, first: int, stop: int) -> Octets:
        """Return the bytes of batches that lie one after another."""
        if self.window is None:
            return np.zeros(0, np.uint8)
        begin, end = self.table[first, POSITION], self.table[stop - 1, POSITION] + self.table[stop - 1, BATCH_BYTES]
        origin = self.window.headers.origin
        return np.frombuffer(self.window.buffer, np.uint8)[begin - origin : end - origin]


def in_step(stretches: Sequence[Stretch], bound: int) -> int:
    """Return how many batches at the beginning of all stretches lie alike, and end at an offset or before it."""
    tables = [each.table for each in stretches]
    rows = min(map(len, tables), default=0)
    ends = np.zeros(rows, bool)
    for table in tables:
        ends |= (table[:rows, _OFFSETS] != tables[0][:rows, _OFFSETS]).any(axis=1) | (
            table[:rows, LAST_OFFSET] >= bound
        )
        ends |= (table[:rows, RECORD_COUNT] < 0) != (tables[0][:rows, RECORD_COUNT] < 0)
    return int(np.argmax(ends)) if ends.any() else rows


def batch_differences(one: Stretch, other: Stretch, rows: int) -> Kinds:
    """Compare batches of the same number: 0 for equal ones, 1 for another leader epoch, 2 for the others."""
    ours, theirs = one.table[:rows], other.table[:rows]
    is_same = (ours[:, _COMPARED] == theirs[:, _COMPARED]).all(axis=1)
    kinds = np.where(is_same, 0, 2).astype(np.int8)
    joined = is_same[1:] & is_same[:-1]
    for table in (ours, theirs):
        joined &= table[1:, POSITION] == table[:-1, POSITION] + table[:-1, BATCH_BYTES]
    firsts = np.flatnonzero(is_same & ~np.append(False, joined))
    stops = np.flatnonzero(is_same & ~np.append(joined, False)) + 1
    for first, stop in zip(firsts.tolist(), stops.tolist(), strict=True):
        differs = one.octets(first, stop) != other.octets(first, stop)
        if differs.any():
            edges = (ours[first:stop, POSITION] - ours[first, POSITION])[:, np.newaxis] + _PARTS
            before, epoch, after = np.logical_or.reduceat(differs, edges.reshape(-1)).reshape(-1, len(_PARTS)).T
            kinds[first:stop] = np.where(before | after, 2, epoch)
    return kinds


class CopyWalk:
    """The walk over the segments of a copy, from its log start offset to its end; a ``with`` block closes it.

    It passes over bytes that the caller has found to be batches, with `pass_over`; or over the stretches that `head`
    finds. The bytes of a stretch are valid until the next `head`.

    Attributes
    ----------
    start_offset, end_offset : int
        The log start offset, and the offset after the last batch so far.
    segment : Segment
        The segment that the walk is in.
    file : ReadableFile
        Its file.
    size_bytes : int
        The end of its batches.
    """

    def __init__(self, folder: PartitionFolder) -> None:
        ((self.start_offset, self._segments, self._end_position),) = at_one_time([folder], _read_segments)
        self.end_offset = self.start_offset
        self._opened = ExitStack()
        self._row = -1
        self._position = self._expected = self.size_bytes = 0
        self.segment: Segment
        self.file: ReadableFile
        self._log: OpenSegment
        self.leave_batches()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

    def leave_batches(self) -> None:
        """Forget the stretches that were found ahead."""
        self._parts: Iterator[Window | Unreadable] | None = None
        self._damages: list[Unreadable] = []
        self._window: Window | None = None
        self._head: Stretch | None = None

    def next_position(self) -> int | None:
        """Return the position of the bytes that the walk has not passed; None at the end of the log.

        The next segment is opened if this one is done.
        """
        while self._position >= self.size_bytes:
            if not self._enter_next():
                return None
        return self._position

    def pass_over(self, length_bytes: int, end_offset: int) -> None:
        """Pass over whole batches at `next_position`; ``end_offset`` is the offset after the last of them."""
        self._position += length_bytes
        self._expected = self.end_offset = end_offset

    def head(self) -> Stretch | None:
        """Return the next stretch, without batches below the log start offset; None at the end of the log."""
        while self._head is None and self.next_position() is not None:
            found = self._next_stretch()
            if found is not None and found.start_offset < self.start_offset:
                is_before = found.end_offset <= self.start_offset
                found = None if is_before else replace(found, start_offset=self.start_offset)
            self._head = found
        return self._head

    def advance(self, end_offset: int) -> int:
        """Pass over all of `head` that ends at an offset or before it; return the number of bytes."""
        head, begin = self._head, self._position
        if head is None:
            return 0
        if head.window is None:
            if head.end_offset <= end_offset:
                self._head, self._position = None, begin + head.length_bytes
            return self._position - begin
        headers = head.window.headers
        rows = int(np.searchsorted(headers.column("last_offset"), end_offset))
        if rows:
            last = headers.table[rows - 1]
            self.pass_over(int(last["position"] + last["batch_bytes"]) - begin, int(last["last_offset"]) + 1)
            self._head = _of_batches(Window(head.window.buffer, headers[rows:]))
        return self._position - begin

    def _enter_next(self) -> bool:
        self._row += 1
        if self._row >= len(self._segments):
            self._row = len(self._segments)
            return False
        self.leave_batches()
        self._opened.close()
        self.segment = segment = self._segments[self._row]
        self._log = self._opened.enter_context(segment.open())
        self.file, self.size_bytes = self._log.file, self._log.size_bytes
        self._position, self._expected = 0, segment.base_offset
        if self.start_offset > segment.base_offset:
            self._position = self._log.seek(self.start_offset).position
        if segment.is_last:
            self.size_bytes = min(self.size_bytes, self._end_position)
        return True

    def _next_stretch(self) -> Stretch | None:
        """Return the next batches, or the damage before them; None if the segment ends without damage."""
        if self._parts is None:
            self._parts = scan_sound(self._log, OffsetPosition(self._position, self._expected), self.size_bytes)
        while self._window is None and (part := next(self._parts, None)) is not None:
            if isinstance(part, Window):
                self._window = part
            elif not part.is_log_end:
                self._damages.append(part)
        window = self._window
        end_offset, end_position = self.segment.upper_offset, self.size_bytes
        if window is not None:
            end_offset, end_position = (int(window.headers.column(name)[0]) for name in ("base_offset", "position"))
        damaged = [each for each in self._damages if each.position < end_position]
        if damaged:
            del self._damages[: len(damaged)]
            first, self._position = damaged[0], damaged[0].position
            length_bytes, end_offset = end_position - first.position, max(end_offset, first.first_offset)
            return Stretch(first.first_offset, end_offset, first.position, length_bytes, reason=first.reason)
        self._window, self._position = None, end_position
        if window is None:
            return None
        if self._damages:
            rows = int(np.searchsorted(window.headers.column("position"), self._damages[0].position))
            self._window = Window(window.buffer, window.headers[rows:])
            window = Window(window.buffer, window.headers[:rows])
        rows = int(np.searchsorted(window.headers.column("last_offset"), self.start_offset))
        return _of_batches(Window(window.buffer, window.headers[rows:]))


def _of_batches(window: Window) -> Stretch | None:
    if not len(window.headers):
        return None
    first = window.headers.table[0]
    return Stretch(int(first["base_offset"]), int(first["last_offset"]) + 1, int(first["position"]), 0, window)


def _read_segments(folder: PartitionFolder, view: DirectoryView) -> tuple[int, tuple[Segment, ...], int]:
    """Return the log start offset, the segments from there on, and the end of the last one's file.

    The end of the log is not searched for: the walk comes to it, whatever bytes are there.
    """
    segments, at = list_segments(folder), folder.topic_partition
    bound = None if view.journal is None else view.journal.partitions.get(folder.name)
    if bound is not None:
        # A commit that is not finished counts as not made.
        segments = tuple(each for each in segments if each.base_offset <= bound.segment)
        segments = (*segments[:-1], *(replace(each, is_last=True) for each in segments[-1:]))
    start_offset = 0 if at is None else view.start_offsets.get(at, 0)
    start_offset = start_offset if bound is None else bound.start_offset
    if not segments:
        return start_offset, (), 0
    start_offset = max(start_offset, segments[0].base_offset)
    kept = tuple(each for each in segments if each.is_last or each.upper_offset > start_offset)
    return start_offset, kept, segments[-1].size_bytes if bound is None else bound.position
