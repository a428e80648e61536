"""Verifies every batch of one segment, and makes findings about the bytes that are no sound batch.

Damage is a value here, a `Finding`, and never ends the scan; see `sparklog.log.scans.past_damage`. A read
that skips damage leaves out the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.inspect.explanations import EXPLANATIONS
from sparklog.log.damage import Damage, DamageKind
from sparklog.log.directory_view import DirectoryView
from sparklog.log.scans.past_damage import CheckedBatches, scan_past_damage
from sparklog.log.segment import Segment
from sparklog.log.sound_batches import WRONG_OFFSET_REASON, Unreadable
from sparklog.record.batches.framing import HEADER_BYTES_MAX, first_header
from sparklog.record.format.headers import BASE_OFFSET, LAST_OFFSET, BatchHeaders
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels.scan import BAD_OFFSET, REASONS, WRAPPER_OVERLAP

TORN_TAIL: Final = "torn-tail"
ZERO_TAIL: Final = "zero-tail"
_WRONG_ORDER: Final = {WRONG_OFFSET_REASON, REASONS[BAD_OFFSET], REASONS[WRAPPER_OVERLAP]}


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

    @property
    def fault(self) -> str:
        """The possible cause."""
        return EXPLANATIONS[self.code].fault

    @property
    def command(self) -> str:
        """The command that mends it; `sparklog.inspect.explanations` explains the words in capitals."""
        return EXPLANATIONS[self.code].command


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
            yield from judge.records(found.headers, *found.records)
            yield found
            position = found.headers.origin + found.headers.valid_bytes
        else:
            yield judge.unreadable(found)
            position = found.position + found.length_bytes
        if position > reported_position:
            yield VerifyProgress(segment.path(), position - reported_position)
            reported_position = position


class _Findings:
    """Makes findings from the scan of a segment."""

    def __init__(self, segment: Segment) -> None:
        self._segment, self._path = segment, segment.path()

    def unreadable(self, found: Unreadable) -> Finding:
        """Return the finding about unreadable bytes."""
        if found.is_of_disk:
            return self._error("unreadable", found.reason, found.position, found.first_offset)
        if found.damage is not None:
            return self._tail(found.damage) if found.is_log_end else self._damaged(found, found.damage)
        code, message = "offset-order" if found.reason in _WRONG_ORDER else "corrupt-batch", found.reason
        if message == WRONG_OFFSET_REASON:
            with self._segment.file() as file:
                header = first_header(file.read(found.position, HEADER_BYTES_MAX))
            for base, last in header.numbers[:, BASE_OFFSET : LAST_OFFSET + 1].tolist():
                code = "offset-range" if last >= self._segment.reach else code
                message = f"a batch of offsets {base} to {last} does not fit between its neighbours'"
            upper = min(found.end_offset, self._segment.reach)
            message = f"{message}: expected offsets from {found.first_offset} to {upper - 1}"
        return self._error(code, message, found.position, found.first_offset)

    def records(self, sound: BatchHeaders, positions: Int64s, offsets: Int64s, times: Int64s) -> Iterator[Finding]:
        """Check headers against their records: the last offset, and the largest timestamp."""
        if not len(positions):
            return
        starts = np.flatnonzero(np.append(True, positions[1:] != positions[:-1]))
        held = sound.table[np.searchsorted(sound.column("position"), positions[starts])]
        ends, latest = offsets[np.append(starts[1:], len(offsets)) - 1], np.maximum.reduceat(times, starts)
        for at in np.flatnonzero((ends > held["last_offset"]) & (held["magic"] == 2)).tolist():
            message = (
                f"a record has offset {ends[at]}, above the last offset {held[at]['last_offset']} in the header of its "
                f"batch: reading from {held[at]['last_offset'] + 1} on skips it"
            )
            yield self._warn("batch-offset", message, held[at])
        late = (latest > held["max_timestamp"]) & (held["magic"] > 0)
        if late.any():
            at = int(np.argmax(late))
            message = (
                f"a record has timestamp {latest[at]} ms, later than the {held[at]['max_timestamp']} ms in the header "
                f"of its batch: a lookup by time may skip it"
            )
            more = f" ({late.sum()} batches in all)" if late.sum() > 1 else ""
            yield self._warn("batch-timestamp", message + more, held[at])

    def _damaged(self, found: Unreadable, damage: Damage) -> Finding:
        """Return the finding about bytes that are no sound batch."""
        code = "corrupt-batch" if damage.what is DamageKind.WRONG_CHECKSUM else "not-a-batch"
        following = damage.next_position
        if following is None:
            given_up = "; the search for one was given up" if damage.is_search_given_up else ""
            message = (
                f"{damage.reason}, and no batch of this log follows: {damage.length_bytes:,} bytes are lost{given_up}"
            )
        elif damage.what is DamageKind.WRONG_SIZE:
            message = f"{damage.reason}, at position {following}"
        else:
            message = (
                f"{damage.reason}; the next whole batch begins at position {following}, "
                f"{damage.length_bytes:,} bytes on"
            )
        return self._error(code, message, found.position, found.first_offset)

    def _tail(self, damage: Damage) -> Finding:
        """Return the finding about bytes after the last batch: a note if a crash can leave them, otherwise an error."""
        position, offset, rest = damage.position, damage.expected_offset, f"{damage.length_bytes:,} bytes"
        if damage.what is DamageKind.ZEROS:
            code, message = ZERO_TAIL, f"{rest} of zeros, preallocated: the log ends at offset {offset}"
        else:
            code = TORN_TAIL
            message = f"the last batch is cut short: {rest} are the torn end of the log, which ends at offset {offset}"
        if offset >= DirectoryView(self._segment.folder.directory).synced_offset(self._segment.folder):
            return Finding(Severity.NOTE, code, self._path, message, position, offset)
        synced = "all of it was on the disk when its writer last said so, by a clean shutdown or the recovery point"
        return self._error(code, f"{message}; but {synced}: records may be lost", position, offset)

    def _error(self, code: str, message: str, position: int, offset: int) -> Finding:
        return Finding(Severity.ERROR, code, self._path, message, position, offset)

    def _warn(self, code: str, message: str, batch: np.void) -> Finding:
        place = int(batch["position"]), int(batch["base_offset"])
        return Finding(Severity.WARNING, code, self._path, message, *place)
