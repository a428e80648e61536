"""Compares copies of one log, such as the replicas of a partition on the disks of several brokers.

Copies are compared offset by offset, whole batches by their bytes; nothing is decoded. The bytes at the same place of
all copies are compared in large blocks, and headers are read only to know their offsets. Where blocks differ, windows
of sound batches are compared (`sparklog.log.sound_batches`), until the copies agree again. Equal bytes are equal even
if all copies are damaged alike, which ``verify`` finds.

Segments may begin at different offsets in each copy. The leader epoch is part of a batch, and no checksum covers it: a
range whose batches differ in nothing else has a kind of its own. Copies that were compressed or compacted differently
hold the same records in other bytes, and are divergent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import itemgetter
from string import ascii_uppercase
from typing import Final

import numpy as np

from sparklog.errors import SeglogError
from sparklog.inspect.diff_walk import CopyWalk, Kinds, Stretch, batch_differences, in_step
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs
from sparklog.log.damage import LARGE_BATCH_BYTES
from sparklog.log.layout import topic_id_of
from sparklog.log.places import PartitionFolder
from sparklog.record.batches.framing import scan_headers
from sparklog.record.format.headers import BASE_OFFSET, BATCH_BYTES, LAST_OFFSET, RECORD_COUNT, BatchHeaders
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.record.kernels.scan import set_lowest_offsets

COPIES_MAX: Final = len(ascii_uppercase)

_PAGE_BYTES: Final = 1 << 12
_BLOCK_BYTES: Final = 1 << 23
# Two pieces are still in the processor's cache when they are compared.
_PIECE_BYTES_MIN: Final = 1 << 16
_PIECE_BYTES_MAX: Final = 1 << 19
_WORTH_BYTES: Final = 1 << 18
_MISSING: Final = "missing"
_DAMAGED: Final = "damaged"
_SAME: Final = ascii_uppercase[0]


class DiffKind(StrEnum):
    """The kinds of rows; the first five are of ranges of offsets."""

    EQUAL = "equal"
    MISSING = "missing"
    DIVERGENT = "divergent"
    LEADER_EPOCH = "leader-epoch"
    DAMAGED = "damaged"
    START_OFFSET = "start-offset"
    END_OFFSET = "end-offset"
    EPOCHS = "epochs"
    TOPIC_ID = "topic-id"
    PARTITION = "partition"
    UNREADABLE = "unreadable"


_OF_RANGES: Final = tuple(DiffKind)[:5]
_DIFFERENCES: Final = (DiffKind.EQUAL, DiffKind.LEADER_EPOCH, DiffKind.DIVERGENT)


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A range of offsets of a partition in which its copies agree or differ in one way, or another difference.

    Attributes
    ----------
    topic : str
    partition : int or None
        None if the folder's name is no partition's.
    start_offset, end_offset : int or None
        The range, the end exclusive; it is empty if bytes are damaged that held no offset. None for a topic id, a
        partition and a copy that cannot be read.
    kind : DiffKind
        ``equal``; ``missing``: some copies lack the batches; ``divergent``: other batches at the same offsets;
        ``leader-epoch``: batches differ in nothing else; ``damaged``: some copies cannot be read there;
        ``start-offset`` and ``end-offset``: logs begin or end at different offsets; ``epochs``: their lists of leader
        epochs differ from this offset on; ``topic-id``; ``partition``: only some directories have it; ``unreadable``.
    copies : tuple of (str or None)
        A value for each directory, in the given order. In a range it is a letter, the same for the same bytes, or
        ``missing`` or ``damaged``; None if the directory does not have the partition, or the range is empty. For other
        kinds it is the value that differs: an offset, an epoch, an id, or the path of a folder.
    reason : str
        The damage or the error in a few words; empty for other kinds.
    """

    topic: str
    partition: int | None
    start_offset: int | None
    end_offset: int | None
    kind: DiffKind
    copies: tuple[str | None, ...]
    reason: str = ""

    @property
    def is_range(self) -> bool:
        """Whether the row is of a range of offsets."""
        return self.kind in _OF_RANGES


@dataclass(frozen=True, slots=True)
class Compared:
    """An amount of bytes that was compared, of all copies together."""

    size_bytes: int


def diff_copies(folders: Sequence[PartitionFolder | None]) -> Iterator[DiffRow | Compared]:
    """Compare the copies of one partition; a copy that cannot be read is a row, and ends this comparison only.

    Parameters
    ----------
    folders : sequence of (PartitionFolder or None)
        The folder in each directory; None where there is none.
    """
    there = [folder for folder in folders if folder is not None]
    blank = DiffRow(there[0].topic, there[0].partition, None, None, DiffKind.EQUAL, ())
    if len(there) < len(folders):
        paths = tuple(None if folder is None else folder.location for folder in folders)
        yield replace(blank, kind=DiffKind.PARTITION, copies=paths)
    if len(there) < 2:
        return
    try:
        for found in _differences(blank, there):
            yield found if isinstance(found, Compared) else replace(found, copies=_spread(found.copies, folders))
    except SeglogError as error:
        yield replace(blank, kind=DiffKind.UNREADABLE, copies=(None,) * len(folders), reason=str(error))


def _spread(values: Sequence[str | None], folders: Sequence[PartitionFolder | None]) -> tuple[str | None, ...]:
    """Return one value for each directory, None where it has no such partition."""
    left = iter(values)
    return tuple(None if folder is None else next(left) for folder in folders)


def _differences(blank: DiffRow, folders: Sequence[PartitionFolder]) -> Iterator[DiffRow | Compared]:
    topic_ids = tuple(topic_id_of(folder) for folder in folders)
    if len(set(topic_ids)) > 1:
        yield replace(blank, kind=DiffKind.TOPIC_ID, copies=topic_ids)
    with ExitStack() as opened:
        walks = [opened.enter_context(CopyWalk(folder)) for folder in folders]
        starts = [walk.start_offset for walk in walks]
        if len(set(starts)) > 1:
            yield _of_offsets(blank, DiffKind.START_OFFSET, starts)
        yield from _joined(_Comparison(walks, blank).rows())
        ends = [walk.end_offset for walk in walks]
    if len(set(ends)) > 1:
        yield _of_offsets(blank, DiffKind.END_OFFSET, ends)
    yield from _lineages(blank, folders, max(starts), min(ends))


def _of_offsets(blank: DiffRow, kind: DiffKind, offsets: Sequence[int]) -> DiffRow:
    texts = tuple(map(str, offsets))
    return replace(blank, start_offset=min(offsets), end_offset=max(offsets), kind=kind, copies=texts)


def _joined(rows: Iterator[DiffRow | Compared]) -> Iterator[DiffRow | Compared]:
    """Join neighbouring ranges in which the copies agree or differ in the same way."""
    last: DiffRow | None = None
    for row in rows:
        if isinstance(row, Compared):
            yield row
        elif last is not None and (last.kind, last.copies, last.reason) == (row.kind, row.copies, row.reason):
            last = replace(last, end_offset=row.end_offset)
        else:
            if last is not None:
                yield last
            last = row
    if last is not None:
        yield last


def _lineages(
    blank: DiffRow, folders: Sequence[PartitionFolder], start_offset: int, end_offset: int
) -> Iterator[DiffRow]:
    """Compare the leader epochs in the range of offsets that all copies have."""
    epochs: list[list[tuple[int, int]] | None] = []
    for folder in folders:
        path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
        data = folder.storage.read_small(path)
        try:
            epochs.append(None if data is None else parse_leader_epochs(data, path))
        except SeglogError as error:
            yield replace(blank, kind=DiffKind.UNREADABLE, copies=(None,) * len(folders), reason=str(error))
            return
    if start_offset >= end_offset:
        return
    changes = {offset for each in epochs for _, offset in each or () if start_offset < offset < end_offset}
    for offset in sorted({start_offset, *changes}):
        at = tuple(None if each is None else _epoch_at(each, offset) for each in epochs)
        if len(set(at)) > 1:
            yield replace(blank, start_offset=offset, end_offset=end_offset, kind=DiffKind.EPOCHS, copies=at)
            return


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> str | None:
    """Return the leader epoch of an offset."""
    row = bisect_right(epochs, offset, key=itemgetter(1))
    return str(epochs[row - 1][0]) if row else None


class _Comparison:
    """Compares copies from the lowest of their log start offsets to the highest of their ends."""

    def __init__(self, walks: Sequence[CopyWalk], blank: DiffRow) -> None:
        self._walks, self._blank = walks, blank
        self._offset = min(walk.start_offset for walk in walks)
        self._highest_start = max(walk.start_offset for walk in walks)
        self._block = _Pages(0)
        self._piece = _Pages(_PIECE_BYTES_MAX)
        # The bytes since the last difference that were passed as blocks, and as batches.
        self._passed_bytes = self._equal_bytes = self._patience_bytes = 0
        self._known: dict[tuple[Stretch, Stretch], Kinds] = {}

    def rows(self) -> Iterator[DiffRow | Compared]:
        in_blocks = True
        while True:
            if in_blocks:
                in_blocks = yield from self._equal_batches()
                if in_blocks:
                    continue
                # Each change from blocks to batches has a price. Where differences are dense, it is paid ever less.
                is_worth = self._passed_bytes >= _WORTH_BYTES
                self._patience_bytes = 0 if is_worth else 4 * max(self._patience_bytes, _PIECE_BYTES_MIN)
                self._passed_bytes = self._equal_bytes = 0
            heads = [walk.head() for walk in self._walks]
            if not any(heads):
                return
            yield from self._next_interval(heads)
            in_blocks = self._equal_bytes > self._patience_bytes
            if in_blocks:
                for walk in self._walks:
                    walk.leave_batches()

    def _equal_batches(self) -> Generator[DiffRow | Compared, None, bool]:
        """Pass over batches as far as the bytes of all copies are equal, a block at most; return if it was all."""
        found = [walk.next_position() for walk in self._walks]
        positions = [each for each in found if each is not None]
        if len(positions) < len(found):
            return False
        room = min(walk.size_bytes - position for walk, position in zip(self._walks, positions, strict=True))
        wanted_bytes = min(_BLOCK_BYTES, room)
        equal_bytes, headers = self._equal_headers(positions, wanted_bytes)
        if not len(headers) and equal_bytes == wanted_bytes < headers.next_batch_bytes <= min(room, LARGE_BATCH_BYTES):
            equal_bytes, headers = self._equal_headers(positions, headers.next_batch_bytes)
        # Batches before a log start offset, or across it, are passed over one by one.
        if not len(headers) or headers.column("base_offset")[0] < self._highest_start:
            return False
        rows = set_lowest_offsets(headers.numbers, self._offset, min(walk.segment.reach for walk in self._walks))
        # No checksum covers a base offset. One that is too high must not hide the batches after it.
        rows -= rows < len(headers)
        if not rows:
            return False
        first, last = headers.table[0], headers.table[rows - 1]
        length_bytes = int(last["position"]) + int(last["batch_bytes"]) - positions[0]
        start_offset = self._offset if first["record_count"] < 0 else int(first["base_offset"])
        self._offset = int(last["last_offset"]) + 1
        self._passed_bytes += length_bytes
        for walk in self._walks:
            walk.pass_over(length_bytes, self._offset)
        yield self._range(start_offset, self._offset, [_SAME] * len(positions), DiffKind.EQUAL)
        yield Compared(length_bytes * len(positions))
        return equal_bytes >= wanted_bytes

    def _equal_headers(self, positions: Sequence[int], length_bytes: int) -> tuple[int, BatchHeaders]:
        """Compare a block of each copy; return the number of bytes to the first difference, and the batches in them."""
        equal_bytes = self._equal_bytes_at(positions, length_bytes)
        return equal_bytes, scan_headers(self._block.room(positions[0], equal_bytes), positions[0])

    def _equal_bytes_at(self, positions: Sequence[int], length_bytes: int) -> int:
        """Read a block of each copy, the first into ``_block``; return the number of bytes to the first difference."""
        if length_bytes > self._block.length_bytes:
            self._block = _Pages(length_bytes)
        block, equal_bytes, is_equal = self._block.room(positions[0], length_bytes), 0, True
        while is_equal and equal_bytes < length_bytes:
            # Bytes past a difference are read in vain.
            usual_bytes = min(max((self._passed_bytes + equal_bytes) // 4, _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)
            usual_bytes -= (positions[0] + equal_bytes + usual_bytes) % _PAGE_BYTES
            stop = min(equal_bytes + usual_bytes, length_bytes)
            equal_bytes = self._equal_piece(positions, block, equal_bytes, stop)
            is_equal = equal_bytes == stop
        return equal_bytes

    def _equal_piece(self, positions: Sequence[int], block: memoryview, begin: int, stop: int) -> int:
        """Read a piece of each copy, the first into its place in the block; return the end of the equal bytes."""
        stop = begin + self._walks[0].file.read_into(positions[0] + begin, block[begin:stop])
        for walk, position in zip(self._walks[1:], positions[1:], strict=True):
            other = self._piece.room(position + begin, stop - begin)
            other = other[: walk.file.read_into(position + begin, other)]
            stop = begin + len(other)
            # This compares at the speed of memory, which slices of a memoryview are not.
            if not self._block.memory.startswith(other, self._block.begin(positions[0]) + begin):
                stop = begin + int(
                    np.argmax(np.not_equal(*(np.frombuffer(each, np.uint8) for each in (block[begin:stop], other))))
                )
        return stop

    def _next_interval(self, heads: Sequence[Stretch | None]) -> Iterator[DiffRow | Compared]:
        """Judge the next batches if they lie alike in all copies which have them, or else the offsets up to a boundary.

        A boundary is an offset at which a batch or damage of any copy begins or ends.
        """
        starts = [OFFSET_MAX if head is None else max(head.start_offset, self._offset) for head in heads]
        low = min(starts)
        here = [head if start == low else None for head, start in zip(heads, starts, strict=True)]
        damaged = [head for head in here if head is not None and head.window is None]
        sound = [head for head in here if head is not None and head.window is not None]
        later = [start for start, head in zip(starts, here, strict=True) if head is None]
        bound = min([OFFSET_MAX, *later, *(head.end_offset for head in damaged)])
        rows = in_step(sound, bound)
        high = (
            int(sound[0].table[rows - 1, LAST_OFFSET]) + 1
            if rows
            else min([bound, *(head.end_offset for head in sound)])
        )
        is_end = high == OFFSET_MAX
        if is_end:
            # Damage after the last sound batch of all copies. A row has it already if one holds its beginning.
            high = low
        if not is_end or any(head.start_offset >= self._offset for head in damaged):
            yield from self._judged(low, high, here, rows)
        self._offset = high
        for walk, head in zip(self._walks, here, strict=True):
            if head is not None:
                yield Compared(walk.advance(OFFSET_MAX if is_end else high))

    def _judged(self, low: int, high: int, here: Sequence[Stretch | None], rows: int) -> Iterator[DiffRow]:
        """Judge ``rows`` batches that lie alike in the copies which have them, or if 0 the range from low to high."""
        sound = [head for head in here if head is not None and head.window is not None]
        damaged = [head for head in here if head is not None and head.window is None]
        if len(damaged) == len(here) and self._are_alike(damaged):
            yield self._range(low, high, [_SAME] * len(here), DiffKind.EQUAL)
            return
        reason = damaged[0].reason if damaged else ""
        if low == high:
            states = [_DAMAGED if head in damaged else None for head in here]
            yield self._range(low, high, states, DiffKind.DAMAGED, reason)
            return
        found = self._lettered(sound, max(rows, 1))
        firsts = np.append(0, np.flatnonzero((found[:, 1:] != found[:, :-1]).any(axis=0)) + 1)
        starts, ends, equal_bytes = [low], [high], 0
        if sound and not damaged and all(each.table[0, RECORD_COUNT] < 0 for each in sound):
            # It is not known at which offset a wrapper begins.
            starts = [self._offset]
        if rows:
            table = sound[0].table[:rows]
            lowest = np.where(table[1:, RECORD_COUNT] < 0, table[:-1, LAST_OFFSET] + 1, table[1:, BASE_OFFSET])
            starts += lowest[firsts[1:] - 1].tolist()
            ends = (table[np.append(firsts[1:], rows) - 1, LAST_OFFSET] + 1).tolist()
            equal_bytes = int(table[firsts[-1] :, BATCH_BYTES].sum())
        kind = DiffKind.EQUAL
        for start_offset, end_offset, (worst, *letters) in zip(starts, ends, found[:, firsts].T.tolist(), strict=True):
            given = iter(letters)
            states = [
                _MISSING if head is None else _DAMAGED if head.window is None else ascii_uppercase[next(given)]
                for head in here
            ]
            kind = DiffKind.DAMAGED if damaged else _DIFFERENCES[worst]
            kind = DiffKind.MISSING if kind is DiffKind.EQUAL and None in here else kind
            yield self._range(start_offset, end_offset, states, kind, reason)
        is_equal = kind is DiffKind.EQUAL
        self._equal_bytes = self._equal_bytes * (len(starts) == 1) + equal_bytes if is_equal else 0

    def _are_alike(self, damaged: Sequence[Stretch]) -> bool:
        """Return whether damage is of the same offsets and bytes in all copies."""
        first = damaged[0]
        if any((each.end_offset, each.length_bytes) != (first.end_offset, first.length_bytes) for each in damaged):
            return False
        positions, length_bytes = [each.position for each in damaged], first.length_bytes
        while length_bytes:
            wanted_bytes = min(length_bytes, _BLOCK_BYTES)
            if self._equal_bytes_at(positions, wanted_bytes) < wanted_bytes:
                return False
            positions = [each + wanted_bytes for each in positions]
            length_bytes -= wanted_bytes
        return True

    def _lettered(self, sound: Sequence[Stretch], rows: int) -> Kinds:
        """Compare the first batches of stretches, each with the batches of the same number.

        Returns
        -------
        int8 array, shape (1 + n_stretches, rows)
            The worst difference, then for each stretch the number of its letter: the same for the same bytes.
        """
        found = np.zeros((1 + len(sound), rows), np.int8)
        # A long batch may lie beside many short ones, and is compared once.
        known, self._known = self._known, {}
        worst, letters = found[0], found[1:]
        for number, each in enumerate(sound):
            is_open = np.full(rows, bool(number))
            for earlier, other in enumerate(sound[:number]):
                is_tried = is_open & (letters[:earlier] != letters[earlier]).all(axis=0)
                if is_tried.any():
                    differs = known.get((other, each))
                    if differs is None or len(differs) != rows:
                        differs = batch_differences(other, each, rows)
                    self._known[other, each] = differs
                    worst[is_tried] = np.maximum(worst, differs)[is_tried]
                    is_same = is_tried & (differs == 0)
                    letters[number, is_same] = letters[earlier, is_same]
                    is_open &= ~is_same
            letters[number, is_open] = letters[:number, is_open].max(axis=0, initial=-1) + 1
        return found

    def _range(
        self, start_offset: int, end_offset: int, states: Sequence[str | None], kind: DiffKind, reason: str = ""
    ) -> DiffRow:
        blank = self._blank
        return DiffRow(blank.topic, blank.partition, start_offset, end_offset, kind, tuple(states), reason)


class _Pages:
    """Memory in which bytes lie in pages as they do in a file: the system copies them twice as fast."""

    def __init__(self, length_bytes: int) -> None:
        self.length_bytes = length_bytes
        self.memory = bytearray(length_bytes + 2 * _PAGE_BYTES)
        self._first = -np.frombuffer(self.memory, np.uint8).ctypes.data % _PAGE_BYTES

    def begin(self, position: int) -> int:
        """Return the place for the bytes at a position of a file."""
        return self._first + position % _PAGE_BYTES

    def room(self, position: int, length_bytes: int) -> memoryview:
        """Return the memory for the bytes from a position of a file on."""
        begin = self.begin(position)
        return memoryview(self.memory)[begin : begin + length_bytes]
