"""Verifies the segments of a partition, even while a broker writes to its folder.

Unfinished work of a broker is no damage, and is finished by the time of a second look. A segment with a problem is
verified again if it may still change: always if it is the last; an earlier one if its files differ from the listing,
and then the folder is listed again. Only problems that two looks find are reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.inspect.verify_epochs import EpochRun, EpochRuns
from sparklog.inspect.verify_gaps import Gap, OffsetGaps
from sparklog.inspect.verify_index import OffsetIndexCheck, ScanResult, TimeIndexCheck, TransactionIndexCheck
from sparklog.inspect.verify_segment import (
    TORN_TAIL,
    ZERO_TAIL,
    Finding,
    Severity,
    VerifyProgress,
    scan_segment,
    unreadable,
)
from sparklog.log import files
from sparklog.log.index import POSITION_MAX
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.log.segment_listing import list_segments

Event = Finding | VerifyProgress

_LISTINGS_MAX: Final = 20
_LOOKS_MAX: Final = 5
_PAUSE_S: Final = 0.05
_FINDINGS_HELD_MAX: Final = 10_000

_Key = tuple[Severity, str, str, int | None, int | None]


class _ReplacedError(Exception):
    """A segment was replaced while it was verified."""


def agreed_findings(
    look: Callable[[], Iterator[Event]],
    is_final: Callable[[], bool] | None = None,
    *,
    pause_seconds: float = _PAUSE_S,
) -> Iterator[Event]:
    """Look at something until two looks agree, and report only the problems that both found.

    Parameters
    ----------
    look : callable
        Looks once, yielding findings and progress; only the progress of the first look is passed on.
    is_final : callable, optional
        Called when a look found a problem: returns whether nothing can have changed, so that no second look is needed.
    pause_seconds : float
        The time between two looks.

    Yields
    ------
    Finding or Progress
        The notes come from the last look. More findings than can be held are not a broker's unfinished work, and are
        yielded as they come.
    """
    agreed: set[_Key] | None = None
    findings: list[Finding] = []
    for attempt in range(_LOOKS_MAX):
        if attempt:
            time.sleep(pause_seconds)
        findings = []
        for event in (events := look()):
            if isinstance(event, Finding):
                findings.append(event)
                if len(findings) > _FINDINGS_HELD_MAX:
                    yield from findings
                    yield from events
                    return
            elif not attempt:
                yield event
        problems = {_key(each) for each in findings if each.severity is not Severity.NOTE}
        if not problems or (agreed is not None and problems <= agreed):
            break
        if is_final is not None and is_final():
            break
        agreed = problems if agreed is None else problems & agreed
    for each in findings:
        if agreed is None or each.severity is Severity.NOTE or _key(each) in agreed:
            yield each


def _key(finding: Finding) -> _Key:
    """Return the part of a finding that two looks share; its message may contain a changing count."""
    return finding.severity, finding.code, finding.path, finding.position, finding.offset


def _too_long(segment: Segment) -> Finding:
    message = (
        f"it has {segment.size_bytes:,} bytes, and no broker starts on a directory with a segment above "
        f"{POSITION_MAX:,}: 'sparklog copy --keep-offsets' makes shorter ones"
    )
    return Finding(Severity.WARNING, "segment-size", segment.path(), message, POSITION_MAX)


class PartitionCheck:
    """Verifies the segments of a partition, which a broker may replace or remove meanwhile.

    Attributes
    ----------
    runs : list of EpochRun
        The leader epochs of the batches, in order.
    gaps : list of Gap
        The gaps at the ends of sealed segments.
    is_sparse : bool
        Whether offsets are missing elsewhere, as after a cleaning.
    has_segments : bool
        Whether there is any segment.
    end_offset : int
        The offset after the last sound batch.
    """

    def __init__(self, folder: PartitionFolder) -> None:
        self._at, self._storage, self._folder = folder, folder.storage, folder.location
        self._open_offsets: dict[int, int] = {}
        self._next_offset = 0
        self.runs: list[EpochRun] = []
        self.gaps: list[Gap] = []
        self.is_sparse = self.has_segments = False
        self.end_offset = 0

    def run(self) -> Iterator[Event]:
        """Verify every segment; list the folder again if one was replaced meanwhile."""
        listings = 0
        while listings < _LISTINGS_MAX:
            try:
                sizes = self._sizes()
                segments = list_segments(self._at)
            except PathNotFoundError:
                if not self._storage.is_folder(self._folder):
                    raise
                segments = None
            except SeglogError as error:
                yield unreadable(error, self._folder)
                return
            for segment in segments or ():
                if segment.upper_offset > self._next_offset:
                    is_verified = yield from self._segment(segment, sizes)
                    if not is_verified:
                        segments = None
                        break
                    listings = 0
            if segments is not None:
                return
            # After segments were replaced, the open transactions are not known.
            self._open_offsets = {}
            listings += 1
            time.sleep(_PAUSE_S)
        message = "its segments are replaced faster than they can be looked at: verify it again"
        yield Finding(Severity.WARNING, "unreadable", self._folder, message)

    def _segment(self, segment: Segment, sizes: Mapping[str, int]) -> Generator[Event, None, bool]:
        """Verify one segment; return False without a report if it was replaced or removed meanwhile."""
        check = _SegmentCheck(segment, {})

        def look() -> Iterator[Event]:
            nonlocal check
            check = _SegmentCheck(segment, dict(self._open_offsets))
            return check.run()

        def is_final() -> bool:
            if not segment.is_last and self._sizes_of(segment, sizes) != self._sizes_of(segment, self._sizes()):
                raise _ReplacedError
            return not segment.is_last

        try:
            yield from agreed_findings(look, is_final)
        except (PathNotFoundError, _ReplacedError):
            return False
        if segment.size_bytes > POSITION_MAX:
            yield _too_long(segment)
        self._fold(segment, check)
        return True

    def _fold(self, segment: Segment, check: _SegmentCheck) -> None:
        self._open_offsets = check.open_offsets
        self._next_offset = segment.upper_offset
        # A segment may have been merged into the one before it, which is then verified again.
        while self.runs and self.runs[-1].base_offset >= segment.base_offset:
            self.runs.pop()
        while self.gaps and self.gaps[-1].start_offset >= segment.base_offset:
            self.gaps.pop()
        self.runs += check.runs
        self.gaps += check.gaps
        self.is_sparse |= check.is_sparse
        self.has_segments = True
        self.end_offset = check.end_offset

    def _sizes(self) -> dict[str, int]:
        return {entry.name: entry.size_bytes for entry in self._storage.entries(self._folder)}

    def _sizes_of(self, segment: Segment, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of one segment's files, with any suffix."""
        stem = files.offset_file_name(segment.base_offset, ".")
        return {name: size for name, size in sizes.items() if name.startswith(stem)}


class _SegmentCheck:
    """Verifies a segment once: its batches and its indexes.

    Parameters
    ----------
    open_offsets : dict of int to int
        The first offset of each producer's transaction that is open where the segment begins, by producer id; changed
        to the ones open where it ends.
    """

    def __init__(self, segment: Segment, open_offsets: dict[int, int]) -> None:
        self._segment = segment
        self.open_offsets = open_offsets
        self.runs: list[EpochRun] = []
        self.gaps: list[Gap] = []
        self.is_sparse = False
        self.end_offset = segment.base_offset

    def run(self) -> Iterator[Event]:
        """Yield findings and progress; raise `PathNotFoundError` if the segment's log is gone."""
        segment = self._segment
        offsets, times = OffsetIndexCheck(segment), TimeIndexCheck(segment)
        transactions = TransactionIndexCheck(segment, self.open_offsets)
        epochs, gaps = EpochRuns(segment), OffsetGaps(segment)
        self.runs = epochs.runs
        end_position, tail, is_damaged = 0, None, False
        try:
            for event in scan_segment(segment):
                if isinstance(event, Finding):
                    is_damaged |= event.severity is Severity.ERROR
                    tail = event if event.code in (TORN_TAIL, ZERO_TAIL) else tail
                elif isinstance(event, VerifyProgress):
                    end_position += event.checked_bytes
                if isinstance(event, Event):
                    yield event
                    continue
                for check in (offsets, times, transactions, epochs, gaps):
                    check.add(event)
                self.end_offset = int(event.headers.column("last_offset")[-1]) + 1
        except PathNotFoundError:
            raise
        except SeglogError as error:
            yield unreadable(error, segment.path())
            return
        self.is_sparse = gaps.has_inner or is_damaged
        gap, missing_to = None if is_damaged else gaps.at_end(), None
        if gap is not None:
            known_offset = max(times.known_in(gap), offsets.known_in(gap))
            if known_offset < 0:
                self.gaps = [gap]
            else:
                missing_to = gap.end_offset
                yield gap.proven(known_offset)
        if tail is not None and tail.position is not None:
            end_position = tail.position
        is_torn = tail is not None and tail.code == TORN_TAIL
        result = ScanResult(end_position, is_damaged, is_torn, missing_to)
        for check in (offsets, times, transactions):
            yield from check.findings(result)
