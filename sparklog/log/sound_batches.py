"""Scans a segment past damage: yields its sound batches, and the bytes that cannot be read.

A batch is sound if its checksum is right and its offsets fit between its neighbours. No checksum covers the base offset
of a batch, and the bytes of a value may be batches of another log; so a right checksum is no proof:

- Among adjacent batches, those are sound that make up the longest row of ascending offsets (`longest_ascending`).
- Where a run of adjacent batches does not begin at the expected offset, or follows bytes that are no batch, it counts
  if it goes on: up to the end of the file, or up to a header with the next offset. If other bytes end it, it counts
  only if the next run after these has higher offsets, and if it does not look like a value (`_SoundScanner`).
- A damaged wrapper of magic 0 or 1 may leave whole messages, since snappy and lz4 do not change bytes that they cannot
  compress. In magic 0 these have their own offsets and count. In magic 1 their offsets begin at 0, so that messages
  after damage count only if no wrapper is before or after them, or if they are longer than such a rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import numpy as np

from sparklog.errors import CorruptBatchError, DiskError
from sparklog.log.damage import WRONG_CHECKSUM_REASON, Damage, DamageScanner, is_zero
from sparklog.log.segment import RELATIVE_OFFSET_MAX, OffsetPosition, OpenSegment
from sparklog.log.windows import Window, WindowScan
from sparklog.record.batches.framing import HEADER_BYTES_MAX, first_header
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import ReadableFile

Flags = np.ndarray[Any, np.dtype[np.bool_]]

_DENSE_SHARE: Final = 0.8
_PEEK_BYTES: Final = 1 << 16
_RUN_BYTES_MAX: Final = 1 << 21
_OFFSET_BYTES: Final = 8
_LENGTH_BYTES_MAX: Final = 5
_INSIDE_MAX: Final = 1 << 16
_ROWS_MAX: Final = 1 << 14
# Compressors leave no more bytes as they are in one piece.
_LITERAL_BYTES_MAX: Final = 1 << 16
WRONG_OFFSET_REASON: Final = "its offsets do not fit between its neighbours'"


@dataclass(frozen=True)
class Unreadable:
    """Bytes that hold no sound batch.

    Attributes
    ----------
    path : str
        The segment's file.
    position, length_bytes : int
        The position of the first byte, and the number of bytes.
    first_offset, end_offset : int
        The offsets that the bytes may have held, the end exclusive. Without a sound batch after them, the end is the
        base offset of the next segment, or for the last segment the largest possible offset.
    reason : str
    damage : Damage or None
        The judgement of the bytes; None for one whole batch with a wrong checksum or wrong records.
    is_of_disk : bool
        Whether the disk cannot read some of the bytes.
    """

    path: str
    position: int
    length_bytes: int
    first_offset: int
    end_offset: int
    reason: str
    damage: Damage | None = None
    is_of_disk: bool = False

    @property
    def is_log_end(self) -> bool:
        """Whether the log ends here without damage: a crash or a broker that preallocates files leaves such bytes."""
        return self.damage is not None and self.damage.is_log_end


def unreadable_batch(path: str, batch: np.void, reason: str) -> Unreadable:
    """Return the row of one whole batch that is not sound."""
    position, batch_bytes = int(batch["position"]), int(batch["batch_bytes"])
    return Unreadable(path, position, batch_bytes, int(batch["base_offset"]), int(batch["last_offset"]) + 1, reason)


def scan_sound(
    log: OpenSegment, start: OffsetPosition, end_position: int | None = None
) -> Iterator[Window | Unreadable]:
    """Scan the sound batches of a segment from a boundary on, past damage and past bytes that the disk cannot read.

    Yields
    ------
    Window or Unreadable
        The parts in order, except that damage inside a window comes before it. The bytes of a window are
        valid until the next part is requested, and between its batches may be others.
    """
    file = log.past_bad_sectors()
    for part in _scan_sound(log, file, start, end_position):
        if isinstance(part, Unreadable):
            fault = file.fault(part.position, part.position + part.length_bytes)
            if fault is not None:
                damage = part.damage and replace(part.damage, may_be_torn=False)
                yield replace(part, reason=fault, damage=damage, is_of_disk=True)
                continue
        yield part


def _scan_sound(
    log: OpenSegment, file: ReadableFile, start: OffsetPosition, end_position: int | None
) -> Iterator[Window | Unreadable]:
    segment, path = log.segment, log.segment.path()
    scanner = _SoundScanner(file, is_last=segment.is_last, upper_offset=segment.reach)
    expected = start.offset
    pending: list[Unreadable] = []
    next_position: int | None = start.position
    while next_position is not None:
        scan = log.scan(next_position, end_position)
        for window in scan:
            headers = window.headers
            log.resolve_zero(headers)
            is_right = right_checksums(window)
            is_sound = is_right & scanner.fitting(headers, is_right, expected, scan)
            rows = np.flatnonzero(is_sound)
            for row in np.flatnonzero(~is_sound).tolist():
                if len(rows) and row > rows[-1]:
                    break
                _note(pending, unreadable_batch(path, headers.table[row], _reason(is_right, row)))
            if len(rows):
                sound = _with_lowest(headers.where(is_sound), expected, segment.reach)
                yield from _bounded(pending, sound, expected)
                expected = int(sound.column("last_offset")[-1]) + 1
                pending = []
                yield Window(window.buffer, sound)
                for row in range(int(rows[-1]) + 1, len(headers)):
                    _note(pending, unreadable_batch(path, headers.table[row], _reason(is_right, row)))
        if scan.fault is None and scan.position >= scan.size_bytes:
            break
        doubtful = pending[0].position if pending else None
        damage = scanner.judge(
            scan.position, expected, scan.size_bytes, scan.fault, what=scan.what, doubtful_position=doubtful
        )
        next_position, end_offset = damage.next_position, segment.upper_offset
        if next_position is not None:
            following = first_header(file.read(next_position, HEADER_BYTES_MAX), next_position)
            end_offset = max(int(following.column("base_offset")[0]), expected) if len(following) else expected
        pending = [each for each in pending if each.position < damage.position]
        pending.append(
            Unreadable(path, damage.position, damage.length_bytes, expected, end_offset, damage.reason, damage)
        )
        if next_position is not None:
            yield from _settled(pending, expected, end_offset)
            pending = []
    yield from _settled(pending, expected, segment.upper_offset)


def _note(pending: list[Unreadable], row: Unreadable) -> None:
    """Add the row of a batch; the last row takes in all further ones, so that memory does not grow with a bad log."""
    if len(pending) < _ROWS_MAX:
        pending.append(row)
    else:
        length_bytes = row.position + row.length_bytes - pending[-1].position
        pending[-1] = replace(pending[-1], length_bytes=length_bytes, end_offset=row.end_offset)


def right_checksums(window: Window) -> Flags:
    """Return which batches of a window have a right checksum."""
    # The import loads compiled code, which the planning of a read does not need.
    from sparklog.record.batches.checksums import first_wrong

    octets, headers, row = np.frombuffer(window.buffer, np.uint8), window.headers, 0
    is_right = np.ones(len(headers), dtype=bool)
    while row < len(headers):
        row += first_wrong(octets, headers[row:])[0]
        is_right[row : row + 1] = False
        row += 1
    return is_right


def longest_ascending(bases: list[int], lasts: list[int], lowest: int, upper: int) -> Flags:
    """Choose the largest number of ranges of offsets that ascend without overlaps."""
    ends: list[int] = []
    rows: list[int] = []
    before = [-1] * len(bases)
    for row, (base, last) in enumerate(zip(bases, lasts, strict=True)):
        if base < lowest or last >= upper:
            continue
        length = bisect_left(ends, base)
        before[row] = rows[length - 1] if length else -1
        if length == len(ends):
            ends.append(last)
            rows.append(row)
        # If two have the same offsets, and others are missing before them, the first is the one from there.
        elif last < ends[length] or (last == ends[length] and base > (ends[length - 1] + 1 if length else lowest)):
            ends[length], rows[length] = last, row
    chosen = np.zeros(len(bases), dtype=bool)
    row = rows[-1] if rows else -1
    while row >= 0:
        chosen[row] = True
        row = before[row]
    for row in np.flatnonzero(chosen[:-2] & ~chosen[1:-1] & chosen[2:]).tolist():
        # One of two that overlap has a wrong offset: not the one that joins on to its neighbours.
        end = lasts[before[row]] + 1 if before[row] >= 0 else lowest
        joins = bases[row] == end or lasts[row] + 1 == bases[row + 2]
        if not joins and end <= bases[row + 1] and lasts[row + 1] + 1 == bases[row + 2]:
            chosen[row : row + 2] = False, True
    return chosen


@dataclass(frozen=True)
class _Run:
    """Adjacent batches with right checksums and ascending offsets.

    Attributes
    ----------
    position, stop : int
        Where the first begins, and the last ends.
    base_offset, last_offset : int
        The first offset of its first batch, and the last one of its last.
    count : int
    magic : int
        The magic of the last batch.
    fits : bool
        Whether its offsets are in the bounds.
    may_be_inside : bool
        Whether it may be of messages inside a wrapper of magic 1, which do not have their own offsets.
    is_long : bool
        Whether it reaches the end of the log, or was walked no further.
    has_next : bool
        Whether a header with higher offsets follows it, although of a batch with a wrong checksum.
    is_isolated : bool
        Whether it is of magic 0 or 1, and other bytes end it: it may be of messages inside a wrapper.
    """

    position: int
    stop: int
    base_offset: int
    last_offset: int
    count: int
    magic: int
    fits: bool
    may_be_inside: bool = False
    is_long: bool = False
    has_next: bool = False

    @property
    def is_isolated(self) -> bool:
        return self.magic < 2 and not self.is_long and not self.has_next


def _doubted(rows: Int64s, sound: BatchHeaders) -> Flags:
    """Return which batches directly after damage do not lead to the next one, where nearly all others do.

    The damage may have reached into the first bytes of such a batch: no checksum covers its base offset.

    Parameters
    ----------
    rows : int64 array
        The number of each batch among all that stand there, sound or not.
    """
    doubted = np.zeros(len(rows), dtype=bool)
    # A wrapper does not say at which offset it begins.
    adjoins = (np.diff(rows) == 1) & (sound.column("record_count")[1:] >= 0)
    leads = sound.column("base_offset")[1:] == sound.column("last_offset")[:-1] + 1
    if leads[adjoins].sum() > _DENSE_SHARE * max(adjoins.sum() - 1, 0):
        doubted[:-1] = adjoins & ~leads & (np.diff(rows, prepend=-1)[:-1] > 1)
    return doubted


class _SoundScanner(DamageScanner):
    """Judges the damaged places of a file; after damage, a batch counts only if it is of this log."""

    _has_wrappers = False

    def fitting(self, headers: BatchHeaders, is_right: Flags, expected_offset: int, scan: WindowScan) -> Flags:
        """Return which of a window's batches with a right checksum fit between their neighbours."""
        fits = np.ones(len(headers), dtype=bool)
        self._has_wrappers |= bool((headers.column("record_count")[is_right] < 0).any())
        rows = np.flatnonzero(is_right)
        if not len(rows):
            return fits
        bases, lasts = headers.column("base_offset")[rows], headers.column("last_offset")[rows]
        is_ascending = bases[0] >= expected_offset and lasts[-1] < self._upper_offset
        if not is_ascending or not (bases[1:] > lasts[:-1]).all():
            ahead = next(iter(WindowScan(self._file, scan.position, scan.size_bytes)), None)
            if ahead is not None:
                sound = ahead.headers.where(right_checksums(ahead))
                bases = np.append(bases, sound.column("base_offset"))
                lasts = np.append(lasts, sound.column("last_offset"))
            chosen = longest_ascending(bases.tolist(), lasts.tolist(), expected_offset, self._upper_offset)[: len(rows)]
            fits[rows] = chosen
            rows = rows[chosen]
        if len(rows) < len(headers):
            doubted = _doubted(rows, headers.where(is_right & fits))
            fits[rows[doubted]] = False
            rows = rows[~doubted]
        bases, lasts = headers.column("base_offset")[rows], headers.column("last_offset")[rows]
        expected = np.append(expected_offset, lasts[:-1] + 1) if len(rows) else bases
        jumps = np.flatnonzero(bases != expected)
        if len(jumps):
            row = rows[jumps[-1]]
            position = int(headers.column("position")[row])
            run = self._run(position, int(expected[jumps[-1]]), scan.size_bytes, _PEEK_BYTES)
            if not self._counts(run, int(expected[jumps[-1]]), scan.size_bytes, adjoins=True):
                fits[row:] = False
        return fits

    def judge(self, *place: Any, **more: Any) -> Damage:
        """Judge as `DamageScanner`: no crash leaves a whole batch after torn bytes, wherever its offsets belong."""
        damage = super().judge(*place, **more)
        at, expected, end = damage.position, damage.expected_offset, place[2]
        found = super().next_batch(at, at, expected, end, damage.zeros_from) if damage.is_log_end else None
        if found is None:
            return damage
        reason = f"{damage.reason}, and the offsets of the whole batch at position {found} do not fit"
        return replace(damage, may_be_torn=False, reason=reason)

    def next_batch(self, begin: int, position: int, expected_offset: int, end_position: int, _: int) -> int | None:
        """Return the position of the next batch of this log; None if there is none."""
        run = self._next_run(begin + 1, expected_offset, end_position)
        while run is not None and (run.position == position or not self._counts(run, expected_offset, end_position)):
            run = self._next_run(run.stop, expected_offset, end_position)
        return None if run is None else run.position

    def _next_run(self, position: int, expected_offset: int, end_position: int) -> _Run | None:
        """Return the next run whose offsets are in the bounds."""
        while (found := next(self.whole_batches(position, end_position), None)) is not None:
            run = self._run(found, expected_offset, end_position, _RUN_BYTES_MAX)
            if run.fits:
                return run
            position = run.stop
        return None

    def _run(self, position: int, expected_offset: int, end_position: int, bytes_max: int) -> _Run:
        """Walk the run that begins with a whole batch, as far as it fits."""
        first = first_header(self._file.read(position, HEADER_BYTES_MAX), position)
        if not len(first):  # Its checksum is right, but no broker writes its offset.
            return _Run(position, position + 1, 0, 0, 1, 0, fits=False)
        base, last = int(first.column("base_offset")[0]), int(first.column("last_offset")[0])
        run = _Run(position, position + first.valid_bytes, base, last, 1, int(first.column("magic")[0]), False)
        if base < expected_offset or last >= self._upper_offset:
            return run
        is_wrapper = int(first.column("record_count")[0]) < 0
        if is_wrapper and position and not last:  # Only the first batch has it: the damage reaches into this one.
            return run
        # Messages of magic 1 inside a wrapper, which snappy may leave as they are, have offsets from 0 on.
        may_be_inside = run.magic == 1 and not is_wrapper and base < _INSIDE_MAX
        run = replace(run, may_be_inside=may_be_inside, count=0, last_offset=expected_offset - 1, fits=True)
        for window in WindowScan(self._file, position, end_position):
            bases, lasts = window.headers.column("base_offset"), window.headers.column("last_offset")
            is_next = (bases > np.append(run.last_offset, lasts[:-1])) & (lasts < self._upper_offset)
            is_plain = (window.headers.column("record_count") >= 0) & (window.headers.column("magic") == run.magic)
            wrong = np.flatnonzero(~(is_next & right_checksums(window) & (is_plain | (not may_be_inside))))
            rows = int(wrong[0]) if len(wrong) else len(bases)
            if not run.count and rows and _doubted(np.arange(1, rows + 1), window.headers[:rows]).any():
                return _Run(position, position + first.valid_bytes, base, last, 1, run.magic, False)
            if rows:
                end = window.headers.table[rows - 1]
                stop, last, magic = (
                    int(end["position"] + end["batch_bytes"]),
                    int(end["last_offset"]),
                    int(end["magic"]),
                )
                run = replace(run, stop=stop, last_offset=last, magic=magic, count=run.count + rows)
            if len(wrong):
                return replace(run, has_next=bool(is_next[rows]))
            if run.stop - position >= bytes_max:
                return replace(run, is_long=True)
        rest = self._file.read(run.stop, _OFFSET_BYTES)
        # One zero may be the end of a record: a batch without headers ends so.
        is_preallocated = self._is_last and end_position - run.stop >= HEADER_BYTES_MAX
        is_end = run.stop >= end_position or (is_preallocated and is_zero(self._file, run.stop, end_position))
        return replace(run, is_long=is_end, has_next=int.from_bytes(rest, "big") == run.last_offset + 1)

    def _counts(self, run: _Run, expected_offset: int, end_position: int, *, adjoins: bool = False) -> bool:
        """Return whether a run is of this log, and not of another inside a value, or from elsewhere in this one.

        ``adjoins`` says whether it directly follows another batch, so that it cannot be in a value.
        """
        is_doubtful = run.may_be_inside and not adjoins and run.stop - run.position <= _LITERAL_BYTES_MAX
        if is_doubtful and self._has_wrappers:
            return False
        if run.is_long:
            return True
        if not (run.has_next or adjoins) and (run.magic < 2 or self._is_value(run, end_position)):
            return False
        following = self._next_run(run.stop, expected_offset, end_position)
        while following is not None and following.is_isolated:
            following = self._next_run(following.stop, expected_offset, end_position)
        if is_doubtful and following is not None and not following.may_be_inside:
            return False
        if following is not None and following.base_offset < run.base_offset:
            return run.count > following.count and not following.is_long
        return True

    def _is_value(self, run: _Run, end_position: int) -> bool:
        """Return whether a run looks like a record's value: its length is before it, or the rest of a record after it.

        That rest has fewer bytes than a batch, so that no lost batch explains it.
        """
        length, count = run.stop - run.position, min(run.position, _LENGTH_BYTES_MAX)
        before = bytes(self._file.read(run.position - count, count))
        if before.endswith((length.to_bytes(4, "big"), encoded_length(length))):
            return True
        nearest = next(self.whole_batches(run.stop, end_position), end_position)
        return 0 < nearest - run.stop < HEADER_BYTES_MAX


def encoded_length(length: int) -> bytes:
    """Return a length as a record of magic 2 has it: zigzag, and 7 bits in a byte."""
    number, octets = 2 * length, bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def _with_lowest(sound: BatchHeaders, expected_offset: int, upper_offset: int) -> BatchHeaders:
    """Set the lowest offset that each batch can have, as its neighbours allow."""
    from sparklog.record.kernels.scan import set_lowest_offsets

    set_lowest_offsets(sound.numbers, expected_offset, upper_offset)
    return sound


def _settled(pending: list[Unreadable], lowest: int, end_offset: int) -> Iterator[Unreadable]:
    """Give rows whose neighbours are known all the offsets that they can have had: their own headers may be damaged."""
    for number, each in enumerate(pending, start=1):
        is_known = end_offset < OFFSET_MAX and number == len(pending)
        is_plausible = each.damage is None and lowest < each.end_offset <= min(end_offset, lowest + RELATIVE_OFFSET_MAX)
        end = each.end_offset if is_plausible and not is_known else end_offset
        yield replace(each, first_offset=lowest, end_offset=end)
        lowest = end


def _bounded(pending: list[Unreadable], sound: BatchHeaders, lowest: int) -> Iterator[Unreadable]:
    """Yield the rows before and between sound batches with the offsets that these leave them."""
    positions, bases, lasts = (sound.column(name) for name in ("position", "base_offset", "last_offset"))
    for row, group in groupby(pending, key=lambda each: int(np.searchsorted(positions, each.position))):
        yield from _settled(list(group), int(lasts[row - 1]) + 1 if row else lowest, int(bases[row]))


def _reason(is_right: Flags, row: int) -> str:
    return WRONG_OFFSET_REASON if is_right[row] else WRONG_CHECKSUM_REASON


def seek_past_damage(log: OpenSegment, offset: int) -> OffsetPosition:
    """Return the boundary from which `scan_sound` comes to an offset; the log is read past bad sectors from now on."""
    log.past_bad_sectors()
    try:
        return log.seek(offset)
    except DiskError:
        # The disk cannot read the index, which only saves time.
        return log.start


def last_sound_batch(log: OpenSegment) -> BatchHeaders | None:
    """Return the header of the last sound batch of a segment, whatever damage is before or after it."""
    with suppress(CorruptBatchError, DiskError):
        # Only headers are read, as long as these are right.
        last = log.last_batch_before(log.end())
        if last is None or log.header_at(int(last.column("position")[0])) is not None:
            return last
    last = None
    for found in scan_sound(log, seek_past_damage(log, log.segment.upper_offset)):
        if isinstance(found, Window):
            last = found.headers[len(found.headers) - 1 :]
    return last
