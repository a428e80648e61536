"""Makes and parses every name of a file or folder of a log.

A log directory holds a folder for each topic-partition, ``<topic>-<partition>``, and the checkpoints of all of them. A
folder being deleted, moved between disks or unknown to the cluster is ``<topic>-<partition>.<uuid>-delete``,
``-future`` or ``-stray``. In a partition's folder, the files of a segment are named by its base offset in 20 digits;
the suffixes ``.deleted``, ``.cleaned`` and ``.swap`` follow the others while segments are removed or replaced. Regular
files with these names belong to a log, and nothing else does.

Bytes that recovery cuts off a segment are kept beside it, under a name that a broker ignores: the base
offset and the position of the cut, ``00000000000000004000.819200.cut``.

Source: apache/kafka, LogFileUtils.java, LocalLog.scala, LogLoader.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from operator import index
from typing import Any, Final, NamedTuple

from sparklog.errors import InvalidOptionError, InvalidTopicError
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.base import Entry

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
CUT: Final = ".cut"
STAGED: Final = ".staged"
"""Suffix of files that a write has made and not committed; a broker ignores them."""
BEING_WRITTEN: Final = ".tmp"
"""Suffix of a small file while it is written, before it is put in place."""
METADATA_SNAPSHOT: Final = ".checkpoint"
"""Suffix of snapshots in the folder of the cluster's metadata log."""

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
LOG_IDENTITY: Final = "seglog-identity"
"""The id of a log that sparklog has made; see `sparklog.log.log_identity`."""
MIRROR_STATE: Final = "seglog-mirror"
"""The bytes that a log of a mirror has of its source; see `sparklog.jobs.mirror.state`."""
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
QUORUM_STATE: Final = "quorum-state"
LOCK: Final = ".lock"
METADATA_TOPIC: Final = "__cluster_metadata"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
"""The folder of the cluster's metadata: its log, and beside the segments its snapshots."""
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"

OWN_PREFIX: Final = "seglog."
"""Prefix of sparklog's own files in a log directory, except `TOPICS_PROPERTIES`."""
TOPICS_PROPERTIES: Final = "topics.properties"
"""The properties of topics, which people may edit."""
JOURNAL: Final = f"{OWN_PREFIX}journal"
LAST_COMMIT: Final = f"{OWN_PREFIX}commit"
TXN_VERSIONS: Final = f"{OWN_PREFIX}ledger"
TRANSACTIONAL_IDS: Final = f"{OWN_PREFIX}transactions"
ADDED_PARTITIONS: Final = f"{TRANSACTIONAL_IDS}.journal"
"""The partitions that were added to open transactions since that file was written."""
MIRROR: Final = f"{OWN_PREFIX}mirror"
"""Names the source of a mirror; see `sparklog.jobs.mirror.state`."""
JOBS_LEDGER: Final = f"{OWN_PREFIX}ledger.jsonl"
JOBS_LOCK: Final = f"{OWN_PREFIX}jobs.lock"
SALVAGE_RECORD: Final = f"{OWN_PREFIX}salvage.jsonl"
"""The record of a salvage, with the table of damage; see `sparklog.jobs.salvage.record`."""
GROUP_OFFSETS: Final = f"{OWN_PREFIX}offsets"
"""The offsets committed by sparklog's consumers."""
GROUP_OFFSETS_JOURNAL: Final = f"{GROUP_OFFSETS}.journal"
"""The offsets that they have committed since that file was written."""
GROUP_OFFSETS_LOCK: Final = f"{OWN_PREFIX}offsets.lock"
RESTORED_NODES: Final = f"{OWN_PREFIX}nodes"
"""The nodes of a new cluster that have been restored; see `sparklog.jobs.restore.nodes`."""
RESTORED_NODES_LOCK: Final = f"{RESTORED_NODES}.lock"
WRITERS_LOCK: Final = f"{OWN_PREFIX}lock"
WRITERS_QUEUE: Final = f"{OWN_PREFIX}queue"
"""The next writer in line for `WRITERS_LOCK` holds the lock of this file."""
"""Names the job that holds the log directory while its tasks run. If the lock is free, that job is dead."""
MARKER_OF_WRITER: Final = f"{CLEAN_SHUTDOWN}.held"
"""The marker of a clean shutdown while a `PartitionLog` writes."""
MARKER_OF_COMMIT: Final = f"{CLEAN_SHUTDOWN}{STAGED}"
"""The same while a commit is carried out."""

PARTITION_MAX: Final = (1 << 31) - 1
"""The largest partition number in Kafka; a broker does not start if a folder has a larger one."""
NAMED_PARTITION_MAX: Final = 999_999
"""The largest number of a partition that a caller may name. No cluster has a topic with more partitions."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_TOPICS: Final = (".", "..")
_PARTITION_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_NUMBERED_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-[0-9]+")
_DELETE: Final = "-delete"
_PASSING_FOLDER = re.compile(r"\S+-\S+\.\S+-(delete|future|stray)")
_SEGMENT_FILE = re.compile(
    r"(?P<offset>[0-9]{20})(?P<suffix>\.(log|index|timeindex|txnindex|snapshot)(\.(deleted|cleaned|swap))?)"
)
_DELETED_FOLDER = re.compile(r"\S+-\S+\.(?P<due>[0-9a-f]{12})7[0-9a-f]{19}-delete")
_FOLDER_NAME_MAX: Final = 255
_CUT_FILE = re.compile(r"[0-9]{20}\.[0-9]+(\.[0-9]+)?\.cut")
_METADATA_SNAPSHOT_FILE = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")
_STAGED_FILE = re.compile(r"seglog-(?P<job>[0-9a-f]{13,})-[A-Za-z0-9.-]+\.staged")
_RUNNING: Final = f"-running{STAGED}"
_EXCLUSIVE: Final = f"-exclusive{STAGED}"


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetFile(NamedTuple):
    """A file named by an offset: ``00000000000000004000.log.swap`` is (4000, ".log.swap")."""

    offset: int
    suffix: str


def parse_partition_folder(name: str) -> TopicPartition | None:
    """Return the topic-partition in a folder's name; None for every other folder.

    The metadata log of a KRaft cluster is no topic, and folders that Kafka has set aside are not served.
    """
    found = _PARTITION_FOLDER.fullmatch(name)
    if found is None:
        return None
    topic, partition = found["topic"], int(found["partition"])
    if topic in _NO_TOPICS or topic == METADATA_TOPIC or partition > PARTITION_MAX:
        return None
    return TopicPartition(topic, partition)


def is_topic_name(name: str) -> bool:
    """Return whether a name is valid for a topic."""
    return bool(_TOPIC.fullmatch(name)) and name not in _NO_TOPICS


def checked_topic(name: object) -> str:
    """Return a caller's topic name, or raise `InvalidTopicError` if it is not valid.

    The name becomes a part of paths, so every name is checked here before anything is written for it.
    """
    if not isinstance(name, str) or not is_topic_name(name) or name == METADATA_TOPIC:
        raise InvalidTopicError(
            f"not a topic's name: {name!r}; it has 1 to 249 letters, digits, dots, underscores and dashes"
        )
    return str(name)


def checked_partition(topic: object, partition: Any) -> TopicPartition:
    """Return the partition that a caller names, after the one check that all writes and commits share.

    Parameters
    ----------
    partition : int
        Any integer, including NumPy's; not a bool, a text or a float.

    Raises
    ------
    InvalidTopicError
        The name is not valid for a topic.
    InvalidOptionError
        The number is not valid for a partition.
    """
    name, number = checked_topic(topic), -1
    if not isinstance(partition, bool):
        with suppress(TypeError):
            number = index(partition)
    at = TopicPartition(name, number)
    if not 0 <= number <= NAMED_PARTITION_MAX or len(str(at)) > _FOLDER_NAME_MAX:
        raise InvalidOptionError(
            f"not a partition of topic {name}: {partition!r}; it is a whole number, 0 to {NAMED_PARTITION_MAX}, and "
            f"with the topic's name no longer than {_FOLDER_NAME_MAX} characters"
        )
    return at


def topic_of_passed_over(name: str) -> str | None:
    """Return the topic of a folder that is named like a partition's, with an impossible partition number."""
    found = _NUMBERED_FOLDER.fullmatch(name)
    if found is None or is_set_aside(name) or parse_partition_folder(name) is not None:
        return None
    return None if found["topic"] == METADATA_TOPIC else found["topic"]


def is_set_aside(name: str) -> bool:
    """Return whether Kafka has renamed a folder to delete it, move it between disks, or set it aside as unknown."""
    return _PASSING_FOLDER.fullmatch(name) is not None


def deleted_topic(name: str) -> str | None:
    """Return the topic of a folder that Kafka has renamed to delete it; None for others."""
    if not is_set_aside(name) or not name.endswith(_DELETE):
        return None
    found = parse_partition_folder(name.removesuffix(_DELETE).rpartition(".")[0])
    return None if found is None else found.topic


def deleted_folder_name(name: str, due_ms: int, token: str) -> str:
    """Return Kafka's name for the folder of a deleted partition, ``<topic>-<n>.<uuid>-delete``.

    Parameters
    ----------
    due_ms : int
        The time when its files may be removed, ms since the epoch; a UUID of version 7 begins with it.
    token : str
        19 unique hexadecimal digits.
    """
    ending = f".{due_ms:012x}7{token}{_DELETE}"
    topic, dash, number = name.rpartition("-")
    # Like Kafka, shorten the topic if the name would be too long for a file system.
    return topic[: _FOLDER_NAME_MAX - len(dash + number + ending)] + dash + number + ending


def deletion_due_ms(name: str) -> int | None:
    """Return the time in a name from `deleted_folder_name`, when the files may be removed; None for other names."""
    found = _DELETED_FOLDER.fullmatch(name)
    return None if found is None else int(found["due"], 16)


@lru_cache(maxsize=1 << 12)
def parse_offset_file(name: str) -> OffsetFile | None:
    """Return the offset and the suffix in a file's name; None for every other file."""
    found = _SEGMENT_FILE.fullmatch(name)
    if found is None or int(found["offset"]) > OFFSET_MAX:
        return None
    return OffsetFile(int(found["offset"]), found["suffix"])


def offset_files(entries: Iterable[Entry]) -> Iterator[tuple[OffsetFile, Entry]]:
    """Yield the regular files of a folder that are named by an offset, in order of names."""
    for entry in entries:
        found = parse_offset_file(entry.name) if entry.is_file else None
        if found is not None:
            yield found, entry


def tells_of_segments(name: str) -> bool:
    """Return whether a name affects which segments a folder has: the name of a log, or of a cleaned file."""
    return LOG in name or name.endswith(CLEANED)


def is_log_file(name: str) -> bool:
    """Return whether a name is that of a segment's file, of a snapshot, or of one that is removed or replaced."""
    return parse_offset_file(name) is not None


def is_cut_file(name: str) -> bool:
    """Return whether a file's name means that it holds bytes that recovery cut off a segment."""
    return bool(_CUT_FILE.fullmatch(name))


def is_metadata_snapshot(name: str) -> bool:
    """Return whether a file has the name of a snapshot of the cluster's metadata."""
    return _METADATA_SNAPSHOT_FILE.fullmatch(name) is not None


def parse_metadata_snapshot(name: str) -> tuple[int, int] | None:
    """Return the end offset and the leader epoch in the name of a snapshot of the cluster's metadata."""
    found = _METADATA_SNAPSHOT_FILE.fullmatch(name)
    return None if found is None else (int(found["offset"]), int(found["epoch"]))


def cut_file_name(base_offset: int, position: int, number: int = 0) -> str:
    """Return the name of the file that keeps the bytes cut off a segment; ``number`` makes it unique."""
    again = f".{number}" if number else ""
    return f"{base_offset:020d}.{position}{again}{CUT}"


def offset_file_name(offset: int, suffix: str) -> str:
    """Return the name of a segment's file, or of a snapshot."""
    return f"{offset:020d}{suffix}"


def being_written(name: str) -> str:
    """Return the name of a small file until it is put in place."""
    return f"{name}{BEING_WRITTEN}"


def staged_name(job: str, what: str) -> str:
    """Return the name of a job's staged file; for an attempt of a task, ``what`` is ``<task>-<attempt>-<n>``."""
    return f"seglog-{job}-{what}{STAGED}"


def staged_log(what: str) -> str:
    """Return the part of the name for a file with batches, for `staged_name`."""
    return f"{what}{LOG}"


def is_staged_log(name: str) -> bool:
    """Return whether a file has the name of a job's staged batches."""
    return name.endswith(LOG + STAGED)


def staged_batches(what: str) -> str:
    """Return the part of the name for a file with entries of batches, for `staged_name`."""
    return f"{what}.batches"


def running_job_name(job: str) -> str:
    """Return the name of the empty file that exists while a job runs."""
    return f"seglog-{job}{_RUNNING}"


def is_running_job(name: str) -> bool:
    """Return whether a file has the name of a running job's marker."""
    return name.endswith(_RUNNING)


def exclusive_job_name(job: str) -> str:
    """Return the name of the empty file by which a job that holds the lock names itself to the next one."""
    return f"seglog-{job}{_EXCLUSIVE}"


def parse_exclusive_job(name: str) -> str | None:
    """Return the job named by such a file, whose files the next holder of the lock removes; None for other files."""
    return parse_staged_file(name) if name.endswith(_EXCLUSIVE) else None


def parse_staged_file(name: str) -> str | None:
    """Return the job of a staged file; None for every other file."""
    found = _STAGED_FILE.fullmatch(name)
    return None if found is None else found["job"]
