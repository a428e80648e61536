"""The look through the segments of a partition, whose folder may be one that a broker writes to.

What a broker is in the middle of is no damage, and it is over when a second look is taken. A segment in which something
seems to be wrong is looked at again where it may still change: the last one always, and an earlier one where its files
are not those that were listed, which are then listed again. What two looks agree on is told.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.inspect.verify_epochs import EpochRun, EpochRuns
from sparklog.inspect.verify_gaps import Gap, OffsetGaps
from sparklog.inspect.verify_index import OffsetIndexCheck, ScanResult, TimeIndexCheck, TransactionIndexCheck
from sparklog.inspect.verify_segment import TORN_TAIL, Finding, Progress, Severity, scan_segment, unreadable
from sparklog.log import files
from sparklog.log.layout import list_segments
from sparklog.log.places import PartitionFolder
from sparklog.log.segment import Segment
from sparklog.storage.base import Storage

Event = Finding | Progress

_LISTINGS_MAX: Final = 20
_LOOKS_MAX: Final = 5
_PAUSE_S: Final = 0.05
_FINDINGS_HELD_MAX: Final = 10_000

_Key = tuple[Severity, str, str, int | None, int | None]


class PartitionLook:
    """The look through the segments of a partition, some of which a broker may replace or remove meanwhile.

    Attributes
    ----------
    runs : list of EpochRun
        The leader epochs of what was seen, in order.
    gaps : list of Gap
        Where sealed segments end before the next one begins.
    is_sparse : bool
        Whether offsets are missing elsewhere, as the cleaner leaves them.
    end_offset : int
        The offset after the last sound batch.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._open_offsets: dict[int, int] = {}
        self._next_offset = 0
        self.runs: list[EpochRun] = []
        self.gaps: list[Gap] = []
        self.is_sparse = self.has_segments = False
        self.end_offset = 0

    def run(self) -> Iterator[Event]:
        stalls = 0
        while stalls < _LISTINGS_MAX:
            try:
                sizes = self._sizes()
                segments = list_segments(PartitionFolder.at(self._storage, self._folder))
            except PathNotFoundError:
                if not self._storage.is_folder(self._folder):
                    raise
                segments = None
            except SeglogError as error:
                yield unreadable(error, self._folder)
                return
            for segment in segments or ():
                if segment.upper_offset > self._next_offset:
                    is_seen = yield from self._segment(segment, sizes)
                    if not is_seen:
                        segments = None
                        break
                    stalls = 0
            if segments is not None:
                return
            # What the transactions were before is not known of segments that took the place of others.
            self._open_offsets = {}
            stalls += 1
            time.sleep(_PAUSE_S)
        message = "its segments are replaced faster than they can be looked at: verify it again"
        yield Finding(Severity.WARNING, "unreadable", self._folder, message)

    def _segment(self, segment: Segment, sizes: Mapping[str, int]) -> Generator[Event, None, bool]:
        """Verify one segment; return False, having told nothing, where it was replaced or removed meanwhile."""
        agreed: set[_Key] | None = None
        for attempt in range(_LOOKS_MAX):
            look = _SegmentLook(segment, dict(self._open_offsets))
            try:
                yield from look.run(tells_progress=attempt == 0)
            except PathNotFoundError:
                return False
            problems = {_key(each) for each in look.findings if each.severity is not Severity.NOTE}
            if not problems or look.is_told:
                break
            if not segment.is_last:
                if self._sizes_of(segment, sizes) != self._sizes_of(segment, self._sizes()):
                    return False
                break
            if agreed is not None and problems <= agreed:
                break
            agreed = problems if agreed is None else problems & agreed
            time.sleep(_PAUSE_S)
        for each in look.findings:
            if agreed is None or each.severity is Severity.NOTE or _key(each) in agreed:
                yield each
        self._fold(segment, look)
        return True

    def _fold(self, segment: Segment, look: _SegmentLook) -> None:
        self._open_offsets = look.open_offsets
        self._next_offset = segment.upper_offset
        # A segment may have been merged into the one before it, which is then seen again.
        while self.runs and self.runs[-1].base_offset >= segment.base_offset:
            self.runs.pop()
        while self.gaps and self.gaps[-1].start_offset >= segment.base_offset:
            self.gaps.pop()
        self.runs += look.runs
        self.gaps += look.gaps
        self.is_sparse |= look.is_sparse
        self.has_segments = True
        self.end_offset = look.end_offset

    def _sizes(self) -> dict[str, int]:
        return {entry.name: entry.size_bytes for entry in self._storage.entries(self._folder)}

    def _sizes_of(self, segment: Segment, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the files of one segment, whatever is behind their names."""
        stem = files.offset_file_name(segment.base_offset, ".")
        return {name: size for name, size in sizes.items() if name.startswith(stem)}


class _SegmentLook:
    """One look at a segment: its batches, its indexes, and what is wrong with them.

    Parameters
    ----------
    open_offsets : dict of int to int
        By producer id, the first offset of its transaction that is open where the segment begins; changed to what is
        open where it ends.
    """

    def __init__(self, segment: Segment, open_offsets: dict[int, int]) -> None:
        self._segment = segment
        self.open_offsets = open_offsets
        self.findings: list[Finding] = []
        self.runs: list[EpochRun] = []
        self.gaps: list[Gap] = []
        self.is_sparse = self.is_told = False
        self.end_offset = segment.base_offset

    def run(self, *, tells_progress: bool) -> Iterator[Event]:
        """Look at it; `PathNotFoundError` where its log is gone."""
        segment = self._segment
        offsets, times = OffsetIndexCheck(segment), TimeIndexCheck(segment)
        transactions = TransactionIndexCheck(segment, self.open_offsets)
        epochs, gaps = EpochRuns(segment), OffsetGaps(segment)
        self.runs = epochs.runs
        end_position, is_damaged, is_torn = 0, False, False
        try:
            for event in scan_segment(segment):
                if isinstance(event, Progress):
                    if tells_progress:
                        yield event
                elif isinstance(event, Finding):
                    is_damaged |= event.severity is Severity.ERROR
                    is_torn |= event.code == TORN_TAIL
                    self.findings.append(event)
                    if len(self.findings) > _FINDINGS_HELD_MAX:
                        # So much is no broker at work, and need not be seen twice.
                        yield from self.findings
                        self.findings, self.is_told = [], True
                else:
                    for check in (offsets, times, transactions, epochs, gaps):
                        check.see(event)
                    end_position = event.headers.origin + event.headers.valid_bytes
                    last_offsets = event.sound.column("last_offset")
                    if len(last_offsets):
                        self.end_offset = int(last_offsets[-1]) + 1
        except PathNotFoundError:
            raise
        except SeglogError as error:
            self.findings.append(unreadable(error, segment.path()))
            return
        self.is_sparse = gaps.has_inner or is_damaged
        missing_to = None if is_damaged else self._judge_end(gaps.at_end(), offsets, times)
        ending = ScanResult(end_position, is_damaged, is_torn, missing_to)
        for check in (offsets, times, transactions):
            self.findings += check.findings(ending)

    def _judge_end(self, gap: Gap | None, offsets: OffsetIndexCheck, times: TimeIndexCheck) -> int | None:
        """Say so where the segment has lost its end; return the offset up to which an index proves it, exclusive."""
        if gap is None:
            return None
        known_offset = max(times.known_in(gap), offsets.known_in(gap))
        if known_offset < 0:
            self.gaps = [gap]
            return None
        self.findings.append(gap.proven(known_offset))
        return gap.end_offset


def _key(finding: Finding) -> _Key:
    """Return what is the same of a finding in two looks; the message may count how many there are."""
    return finding.severity, finding.code, finding.path, finding.position, finding.offset
