"""Reads the facts of log directories that are compared across files: each directory once, its logs before the cluster.

A broker writes to the metadata log before it acts on it. So a folder or an epoch that was read before the metadata is
in them, even while a broker runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sparklog.errors import CorruptCheckpointError, PathNotFoundError, SeglogError
from sparklog.inspect.meta_properties import MetaProperties, parse_meta_properties
from sparklog.inspect.verify import Checkpoints, read_checkpoints
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout, batch_holding, topic_id_of
from sparklog.log.log_identity import read_log_id
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.producer_snapshots import is_of_log, snapshots_of
from sparklog.log.producer_state import Producers
from sparklog.log.segment_listing import list_segments
from sparklog.storage.base import Entry
from sparklog.system.cluster_metadata import counting_records
from sparklog.system.cluster_state import ClusterState
from sparklog.system.records import InternalLog, Undecodable

_NONE = -1


@dataclass(frozen=True)
class LogFacts:
    """The facts of one log; None where they cannot be read.

    Attributes
    ----------
    first_offset, end_offset : int or None
        The base offset of the first segment, and the log end offset, exclusive; None without a segment.
    last_epoch : int
        The highest leader epoch of the checkpoint and of the last batch; -1 without any.
    """

    topic_id: str | None
    log_id: str | None
    first_offset: int | None = None
    end_offset: int | None = None
    last_epoch: int = _NONE


@dataclass
class Disk:
    """The facts of one log directory.

    Attributes
    ----------
    checkpoints : Checkpoints
        The readable ones.
    meta : MetaProperties or None
        None if the file is missing or garbled.
    cluster : ClusterState or None
        The cluster's metadata, from this directory or another one of the same cluster.
    findings : list of Finding
        The faults of single logs, found on the way.
    """

    directory: LogDirectory
    entries: Mapping[str, Entry]
    checkpoints: Checkpoints
    meta: MetaProperties | None = None
    logs: dict[TopicPartition, LogFacts] = field(default_factory=dict)
    metadata_log: LogFacts | None = None
    cluster: ClusterState | None = None
    findings: list[Finding] = field(default_factory=list)

    def path(self, name: object) -> str:
        """Return the path of a file or folder of the directory."""
        return self.directory.file(str(name))

    def has(self, name: str) -> bool:
        return name in self.entries

    @cached_property
    def topics(self) -> set[str]:
        """The topics that have a folder here."""
        found = (files.parse_partition_folder(name) for name, entry in self.entries.items() if entry.is_folder)
        return {at.topic for at in found if at is not None}

    @cached_property
    def is_as_stopped(self) -> bool:
        """Whether a broker stopped cleanly, and sparklog has not written here since."""
        is_changed = any(name.startswith(files.OWN_PREFIX) for name in self.entries)
        return self.has(files.CLEAN_SHUTDOWN) and self.meta is not None and not is_changed

    def report(self, severity: Severity, code: str, path: str, message: str, offset: int | None = None) -> None:
        """Add a finding."""
        self.findings.append(Finding(severity, code, path, message, None, offset))


def read_disks(directories: Sequence[LogDirectory]) -> list[Disk]:
    """Read the facts of log directories; one that cannot be listed raises `SeglogError`."""
    disks = [_read_disk(directory) for directory in directories]
    for disk in disks:
        if disk.metadata_log is not None:
            disk.cluster = _cluster_in(disk)
    known = [disk for disk in disks if disk.cluster is not None and disk.meta is not None]
    for disk in disks:
        if disk.cluster is None and disk.meta is not None and not disk.has(files.METADATA_FOLDER):
            same = [each for each in known if each.meta and each.meta.cluster_id == disk.meta.cluster_id]
            same.sort(key=lambda each: not (each.meta and disk.meta and each.meta.is_same_node(disk.meta)))
            disk.cluster = same[0].cluster if same else None
    return disks


def _read_disk(directory: LogDirectory) -> Disk:
    entries = {entry.name: entry for entry in directory.storage.entries(directory.path)}
    disk = Disk(directory, entries, read_checkpoints(directory)[0])
    disk.meta = _meta_in(disk)
    for entry in entries.values():
        at = files.parse_partition_folder(entry.name) if entry.is_folder else None
        if at is not None and (facts := _log_in(disk, directory.folder(entry.name))) is not None:
            disk.logs[at] = facts
    if disk.has(files.METADATA_FOLDER):
        disk.metadata_log = _log_in(disk, directory.folder(files.METADATA_FOLDER))
    return disk


def _meta_in(disk: Disk) -> MetaProperties | None:
    path = disk.path(files.META_PROPERTIES)
    try:
        data = disk.directory.storage.read_small(path)
        return None if data is None else parse_meta_properties(data, path)
    except CorruptCheckpointError as error:
        disk.report(Severity.ERROR, "meta-garbled", path, f"{error.reason}: no broker starts on this directory")
    except SeglogError as error:
        disk.report(Severity.ERROR, "unreadable", path, error.message)
    return None


def _log_in(disk: Disk, folder: PartitionFolder) -> LogFacts | None:
    """Read the facts of a log; None if it has gone meanwhile, or nothing of it can be read."""
    topic_id = log_id = None
    try:
        epochs = _epochs(folder)
        topic_id, log_id = topic_id_of(folder), read_log_id(folder)
        layout = _layout(folder)
        if layout is None:
            return LogFacts(topic_id, log_id, last_epoch=max(epochs, default=_NONE))
        _check_snapshots(disk, layout)
        last = batch_holding(layout, layout.end_offset - 1)
        epochs += [] if last is None else [int(last.column("leader_epoch")[0])]
        return LogFacts(topic_id, log_id, layout.start_offset, layout.end_offset, max(epochs, default=_NONE))
    except PathNotFoundError:
        return None
    except SeglogError:
        # The log itself is verified elsewhere.
        return None if topic_id is None else LogFacts(topic_id, log_id)


def _layout(folder: PartitionFolder) -> PartitionLayout | None:
    """Return the layout of a log from its first segment on, whatever a checkpoint says; None without a segment."""
    segments = list_segments(folder)
    if not segments:
        return None
    with segments[-1].open() as log:
        return PartitionLayout(folder, segments, segments[0].base_offset, log.end())


def _epochs(folder: PartitionFolder) -> list[int]:
    path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
    try:
        data = folder.storage.read_small(path)
        return [] if data is None else [epoch for epoch, _ in parse_leader_epochs(data, path)]
    except CorruptCheckpointError:
        return []


def _check_snapshots(disk: Disk, layout: PartitionLayout) -> None:
    """Compare the producer snapshots with the log: they end within it, and the newest is of its batches."""
    is_newest = True
    for offset, path in snapshots_of(layout.folder):
        if offset > layout.end_offset:
            message = f"a snapshot of the producers before offset {offset}, and the log ends at {layout.end_offset}"
            disk.report(Severity.WARNING, "snapshot-end", path, message, layout.end_offset)
        elif is_newest and offset >= layout.start_offset:
            is_newest = False
            data = layout.storage.read_small(path)
            try:
                is_own = not data or is_of_log(Producers.parse(data, path), offset, layout)
            except CorruptCheckpointError:
                continue
            if not is_own:
                message = "its producers have not written where it says: it is the snapshot of another log"
                disk.report(Severity.WARNING, "snapshot-foreign", path, message, offset)


def _cluster_in(disk: Disk) -> ClusterState | None:
    """Replay the metadata log of a directory."""
    folder, state = disk.directory.folder(files.METADATA_FOLDER), ClusterState()
    try:
        # Not as a journal bounds it: no commit of sparklog is in this log, and a damaged one is not its fault.
        layout = _layout(folder)
        for each in counting_records(InternalLog(layout), Undecodable()) if layout is not None else ():
            state.apply(each.record)
    except SeglogError as error:
        disk.report(Severity.ERROR, "cluster-metadata", folder.location, f"the metadata cannot be read: {error}")
        return None
    if state.missing:
        message = f"{len(state.missing)} records change objects that do not exist, first {state.missing[0]}"
        disk.report(Severity.WARNING, "cluster-metadata", folder.location, message)
    return state


def folders_set_aside(disk: Disk) -> Iterator[tuple[str, TopicPartition | None, str]]:
    """Yield the folders that Kafka has set aside: name, partition and ending."""
    for name, entry in disk.entries.items():
        if entry.is_folder and files.is_set_aside(name):
            before, _, ending = name.rpartition("-")
            yield name, files.parse_partition_folder(before.rpartition(".")[0]), ending
