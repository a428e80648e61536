"""Verifies a partition's folder or a log directory; every fault is a finding.

Nothing is changed, and no damage ends the work: an unreadable file is a finding as well. Every batch and record is
decoded; indexes, leader epochs, producer snapshots and the checkpoints of the log directory are compared with them. A
torn or zero-filled tail of the last segment is only a note, since a broker that stops may leave one.

A broker may be writing to the folder. Its unfinished work is no damage, and not reported.

Source, for the faults on which a broker fails: apache/kafka, LogLoader.java, LogManager.java, LocalLog.scala.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sparklog.errors import PathNotFoundError, SeglogError
from sparklog.inspect.verify_epochs import check_epochs
from sparklog.inspect.verify_gaps import likely_cuts
from sparklog.inspect.verify_log import Event, PartitionCheck, agreed_findings
from sparklog.inspect.verify_names import (
    CHECKPOINTS,
    foreign_in_directory,
    foreign_in_partition,
    is_log,
    orphans,
)
from sparklog.inspect.verify_segment import Finding, Severity, unreadable
from sparklog.log import files
from sparklog.log.checkpoints import parse_topic_id
from sparklog.log.directory_view import kept_checkpoints
from sparklog.log.files import TopicPartition
from sparklog.log.places import LogDirectory, PartitionFolder, join_path
from sparklog.log.producer_state import parse_snapshot
from sparklog.log.scans.losses import LostSegments, never_compacted
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import Entry, Storage

_NAMES_SHOWN_MAX: Final = 5


@dataclass(frozen=True)
class Checkpoints:
    """The offsets in the readable checkpoints of a log directory, by file name."""

    folder: str
    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)

    def of(self, partition: TopicPartition | None) -> dict[str, int]:
        """Return the offsets of one partition, by file name."""
        return (
            {name: lines[partition] for name, lines in self.offsets.items() if partition in lines} if partition else {}
        )


def read_checkpoints(directory: LogDirectory) -> tuple[Checkpoints, list[Finding]]:
    """Read the offset checkpoints of a log directory; return them and the findings about them."""
    offsets = dict[str, Mapping[TopicPartition, int]]()
    findings: list[Finding] = []
    for name in CHECKPOINTS:
        path = directory.file(name)
        try:
            found = kept_checkpoints.read(directory, name)
            if found is not None:
                offsets[name] = found
        except SeglogError as error:
            findings.append(unreadable(error, path))
    return Checkpoints(directory.path, offsets), findings


def logs_in(directory: LogDirectory) -> list[PartitionFolder]:
    """List the logs of a directory to verify, without the folders that Kafka is deleting."""
    entries = directory.storage.entries(directory.path)
    return [directory.folder(entry.name) for entry in entries if entry.is_folder and is_log(entry.name)]


def verify_directory(directory: LogDirectory) -> Iterator[Finding]:
    """Verify a log directory itself, without its logs: the checkpoints, the names in it, and the topic ids.

    Raises
    ------
    SeglogError
        The directory cannot be listed.
    """
    entries = directory.storage.entries(directory.path)
    checkpoints, findings = read_checkpoints(directory)
    yield from findings
    yield from foreign_in_directory(directory.path, entries)
    yield from _absent_partitions(checkpoints, {entry.name for entry in entries})
    yield from _topic_ids(directory.storage, directory.path, entries)


def verify_partitions(folders: Sequence[PartitionFolder], directory: LogDirectory | None = None) -> Iterator[Event]:
    """Verify partitions one by one with `verify_partition`; one that cannot be read is a finding.

    Parameters
    ----------
    directory : LogDirectory, optional
        The log directory of all of them, if `verify_directory` reports the faults of its checkpoints. A missing folder
        is then a note.

    Raises
    ------
    PathNotFoundError
        There is no such folder.
    """
    checkpoints = None if directory is None else read_checkpoints(directory)[0]
    for folder in folders:
        try:
            yield from verify_partition(folder, checkpoints)
        except PathNotFoundError:
            if directory is None:
                raise
            message = "it went away before it was verified: a broker deletes it"
            yield Finding(Severity.NOTE, "gone", folder.location, message)
        except SeglogError as error:
            yield unreadable(error, folder.location)


def verify_partition(at: PartitionFolder, checkpoints: Checkpoints | None = None) -> Iterator[Event]:
    """Verify the folder of a partition, or one that Kafka has set aside.

    Parameters
    ----------
    at : PartitionFolder
    checkpoints : Checkpoints, optional
        The checkpoints of its log directory, from `read_checkpoints`; read here if they are not given.

    Yields
    ------
    Finding or Progress

    Raises
    ------
    SeglogError
        The folder itself cannot be listed.
    """
    storage, folder, partition = at.storage, at.location, at.topic_partition
    if checkpoints is None:
        checkpoints, findings = read_checkpoints(at.directory)
        yield from findings
    entries = storage.entries(folder)
    yield from foreign_in_partition(folder, entries)
    yield from _metadata(storage, folder)
    offsets = checkpoints.of(partition)
    check = PartitionCheck(at)
    yield from check.run()
    yield from check_epochs(storage, folder, check.runs, offsets.get(files.LOG_START_CHECKPOINT, 0))
    lost = LostSegments(at)
    if not check.is_sparse and not offsets.get(files.CLEANER_CHECKPOINT):
        gaps = [gap for gap in check.gaps if not lost.within(gap.start_offset, gap.end_offset)]
        yield from likely_cuts(gaps, is_proven=all(gap.magic == 2 for gap in gaps) and never_compacted(at))
    for entry in entries:
        found = files.parse_offset_file(entry.name)
        if found is not None and found.suffix == files.SNAPSHOT:
            # A broker writes a snapshot in place.
            yield from agreed_findings(partial(_snapshot, storage, join_path(folder, entry.name), found.offset))
    holes = [(gap.start_offset, gap.end_offset) for gap in check.gaps] + [(check.end_offset, OFFSET_MAX)]
    yield from _orphans(storage, folder, entries, {base for hole in holes for base in lost.within(*hole)})
    if check.has_segments and list(_past_end(checkpoints.folder, at.name, offsets, check.end_offset)):
        # Read the checkpoints again: the partition may have been deleted and created again since.
        offsets = read_checkpoints(at.directory)[0].of(partition)
        yield from _past_end(checkpoints.folder, at.name, offsets, check.end_offset)


def _snapshot(storage: Storage, path: str, offset: int) -> Iterator[Finding]:
    try:
        data = storage.read_small(path)
        entries = None if data is None else parse_snapshot(data, path)
    except SeglogError as error:
        finding = unreadable(error, path)
        if data == b"":
            message = "the snapshot is empty: a broker that dies while writing one leaves it empty, and does without it"
            finding = Finding(Severity.WARNING, finding.code, path, message)
        yield finding
        return
    if entries is not None and (entries["last_offset"] >= offset).any():
        last_offset = int(entries["last_offset"].max())
        message = f"a producer's last batch ends at offset {last_offset}, but the snapshot ends before {offset}"
        yield Finding(Severity.ERROR, "snapshot", path, message, None, last_offset)


def _metadata(storage: Storage, folder: str) -> Iterator[Finding]:
    """Check ``partition.metadata``, which only the metadata log and partitions of old brokers lack."""
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
            message = f"topic id {topic_id} differs from {other_id} of {other}: it is another topic of that name"
            yield Finding(Severity.ERROR, "topic-id", path, message)
    if without:
        message = (
            f"no topic id in {_listed(without)}: old brokers wrote none, and a KRaft broker sets such folders aside"
        )
        yield Finding(Severity.NOTE, "topic-id", folder, message)


def _orphans(storage: Storage, folder: str, entries: list[Entry], lost: set[int]) -> Iterator[Finding]:
    """Find indexes whose log was missing when the folder was first listed, and still is."""
    for base in sorted(lost):
        message = "its indexes exist, but it does not: its records are lost"
        yield Finding(
            Severity.ERROR,
            "lost-segment",
            join_path(folder, files.offset_file_name(base, files.LOG)),
            message,
            None,
            base,
        )
    for name in sorted(orphans(entries) & orphans(storage.entries(folder)) if orphans(entries) else ()):
        message = "an index without its log: a broker deletes it"
        yield Finding(Severity.WARNING, "orphan", join_path(folder, name), message)


def _past_end(folder: str, name: str, offsets: Mapping[str, int], end_offset: int) -> Iterator[Finding]:
    """Find the checkpoints of a log directory that give a partition an offset past the end of its log."""
    for checkpoint, severity, meaning in (
        (files.LOG_START_CHECKPOINT, Severity.ERROR, "a broker would delete the whole log"),
        (files.HIGH_WATERMARK_CHECKPOINT, Severity.ERROR, "records that were committed are gone"),
        (files.RECOVERY_POINT_CHECKPOINT, Severity.ERROR, "records that were flushed are gone"),
        (files.CLEANER_CHECKPOINT, Severity.WARNING, "the cleaner would begin again at the start"),
    ):
        offset = offsets.get(checkpoint, 0)
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
