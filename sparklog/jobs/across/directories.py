"""Compares the files of log directories with each other: whose disks they are, checkpoints, leftovers, sparklog's own.

Source, for what a broker does with them: apache/kafka, LogManager.scala, MetaPropertiesEnsemble.java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, Final

from sparklog.errors import SeglogError
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.jobs.across.disk import Disk, LogFacts, folders_set_aside
from sparklog.jobs.ledger import read_ledger
from sparklog.log import files
from sparklog.log.clock import NS_PER_MS, wall_clock_ms
from sparklog.log.files import TopicPartition
from sparklog.log.folders import listed
from sparklog.log.journal import Append, Journal, Move, pending
from sparklog.log.layout import topic_id_of
from sparklog.log.places import LogDirectory
from sparklog.topic.transactions.ids import stored_ids
from sparklog.topic.write.configs import read_properties
from sparklog.topic.write.txn_versions import read_txn_versions
from sparklog.write.group_offsets import read_group_offsets
from sparklog.write.running_jobs import made_ms

_HOUR_MS: Final = 3_600_000
_STOPPED: Final = (files.RECOVERY_POINT_CHECKPOINT, files.HIGH_WATERMARK_CHECKPOINT, files.LOG_START_CHECKPOINT)
"""The checkpoints that a broker writes when it stops."""
_OWN_FILES: Final[Mapping[str, Callable[[LogDirectory], Any]]] = {
    files.JOURNAL: pending,
    files.TXN_VERSIONS: read_txn_versions,
    files.TRANSACTIONAL_IDS: stored_ids,
    files.JOBS_LEDGER: lambda directory: read_ledger(directory.storage, directory.file(files.JOBS_LEDGER)),
    files.TOPICS_PROPERTIES: read_properties,
    files.GROUP_OFFSETS: read_group_offsets,
}


def between_directories(disks: Sequence[Disk]) -> Iterator[Finding]:
    """Compare directories with each other."""
    for disk, other in combinations(disks, 2):
        mine, its, path, is_same_node = disk.meta, other.meta, other.path(files.META_PROPERTIES), False
        if mine and its:
            is_same_node = mine.is_same_node(its)
            if mine.cluster_id != its.cluster_id:
                severity = Severity.ERROR if mine.node_id == its.node_id else Severity.WARNING
                message = f"cluster {its.cluster_id} differs from {mine.cluster_id} of {disk.directory.path}"
                yield Finding(severity, "meta-cluster", path, message)
                continue
            if mine.node_id != its.node_id:
                message = f"it is of node {its.node_id}, and {disk.directory.path} of node {mine.node_id}"
                yield Finding(Severity.NOTE, "meta-node", path, message)
            if is_same_node and mine.version != its.version:
                message = f"version {its.version} differs from {mine.version} of {disk.directory.path} of the same node"
                yield Finding(Severity.WARNING, "meta-node", path, message)
            if mine.directory_id and mine.directory_id == its.directory_id:
                message = f"directory id {its.directory_id} is that of {disk.directory.path}, too: one is a copy"
                yield Finding(Severity.ERROR, "directory-id", path, message)
        yield from _shared_topics(disk, other, is_same_node=is_same_node)
    if any(disk.meta for disk in disks):
        for disk in disks:
            if not disk.has(files.META_PROPERTIES):
                message = "it is missing, and other directories have one: a broker takes this one for a new disk"
                yield Finding(Severity.WARNING, "meta-missing", disk.path(files.META_PROPERTIES), message)


def _shared_topics(disk: Disk, other: Disk, *, is_same_node: bool) -> Iterator[Finding]:
    """Compare the topics of two directories that may be of one cluster."""
    ids = {at.topic: facts.topic_id for at, facts in disk.logs.items() if facts.topic_id is not None}
    differing: set[str] = set()
    for at, facts in other.logs.items():
        known = ids.get(at.topic, facts.topic_id)
        if facts.topic_id is not None and known != facts.topic_id and at.topic not in differing:
            differing.add(at.topic)
            path = other.directory.folder(str(at)).file(files.PARTITION_METADATA)
            message = f"topic id {facts.topic_id} differs from {known} in {disk.directory.path}: it is another topic"
            yield Finding(Severity.ERROR, "topic-id", path, message)
        if is_same_node and at in disk.logs:
            message = f"{disk.directory.path} of the same node has this partition, too: the broker does not start"
            yield Finding(Severity.ERROR, "partition-doubled", other.path(at), message)


def within_directory(disk: Disk, topics: set[str]) -> Iterator[Finding]:
    """Compare the files of one directory with each other.

    Parameters
    ----------
    topics : set of str
        The topics that are anywhere.
    """
    if not any(disk.has(name) for name in (files.META_PROPERTIES, files.METADATA_FOLDER, files.BOOTSTRAP_CHECKPOINT)):
        message = "there is none, so nothing says whose directory it is: no broker has used it, or the file is lost"
        yield Finding(Severity.NOTE, "meta-missing", disk.path(files.META_PROPERTIES), message)
    elif not disk.has(files.META_PROPERTIES):
        message = "it is missing, and a broker has used this directory: it does not start without it"
        yield Finding(Severity.ERROR, "meta-missing", disk.path(files.META_PROPERTIES), message)
    yield from _checkpoints(disk)
    for at, facts in disk.logs.items():
        yield from _offsets(disk, at, facts)
    yield from _marker(disk)
    yield from _doubled_logs(disk)
    yield from _left_over(disk)
    yield from _own_files(disk, topics)


def _checkpoints(disk: Disk) -> Iterator[Finding]:
    for name, lines in disk.checkpoints.offsets.items():
        wrong = [f"{at} {offset}" for at, offset in lines.items() if offset < 0 or at.partition < 0]
        if wrong:
            message = f"lines with negative numbers: {listed(wrong)}"
            yield Finding(Severity.ERROR, "checkpoint-value", disk.path(name), message)
    if not disk.is_as_stopped or not disk.logs:
        return
    for name in _STOPPED:
        if not disk.has(name):
            message = "it is missing, and a broker that stops cleanly writes it"
            yield Finding(Severity.WARNING, "checkpoint-missing", disk.path(name), message)
    points = disk.checkpoints.offsets.get(files.RECOVERY_POINT_CHECKPOINT)
    without = [] if points is None else [str(at) for at in disk.logs if at not in points]
    if without:
        message = f"it has no line for {listed(without)}: the folders came after the clean stop, or lines are lost"
        path = disk.path(files.RECOVERY_POINT_CHECKPOINT)
        yield Finding(Severity.WARNING, "checkpoint-missing", path, message)


def _offsets(disk: Disk, at: TopicPartition, facts: LogFacts) -> Iterator[Finding]:
    """Compare the offsets that the checkpoints have of a log with each other, and with its first segment."""
    if facts.first_offset is None:
        return
    severity = Severity.WARNING if disk.is_as_stopped else Severity.NOTE
    offsets = disk.checkpoints.of(at)
    start = max(offsets.get(files.LOG_START_CHECKPOINT, 0), facts.first_offset)
    for name, what in (
        (files.HIGH_WATERMARK_CHECKPOINT, "high watermark"),
        (files.RECOVERY_POINT_CHECKPOINT, "recovery point"),
        (files.CLEANER_CHECKPOINT, "cleaner's offset"),
    ):
        offset = offsets.get(name, start)
        if 0 <= offset < start:
            message = f"the {what} {offset} of {at} is below the start of its log, {start}"
            is_cleaner = name == files.CLEANER_CHECKPOINT
            yield Finding(
                Severity.NOTE if is_cleaner else severity, "checkpoint-order", disk.path(name), message, None, start
            )
    point = offsets.get(files.RECOVERY_POINT_CHECKPOINT)
    if disk.is_as_stopped and point is not None and facts.end_offset is not None and start <= point < facts.end_offset:
        message = (
            f"it says that all was on the disk, and the recovery point {point} of {at} is before the end of its log, "
            f"{facts.end_offset}: the marker or the log is from another time"
        )
        yield Finding(Severity.WARNING, "shutdown-marker", disk.path(files.CLEAN_SHUTDOWN), message, None, point)


def _marker(disk: Disk) -> Iterator[Finding]:
    path = disk.path(files.CLEAN_SHUTDOWN)
    data = disk.directory.storage.read_small(path) if disk.has(files.CLEAN_SHUTDOWN) else b""
    try:
        # Before Kafka 3.8 it was empty.
        is_sound = not data or isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        is_sound = False
    if not is_sound:
        message = "its content is not the JSON that a broker writes: the broker takes its last epoch as unknown"
        yield Finding(Severity.WARNING, "shutdown-marker", path, message)
    if disk.has(files.CLEAN_SHUTDOWN) and disk.has(files.MARKER_OF_WRITER):
        message = "the marker is there twice, once as a writer of sparklog holds it: one of them is a copy"
        yield Finding(Severity.WARNING, "shutdown-marker", disk.path(files.MARKER_OF_WRITER), message)


def _doubled_logs(disk: Disk) -> Iterator[Finding]:
    first: dict[str, TopicPartition] = {}
    for at, facts in disk.logs.items():
        path = disk.directory.folder(str(at)).file(files.LOG_IDENTITY)
        if facts.log_id is not None and first.setdefault(facts.log_id, at) != at:
            message = f"log id {facts.log_id} is that of {first[facts.log_id]}, too: one folder is a copy of the other"
            yield Finding(Severity.WARNING, "log-id", path, message)
        elif facts.log_id is None and disk.directory.storage.identity(path) is not None:
            message = "it has no log id: after the log is replaced, readers do not notice it"
            yield Finding(Severity.WARNING, "own-file", path, message)


def _left_over(disk: Disk) -> Iterator[Finding]:
    """Find folders that Kafka has set aside, and staged files, with their age."""
    for name, at, ending in folders_set_aside(disk):
        path = disk.path(name)
        stamp = disk.directory.storage.stamp(path)
        age = "" if stamp is None else f", last changed {_age(stamp.modified_ns // NS_PER_MS)} ago"
        if ending == "future" and at is not None and not disk.has(str(at)):
            message = f"the copy of {at} that a move between disks has made{age}: the log itself is not here"
            yield Finding(Severity.WARNING, "future-alone", path, message)
        elif stray_topic(disk, name, at, ending) is None:
            yield Finding(Severity.NOTE, "leftover", path, f"a folder that Kafka has set aside{age}")
    staged: dict[str, int] = {}
    for name, entry in disk.entries.items():
        if (job := files.parse_staged_file(name)) is not None:
            staged[job] = staged.get(job, 0) + entry.size_bytes
    for job, size_bytes in staged.items():
        message = (
            f"files of a job that began {_age(made_ms(job))} ago, {size_bytes:,} bytes, neither committed nor removed"
        )
        yield Finding(Severity.NOTE, "leftover", disk.path(files.staged_name(job, "*")), message)


def stray_topic(disk: Disk, name: str, at: TopicPartition | None, ending: str) -> str | None:
    """Return the topic of a folder that was set aside as unknown, if the cluster knows it; see `against_cluster`."""
    if disk.cluster is None or at is None or ending != "stray":
        return None
    with suppress(SeglogError):
        return disk.cluster.topics.get(topic_id_of(disk.directory.folder(name)) or "")
    return None


def _age(since_ms: int) -> str:
    hours = max(wall_clock_ms() - since_ms, 0) // _HOUR_MS
    return f"{hours} hours" if hours < 48 else f"{hours // 24} days"


def _own_files(disk: Disk, topics: set[str]) -> Iterator[Finding]:
    """Read sparklog's own files, and compare them with the logs."""
    found: dict[str, Any] = {}
    for name, reader in _OWN_FILES.items():
        try:
            found |= {name: reader(disk.directory)} if disk.has(name) else {}
        except SeglogError as error:
            yield Finding(Severity.ERROR, "own-file", disk.path(name), str(error))
    if found.get(files.JOURNAL) is not None:
        yield from _journal(disk, found[files.JOURNAL])
    absent = sorted(set(found.get(files.TOPICS_PROPERTIES, ())) - topics)
    if absent:
        message = f"it has properties of topics that are not here: {listed(absent)}"
        yield Finding(Severity.WARNING, "config-topic", disk.path(files.TOPICS_PROPERTIES), message)
    yield from _group_offsets(disk, found.get(files.GROUP_OFFSETS, {}))


def _journal(disk: Disk, journal: Journal) -> Iterator[Finding]:
    lost = sorted({move.source for move in journal.moves if not _can_be_made(disk, move)})
    if lost:
        message = f"its commit cannot be finished: neither staged nor in place are {listed(lost)}"
        yield Finding(Severity.ERROR, "journal-source", disk.path(files.JOURNAL), message)


def _can_be_made(disk: Disk, move: Move) -> bool:
    """Return whether the source of a move is there, or its target as the move leaves it."""
    storage = disk.directory.storage
    if storage.identity(disk.path(move.source)) is not None:
        return True
    target = storage.stamp(disk.path(move.target))
    return target is not None and (not isinstance(move, Append) or target.size_bytes >= move.end_position)


def _group_offsets(disk: Disk, groups: Any) -> Iterator[Finding]:
    for group, commits in sorted(groups.items()):
        past = [
            f"{at} {commit.offset}"
            for at, commit in commits.items()
            if (facts := disk.logs.get(at)) and facts.end_offset is not None and commit.offset > facts.end_offset
        ]
        absent = [str(at) for at in commits if not disk.has(str(at))]
        path = disk.path(files.GROUP_OFFSETS)
        if past:
            message = f"group {group!r} has committed offsets past the ends of the logs: {listed(past)}"
            yield Finding(Severity.WARNING, "group-offset", path, message)
        if absent:
            message = f"group {group!r} has committed offsets of partitions that are not here: {listed(absent)}"
            yield Finding(Severity.NOTE, "group-offset", path, message)
