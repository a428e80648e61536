"""The journal of a commit: everything that it will do to a log directory, written down before it is done.

``seglog.journal`` lies in the log directory, one JSON object. It is put there in one step, and that step is the commit:
before it nothing has happened, after it everything will have, since whoever finds it finishes it. Then it becomes
``seglog.commit``, the account of the last commit, by which a reader can tell that one was made while it looked.

    version      1
    commit_id    of this commit
    partitions   the logs that it writes to as they were before it, by the names of their folders
        start_offset log start offset
        end_offset   log end offset
        segment      base offset of the last segment; -1 where there was none
        position     size of that segment's log, bytes
    moves        in order; a list each
        ["append", source, source_position, length_bytes, target, position]
                     the target is to be its first ``position`` bytes and that part of the source
        ["rename", source, target]
                     the target is to be the source
    summary      what was written, for people and their tools

Paths are relative to the log directory. A move can be made twice, or after it was made in part: sources of "append"
stay until all is done. A broker knows nothing of a journal; `finish` refuses where one has written behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sparklog.errors import CommitError, CorruptCheckpointError, PathNotFoundError
from sparklog.log.damage import is_zero
from sparklog.log.files import LOG, offset_file_name
from sparklog.storage.base import ReadableFile, Storage
from sparklog.storage.writing import WritableStorage, write_atomically

OWN_PREFIX: Final = "seglog."
"""What the names of our own files in a log directory begin with."""

JOURNAL: Final = f"{OWN_PREFIX}journal"
LAST_COMMIT: Final = f"{OWN_PREFIX}commit"

_VERSION: Final = 1
_PATH = re.compile(r"(?:(?!\.{1,2}/)[A-Za-z0-9._-]+/)?(?!\.{1,2}$)[A-Za-z0-9._-]+")
_COMPARED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Append:
    """Make ``target`` its first ``position`` bytes and a part of ``source``."""

    source: str
    source_position: int
    length_bytes: int
    target: str
    position: int

    @property
    def end_position(self) -> int:
        return self.position + self.length_bytes


@dataclass(frozen=True, slots=True)
class Rename:
    """Make ``source`` the ``target``, in the place of what is there."""

    source: str
    target: str


Move = Append | Rename


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a log started and ended before a commit; ``segment`` is -1 where it had none."""

    start_offset: int
    end_offset: int
    segment: int
    position: int


@dataclass(frozen=True)
class Journal:
    """One commit; see the module for the fields."""

    commit_id: str
    partitions: Mapping[str, Bound]
    moves: tuple[Move, ...]
    summary: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        kinds = {Append: "append", Rename: "rename"}
        return json.dumps(
            {
                "version": _VERSION,
                "commit_id": self.commit_id,
                "partitions": {name: asdict(bound) for name, bound in self.partitions.items()},
                "moves": [[kinds[type(move)], *asdict(move).values()] for move in self.moves],
                "summary": self.summary,
            }
        ).encode()


@lru_cache(maxsize=4)
def parse_journal(data: bytes, path: str) -> Journal:
    """Read a journal.

    Raises
    ------
    CorruptCheckpointError
        It is not JSON, of another version, or names a file outside of its log directory.
    """
    try:
        found = json.loads(data)
        if found["version"] != _VERSION:
            raise CorruptCheckpointError(f"unknown version {found['version']!r} of a commit journal", path=path)
        return Journal(
            commit_id=str(found["commit_id"]),
            partitions={_path(name): _bound(bound) for name, bound in found["partitions"].items()},
            moves=tuple(_move(move) for move in found["moves"]),
            summary=dict(found["summary"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"not a commit journal: {error!r}", path=path, hint="Nothing is changed while it cannot be read"
        ) from error


def _bound(found: Mapping[str, Any]) -> Bound:
    return Bound(
        start_offset=_number(found["start_offset"]),
        end_offset=_number(found["end_offset"]),
        segment=_number(found["segment"], at_least=-1),
        position=_number(found["position"]),
    )


def _move(found: list[Any]) -> Move:
    kind, *fields = found
    if kind == "rename":
        source, target = fields
        return Rename(_path(source), _path(target))
    if kind != "append":
        raise ValueError(f"unknown move {kind!r}")
    source, source_position, length_bytes, target, position = fields
    return Append(_path(source), _number(source_position), _number(length_bytes), _path(target), _number(position))


def _path(found: object) -> str:
    if not isinstance(found, str) or not _PATH.fullmatch(found):
        raise ValueError(f"a path outside of the log directory: {found!r}")
    return found


def _number(found: object, at_least: int = 0) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not at_least <= found < 1 << 63:
        raise ValueError(f"not a number of bytes or an offset: {found!r}")
    return found


def pending(storage: Storage, directory: str) -> Journal | None:
    """Return the commit that was decided and is not done yet, if there is one."""
    path = f"{directory}/{JOURNAL}"
    data = storage.read_small(path)
    return None if data is None else parse_journal(data, path)


def bound_of(storage: Storage, folder: str) -> Bound | None:
    """Return where a partition's log starts and ends for readers, if a commit to it is not done yet."""
    directory, _, name = folder.rstrip("/").rpartition("/")
    journal = pending(storage, directory)
    return None if journal is None else journal.partitions.get(name)


def commit_mark(storage: Storage, directory: str) -> tuple[bytes | None, bytes | None]:
    """Return what is the same at two times if no commit was decided or done between them."""
    last = storage.read_small(f"{directory}/{LAST_COMMIT}")
    return storage.read_small(f"{directory}/{JOURNAL}"), last


def decide(storage: WritableStorage, directory: str, journal: Journal) -> None:
    """Write the journal down. This is the commit; sources must be on the disk by now.

    The caller has asked `refuse_foreign_changes` whether it can be carried out as the files are.
    """
    write_atomically(storage, f"{directory}/{JOURNAL}", journal.to_json())


def finish(storage: WritableStorage, directory: str, *, is_checked: bool = False) -> Journal | None:
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
