"""Writes the journal of a commit, and makes the moves that it lists; `sparklog.log.journal` has the format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from sparklog.errors import CommitError, PathNotFoundError
from sparklog.log.damage import is_zero
from sparklog.log.files import LOG, offset_file_name
from sparklog.log.journal import JOURNAL, LAST_COMMIT, Append, Journal, Move, Rename, pending
from sparklog.storage.base import ReadableFile, Storage, WritableStorage
from sparklog.write.atomic import write_atomically

_COMPARED_BYTES: Final = 1 << 20


def write_journal(storage: WritableStorage, directory: str, journal: Journal) -> None:
    """Write the journal down. This is the commit; sources must be on the disk by now.

    The caller has asked `refuse_foreign_changes` whether it can be carried out as the files are.
    """
    write_atomically(storage, f"{directory}/{JOURNAL}", journal.to_json())


def apply_journal(storage: WritableStorage, directory: str, *, is_checked: bool = False) -> Journal | None:
    """Do what a journal says, and put it away; the caller holds the lock of the directory.

    Parameters
    ----------
    is_checked : bool
        The caller has just decided the journal, and held the lock since, so that nobody else has written.

    Returns
    -------
    Journal or None
        What was done; None where there is no journal.

    Raises
    ------
    CommitError
        Something else has written to the logs since the journal was, or a file of the commit is gone.
    """
    journal = pending(storage, directory)
    if journal is None:
        return None
    if not is_checked:
        refuse_foreign_changes(storage, directory, journal)
    unsynced: list[Move] = []
    for move in journal.moves:
        if isinstance(move, Append):
            _append(storage, directory, move)
        else:
            if "/" not in move.target:
                # A broker believes the directory's own files: what they say of the logs must be on the disk first.
                _sync(storage, directory, unsynced)
                unsynced.clear()
            _rename(storage, directory, move)
        unsynced.append(move)
    _sync(storage, directory, unsynced)
    storage.rename(f"{directory}/{JOURNAL}", f"{directory}/{LAST_COMMIT}")
    storage.sync_folder(directory)
    for source in sorted({move.source for move in journal.moves if isinstance(move, Append)}):
        storage.remove(f"{directory}/{source}")
    return journal


def _append(storage: WritableStorage, directory: str, move: Append) -> None:
    with storage.open_for_append(f"{directory}/{move.target}") as target:
        if target.size_bytes() != move.position:
            target.truncate(move.position)
        if move.length_bytes:
            target.append_from(f"{directory}/{move.source}", move.source_position, move.length_bytes)


def _rename(storage: WritableStorage, directory: str, move: Rename) -> None:
    try:
        storage.rename(f"{directory}/{move.source}", f"{directory}/{move.target}")
    except PathNotFoundError:
        # Done before, or lost; which one was found out by refuse_foreign_changes.
        return


def _sync(storage: WritableStorage, directory: str, moves: Iterable[Move]) -> None:
    appended = {move.target for move in moves if isinstance(move, Append)}
    storage.sync_files([f"{directory}/{target}" for target in sorted(appended)])
    for folder in sorted({f"/{move.target}".rpartition("/")[0] for move in moves}):
        storage.sync_folder(f"{directory}{folder}")


def refuse_foreign_changes(storage: Storage, directory: str, journal: Journal) -> None:
    """Raise `CommitError` if the files are not as the journal found or left them, done in part or not."""
    appended: dict[str, list[Append]] = {}
    renamed: set[str] = set()
    for move in journal.moves:
        if isinstance(move, Rename):
            if not _exists(storage, directory, move.source) and not _exists(storage, directory, move.target):
                raise CommitError(f"a file of the commit is gone: {directory}/{move.source}. {_WAY_OUT}")
            renamed.add(move.target)
        elif move.target not in renamed:
            appended.setdefault(move.target, []).append(move)
    for folder, bound in journal.partitions.items():
        last = f"{folder}/{offset_file_name(max(bound.segment, 0), LOG)}"
        if bound.segment >= 0:
            appended.setdefault(last, [Append("", 0, 0, last, bound.position)])
    for target, parts in appended.items():
        _check_target(storage, directory, target, parts)


_WAY_OUT: Final = (
    f"To keep the logs as they are, without what is missing of this commit, remove {JOURNAL}; its files end in .staged"
)


def _check_target(storage: Storage, directory: str, name: str, parts: list[Append]) -> None:
    """Check that a target reaches to where it is to go on, and holds nothing of others behind that."""
    path = f"{directory}/{name}"
    try:
        target = storage.open(path)
    except PathNotFoundError as error:
        if parts[0].position:
            raise CommitError(f"a file that the commit goes on with is gone: {path}. {_WAY_OUT}") from error
        return
    with target:
        if target.size_bytes() < parts[0].position:
            raise CommitError(
                f"{path} was cut to {target.size_bytes()} bytes since the commit, which goes on at "
                f"{parts[0].position}. {_WAY_OUT}"
            )
        if target.size_bytes() > parts[0].position and not (
            all(_is_of(storage, directory, target, part) for part in parts)
            and is_zero(target, parts[-1].end_position, target.size_bytes())
        ):
            raise CommitError(f"{path} has been written to by others since the commit. {_WAY_OUT}")


def _is_of(storage: Storage, directory: str, target: ReadableFile, part: Append) -> bool:
    """Tell whether a target has nothing but zeros, from before they were synced, where it differs from a part."""
    if not part.length_bytes:
        return True
    with storage.open(f"{directory}/{part.source}") as source:
        for start in range(0, part.length_bytes, _COMPARED_BYTES):
            length_bytes = min(_COMPARED_BYTES, part.length_bytes - start)
            found = np.frombuffer(target.read(part.position + start, length_bytes), np.uint8)
            wanted = np.frombuffer(source.read(part.source_position + start, length_bytes), np.uint8)
            if len(wanted) < length_bytes or ((found != wanted[: len(found)]) & (found != 0)).any():
                return False
            if len(found) < length_bytes:
                return True
    return True


def _exists(storage: Storage, directory: str, name: str) -> bool:
    try:
        storage.open(f"{directory}/{name}").close()
    except PathNotFoundError:
        return False
    return True
