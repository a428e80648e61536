"""Everything that can be wrong with a partition's folder, or with a whole log directory, as findings.

Nothing is changed, and nothing ends the look through: what cannot be read is a finding as well. Every batch and record
is decoded; indexes, leader epochs, producer snapshots and the checkpoints of the log directory are held against them.
A torn or zero-filled tail of the last segment is what a stopped broker leaves, and only a note.

The folder may be one that a broker writes to: what it is in the middle of is no damage, and is not told as such.

Source of what a broker trips over: apache/kafka, LogLoader.java, LogManager.java, LocalLog.scala.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.inspect.verify_epochs import check_epochs
from sparklog.inspect.verify_gaps import likely_cuts
from sparklog.inspect.verify_look import Event, PartitionLook
from sparklog.inspect.verify_names import (
    CHECKPOINTS,
    foreign_in_directory,
    foreign_in_partition,
    is_log,
    orphans,
)
from sparklog.inspect.verify_segment import Finding, Progress, Severity, unreadable
from sparklog.log import files
from sparklog.log.checkpoints import parse_offset_checkpoint, parse_topic_id
from sparklog.log.files import TopicPartition
from sparklog.log.places import join_path, split_path
from sparklog.log.producer_state import parse_snapshot
from sparklog.storage.base import Entry, Storage
from sparklog.storage.registry import locate

__all__ = ["Checkpoints", "Finding", "Progress", "Severity", "read_checkpoints", "verify_directory", "verify_partition"]

_NAMES_SHOWN_MAX: Final = 5
_PAUSE_S: Final = 0.05


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
    offsets = dict[str, Mapping[TopicPartition, int]]()
    findings: list[Finding] = []
    for name in CHECKPOINTS:
        path = join_path(folder, name)
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
    Finding or Progress
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
    yield from foreign_in_directory(folder, entries)
    yield from _absent_partitions(checkpoints, {entry.name for entry in entries})
    yield from _topic_ids(storage, folder, entries)
    for entry in entries:
        if not entry.is_folder or not is_log(entry.name):
            continue
        partition = join_path(folder, entry.name)
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
    Finding or Progress

    Raises
    ------
    SeglogError
        The folder itself cannot be listed.
    """
    located = locate(path)
    storage, folder = located.storage, located.path
    parent, name = split_path(folder)
    if checkpoints is None:
        checkpoints, findings = read_checkpoints(storage, parent)
        yield from findings
    entries = storage.entries(folder)
    yield from foreign_in_partition(folder, entries)
    yield from _metadata(storage, folder)
    partition = files.parse_partition_folder(name)
    said = checkpoints.of(partition)
    look = PartitionLook(storage, folder)
    yield from look.run()
    yield from check_epochs(storage, folder, look.runs, said.get(files.LOG_START_CHECKPOINT, 0))
    if not look.is_sparse and not said.get(files.CLEANER_CHECKPOINT):
        yield from likely_cuts(look.gaps)
    for entry in entries:
        found = files.parse_offset_file(entry.name)
        if found is not None and found.suffix == files.SNAPSHOT:
            yield from _snapshot(storage, join_path(folder, entry.name), found.offset)
    yield from _orphans(storage, folder, entries)
    if look.has_segments and list(_against_checkpoints(checkpoints.folder, name, said, look.end_offset)):
        # Read again: the partition may have been deleted and made anew since they were read.
        said = read_checkpoints(storage, checkpoints.folder)[0].of(partition)
        yield from _against_checkpoints(checkpoints.folder, name, said, look.end_offset)


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
    path = join_path(folder, files.PARTITION_METADATA)
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
        path = join_path(join_path(folder, entry.name), files.PARTITION_METADATA)
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
        yield Finding(Severity.WARNING, "orphan", join_path(folder, name), message)


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
            yield Finding(severity, "checkpoint", join_path(folder, checkpoint), message, None, end_offset)


def _absent_partitions(checkpoints: Checkpoints, names: set[str]) -> Iterator[Finding]:
    for checkpoint, lines in checkpoints.offsets.items():
        absent = sorted(str(partition) for partition in lines if str(partition) not in names)
        if absent:
            message = f"names partitions that are not here: {_listed(absent)}"
            yield Finding(Severity.NOTE, "checkpoint", join_path(checkpoints.folder, checkpoint), message)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more"
