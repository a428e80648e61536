"""Reads one segment: its batches in order, the position of an offset or a time in it, and its end.

Nothing here decodes a record. Indexes are hints: the position in an entry is trusted only if an intact batch stands
there with offsets that agree with the entry; otherwise the scan starts at the beginning of the segment.

Scans yield headers with unchecked checksums. A caller that returns records of a batch, or leaves them out
because of its header, checks the batch. Planning a read does not need to: the task that reads the planned offsets
checks every batch from the first of them to the last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sparklog.errors import CorruptBatchError, DataLossError, PathNotFoundError
from sparklog.log import files
from sparklog.log.damage import (
    Damage,
    DamageKind,
    DamageScanner,
    is_written_meanwhile,
    refuse_damaged_batches,
    whole_batch_at,
)
from sparklog.log.index import OffsetEntry, floor_offset, floor_time
from sparklog.log.places import PartitionFolder, split_path
from sparklog.log.windows import Window, WindowScan
from sparklog.record.batches.framing import HEADER_BYTES_MAX, checksum_fault, first_header, is_intact, scan_headers
from sparklog.record.format.headers import BASE_OFFSET, LAST_OFFSET, LOWEST_OFFSET, BatchHeaders
from sparklog.storage.bad_sectors import PastBadSectors
from sparklog.storage.base import ReadableFile, Stamp, Storage
from sparklog.storage.kept_files import KeptFiles

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1

_SINGLE_HEADERS_MAX: Final = 256
_NO_TIME: Final = -(1 << 63)
_REST_BYTES_MAX: Final = 1 << 12
_WHOLE_BYTES_MAX: Final = 1 << 16
READ_AROUND: Final = "Read around it with endingOffsets and startingOffsets, or see what 'sparklog verify' finds"

_CUT_OFF: Final = (
    f"{READ_AROUND}. 'sparklog recover' cuts off what a crash may have left there, and 'sparklog recover --truncate' "
    f"whatever it is; both keep it in a .cut file"
)

_log = logging.getLogger("sparklog")


@dataclass(slots=True)
class SealedFile:
    """The ``.log`` file of a sealed segment, and the facts that a search has found in it.

    Attributes
    ----------
    stamp : Stamp
        Its stamp, so old that an equal one proves that the file is unchanged.
    largest_time : int or None
        No batch has a later timestamp (ms), and no index says that batches are missing at its end; None if unknown.
    """

    stamp: Stamp
    largest_time: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a partition's log, at the time when the folder was listed.

    Attributes
    ----------
    folder : PartitionFolder
        Its folder.
    base_offset : int
        Lower bound of its offsets, and the name of its files.
    upper_offset : int
        Exclusive upper bound of its offsets: the base offset of the next segment, or for the last segment the largest
        possible offset. Its batches reach less far, see `reach`.
    size_bytes : int
        The size of the ``.log`` file.
    is_last : bool
        Whether it is the last segment, the only one that is written to and whose tail may be torn.
    swap : str
        The end of its files' names: nothing, or ``.swap`` if a cleaner died before it was done.
    log_path : str or None
        The path of its ``.log`` file, if that is not named by the base offset.
    kept : KeptFiles or None
        Keeps its files open between reads; None if each read opens them again.
    sealed : SealedFile or None
        Shared by all listings that find the same file unchanged; None for the last segment, and while the file's
        stamp is too young to prove that.
    """

    folder: PartitionFolder
    base_offset: int
    upper_offset: int
    size_bytes: int
    is_last: bool
    swap: str = ""
    log_path: str | None = None
    kept: KeptFiles | None = field(default=None, compare=False, repr=False)
    sealed: SealedFile | None = field(default=None, compare=False, repr=False)

    @property
    def storage(self) -> Storage:
        return self.folder.storage

    @property
    def reach(self) -> int:
        """The exclusive upper bound of its batches' offsets: no broker writes an offset that no index can reach.

        No checksum covers a base offset. Without this bound, a flipped high bit would end the log for ever.
        """
        return min(self.upper_offset, self.base_offset + RELATIVE_OFFSET_MAX + 1)

    def ends_before(self, time_ms: int) -> bool:
        """Return whether it is known to be whole, and without a batch at or after a time."""
        if self.is_last or self.sealed is None or self.sealed.largest_time is None:
            return False
        return self.sealed.largest_time < time_ms

    def path(self, suffix: str = files.LOG) -> str:
        if self.log_path is not None and suffix == files.LOG:
            return self.log_path
        return self.folder.file(self.file_name(suffix))

    def file_name(self, suffix: str = files.LOG) -> str:
        if self.log_path is not None and suffix == files.LOG:
            return split_path(self.log_path)[1]
        return files.offset_file_name(self.base_offset, suffix + self.swap)

    def open(self) -> OpenSegment:
        """Open the ``.log`` file; raise `PathNotFoundError` if it is gone."""
        return OpenSegment(self, self.file())

    def file(self, suffix: str = files.LOG) -> AbstractContextManager[ReadableFile]:
        """Open one of its files for a ``with`` block; raise `PathNotFoundError` if there is none."""
        path = self.path(suffix)
        return self.storage.open(path) if self.kept is None else self.kept.open(self.storage, path)


@dataclass(frozen=True)
class OffsetPosition:
    """A batch boundary: its position, and the lowest offset that the batch there can have."""

    position: int
    offset: int


class OpenSegment:
    """A segment whose ``.log`` file is open; a ``with`` block closes it."""

    def __init__(self, segment: Segment, file: AbstractContextManager[ReadableFile]) -> None:
        self.segment = segment
        self._opened = file
        self.file: ReadableFile = file.__enter__()
        self.size_bytes = self.file.size_bytes()
        # The position of the zeros at the end of the file, once a scan has passed the last batch.
        self.zeros_from: int | None = None
        # Whether any leftover of a crash ends the log, since its opener cuts that off.
        self.is_to_be_cut = False
        # The largest timestamp, and the end, once a search for a time has passed all batches from that time on.
        self.passed: tuple[int, OffsetPosition] | None = None

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.__exit__(None, None, None)

    @property
    def start(self) -> OffsetPosition:
        return OffsetPosition(0, self.segment.base_offset)

    def past_bad_sectors(self) -> PastBadSectors:
        """Read the ``.log`` file past bytes that the disk cannot read, from now on, and return it."""
        self.file = self.file if isinstance(self.file, PastBadSectors) else PastBadSectors(self.file)
        return self.file

    def windows(
        self, start: OffsetPosition, end_position: int | None = None, skips_from: int | None = None
    ) -> Iterator[Window]:
        """Scan the batches from a boundary to the end of the segment, some at a time.

        A batch longer than a window has one of its own. The scan ends at a torn or zero-filled tail of the last
        segment, and at ``end_position``, a batch boundary. For ``skips_from`` see `WindowScan`.

        Raises
        ------
        CorruptBatchError
            The bytes where a batch should begin are neither a batch nor such a tail, or offsets do not ascend.
        """
        boundary, goes_on = start, True
        while goes_on:
            scan = self.scan(boundary.position, end_position, skips_from)
            for window in scan:
                try:
                    boundary = OffsetPosition(scan.position, self._checked(window.headers, boundary.offset))
                except CorruptBatchError as error:
                    sound, failure = self._before(window, error)
                    if len(sound):
                        yield Window(window.buffer, sound)
                    raise failure from None
                yield window
            goes_on = self._goes_on(boundary, scan.size_bytes, scan.fault, scan.what)

    def _before(self, window: Window, error: CorruptBatchError) -> tuple[BatchHeaders, CorruptBatchError]:
        """Return the batches before one that is out of order, and the error: that of the batch that has a wrong offset.

        It may be the one before, whose last offset its checksum covers. If that is right, either offset may be wrong.
        """
        before = window.headers.before(error.position or 0)
        if not len(before) or window.headers.column("base_offset")[len(before)] >= (error.offset or 0):
            return before, error
        last = before.table[-1]
        position, fault = int(last["position"]), checksum_fault(window.batch(len(before) - 1))
        if fault is not None:
            error = CorruptBatchError(
                fault, path=self.segment.path(), position=position, offset=int(last["base_offset"]), hint=READ_AROUND
            )
        return before.before(position), error

    def single_headers(self, start: OffsetPosition) -> Iterator[BatchHeaders]:
        """Scan the headers from a boundary to the end of the segment one at a time, reading nothing between them.

        It needs no compiled code. A short rest of the file is read at once; after many headers `windows` takes over.
        """
        boundary, size_bytes = start, self.file.size_bytes()
        rest_bytes = size_bytes - start.position
        rest = self.file.read(start.position, rest_bytes) if 0 < rest_bytes <= _REST_BYTES_MAX else None
        for _ in range(_SINGLE_HEADERS_MAX):
            position = boundary.position
            lead = self.file.read(position, HEADER_BYTES_MAX) if rest is None else rest[position - start.position :]
            header = first_header(lead[:HEADER_BYTES_MAX], position)
            if not len(header) or position + header.valid_bytes > size_bytes:
                if self._goes_on(boundary, size_bytes, header.fault):
                    break
                return
            boundary = OffsetPosition(position + header.valid_bytes, self._checked(header, boundary.offset))
            yield header
        for window in self.windows(boundary):
            yield window.headers

    def seek(self, offset: int) -> OffsetPosition:
        """Find a batch boundary at or before an offset, near it if there is an index."""
        if self.segment.storage.capabilities.is_remote and self.size_bytes <= _WHOLE_BYTES_MAX:
            # Its bytes come in one answer, and the index would take another.
            return self.start
        with self.index(files.OFFSET_INDEX) if offset > self.segment.base_offset else nullcontext() as index:
            if index is None:
                return self.start
            entry, header = self._floor_entry(index, offset)
            if entry is not None and header is not None and header.column("last_offset")[0] != entry.offset:
                # Older brokers wrote one entry for each append, and the batch is the first of several. Or the batch's
                # own offset is wrong, which no checksum covers: a scan from the entry before it will notice that.
                entry, header = self._floor_entry(index, entry.offset - 1)
        return (
            self.start if entry is None or header is None else OffsetPosition(entry.position, self.segment.base_offset)
        )

    def _floor_entry(self, index: ReadableFile, offset: int) -> tuple[OffsetEntry | None, BatchHeaders | None]:
        """Find the last entry at or before an offset, and the batch there; (None, None) if the log disagrees."""
        entry = floor_offset(index, self.segment.base_offset, offset)
        if entry is None:
            return None, None
        header = self.header_at(entry.position)
        if header is None or not self.segment.base_offset <= header.column("base_offset")[0] <= entry.offset:
            self._distrust(files.OFFSET_INDEX, f"offset {entry.offset} at position {entry.position}")
            return None, None
        return entry, header

    def end(self) -> OffsetPosition:
        """Find the end of the last whole batch, and the offset after it; the base offset if there is no batch."""
        boundary = self.seek(self.segment.upper_offset)
        for headers in self.single_headers(boundary):
            boundary = end_of(headers)
        return boundary

    def last_batch_before(self, end: OffsetPosition) -> BatchHeaders | None:
        """Return the header of the last batch before a boundary; None if there is none."""
        last: BatchHeaders | None = None
        for headers in self.single_headers(self.seek(max(end.offset - 1, self.segment.base_offset))):
            inside = headers.where(headers.column("position") < end.position)
            last = inside[len(inside) - 1 :] if len(inside) else last
            if len(inside) < len(headers) or headers.origin + headers.valid_bytes >= end.position:
                break
        return last

    def refuse_misplaced(self, last: BatchHeaders, wanted_offset: int, log_end: OffsetPosition) -> None:
        """Raise if the bytes after a reader's last batch show that the offsets of that batch are too high.

        No checksum covers a base offset, and a reader that stopped there would miss the batches after it.

        Parameters
        ----------
        last : BatchHeaders
            The header of that batch.
        wanted_offset : int
            The exclusive end that the reader wanted. A sound batch, or the log end, must follow a batch that passes it.
        log_end : OffsetPosition
            The end of the log, before which no batch has offsets past it.
        """
        boundary = OffsetPosition(last.origin + last.valid_bytes, int(last.column("last_offset")[-1]) + 1)
        if self.segment.is_last and boundary.position <= log_end.position and boundary.offset > log_end.offset:
            raise self._out_of_order(last[len(last) - 1 :], self.segment.base_offset, log_end.offset)
        if self.segment.is_last and boundary.position >= log_end.position:
            return
        size_bytes = self.file.size_bytes()  # As in `WindowScan`: taken before the bytes.
        header = first_header(self.file.read(boundary.position, HEADER_BYTES_MAX), boundary.position)
        if len(header) and boundary.position + header.valid_bytes <= size_bytes:
            self._checked(header, boundary.offset)
        elif boundary.offset > wanted_offset:
            self._goes_on(boundary, size_bytes, header.fault)

    def first_batch_from(self, offset: int) -> BatchHeaders | None:
        """Find the batch that holds an offset, or else the next one."""
        for headers in self.single_headers(self.seek(offset)):
            rows = np.flatnonzero(headers.column("last_offset") >= offset)
            if len(rows):
                return headers[int(rows[0]) : int(rows[0]) + 1]
        return None

    def first_batch_at(self, timestamp: int, start_offset: int) -> BatchHeaders | None:
        """Find the first batch with a timestamp (ms) at or after the given one and offsets from ``start_offset`` on.

        The checksums of the batches skipped on the way are checked here, since nobody reads them later.
        """
        boundary, largest = self._seek_time(timestamp), _NO_TIME
        for headers in self.single_headers(boundary):
            is_late = (headers.column("max_timestamp") >= timestamp) & (headers.column("last_offset") >= start_offset)
            rows = np.flatnonzero(is_late)
            passed = headers[: int(rows[0])] if len(rows) else headers
            refuse_damaged_batches(self.file, passed, self.segment.path(), READ_AROUND)
            if len(rows):
                return headers[int(rows[0]) : int(rows[0]) + 1]
            boundary = end_of(headers)
            largest = max(largest, int(headers.column("max_timestamp").max()))
        self.passed = largest, boundary
        return None

    def learn(self) -> None:
        """Keep what a search for a time has found in a sealed segment that turned out to be whole."""
        sealed = self.segment.sealed
        # The file may be another one than when the folder was listed.
        if sealed is not None and self.passed and self.file.modified_ns() == sealed.stamp.modified_ns:
            sealed.largest_time = self.passed[0]

    def read(self, header: BatchHeaders) -> Window:
        """Read the whole batch of a header."""
        position, batch_bytes = int(header.column("position")[0]), int(header.column("batch_bytes")[0])
        buffer = self.file.read(position, batch_bytes)
        headers = scan_headers(buffer, position)
        headers.column("lowest_offset")[:1] = header.column("lowest_offset")[:1]
        return Window(buffer, headers)

    def _seek_time(self, timestamp: int) -> OffsetPosition:
        """Find a batch boundary before which no batch is as late as a time, with the time index if there is one.

        The batch there, which proves that, is not as late either: the caller passes it, and checks it.
        """
        with self.index(files.TIME_INDEX) as index:
            entry = floor_time(index, self.segment.base_offset, timestamp) if index else None
        if entry is None:
            return self.start
        header = self.first_batch_from(entry.offset)
        if header is not None and header.column("max_timestamp")[0] == entry.timestamp:
            return OffsetPosition(int(header.column("position")[0]), self.segment.base_offset)
        self._distrust(files.TIME_INDEX, f"timestamp {entry.timestamp} at offset {entry.offset}")
        return self.start

    def index(self, suffix: str) -> AbstractContextManager[ReadableFile | None]:
        """Open an index; if it is missing, return a context manager with None."""
        try:
            return self.segment.file(suffix)
        except PathNotFoundError:
            return nullcontext()

    def header_at(self, position: int) -> BatchHeaders | None:
        """Return the header of the intact batch at a position from an index; None if there is none."""
        return whole_batch_at(self.file, position) if position >= 0 else None

    def _distrust(self, suffix: str, what: str) -> None:
        _log.warning("%s has an entry for %s, which the log contradicts: not using it", self.segment.path(suffix), what)

    def _checked(self, headers: BatchHeaders, lowest_offset: int) -> int:
        """Check that offsets ascend and stay in the segment; return the offset after the last batch."""
        self.resolve_zero(headers)
        if len(headers) == 1:  # Most scans have a few headers, and numpy takes longer than reading them.
            base_offset, last_offset = headers.numbers[0, BASE_OFFSET : LAST_OFFSET + 1].tolist()
            headers.numbers[0, LOWEST_OFFSET] = lowest_offset
            if base_offset < lowest_offset or last_offset >= self.segment.reach:
                raise self._out_of_order(headers, lowest_offset, self.segment.reach)
            return int(last_offset) + 1
        from sparklog.record.kernels.scan import set_lowest_offsets

        # A compressed wrapper lacks its base offset; its last offset stands for it until it is decoded.
        row = set_lowest_offsets(headers.numbers, lowest_offset, self.segment.reach)
        if row < len(headers):
            wrong = headers[row : row + 1]
            raise self._out_of_order(wrong, int(wrong.column("lowest_offset")[0]), self.segment.reach)
        return int(headers.column("last_offset")[-1]) + 1

    def _out_of_order(self, header: BatchHeaders, lowest_offset: int, upper_offset: int) -> CorruptBatchError:
        return CorruptBatchError(
            f"a batch of offsets {header.column('base_offset')[0]} to {header.column('last_offset')[0]} is out of "
            f"order: expected offsets from {lowest_offset} to {upper_offset - 1}",
            path=self.segment.path(),
            position=int(header.column("position")[0]),
            offset=lowest_offset,
            hint=READ_AROUND,
        )

    def resolve_zero(self, headers: BatchHeaders) -> None:
        """Set the offset of a wrapper of magic 1 at offset 0 to its last message's.

        The offset of a wrapper is its last message's, but old versions of librdkafka left it 0, and Kafka reads
        such wrappers. Only the first batch of a log can be at offset 0.
        """
        first = headers.table[0]
        if self.segment.base_offset or first["position"] or first["last_offset"] or first["magic"] != 1:
            return
        batch = self.file.read(0, int(first["batch_bytes"]))
        if first["record_count"] > 0 or not is_intact(batch):
            return
        from sparklog.record.batches.wrappers import last_offset_inside

        last_offset = last_offset_inside(batch)
        if last_offset is not None and last_offset > 0:
            first["base_offset"] = first["last_offset"] = last_offset

    def judge_checksum(self, start: OffsetPosition, reason: str) -> Damage:
        """Judge a batch with a wrong checksum, and find the next sound data."""
        return self._scanner().judge(
            start.position, start.offset, self.file.size_bytes(), reason, what=DamageKind.WRONG_CHECKSUM
        )

    def _goes_on(
        self, start: OffsetPosition, size_bytes: int, fault: str | None, what: DamageKind = DamageKind.NOT_A_BATCH
    ) -> bool:
        """Return whether the log continues at a boundary that had no whole batch: a live broker has just written one.

        Raises
        ------
        CorruptBatchError
            It does not, and the bytes there cannot be the torn end of the log.
        DataLossError, PathNotFoundError
            The file of a sealed segment was changed.
        """
        self._refuse_changed()
        if start.position >= size_bytes:
            return False
        # A reader stops here, and need not know the position of the next sound data.
        damage = self._scanner().judge(
            start.position, start.offset, size_bytes, fault, what=what, wants_next=self.is_to_be_cut
        )
        if self.segment.is_last:
            self.zeros_from = damage.zeros_from
        if damage.is_log_end or (self.is_to_be_cut and damage.may_be_torn):
            return False
        if self.segment.is_last and not self.is_to_be_cut and is_written_meanwhile(self.file, start.position):
            return True
        reason = damage.reason
        if damage.next_position is not None:
            reason = f"{reason}, and another batch follows it at position {damage.next_position}"
        elif damage.is_search_given_up:
            reason = f"{reason}, and too many bytes after it look like batches to search all of them for a sound one"
        hint = _CUT_OFF if self.segment.is_last else READ_AROUND
        raise CorruptBatchError(
            reason, path=self.segment.path(), position=start.position, offset=start.offset, hint=hint
        )

    def _refuse_changed(self) -> None:
        """Raise if the length of a sealed segment has changed since it was opened: no writer appends to it or cuts it.

        Copying a log over an older copy does: the end of the file is then not the end of the segment.
        """
        size_bytes = self.size_bytes if self.segment.is_last else self.file.size_bytes()
        change = f"{self.segment.path()} had {self.size_bytes} bytes when it was opened, and has {size_bytes} now"
        if size_bytes < self.size_bytes:
            raise DataLossError(f"{change}: it was cut while it was read")
        if size_bytes > self.size_bytes:
            raise PathNotFoundError(f"{change}: it is being written again")

    def scan(self, position: int, end_position: int | None = None, skips_from: int | None = None) -> WindowScan:
        """Scan whole batches up to the first other bytes; neither checksums nor offsets are checked."""
        return WindowScan(self.file, position, end_position, skips_from)

    def _scanner(self) -> DamageScanner:
        return DamageScanner(self.file, is_last=self.segment.is_last, upper_offset=self.segment.reach)


def end_of(headers: BatchHeaders) -> OffsetPosition:
    """Return the boundary after the last of some batches."""
    return OffsetPosition(headers.origin + headers.valid_bytes, int(headers.column("last_offset")[-1]) + 1)
