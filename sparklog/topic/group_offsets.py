"""What consumers of ours have committed: ``seglog.offsets``, a file of the log directory.

One JSON object, replaced as a whole:

    version   1
    groups    by group: by topic: by partition, as text: [offset, metadata, commit timestamp in ms since the epoch]

A commit reads it, changes it and replaces it under a lock of its own, ``seglog.offsets.lock``, which whoever writes
records does not hold. A broker does not read it; what a cluster's own groups have committed is in
``__consumer_offsets``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sparklog.errors import CorruptCheckpointError
from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.places import LogDirectory
from sparklog.write.atomic import write_atomically

_VERSION: Final = 1


class OffsetCommit(NamedTuple):
    """A committed offset: that of the next record to be read; ``metadata`` is the consumer's own."""

    offset: int
    metadata: str
    timestamp: int


GroupOffsets = dict[str, dict[TopicPartition, OffsetCommit]]


def read_group_offsets(directory: LogDirectory) -> GroupOffsets:
    """Return the offsets of each group; none where there is no file.

    Raises
    ------
    CorruptCheckpointError
        The file cannot be read.
    """
    path = directory.file(files.GROUP_OFFSETS)
    data = directory.storage.read_small(path)
    return {} if data is None else _parsed(data, path)


def _parsed(data: bytes, path: str) -> GroupOffsets:
    try:
        found = json.loads(data)
        if found["version"] == _VERSION:
            return {
                str(group): {
                    TopicPartition(str(topic), int(number)): OffsetCommit(int(of[0]), str(of[1]), int(of[2]))
                    for topic, partitions in topics.items()
                    for number, of in partitions.items()
                }
                for group, topics in found["groups"].items()
            }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CorruptCheckpointError(f"not a file of committed offsets: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a file of committed offsets", path=path)


def commit_group_offsets(
    directory: LogDirectory,
    group: str,
    offsets: Mapping[TopicPartition, OffsetCommit],
    *,
    lock_timeout_seconds: float = 60.0,
) -> None:
    """Commit offsets of a group, all of them or none; those of partitions that are not named stay.

    Raises
    ------
    CorruptCheckpointError
        The file cannot be read, and is not replaced.
    LockedError
        Others committed for that long.
    InvalidOptionError
        The storage cannot be written to.
    """
    lock = directory.file(files.GROUP_OFFSETS_LOCK)
    with directory.writable.lock(lock, lock_timeout_seconds):
        groups = read_group_offsets(directory)
        groups.setdefault(group, {}).update(offsets)
        write_atomically(directory, files.GROUP_OFFSETS, _encoded(groups))


def _encoded(groups: GroupOffsets) -> bytes:
    of_groups: dict[str, dict[str, dict[str, Any]]] = {}
    for group, offsets in groups.items():
        topics = of_groups.setdefault(group, {})
        for at, commit in offsets.items():
            topics.setdefault(at.topic, {})[str(at.partition)] = list(commit)
    return json.dumps({"version": _VERSION, "groups": of_groups}, indent=1).encode()
