"""Every name that Kafka gives to a file or folder of a log, and how it is read.

A log directory holds a folder a topic-partition, ``<topic>-<partition>``, and the checkpoints of all of them. A folder
being deleted, moved between disks or not known to the cluster is ``<topic>-<partition>.<uuid>-delete``, ``-future`` or
``-stray``. In a partition's folder, the files of a segment have its base offset in 20 digits for a name; the suffixes
``.deleted``, ``.cleaned`` and ``.swap`` come behind the others while segments are removed or replaced. Regular files
with these names are a log's, and nothing else is.

Bytes that recovery cuts off a segment are kept beside it, under a name of ours that a broker passes over: the base
offset and the position of the cut, ``00000000000000004000.819200.cut``.

Source: apache/kafka, LogFileUtils.java, LocalLog.scala, LogLoader.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

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
"""Ends the names of what a write has made and not committed: a broker passes over it."""
BEING_WRITTEN: Final = ".tmp"
"""Ends the name of a small file while it is written, before it is put in place."""
METADATA_SNAPSHOT: Final = ".checkpoint"
"""Ends the names of the snapshots in the folder of the cluster's metadata log."""

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
LOG_IDENTITY: Final = "seglog-identity"
"""The id of a log that sparklog has made; see `sparklog.log.log_identity`."""
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
"""The names of our own files in a log directory begin with this, but for `TOPICS_PROPERTIES`."""
TOPICS_PROPERTIES: Final = "topics.properties"
"""The properties of topics, which people may edit."""
JOURNAL: Final = f"{OWN_PREFIX}journal"
LAST_COMMIT: Final = f"{OWN_PREFIX}commit"
TXN_VERSIONS: Final = f"{OWN_PREFIX}ledger"
TRANSACTIONAL_IDS: Final = f"{OWN_PREFIX}transactions"
JOBS_LEDGER: Final = f"{OWN_PREFIX}ledger.jsonl"
JOBS_LOCK: Final = f"{OWN_PREFIX}jobs.lock"
GROUP_OFFSETS: Final = f"{OWN_PREFIX}offsets"
"""What consumers of ours have committed."""
GROUP_OFFSETS_LOCK: Final = f"{OWN_PREFIX}offsets.lock"
WRITERS_LOCK: Final = f"{OWN_PREFIX}lock"
WRITERS_QUEUE: Final = f"{OWN_PREFIX}queue"
"""Whoever waits for `WRITERS_LOCK` has the lock of this file."""
"""Names the job that holds the log directory while its tasks run. Who has the lock and finds it finds a dead job."""
MARKER_OF_WRITER: Final = f"{CLEAN_SHUTDOWN}.held"
"""The marker of a clean shutdown while a `PartitionLog` writes."""
MARKER_OF_COMMIT: Final = f"{CLEAN_SHUTDOWN}{STAGED}"
"""The same while a commit is carried out."""

PARTITION_MAX: Final = (1 << 31) - 1
"""The largest number that Kafka has for a partition; a broker does not start beside a folder with a larger one."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_NUMBERED_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-[0-9]+")
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
OFFSET_MAX: Final = (1 << 63) - 1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetFile(NamedTuple):
    """A file that is named for an offset: ``00000000000000004000.log.swap`` is (4000, ".log.swap")."""

    offset: int
    suffix: str


def parse_partition_folder(name: str) -> TopicPartition | None:
    """Return the topic-partition that a folder is named for; None for every other folder.

    The metadata log of a KRaft cluster is no topic, and folders that Kafka has set aside are not served.
    """
    found = _PARTITION_FOLDER.fullmatch(name)
    if found is None or is_set_aside(name) or found["topic"] == METADATA_TOPIC:
        return None
    if not is_topic_name(found["topic"]) or int(found["partition"]) > PARTITION_MAX:
        return None
    return TopicPartition(found["topic"], int(found["partition"]))


def is_topic_name(name: str) -> bool:
    """Tell whether a topic may have a name."""
    return bool(_TOPIC.fullmatch(name)) and name not in (".", "..")


def topic_of_passed_over(name: str) -> str | None:
    """Return the topic of a folder that is named as a partition's, but for a number that no partition has."""
    found = _NUMBERED_FOLDER.fullmatch(name)
    if found is None or is_set_aside(name) or parse_partition_folder(name) is not None:
        return None
    return None if found["topic"] == METADATA_TOPIC else found["topic"]


def is_set_aside(name: str) -> bool:
    """Tell whether a folder is named as Kafka names those that it deletes, moves between disks, or does not know."""
    return _PASSING_FOLDER.fullmatch(name) is not None


def deleted_folder_name(name: str, due_ms: int, token: str) -> str:
    """Return what Kafka would call the folder of a partition that is deleted, ``<topic>-<n>.<uuid>-delete``.

    Parameters
    ----------
    due_ms : int
        When its files may be removed, ms since the epoch: what a UUID of version 7 begins with.
    token : str
        19 hexadecimal digits that no other has.
    """
    ending = f".{due_ms:012x}7{token}-delete"
    topic, dash, number = name.rpartition("-")
    # Kafka cuts the topic, too, where the name would be longer than a file system takes.
    return topic[: _FOLDER_NAME_MAX - len(dash + number + ending)] + dash + number + ending


def deletion_due_ms(name: str) -> int | None:
    """Return when the files of a folder may be removed that `deleted_folder_name` has named; None of others."""
    found = _DELETED_FOLDER.fullmatch(name)
    return None if found is None else int(found["due"], 16)


@lru_cache(maxsize=1 << 12)
def parse_offset_file(name: str) -> OffsetFile | None:
    """Return the offset and the suffix that a file is named for; None for every other file."""
    found = _SEGMENT_FILE.fullmatch(name)
    if found is None or int(found["offset"]) > OFFSET_MAX:
        return None
    return OffsetFile(int(found["offset"]), found["suffix"])


def offset_files(entries: Iterable[Entry]) -> Iterator[tuple[OffsetFile, Entry]]:
    """Yield the regular files of a folder that are named for an offset, in the order of their names."""
    for entry in entries:
        found = parse_offset_file(entry.name) if entry.is_file else None
        if found is not None:
            yield found, entry


def tells_of_segments(name: str) -> bool:
    """Tell whether a name must be known to tell which segments a folder has: that of a log, or of a cleaned file."""
    return LOG in name or name.endswith(CLEANED)


def is_cut_file(name: str) -> bool:
    """Tell whether a file is named as one that holds bytes which recovery cut off a segment."""
    return bool(_CUT_FILE.fullmatch(name))


def is_metadata_snapshot(name: str) -> bool:
    """Tell whether a file is named as a snapshot of the cluster's metadata."""
    return _METADATA_SNAPSHOT_FILE.fullmatch(name) is not None


def parse_metadata_snapshot(name: str) -> tuple[int, int] | None:
    """Return the end offset and the leader epoch that a snapshot of the cluster's metadata is named for."""
    found = _METADATA_SNAPSHOT_FILE.fullmatch(name)
    return None if found is None else (int(found["offset"]), int(found["epoch"]))


def cut_file_name(base_offset: int, position: int, number: int = 0) -> str:
    """Return the name of the file that keeps what was cut off a segment; ``number`` tells those of one place apart."""
    again = f".{number}" if number else ""
    return f"{base_offset:020d}.{position}{again}{CUT}"


def offset_file_name(offset: int, suffix: str) -> str:
    """Return the name of a segment's file, or of a snapshot."""
    return f"{offset:020d}{suffix}"


def being_written(name: str) -> str:
    """Return the name that a small file has until it is put in place."""
    return f"{name}{BEING_WRITTEN}"


def staged_name(job: str, what: str) -> str:
    """Return the name of a file that a job stages: of one attempt of a task, ``what`` is ``<task>-<attempt>-<n>``."""
    return f"seglog-{job}-{what}{STAGED}"


def staged_log(what: str) -> str:
    """Return what names the file with the batches, for `staged_name`."""
    return f"{what}{LOG}"


def staged_batches(what: str) -> str:
    """Return what names the file that says how long the batches are, for `staged_name`."""
    return f"{what}.batches"


def running_job_name(job: str) -> str:
    """Return the name of the empty file that is there while a job runs."""
    return f"seglog-{job}{_RUNNING}"


def is_running_job(name: str) -> bool:
    """Tell whether a file is named as one that says that a job runs."""
    return name.endswith(_RUNNING)


def exclusive_job_name(job: str) -> str:
    """Return the name of the empty file that tells the next job which one has left staged files: it held the lock."""
    return f"seglog-{job}{_EXCLUSIVE}"


def parse_exclusive_job(name: str) -> str | None:
    """Return the job whose files are to be removed by the next that holds the lock of jobs; None for other files."""
    return parse_staged_file(name) if name.endswith(_EXCLUSIVE) else None


def parse_staged_file(name: str) -> str | None:
    """Return the job that a staged file is of; None for every other file."""
    found = _STAGED_FILE.fullmatch(name)
    return None if found is None else found["job"]
