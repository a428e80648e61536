"""Reads and changes what consumers of ours have committed; `sparklog.log.group_offsets` has the format.

Consumers commit under a lock of the file's own, ``seglog.offsets.lock``, which whoever writes records does not hold. A
transaction commits offsets by its journal: whoever carries that out holds the lock of the directory, and takes the one
of the file behind it. Nobody who holds the lock of the file takes the other.

Offsets of a transaction are committed once its journal is there. Readers take them from the journal until they are in
the file, and a consumer that commits meanwhile first puts them there: its own are newer.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import CommittedOffsets, GroupOffsets, OffsetCommit, parse_group_offsets
from sparklog.log.journal import pending
from sparklog.log.places import LogDirectory
from sparklog.storage.base import HeldLock
from sparklog.write.atomic import write_atomically


def read_group_offsets(directory: LogDirectory) -> GroupOffsets:
    """Return the offsets of each group; none where nothing was committed.

    Raises
    ------
    CorruptCheckpointError
        The file or the journal cannot be read.
    """
    path = directory.file(files.GROUP_OFFSETS)
    data = directory.storage.read_small(path)
    while True:
        decided, before = _decided(directory), data
        data = directory.storage.read_small(path)
        # The journal is as old as the file only where that was the same before and behind it.
        if data == before:
            return _parsed(data, path).after(decided).groups


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
        The file or the journal cannot be read, and the file is not replaced.
    LockedError
        Others committed for that long.
    InvalidOptionError
        The storage cannot be written to.
    """
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        whole = found.after(_decided(directory))
        if whole is not found:
            # Nothing may outlive a power cut of a transaction whose journal does not.
            directory.writable.sync_folder(directory.path)
        _write(directory, whole.updated({group: offsets}))


def forget_topic(directory: LogDirectory, topic: str, *, lock_timeout_seconds: float = 60.0) -> None:
    """Remove what groups have committed in a topic that is deleted, as Kafka does; the directory's lock is not held."""
    if directory.storage.identity(directory.file(files.GROUP_OFFSETS)) is None:
        return
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory).after(_decided(directory))
        left = found.without(topic)
        if left != found:
            _write(directory, left)


def next_transaction(directory: LogDirectory, groups: GroupOffsets) -> CommittedOffsets | None:
    """Return what the journal of a commit is to say of offsets; None where it has none.

    The caller holds the lock of the directory, and no journal is there.
    """
    return CommittedOffsets(groups, _read(directory).transactions + 1) if groups else None


def add_transaction(directory: LogDirectory, decided: CommittedOffsets, *, lock_timeout_seconds: float = 60.0) -> None:
    """Put the offsets of a journal into the file, unless they are there; the caller holds the lock of the directory."""
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        whole = found.after(decided)
        if whole is not found:
            _write(directory, whole)


def _lock(directory: LogDirectory, timeout_seconds: float) -> HeldLock:
    return directory.writable.lock(directory.file(files.GROUP_OFFSETS_LOCK), timeout_seconds)


def _decided(directory: LogDirectory) -> CommittedOffsets | None:
    """Return the offsets of the transaction that was decided and is not carried out, if there is one that has some."""
    journal = pending(directory)
    return None if journal is None else journal.offsets


def _read(directory: LogDirectory) -> CommittedOffsets:
    path = directory.file(files.GROUP_OFFSETS)
    return _parsed(directory.storage.read_small(path), path)


def _parsed(data: bytes | None, path: str) -> CommittedOffsets:
    return CommittedOffsets() if data is None else parse_group_offsets(data, path)


def _write(directory: LogDirectory, offsets: CommittedOffsets) -> None:
    write_atomically(directory, files.GROUP_OFFSETS, offsets.to_json())
