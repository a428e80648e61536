"""Compares the indexes of a segment with its batches, which it receives once, in order.

An entry is right if a reader that begins at it misses nothing.

- An entry of the offset index must point at the beginning of a batch whose base offset is not above the entry's offset.
  That offset must be the last offset of the batch, or of the last batch of an append (older brokers wrote one entry per
  append), or the offset of the last record that the cleaner kept of the batch.
- An entry of the time index must give the largest timestamp so far, and a batch that has it.
- Each entry of the transaction index must have its abort marker, and each abort marker an entry if the log still has
  records of the transaction.

Entries that point into damaged bytes of the log are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.inspect.verify_gaps import Gap
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log import files
from sparklog.log.index import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY, Entries, read_entries
from sparklog.log.scans.past_damage import CheckedBatches
from sparklog.log.segment import Segment
from sparklog.log.transactions import is_in_transaction
from sparklog.record.format import v2
from sparklog.record.format.streams import Int64s

_LAYOUTS: Final = {
    files.OFFSET_INDEX: OFFSET_ENTRY,
    files.TIME_INDEX: TIME_ENTRY,
    files.TRANSACTION_INDEX: TRANSACTION_ENTRY,
}
_ASCENDING: Final = {
    files.OFFSET_INDEX: (("relative_offset", 1), ("position", 1)),
    files.TIME_INDEX: (("timestamp", 1), ("relative_offset", 0)),
    files.TRANSACTION_INDEX: (("last_offset", 1),),
}
"""The ascending fields of each index, with the least step from entry to entry."""
_NO_TIMESTAMP: Final = -1
_PAST_END: Final = "is past the end of the log"


@dataclass(frozen=True)
class ScanResult:
    """The end of a scan of a segment's log.

    Attributes
    ----------
    position : int
        The end of its batches and of the damage among them.
    is_damaged : bool
        Whether the log is damaged.
    is_torn : bool
        Whether a batch that was being written is cut short at that end.
    missing_to : int or None
        The base offset of the next segment, if an index has entries for batches between the end of this segment and it.
    """

    position: int
    is_damaged: bool
    is_torn: bool
    missing_to: int | None = None

    def severity(self, reason: str) -> Severity:
        """Return the severity of a wrong entry; a broker drops entries past a torn end of the log."""
        return Severity.WARNING if self.is_torn and reason == _PAST_END else Severity.ERROR


class Index:
    """One index: its entries up to the first one out of order, and the findings about the file itself."""

    def __init__(self, segment: Segment, suffix: str) -> None:
        self.segment = segment
        self.path = segment.path(suffix)
        self.layout = _LAYOUTS[suffix]
        self.entries: Entries = np.zeros(0, dtype=self.layout)
        self.is_missing = False
        self.findings: list[Finding] = []
        try:
            with segment.storage.open(self.path) as file:
                size_bytes, entries = file.size_bytes(), read_entries(file, self.layout)
        except PathNotFoundError:
            self.is_missing = True
            if suffix != files.TRANSACTION_INDEX:
                self._report_missing()
            return
        except SeglogError as error:
            self.findings.append(Finding(Severity.ERROR, "unreadable", self.path, error.message))
            return
        self._check_size(size_bytes, len(entries))
        self.entries = self._in_order(entries, suffix)

    def wrong(
        self,
        row: int,
        message: str,
        count: int = 1,
        severity: Severity = Severity.ERROR,
        code: str = "index-entry",
    ) -> Finding:
        """Return the finding about a wrong entry, the first of ``count`` with the same fault."""
        more = f"; and so {count - 1} more" if count > 1 else ""
        position = row * self.layout.itemsize
        return Finding(severity, code, self.path, f"entry {row} {message}{more}", position)

    def _check_size(self, size_bytes: int, written: int) -> None:
        entry_bytes = self.layout.itemsize
        if size_bytes % entry_bytes:
            message = f"the size of {size_bytes} bytes is not a multiple of the {entry_bytes} bytes of an entry"
            self.findings.append(Finding(Severity.ERROR, "index-size", self.path, message, size_bytes))
        elif written * entry_bytes < size_bytes and not self.segment.is_last:
            blank_bytes = size_bytes - written * entry_bytes
            self._warn(
                "index-padded", f"{blank_bytes:,} bytes of zeros after the entries of a segment that is not the last"
            )

    def _in_order(self, entries: Entries, suffix: str) -> Entries:
        wrong = np.zeros(len(entries), dtype=bool)
        for field, step in _ASCENDING[suffix]:
            values = entries[field].astype(np.int64)
            wrong |= values < 0
            wrong[1:] |= values[1:] - values[:-1] < step
        if not wrong.any():
            return entries
        row = int(np.argmax(wrong))
        fields = ", ".join(f"{name} {entries[name][row]}" for name, _ in _ASCENDING[suffix])
        self.findings.append(self.wrong(row, f"is out of order: {fields}", code="index-order"))
        return entries[:row]

    def _report_missing(self) -> None:
        if self.segment.is_last:
            self._note_missing("there is no index yet: a broker makes it when it first needs it")
        elif self.segment.storage.identity(f"{self.path}{files.SWAP}") is not None:
            # A broker renames the files of a cleaned segment one by one, the log first.
            self._note_missing(
                "a broker stopped before it put the index of a cleaned segment in place: it makes it again"
            )
        else:
            self._warn("index-missing", "the index is missing: a broker makes it again when it starts")

    def _note_missing(self, message: str) -> None:
        self.findings.append(Finding(Severity.NOTE, "index-missing", self.path, message))

    def _warn(self, code: str, message: str) -> None:
        self.findings.append(Finding(Severity.WARNING, code, self.path, message))


class OffsetIndexCheck:
    """Checks the offset index of a segment."""

    def __init__(self, segment: Segment) -> None:
        self.index = Index(segment, files.OFFSET_INDEX)
        entries = self.index.entries
        self._offsets: Int64s = entries["relative_offset"].astype(np.int64) + segment.base_offset
        self._positions: Int64s = entries["position"].astype(np.int64)
        self._is_in_sound_batch = np.zeros(len(entries), dtype=bool)
        self._is_off_boundary = np.zeros(len(entries), dtype=bool)
        self._is_too_early = np.zeros(len(entries), dtype=bool)
        self._is_last_offset = np.zeros(len(entries), dtype=bool)

    def add(self, batches: CheckedBatches) -> None:
        headers = batches.headers
        starts, bases, lasts = (headers.column(name) for name in ("position", "base_offset", "last_offset"))
        ends = starts + headers.column("batch_bytes")
        rows = slice(*np.searchsorted(self._positions, [starts[0], ends[-1]]))
        positions, offsets = self._positions[rows], self._offsets[rows]
        at = np.searchsorted(starts, positions, side="right") - 1
        # Between sound batches may be damaged bytes.
        is_inside = positions < ends[at]
        self._is_in_sound_batch[rows] |= is_inside
        self._is_off_boundary[rows] |= is_inside & (starts[at] != positions)
        self._is_too_early[rows] |= is_inside & (bases[at] > offsets)
        rows = slice(*np.searchsorted(self._offsets, [bases[0], lasts[-1] + 1]))
        offsets = self._offsets[rows]
        at = np.minimum(np.searchsorted(lasts, offsets), len(lasts) - 1)
        # The cleaner indexes the last record that it keeps, and the batch's last offset may be above it.
        is_cleaned = (headers.column("record_count") <= lasts - bases)[at]
        self._is_last_offset[rows] |= (lasts[at] == offsets) | (is_cleaned & (bases[at] <= offsets))

    def known_in(self, gap: Gap) -> int:
        """Return the last offset in the gap that has an index entry; -1 if none has."""
        rows = (
            (self._positions >= gap.position) & (self._offsets >= gap.start_offset) & (self._offsets < gap.end_offset)
        )
        return int(self._offsets[rows].max(initial=-1))

    def findings(self, result: ScanResult) -> Iterator[Finding]:
        """Judge the entries, once the whole log has been scanned."""
        yield from self.index.findings
        past_end = self._positions >= result.position
        is_cut_off = past_end & (self._offsets < (result.missing_to or 0))
        beside = self._is_in_sound_batch & self._is_off_boundary
        early = self._is_in_sound_batch & ~beside & self._is_too_early
        unknown = ~self._is_last_offset & ~past_end & ~beside & ~early & (not result.is_damaged)
        for wrong, reason in (
            (past_end & ~is_cut_off, _PAST_END),
            (beside, "does not point at the beginning of a batch"),
            (early, "points at a batch that begins after its offset"),
            (unknown, "has an offset that is not the last of any batch"),
        ):
            if wrong.any():
                row = int(np.argmax(wrong))
                entry = f"(offset {self._offsets[row]}, position {self._positions[row]})"
                yield self.index.wrong(row, f"{entry} {reason}", int(wrong.sum()), result.severity(reason))


class TimeIndexCheck:
    """Checks the time index of a segment."""

    def __init__(self, segment: Segment) -> None:
        self.index = Index(segment, files.TIME_INDEX)
        entries = self.index.entries
        self._timestamps: Int64s = entries["timestamp"].astype(np.int64)
        self._offsets: Int64s = entries["relative_offset"].astype(np.int64) + segment.base_offset
        self._is_right = np.zeros(len(entries), dtype=bool)
        self._is_early = np.zeros(len(entries), dtype=bool)
        self._latest = _NO_TIMESTAMP
        self._end_offset, self._end_position = segment.base_offset, 0

    def add(self, batches: CheckedBatches) -> None:
        headers = batches.headers
        starts, lasts, timestamps = (headers.column(name) for name in ("position", "last_offset", "max_timestamp"))
        ends = starts + headers.column("batch_bytes")
        is_after_damage = starts != np.append(self._end_position, ends[:-1])
        latest = np.maximum(np.maximum.accumulate(timestamps), self._latest)
        rows = slice(*np.searchsorted(self._offsets, [self._end_offset, lasts[-1] + 1]))
        at = np.minimum(np.searchsorted(lasts, self._offsets[rows]), len(lasts) - 1)
        magic = headers.column("magic")[at]
        # The header of a wrapper of magic 0 or 1 has no first offset; after damage, nothing tells it.
        is_held = (headers.column("base_offset")[at] <= self._offsets[rows]) | ((magic < 2) & ~is_after_damage[at])
        # Messages of magic 0 carry no time: with LogAppendTime, a broker indexes the time of their append.
        self._is_right[rows] = is_held & ((timestamps[at] == self._timestamps[rows]) | (magic == 0))
        self._is_early[rows] = is_held & (latest[at] > self._timestamps[rows])
        self._latest, self._end_offset, self._end_position = int(latest[-1]), int(lasts[-1]) + 1, int(ends[-1])

    def known_in(self, gap: Gap) -> int:
        """Return the last offset in the gap that has an index entry; -1 if none has."""
        rows = (self._offsets >= gap.start_offset) & (self._offsets < gap.end_offset)
        return int(self._offsets[rows].max(initial=-1))

    def findings(self, result: ScanResult) -> Iterator[Finding]:
        """Judge the entries, once the whole log has been scanned."""
        yield from self.index.findings
        past_end = self._offsets >= self._end_offset
        is_cut_off = past_end & (self._offsets < (result.missing_to or 0))
        absent = ~self._is_right & ~past_end & ~self._is_early & (not result.is_damaged)
        for wrong, reason in (
            (self._is_early, "is earlier than a batch before it: a lookup would pass over records"),
            (absent, "is not the largest timestamp of the batch with that offset"),
            (past_end & ~is_cut_off & (not result.is_damaged), _PAST_END),
        ):
            if wrong.any():
                row = int(np.argmax(wrong))
                entry = f"(timestamp {self._timestamps[row]}, offset {self._offsets[row]})"
                yield self.index.wrong(row, f"{entry} {reason}", int(wrong.sum()), result.severity(reason))
        last = int(self._timestamps[-1]) if len(self._timestamps) else _NO_TIMESTAMP
        is_whole = not (self.index.segment.is_last or self.index.is_missing or self.index.findings)
        if is_whole and last < self._latest:
            message = f"the last timestamp is {last}, and the segment's largest {self._latest}"
            yield Finding(Severity.WARNING, "index-short", self.index.path, message, self.index.entries.nbytes)


class TransactionIndexCheck:
    """Checks the transaction index of a segment.

    Parameters
    ----------
    open_offsets : dict of int to int
        The first offset of each producer's transaction that is open where the segment begins, by producer id. It is
        changed on the way, and given to the check of the next segment.
    """

    def __init__(self, segment: Segment, open_offsets: dict[int, int]) -> None:
        self.index = Index(segment, files.TRANSACTION_INDEX)
        self._open_offsets = open_offsets
        self._aborts: dict[tuple[int, int], int | None] = {}

    def add(self, batches: CheckedBatches) -> None:
        headers = batches.headers
        for row in np.flatnonzero(is_in_transaction(headers)).tolist():
            batch = headers.table[row]
            producer_id = int(batch["producer_id"])
            if batch["attributes"] & v2.CONTROL:
                kind = v2.control_type(batches.batch(row))
                if kind in (v2.ABORT, v2.COMMIT):
                    first_offset = self._open_offsets.pop(producer_id, None)
                    if kind == v2.ABORT:
                        self._aborts[producer_id, int(batch["last_offset"])] = first_offset
            elif batch["record_count"] > 0:
                self._open_offsets.setdefault(producer_id, int(batch["base_offset"]))

    def findings(self, result: ScanResult) -> Iterator[Finding]:
        """Judge the entries, once the whole log has been scanned."""
        yield from self.index.findings
        listed = set()
        for row, entry in enumerate(self.index.entries):
            marker = int(entry["producer_id"]), int(entry["last_offset"])
            listed.add(marker)
            first_offset = self._aborts.get(marker)
            if entry["version"] != 0:
                yield self.index.wrong(row, f"has the unknown version {entry['version']}")
            elif marker not in self._aborts and not result.is_damaged:
                yield self.index.wrong(
                    row, f"names an abort marker of producer {marker[0]} at offset {marker[1]}, where there is none"
                )
            elif first_offset is not None and entry["first_offset"] > first_offset:
                yield self.index.wrong(
                    row,
                    f"begins at offset {entry['first_offset']}, and the transaction of "
                    f"producer {marker[0]} at offset {first_offset}",
                )
        for (producer_id, offset), first_offset in self._aborts.items():
            if first_offset is not None and (producer_id, offset) not in listed and not self.index.findings:
                message = (
                    f"no entry for the transaction of producer {producer_id} that was aborted at offset {offset}: "
                    f"a broker would let its records from offset {first_offset} on be read as committed"
                )
                yield Finding(Severity.ERROR, "index-entry-missing", self.index.path, message, None, offset)
        if result.is_damaged:
            # Lost batches may include markers, the ends of transactions.
            self._open_offsets.clear()
