"""Everything that can be wrong with a partition's folder, or with a whole log directory, as findings.

Nothing is changed, and nothing ends the look through: what cannot be read is a finding as well. Every batch and record
is decoded; indexes, leader epochs, producer snapshots and the checkpoints of the log directory are held against them.
A torn or zero-filled tail of the last segment is what a stopped broker leaves, and only a note.

The folder may be one that a broker writes to. What it is in the middle of is no damage, and it is over when a second
look is taken: a segment in which something seems to be wrong is looked at again where it may still change, and only
what two looks agree on is told.

Source of what a broker trips over: apache/kafka, LogLoader.java, LogManager.java, LocalLog.scala.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.log import files
from sparklog.log.checkpoints import parse_offset_checkpoint, parse_topic_id
from sparklog.log.files import TopicPartition
from sparklog.log.layout import list_segments
from sparklog.log.producer_state import parse_snapshot
from sparklog.log.segment import Segment
from sparklog.log.verify_epochs import EpochRun, EpochRuns, check_epochs
from sparklog.log.verify_gaps import Gap, OffsetGaps, likely_cuts
from sparklog.log.verify_index import Ending, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from sparklog.log.verify_names import (
    CHECKPOINTS,
    RegularFiles,
    foreign_in_directory,
    foreign_in_partition,
    is_log,
    orphans,
    special_in_directory,
)
from sparklog.log.verify_segment import TORN_TAIL, Checked, Finding, Severity, unreadable, walk_segment
from sparklog.storage.base import Entry, Storage, locate

__all__ = ["Checked", "Checkpoints", "Finding", "Severity", "read_checkpoints", "verify_directory", "verify_partition"]

_NAMES_SHOWN_MAX: Final = 5
_LISTINGS_MAX: Final = 20
_LOOKS_MAX: Final = 5
_PAUSE_S: Final = 0.05
_FINDINGS_HELD_MAX: Final = 10_000

Event = Finding | Checked


@dataclass(frozen=True)
class Checkpoints:
    """What the checkpoints of a log directory say, by the name of the file; those that can be read."""

    folder: str
    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)

    def of(self, partition: TopicPartition | None) -> dict[str, int]:
        """Return what they say of one partition, by the name of the file."""
        return (
            {name: lines[partition] for name, lines in self.offsets.items() if partition in lines} if partition else {}
        )


def read_checkpoints(storage: Storage, folder: str) -> tuple[Checkpoints, list[Finding]]:
    """Read the offset checkpoints of a log directory, and say what is wrong with them."""
    storage, offsets = RegularFiles(storage), dict[str, Mapping[TopicPartition, int]]()
    findings: list[Finding] = []
    for name in CHECKPOINTS:
        path = f"{folder}/{name}"
        try:
            data = storage.read_small(path)
            if data is not None:
                offsets[name] = parse_offset_checkpoint(data, path)
        except SeglogError as error:
            findings.append(unreadable(error, path))
    return Checkpoints(folder, offsets), findings


def verify_directory(path: str) -> Iterator[Event]:
    """Verify a log directory: its checkpoints, the names of its folders, and every partition in it.

    Folders that Kafka is deleting are passed over with a note.

    Yields
    ------
    Finding or Checked
        A file or folder at a time.

    Raises
    ------
    SeglogError
        The directory itself cannot be listed.
    """
    located = locate(path)
    storage, folder = RegularFiles(located.storage), located.path
    yield from special_in_directory(folder)
    entries = storage.entries(folder)
    checkpoints, findings = read_checkpoints(storage, folder)
    yield from findings
    yield from foreign_in_directory(folder, entries)
    yield from _absent_partitions(checkpoints, {entry.name for entry in entries})
    yield from _topic_ids(storage, folder, entries)
    for entry in entries:
        if not entry.is_folder or not is_log(entry.name):
            continue
        partition = f"{folder}/{entry.name}"
        try:
            yield from verify_partition(partition, checkpoints)
        except PathNotFoundError:
            yield Finding(Severity.NOTE, "gone", partition, "it went away before it was verified: a broker deletes it")
        except SeglogError as error:
            yield unreadable(error, partition)


def verify_partition(path: str, checkpoints: Checkpoints | None = None) -> Iterator[Event]:
    """Verify the folder of a partition, or one that Kafka has set aside.

    Parameters
    ----------
    path : str
        The folder.
    checkpoints : Checkpoints, optional
        Those of its log directory, from `read_checkpoints`; they are read here where they are not given.

    Yields
    ------
    Finding or Checked

    Raises
    ------
    SeglogError
        The folder itself cannot be listed.
    """
    located = locate(path)
    storage, folder = RegularFiles(located.storage), located.path
    parent, _, name = folder.rpartition("/")
    if checkpoints is None:
        checkpoints, findings = read_checkpoints(storage, parent)
        yield from findings
    yield from foreign_in_partition(located.storage, folder)
    entries = storage.entries(folder)
    yield from _metadata(storage, folder)
    partition = files.parse_partition_folder(name)
    said = checkpoints.of(partition)
    look = _PartitionLook(storage, folder)
    yield from look.run()
    yield from check_epochs(storage, folder, look.runs, said.get(files.LOG_START_CHECKPOINT, 0))
    if not look.is_sparse and not said.get(files.CLEANER_CHECKPOINT):
        yield from likely_cuts(look.gaps)
    for entry in entries:
        found = files.parse_offset_file(entry.name)
        if found is not None and found.suffix == files.SNAPSHOT:
            yield from _snapshot(storage, f"{folder}/{entry.name}", found.offset)
    yield from _orphans(storage, folder, entries)
    if look.has_segments and list(_against_checkpoints(checkpoints.folder, name, said, look.end_offset)):
        # Read again: the partition may have been deleted and made anew since they were read.
        said = read_checkpoints(storage, checkpoints.folder)[0].of(partition)
        yield from _against_checkpoints(checkpoints.folder, name, said, look.end_offset)


class _PartitionLook:
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
                segments = list_segments(self._storage, self._folder)
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
        self.runs = [run for run in self.runs if run.base_offset < segment.base_offset] + look.runs
        self.gaps = [gap for gap in self.gaps if gap.start_offset < segment.base_offset] + look.gaps
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
            for event in walk_segment(segment):
                if isinstance(event, Checked):
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
        ending = Ending(end_position, is_damaged, is_torn)
        gap = None if is_damaged else gaps.at_end()
        known = None if gap is None else max(check.known_in(gap) for check in (times, offsets))
        if gap is not None and known is not None and known >= 0:
            ending = Ending(end_position, is_damaged, is_torn, gap.end_offset)
            self.findings.append(gap.proven(known))
        elif gap is not None:
            self.gaps = [gap]
        for check in (offsets, times, transactions):
            self.findings += check.findings(ending)


_Key = tuple[Severity, str, str, int | None, int | None]


def _key(finding: Finding) -> _Key:
    """Return what is the same of a finding in two looks; the message may count how many there are."""
    return finding.severity, finding.code, finding.path, finding.position, finding.offset


def _snapshot(storage: Storage, path: str, offset: int) -> Iterator[Finding]:
    try:
        data = storage.read_small(path)
        try:
            entries = None if data is None else parse_snapshot(data, path)
        except SeglogError:
            # A broker writes it in place.
            time.sleep(_PAUSE_S)
            data = storage.read_small(path)
            entries = None if data is None else parse_snapshot(data, path)
    except SeglogError as error:
        finding = unreadable(error, path)
        if data == b"":
            message = "the snapshot is empty: a broker that dies while it writes one leaves it so, and does without it"
            finding = Finding(Severity.WARNING, finding.code, path, message)
        yield finding
        return
    if entries is not None and (entries["last_offset"] >= offset).any():
        last_offset = int(entries["last_offset"].max())
        message = f"a producer's last batch ends at offset {last_offset}, and the snapshot is of before offset {offset}"
        yield Finding(Severity.ERROR, "snapshot", path, message, None, last_offset)


def _metadata(storage: Storage, folder: str) -> Iterator[Finding]:
    """Check ``partition.metadata``, which every partition has but those of old brokers and the metadata log."""
    path = f"{folder}/{files.PARTITION_METADATA}"
    try:
        data = storage.read_small(path)
        if data is not None:
            parse_topic_id(data, path)
    except SeglogError as error:
        yield unreadable(error, path)


def _topic_ids(storage: Storage, folder: str, entries: list[Entry]) -> Iterator[Finding]:
    """Check that the partitions of a topic have the same topic id."""
    first: dict[str, tuple[str, str]] = {}
    without: list[str] = []
    for entry in entries:
        partition = files.parse_partition_folder(entry.name) if entry.is_folder else None
        path = f"{folder}/{entry.name}/{files.PARTITION_METADATA}"
        try:
            data = storage.read_small(path) if partition else None
            topic_id = parse_topic_id(data, path) if data is not None else None
        except SeglogError:
            continue
        if partition is not None and topic_id is None:
            without.append(entry.name)
        if partition is None or topic_id is None:
            continue
        other_id, other = first.setdefault(partition.topic, (topic_id, entry.name))
        if other_id != topic_id:
            message = f"topic id {topic_id} is not {other_id}, that of {other}: it is of another topic of that name"
            yield Finding(Severity.ERROR, "topic-id", path, message)
    if without:
        message = (
            f"no topic id in {_listed(without)}: old brokers wrote none, and a KRaft broker sets such folders aside"
        )
        yield Finding(Severity.NOTE, "topic-id", folder, message)


def _orphans(storage: Storage, folder: str, entries: list[Entry]) -> Iterator[Finding]:
    """Find indexes whose log was not there when the folder was first listed, and is not there now."""
    for name in sorted(orphans(entries) & orphans(storage.entries(folder)) if orphans(entries) else ()):
        message = "an index without its log: a broker deletes it"
        yield Finding(Severity.WARNING, "orphan", f"{folder}/{name}", message)


def _against_checkpoints(folder: str, name: str, said: Mapping[str, int], end_offset: int) -> Iterator[Finding]:
    """Hold the log end offset against what the checkpoints of the log directory say of the partition of a name."""
    for checkpoint, severity, meaning in (
        (files.LOG_START_CHECKPOINT, Severity.ERROR, "a broker would delete the whole log"),
        (files.HIGH_WATERMARK_CHECKPOINT, Severity.ERROR, "records that were committed are gone"),
        (files.RECOVERY_POINT_CHECKPOINT, Severity.ERROR, "records that were flushed are gone"),
        (files.CLEANER_CHECKPOINT, Severity.WARNING, "the cleaner would begin again at the start"),
    ):
        offset = said.get(checkpoint, 0)
        if offset > end_offset:
            message = f"offset {offset} of {name} is past the end of its log, {end_offset}: {meaning}"
            yield Finding(severity, "checkpoint", f"{folder}/{checkpoint}", message, None, end_offset)


def _absent_partitions(checkpoints: Checkpoints, names: set[str]) -> Iterator[Finding]:
    for checkpoint, lines in checkpoints.offsets.items():
        absent = sorted(str(partition) for partition in lines if str(partition) not in names)
        if absent:
            message = f"names partitions that are not here: {_listed(absent)}"
            yield Finding(Severity.NOTE, "checkpoint", f"{checkpoints.folder}/{checkpoint}", message)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more"
