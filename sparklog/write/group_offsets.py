"""Reads and changes what consumers of ours have committed; `sparklog.log.group_offsets` has the format.

Consumers commit under a lock of the file's own, ``seglog.offsets.lock``, which whoever writes records does not hold. A
transaction commits offsets by its journal: whoever carries that out holds the lock of the directory, and takes the one
of the file behind it. Nobody who holds the lock of the file takes the other.

Offsets of a transaction are committed once its journal is there, and visible once that is carried out, as its records
are. A consumer that commits meanwhile first puts them into the file: its own are newer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from sparklog.errors import InvalidOptionError
from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import (
    NO_OFFSET,
    CommittedOffsets,
    GroupOffsets,
    OffsetCommit,
    offsets_of_fields,
    parse_group_offsets,
)
from sparklog.log.journal import pending
from sparklog.log.layout import topic_id_of
from sparklog.log.places import LogDirectory
from sparklog.storage.base import HeldLock
from sparklog.write.small_files import write_atomically


def read_group_offsets(directory: LogDirectory, *, with_decided: bool = False) -> GroupOffsets:
    """Return the offsets of each group; none where nothing was committed.

    Parameters
    ----------
    with_decided : bool
        Whether those of a transaction that is decided and not carried out are among them. A consumer of the group goes
        on there; to all others they are not visible before the records are.

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
            found = _parsed(data, path)
            found = found.after(decided) if with_decided else found.without(decided)
            return found.of(_topic_ids(directory, found.groups, found.topics)).groups


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
        An offset or the group is none, or the storage cannot be written to.
    """
    checked_offsets({group: offsets})
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        whole = found.after(_decided(directory))
        if whole is not found:
            # Nothing may outlive a power cut of a transaction whose journal does not.
            directory.writable.sync_folder(directory.path)
        _write(directory, whole.updated({group: offsets}, _topic_ids(directory, {group: offsets})))


def forget_offsets(
    directory: LogDirectory, is_gone: Callable[[TopicPartition], bool], now_ms: int, lock_timeout_seconds: float
) -> None:
    """Let nothing be committed of partitions that are gone: it must not count for others of their names.

    The caller holds the lock of the directory, and no journal is there.
    """
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        nothing = OffsetCommit(NO_OFFSET, "", now_ms)
        gone = {group: {at: nothing for at in offsets if is_gone(at)} for group, offsets in found.groups.items()}
        if any(gone.values()):
            _write(directory, found.updated(gone))


def next_transaction(directory: LogDirectory, groups: GroupOffsets) -> CommittedOffsets | None:
    """Return what the journal of a commit is to say of offsets; None where it has none.

    The caller holds the lock of the directory, and no journal is there.
    """
    if not groups:
        return None
    times = [commit.timestamp for offsets in groups.values() for commit in offsets.values()]
    number = max([_read(directory).transactions + 1, *times])
    return CommittedOffsets(checked_offsets(groups), number, topics=_topic_ids(directory, groups))


def add_transaction(directory: LogDirectory, decided: CommittedOffsets, *, lock_timeout_seconds: float = 60.0) -> None:
    """Put the offsets of a journal into the file, unless they are there; the caller holds the lock of the directory."""
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        whole = found.after(decided)
        if whole is not found:
            _write(directory, whole)


def checked_offsets(groups: GroupOffsets) -> GroupOffsets:
    """Return offsets that are to be written, if they can be read again: one that cannot would hide all others.

    Raises
    ------
    InvalidOptionError
        One cannot.
    """
    given = CommittedOffsets({group: offsets for group, offsets in groups.items() if offsets})
    try:
        if offsets_of_fields(given.to_fields()) == given:
            return groups
        reason = "an offset would be read as another"
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error)
    raise InvalidOptionError(f"nothing was committed: {reason}")


def _topic_ids(directory: LogDirectory, groups: GroupOffsets, topics: Container[str] | None = None) -> dict[str, str]:
    """Return the ids of topics of which offsets are committed, or of some of them, where they are here and known."""
    found: dict[str, str] = {}
    for at in (at for offsets in groups.values() for at in offsets if topics is None or at.topic in topics):
        topic_id = None if at.topic in found else topic_id_of(directory.folder(str(at)))
        if topic_id is not None:
            found[at.topic] = topic_id
    return found


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
