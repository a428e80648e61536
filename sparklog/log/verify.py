"""Everything that can be wrong with a partition's folder, or with a whole log directory, as findings.

Nothing is changed, and nothing ends the look through: what cannot be read is a finding as well. Every batch and record
is decoded; indexes, leader epochs, producer snapshots and the checkpoints of the log directory are held against them.
A torn or zero-filled tail of the last segment is what a stopped broker leaves, and only a note.

Source of what a broker trips over: apache/kafka, LogLoader.java, LogManager.java, LocalLog.scala.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs, parse_offset_checkpoint, parse_topic_id
from sparklog.log.files import TopicPartition
from sparklog.log.journal import JOURNAL, OWN_PREFIX
from sparklog.log.layout import list_segments
from sparklog.log.producer_state import parse_snapshot
from sparklog.log.segment import Segment
from sparklog.log.staging import STAGED
from sparklog.log.verify_index import Ending, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from sparklog.log.verify_segment import TORN_TAIL, Checked, Finding, Severity, Stretch, walk_segment
from sparklog.storage.base import Entry, Storage, locate

__all__ = ["Checked", "Checkpoints", "Finding", "Severity", "read_checkpoints", "verify_directory", "verify_partition"]

_CHECKPOINTS: Final = (
    files.LOG_START_CHECKPOINT,
    files.HIGH_WATERMARK_CHECKPOINT,
    files.RECOVERY_POINT_CHECKPOINT,
    files.CLEANER_CHECKPOINT,
)
_BROKER_FILES: Final = frozenset(
    {*_CHECKPOINTS, files.CLEAN_SHUTDOWN, "meta.properties", "bootstrap.checkpoint", ".lock"}
)
_PARTITION_FILES: Final = frozenset({files.LEADER_EPOCH_CHECKPOINT, files.PARTITION_METADATA, "quorum-state"})
_SEGMENT_SUFFIXES: Final = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TRANSACTION_INDEX)
_PASSING_SUFFIXES: Final = (files.DELETED, files.CLEANED, files.SWAP)
_SET_ASIDE: Final = re.compile(r"\S+-\S+\.\S+-(delete|future|stray)")
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_ZERO_TOPIC_ID: Final = "A" * 22
_REMOTE_CACHE: Final = "remote-log-index-cache"
_NAMES_SHOWN_MAX: Final = 5
_STAGED: Final = "of a write that was not committed, or is on its way: 'sparklog recover' removes old ones"

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
    offsets: dict[str, Mapping[TopicPartition, int]] = {}
    findings: list[Finding] = []
    for name in _CHECKPOINTS:
        path = f"{folder}/{name}"
        try:
            data = storage.read_small(path)
            if data is not None:
                offsets[name] = parse_offset_checkpoint(data, path)
        except SeglogError as error:
            findings.append(_unreadable(error, path))
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
    storage, folder = located.storage, located.path
    entries = storage.entries(folder)
    checkpoints, findings = read_checkpoints(storage, folder)
    yield from findings
    yield from _foreign_in_directory(folder, entries)
    yield from _absent_partitions(checkpoints, {entry.name for entry in entries})
    yield from _topic_ids(storage, folder, entries)
    for entry in entries:
        if entry.is_folder and _is_log(entry.name):
            yield from verify_partition(f"{folder}/{entry.name}", checkpoints)


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
    storage, folder = located.storage, located.path
    parent, _, name = folder.rpartition("/")
    if checkpoints is None:
        checkpoints, findings = read_checkpoints(storage, parent)
        yield from findings
    entries = storage.entries(folder)
    yield from _foreign_in_partition(folder, entries)
    yield from _metadata(storage, folder)
    said = checkpoints.of(files.parse_partition_folder(name))
    try:
        segments = list_segments(storage, folder)
    except SeglogError as error:
        yield _unreadable(error, folder)
        return
    epochs = _EpochCheck(storage, folder, said.get(files.LOG_START_CHECKPOINT, 0))
    open_offsets: dict[int, int] = {}
    end_offset = 0
    for segment in segments:
        end_offset = yield from _segment(segment, epochs, open_offsets)
    yield from epochs.findings()
    for entry in entries:
        found = files.parse_offset_file(entry.name)
        if found is not None and found.suffix == files.SNAPSHOT:
            yield from _snapshot(storage, f"{folder}/{entry.name}", found.offset)
    if segments:
        yield from _against_checkpoints(checkpoints.folder, folder, said, end_offset)


def _segment(segment: Segment, epochs: _EpochCheck, open_offsets: dict[int, int]) -> Generator[Event, None, int]:
    """Verify one segment and return the offset after its last sound batch."""
    offsets, times = OffsetIndexCheck(segment), TimeIndexCheck(segment)
    transactions = TransactionIndexCheck(segment, open_offsets)
    end_offset, end_position, is_damaged, is_torn = segment.base_offset, 0, False, False
    try:
        for event in walk_segment(segment):
            if not isinstance(event, Stretch):
                is_damaged |= isinstance(event, Finding) and event.severity is Severity.ERROR
                is_torn |= isinstance(event, Finding) and event.code == TORN_TAIL
                yield event
                continue
            for check in (offsets, times, transactions, epochs):
                check.see(event)
            end_position = event.headers.origin + event.headers.valid_bytes
            last_offsets = event.sound.column("last_offset")
            if len(last_offsets):
                end_offset = int(last_offsets[-1]) + 1
    except SeglogError as error:
        yield _unreadable(error, segment.path())
        return end_offset
    ending = Ending(end_position, is_damaged, is_torn)
    for index_check in (offsets, times, transactions):
        yield from index_check.findings(ending)
    return end_offset


class _EpochCheck:
    """The leader epochs of a partition's batches, against each other and against the checkpoint."""

    def __init__(self, storage: Storage, folder: str, start_offset: int) -> None:
        self._path = f"{folder}/{files.LEADER_EPOCH_CHECKPOINT}"
        self._start_offset = start_offset
        self._findings: list[Finding] = []
        self._epochs, self._starts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._last_epoch, self._is_told = -1, False
        try:
            data = storage.read_small(self._path)
            lines = [] if data is None else parse_leader_epochs(data, self._path)
        except SeglogError as error:
            self._findings.append(_unreadable(error, self._path))
            return
        if lines:
            self._epochs, self._starts = np.array(lines, dtype=np.int64).T
        if (np.diff(self._epochs) <= 0).any() or (np.diff(self._starts) <= 0).any():
            self._findings.append(
                Finding(Severity.ERROR, "leader-epoch", self._path, "epochs and their start offsets must ascend")
            )
            self._epochs = self._epochs[:0]

    def see(self, stretch: Stretch) -> None:
        headers = stretch.sound.where(stretch.sound.column("leader_epoch") >= 0)
        if not len(headers):
            return
        epochs, last_offsets = headers.column("leader_epoch"), headers.column("last_offset")
        falls = epochs < np.concatenate([[self._last_epoch], epochs[:-1]])
        self._last_epoch = int(epochs[-1])
        differs = np.zeros(len(headers), dtype=bool)
        if len(self._epochs):
            rows = np.searchsorted(self._starts, last_offsets, side="right") - 1
            differs = (last_offsets >= self._start_offset) & ((rows < 0) | (epochs != self._epochs[rows]))
        wrong = falls | differs
        if wrong.any() and not self._is_told:
            self._is_told = True
            row = int(np.argmax(wrong))
            reason = "lower than that of the batch before it" if falls[row] else "not the one of the checkpoint"
            offset = int(headers.column("base_offset")[row])
            message = f"the batch at offset {offset} is of leader epoch {epochs[row]}, {reason}"
            self._findings.append(Finding(Severity.ERROR, "leader-epoch", self._path, message, None, offset))

    def findings(self) -> list[Finding]:
        return self._findings


def _snapshot(storage: Storage, path: str, offset: int) -> Iterator[Finding]:
    try:
        data = storage.read_small(path)
        entries = None if data is None else parse_snapshot(data, path)
    except SeglogError as error:
        yield _unreadable(error, path)
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
        topic_id = None if data is None else parse_topic_id(data, path)
    except SeglogError as error:
        yield _unreadable(error, path)
        return
    if topic_id is not None and (not _TOPIC_ID.fullmatch(topic_id) or topic_id == _ZERO_TOPIC_ID):
        yield Finding(Severity.ERROR, "topic-id", path, f"{topic_id!r} is not a topic id")


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


def _against_checkpoints(folder: str, partition: str, said: Mapping[str, int], end_offset: int) -> Iterator[Finding]:
    """Hold the log end offset against what the checkpoints of the log directory say of the partition."""
    name = partition.rpartition("/")[2]
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


def _is_log(name: str) -> bool:
    """Whether a folder of a log directory is a log to verify."""
    aside = _SET_ASIDE.fullmatch(name)
    if aside is not None:
        return aside[1] != "delete"
    return files.parse_partition_folder(name) is not None or name.startswith(f"{files.METADATA_TOPIC}-")


def _foreign_in_directory(folder: str, entries: list[Entry]) -> Iterator[Finding]:
    for entry in entries:
        path = f"{folder}/{entry.name}"
        if entry.is_folder and _SET_ASIDE.fullmatch(entry.name):
            if not _is_log(entry.name):
                yield Finding(Severity.NOTE, "set-aside", path, "Kafka was deleting it: not verified")
        elif entry.is_folder and not _is_log(entry.name) and entry.name != _REMOTE_CACHE:
            message = "not the folder of a topic partition: a broker refuses to start with it in its log directory"
            yield Finding(Severity.ERROR, "foreign-name", path, message)
        elif entry.name == JOURNAL:
            message = "a commit that was decided is not done: the next write, or 'sparklog recover', finishes it"
            yield Finding(Severity.WARNING, "unfinished", path, message)
        elif entry.name.endswith(STAGED):
            yield Finding(Severity.NOTE, "unfinished", path, _STAGED)
        elif (
            not entry.is_folder
            and not entry.name.startswith((OWN_PREFIX, files.CLEAN_SHUTDOWN))
            and entry.name.removesuffix(".tmp") not in _BROKER_FILES
        ):
            yield Finding(Severity.NOTE, "foreign-name", path, "not a file of Kafka's")


def _foreign_in_partition(folder: str, entries: list[Entry]) -> Iterator[Finding]:
    logs = {entry.name for entry in entries if entry.name.endswith(files.LOG)}
    for entry in entries:
        finding = _of_name(entry, logs)
        if finding is not None:
            severity, code, message = finding
            yield Finding(severity, code, f"{folder}/{entry.name}", message)


def _of_name(entry: Entry, logs: set[str]) -> tuple[Severity, str, str] | None:
    """Say what is to be said of one name in a partition's folder."""
    name = entry.name
    found = files.parse_offset_file(name)
    if name.endswith(STAGED):
        return Severity.NOTE, "unfinished", _STAGED
    if files.is_cut_file(name):
        return Severity.NOTE, "cut", "what recovery cut off a segment: 'sparklog recover --drop-cut' removes it"
    if entry.is_folder and found is None:
        return Severity.NOTE, "foreign-name", "a folder, which no broker makes here"
    if found is None:
        if name.endswith(_SEGMENT_SUFFIXES):
            return Severity.ERROR, "foreign-name", "its name is not an offset: a broker fails to load the partition"
        is_known = name.removesuffix(".tmp") in _PARTITION_FILES or _METADATA_SNAPSHOT.fullmatch(name)
        return None if is_known else (Severity.NOTE, "foreign-name", "not a file of Kafka's")
    if not entry.is_file:
        return Severity.ERROR, "foreign-name", "not a regular file, nor a link to one: it is not read"
    if found.suffix.endswith(_PASSING_SUFFIXES):
        return Severity.NOTE, "unfinished", "left over where a broker stopped: it finishes or removes it when it starts"
    if found.suffix in _SEGMENT_SUFFIXES[1:] and files.offset_file_name(found.offset, files.LOG) not in logs:
        return Severity.WARNING, "orphan", "an index without its log: a broker deletes it"
    return None


def _unreadable(error: SeglogError, path: str) -> Finding:
    if isinstance(error, CorruptLogError):
        code = "corrupt-file"
        return Finding(Severity.ERROR, code, error.path or path, error.reason, error.position, error.offset)
    return Finding(Severity.ERROR, "unreadable", path, error.message)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more"
