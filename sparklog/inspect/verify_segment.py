"""Verifies every batch of one segment, and makes findings about the bytes that are no sound batch.

Damage is a value here, a `Finding`, and never ends the scan; see `sparklog.log.scans.past_damage`. Batches with a wrong
checksum or content are passed on too, and marked, so that an index is not blamed for the damage of its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.log.damage import Damage, DamageKind
from sparklog.log.layout import DirectoryView
from sparklog.log.scans.past_damage import CheckedBatches, Unreadable, scan_past_damage
from sparklog.log.segment import Segment
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s

TORN_TAIL: Final = "torn-tail"


class Severity(StrEnum):
    """The severity of a finding.

    An error is wrong data, or data in a wrong order. A warning is something that a broker would fail on or repair. A
    note is good to know.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """A fault, or something good to know.

    Attributes
    ----------
    severity : Severity
    code : str
        The kind of finding, stable, such as ``batch-checksum``.
    path : str
        The file or folder.
    position : int or None
        The position in the file, bytes.
    offset : int or None
        The offset of the batch there, or the one expected there.
    message : str
    """

    severity: Severity
    code: str
    path: str
    message: str
    position: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class VerifyProgress:
    """The number of bytes that were verified since the last report."""

    path: str
    checked_bytes: int


def unreadable(error: SeglogError, path: str) -> Finding:
    """Return the finding about an error of reading a file."""
    if isinstance(error, CorruptLogError):
        code = "corrupt-file"
        return Finding(Severity.ERROR, code, error.path or path, error.reason, error.position, error.offset)
    return Finding(Severity.ERROR, "unreadable", path, error.message)


def scan_segment(segment: Segment) -> Iterator[Finding | CheckedBatches | VerifyProgress]:
    """Check every batch and every record of a segment.

    Yields
    ------
    Finding or CheckedBatches or Progress
        The batches of `scan_past_damage`; findings before them describe each batch that is not sound, and the bytes
        that are no batch.

    Raises
    ------
    SeglogError
        The file cannot be opened or read.
    """
    judge, reported_position = _Findings(segment), 0
    for found in scan_past_damage(segment):
        if isinstance(found, CheckedBatches):
            yield from judge.batches(found)
            yield found
            position = found.headers.origin + found.headers.valid_bytes
        else:
            yield judge.unreadable(found)
            if found.damage is None or found.damage.next_position is not None:
                continue
            position = found.position + found.length_bytes
        if position > reported_position:
            yield VerifyProgress(segment.path(), position - reported_position)
            reported_position = position


class _Findings:
    """Makes findings from the scan of a segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment, self._path = segment, segment.path()

    def batches(self, checked: CheckedBatches) -> Iterator[Finding]:
        """Yield the findings about the next batches of the segment."""
        sound = checked.sound
        if len(sound):
            yield from self._offsets(sound, checked.expected_offset)
            yield from self._records(sound, checked)

    def unreadable(self, found: Unreadable) -> Finding:
        """Return the finding about unreadable bytes."""
        if found.damage is None:
            return self._error("corrupt-batch", found.reason, found.position, found.first_offset)
        return self._tail(found.damage) if found.is_log_end else self._damaged(found.damage)

    def _offsets(self, sound: BatchHeaders, expected_offset: int) -> Iterator[Finding]:
        """Check that offsets ascend from batch to batch, and lie within the segment."""
        beyond = sound.column("last_offset") >= self._segment.reach
        if beyond.any():
            batch = sound.table[int(np.argmax(beyond))]
            message = f"offsets up to {batch['last_offset']} in a segment that ends before {self._segment.reach}"
            more = _and_more(int(beyond.sum()), "batches")
            yield self._error("offset-range", message + more, int(batch["position"]), int(batch["base_offset"]))
        held = sound.where(~beyond)
        previous = np.concatenate([[expected_offset - 1], held.column("last_offset")[:-1]])
        for row in np.flatnonzero(held.column("base_offset") <= previous[: len(held)]).tolist():
            batch = held.table[row]
            message = (
                f"a batch of offsets {batch['base_offset']} to {batch['last_offset']} is out of order: "
                f"expected {previous[row] + 1} or above"
            )
            yield self._error("offset-order", message, int(batch["position"]), int(previous[row]) + 1)

    def _records(self, sound: BatchHeaders, checked: CheckedBatches) -> Iterator[Finding]:
        """Check headers against their records: the first offset, and the largest timestamp."""
        positions, offsets, timestamps = checked.records
        if not len(positions):
            return
        starts = np.flatnonzero(np.append(True, positions[1:] != positions[:-1]))
        rows = np.searchsorted(sound.column("position"), positions[starts])
        lasts = offsets[np.append(starts[1:], len(offsets)) - 1]
        yield from self._record_offsets(sound, rows, offsets[starts], lasts, checked.expected_offset)
        latest = np.maximum.reduceat(timestamps, starts)
        late = (latest > sound.column("max_timestamp")[rows]) & (sound.column("magic")[rows] > 0)
        if late.any():
            at = int(np.argmax(late))
            batch = sound.table[rows[at]]
            message = (
                f"a record has timestamp {latest[at]} ms, later than the {batch['max_timestamp']} ms in the header "
                f"of its batch: a lookup by time may skip it{_and_more(int(late.sum()), 'batches')}"
            )
            place = int(batch["position"]), int(batch["base_offset"])
            yield Finding(Severity.WARNING, "batch-timestamp", self._path, message, *place)

    def _record_offsets(
        self, sound: BatchHeaders, rows: Int64s, firsts: Int64s, ends: Int64s, expected_offset: int
    ) -> Iterator[Finding]:
        """Check the first and last record offsets of batches against each other and their headers.

        Findings about the headers alone have been made before. The header of a wrapper of magic 0 or 1 has no first
        offset, and a batch may hold offsets above the last one in its header.
        """
        lasts = sound.column("last_offset").copy()
        in_order = sound.column("base_offset") > np.concatenate([[expected_offset - 1], lasts[:-1]])
        for at in np.flatnonzero((ends > lasts[rows]) & (sound.column("magic")[rows] == 2)).tolist():
            batch = sound.table[rows[at]]
            message = (
                f"a record has offset {ends[at]}, above the last offset {batch['last_offset']} in the header of its "
                f"batch: reading from {batch['last_offset'] + 1} on skips it"
            )
            place = int(batch["position"]), int(batch["base_offset"])
            yield Finding(Severity.WARNING, "batch-offset", self._path, message, *place)
        lasts[rows] = np.maximum(lasts[rows], ends)
        previous = np.concatenate([[expected_offset - 1], lasts[:-1]])
        for at in np.flatnonzero(in_order[rows] & (firsts <= previous[rows])).tolist():
            batch, first = sound.table[rows[at]], int(firsts[at])
            message = f"the first record of a batch has offset {first}, which is in the batch before it"
            yield self._error("offset-order", message, int(batch["position"]), first)

    def _damaged(self, damage: Damage) -> Finding:
        """Return the finding about bytes that are no sound batch."""
        code = "corrupt-batch" if damage.what is DamageKind.WRONG_CHECKSUM else "not-a-batch"
        following = damage.next_position
        if following is None:
            given_up = "; the search for one was given up" if damage.is_search_given_up else ""
            message = f"{damage.reason}, and no whole batch follows: {damage.length_bytes:,} bytes are lost{given_up}"
        elif damage.what is DamageKind.WRONG_SIZE:
            message = f"{damage.reason}, at position {following}"
        else:
            message = (
                f"{damage.reason}; the next whole batch begins at position {following}, "
                f"{damage.length_bytes:,} bytes on"
            )
        return self._error(code, message, damage.position, damage.expected_offset)

    def _tail(self, damage: Damage) -> Finding:
        """Return the finding about bytes after the last batch: a note if a crash can leave them, otherwise an error."""
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


def _and_more(count: int, what: str) -> str:
    return f" ({count} {what} in all)" if count > 1 else ""
