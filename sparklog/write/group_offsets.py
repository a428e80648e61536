"""Reads and changes the offsets that sparklog's consumers commit; `sparklog.log.group_offsets` has the format.

Consumers commit under the file's own lock, ``seglog.offsets.lock``, which writers of records do not hold. A transaction
commits offsets by its journal: to carry that out, a process holds the lock of the directory, and takes the lock of the
file after it. Nobody who holds the lock of the file takes the other.

Offsets of a transaction are committed once its journal is written, and visible once that is carried out, as its records
are. A consumer that commits meanwhile first puts them into the file: its own offsets are newer.
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
    """Return the offsets of each group; empty if nothing was committed.

    Parameters
    ----------
    with_decided : bool
        Whether to include offsets of a transaction that is decided and not yet carried out. A consumer of the group
        goes on from there; for all others they become visible together with the records.

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
        # The journal and the file belong together only if the file was the same before and after reading the journal.
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
    """Commit offsets of a group, all of them or none. Offsets of other partitions stay.

    Raises
    ------
    CorruptCheckpointError
        The file or the journal cannot be read, and the file is not replaced.
    LockedError
        Other consumers held the lock for longer than ``lock_timeout_seconds``.
    InvalidOptionError
        An offset or the group's name is not valid, or the storage cannot be written to.
    """
    checked_offsets({group: offsets})
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        whole = found.after(_decided(directory))
        if whole is not found:
            # Offsets of a transaction must not survive a power cut that its journal does not.
            directory.writable.sync_folder(directory.path)
        _write(directory, whole.updated({group: offsets}, _topic_ids(directory, {group: offsets})))


def forget_offsets(
    directory: LogDirectory, is_gone: Callable[[TopicPartition], bool], now_ms: int, lock_timeout_seconds: float
) -> None:
    """Forget the committed offsets of deleted partitions, which must not count for new partitions of the same names.

    The caller holds the lock of the directory, and there is no journal.
    """
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        nothing = OffsetCommit(NO_OFFSET, "", now_ms)
        gone = {group: {at: nothing for at in offsets if is_gone(at)} for group, offsets in found.groups.items()}
        if any(gone.values()):
            _write(directory, found.updated(gone))


def next_transaction(directory: LogDirectory, groups: GroupOffsets) -> CommittedOffsets | None:
    """Return the offsets for the journal of a commit; None if it commits none.

    The caller holds the lock of the directory, and there is no journal.
    """
    if not groups:
        return None
    times = [commit.timestamp for offsets in groups.values() for commit in offsets.values()]
    number = max([_read(directory).transactions + 1, *times])
    return CommittedOffsets(checked_offsets(groups), number, topics=_topic_ids(directory, groups))


def add_transaction(directory: LogDirectory, decided: CommittedOffsets, *, lock_timeout_seconds: float = 60.0) -> None:
    """Put the offsets of a journal into the file, unless it has them. The caller holds the lock of the directory."""
    with _lock(directory, lock_timeout_seconds):
        found = _read(directory)
        whole = found.after(decided)
        if whole is not found:
            _write(directory, whole)


def checked_offsets(groups: GroupOffsets) -> GroupOffsets:
    """Return offsets to write, after checking that they can be read again: an unreadable one would hide all others.

    Raises
    ------
    InvalidOptionError
        One of them cannot be read again.
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
    """Return the known ids of topics with committed offsets, of all or of some topics."""
    found: dict[str, str] = {}
    for at in (at for offsets in groups.values() for at in offsets if topics is None or at.topic in topics):
        topic_id = None if at.topic in found else topic_id_of(directory.folder(str(at)))
        if topic_id is not None:
            found[at.topic] = topic_id
    return found


def _lock(directory: LogDirectory, timeout_seconds: float) -> HeldLock:
    return directory.writable.lock(directory.file(files.GROUP_OFFSETS_LOCK), timeout_seconds)


def _decided(directory: LogDirectory) -> CommittedOffsets | None:
    """Return the offsets of a transaction that is decided and not carried out; None if there are none."""
    journal = pending(directory)
    return None if journal is None else journal.offsets


def _read(directory: LogDirectory) -> CommittedOffsets:
    path = directory.file(files.GROUP_OFFSETS)
    return _parsed(directory.storage.read_small(path), path)


def _parsed(data: bytes | None, path: str) -> CommittedOffsets:
    return CommittedOffsets() if data is None else parse_group_offsets(data, path)


def _write(directory: LogDirectory, offsets: CommittedOffsets) -> None:
    write_atomically(directory, files.GROUP_OFFSETS, offsets.to_json())
