"""Reads and changes the offsets that sparklog's consumers commit; `sparklog.log.group_offsets` has the format.

Consumers commit under the file's own lock, ``seglog.offsets.lock``, which writers of records do not hold. A transaction
commits offsets by its journal: to carry that out, a process holds the lock of the directory, and takes the lock of the
file after it. Nobody who holds the lock of the file takes the other. Readers hold none: they read the file, its
journal, and then the file again, until it was the same.

Offsets of a transaction are committed once its journal is written, and visible once that is carried out, as its records
are. A consumer that commits meanwhile first puts them into the file: its own offsets are newer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import Final

from sparklog.errors import InvalidOptionError, StorageError
from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import (
    NO_OFFSET,
    CommittedOffsets,
    GroupOffsets,
    OffsetCommit,
    StoredOffsets,
    add_lines,
    offsets_of_fields,
    parse_group_offsets,
)
from sparklog.log.journal import pending
from sparklog.log.kept_by_stamp import StampedFile, StampedLines
from sparklog.log.layout import topic_id_of
from sparklog.log.places import LogDirectory
from sparklog.storage.base import HeldLock
from sparklog.write.small_files import append_line, write_atomically

_NOTHING: Final = StoredOffsets()
_files: Final = StampedFile(parse_group_offsets)
_journals: Final = StampedLines(add_lines)


def read_group_offsets(
    directory: LogDirectory, group: str | None = None, *, with_decided: bool = False
) -> GroupOffsets:
    """Return the offsets of one group or of each; empty if nothing was committed.

    Parameters
    ----------
    with_decided : bool
        Whether to include offsets of a transaction that is decided and not yet carried out. A consumer of the group
        goes on from there; for all others they become visible together with the records.

    Raises
    ------
    CorruptCheckpointError
        The file or a journal cannot be read.
    """
    return _visible(directory, group, with_decided=with_decided).groups


def changed_file(
    directory: LogDirectory, change: Callable[[str, TopicPartition, OffsetCommit], OffsetCommit]
) -> bytes | None:
    """Return the content of ``seglog.offsets`` with all offsets of a directory, each changed; None if it has none.

    Errors: see `read_group_offsets`.
    """
    found = _visible(directory)
    groups = {
        group: {at: change(group, at, each) for at, each in offsets.items()} for group, offsets in found.groups.items()
    }
    changed = CommittedOffsets(groups, topics=found.topics)
    return changed.to_json(secrets.token_hex(8)) if any(groups.values()) else None


def _visible(directory: LogDirectory, group: str | None = None, *, with_decided: bool = False) -> CommittedOffsets:
    stored = _stored(directory)
    while True:
        decided, before = _decided(directory), stored
        stored = _stored(directory)
        # The journal and the offsets belong together only if these were the same before and after reading the journal.
        if stored == before:
            found = stored.offsets.after(decided) if with_decided else stored.offsets.without(decided)
            found = found if group is None else found.of_group(group)
            return found.of(_topic_ids(directory, found.groups, found.topics))


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
        stored, decided = _stored(directory), _decided(directory)
        if decided is not None and decided.transactions > stored.offsets.transactions:
            # Offsets of a transaction must not survive a power cut that its journal does not.
            directory.writable.sync_folder(directory.path)
            _add(directory, stored, decided)
            stored = _stored(directory)
        _add(directory, stored, CommittedOffsets({group: offsets}, topics=_topic_ids(directory, {group: offsets})))


def forget_offsets(
    directory: LogDirectory, is_gone: Callable[[TopicPartition], bool], now_ms: int, lock_timeout_seconds: float
) -> None:
    """Forget the committed offsets of deleted partitions, which must not count for new partitions of the same names.

    The caller holds the lock of the directory, and there is no journal.
    """
    with _lock(directory, lock_timeout_seconds):
        stored = _stored(directory)
        nothing = OffsetCommit(NO_OFFSET, "", now_ms)
        gone = {
            group: {at: nothing for at in offsets if is_gone(at)} for group, offsets in stored.offsets.groups.items()
        }
        if any(gone.values()):
            _add(directory, stored, CommittedOffsets(gone))


def next_transaction(directory: LogDirectory, groups: GroupOffsets) -> CommittedOffsets | None:
    """Return the offsets for the journal of a commit; None if it commits none.

    The caller holds the lock of the directory, and there is no journal.
    """
    if not groups:
        return None
    times = [commit.timestamp for offsets in groups.values() for commit in offsets.values()]
    number = max([_stored(directory).offsets.transactions + 1, *times])
    return CommittedOffsets(checked_offsets(groups), number, topics=_topic_ids(directory, groups))


def add_transaction(directory: LogDirectory, decided: CommittedOffsets, *, lock_timeout_seconds: float = 60.0) -> None:
    """Put the offsets of a journal into the file, unless it has them. The caller holds the lock of the directory."""
    with _lock(directory, lock_timeout_seconds):
        stored = _stored(directory)
        if decided.transactions > stored.offsets.transactions:
            _add(directory, stored, decided)


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


def _stored(directory: LogDirectory) -> StoredOffsets:
    """Return the offsets in the file and its journal."""
    file = _files.read(directory, files.GROUP_OFFSETS) or _NOTHING
    while True:
        before = file
        found = _journals.read(directory, files.GROUP_OFFSETS_JOURNAL, file) if file.generation else file
        file = _files.read(directory, files.GROUP_OFFSETS) or _NOTHING
        if file == before:
            return found


def _add(directory: LogDirectory, stored: StoredOffsets, commit: CommittedOffsets) -> None:
    """Write a commit. The caller holds the lock of the file."""
    line = stored.line(commit)
    if line is None:
        _replace_file(directory, stored.offsets.updated([commit]))
    else:
        append_line(directory, files.GROUP_OFFSETS_JOURNAL, stored.end_position, line, like=files.GROUP_OFFSETS)


def _replace_file(directory: LogDirectory, offsets: CommittedOffsets) -> None:
    generation = secrets.token_hex(8)
    data = offsets.to_json(generation)
    write_atomically(directory, files.GROUP_OFFSETS, data)
    _files.written(directory, files.GROUP_OFFSETS, data, StoredOffsets(offsets, generation, len(data)))
    # The journal follows the file of before: if it stays, it counts for nothing, and the next commit replaces it.
    with suppress(StorageError):
        directory.writable.remove(directory.file(files.GROUP_OFFSETS_JOURNAL))
