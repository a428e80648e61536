"""Reads the journal of a commit, which lists all its changes to a log directory before they are made.

``seglog.journal`` lies in the log directory, one JSON object. It is put there in one step, and that step is the commit:
before it nothing has happened, after it everything will happen, since the next writer that finds the journal finishes
it. Then it becomes ``seglog.commit``, the account of the last commit, which shows a reader that a commit was made while
it read.

    version      1; 2 if there are offsets
    commit_id    of this commit
    partitions   the logs that it changes, as they were before it, by the names of their folders; a missing
                 folder is made
        start_offset log start offset
        end_offset   log end offset
        segment      base offset of the last segment; -1 if there was none
        position     size of that segment's log, bytes
    moves        in order; a list each
        ["append", source, source_position, length_bytes, target, position]
                     the target becomes its first ``position`` bytes and that part of the source
        ["rename", source, target]
                     the target becomes the source
    offsets      committed offsets of consumer groups, if it is a transaction with some; the fields are described in
                 `sparklog.log.group_offsets`
    summary      an account of the commit, for people and their tools

Paths are relative to the log directory, which holds the sources; sources of earlier versions can be in the folders of
partitions as well. A move can be made twice, or after it was made in part: sources of "append"
stay until all is done. A broker knows nothing of a journal; `sparklog.write.journal`, which makes the moves, refuses to
if a broker has written meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from sparklog.errors import CorruptCheckpointError, PathNotFoundError
from sparklog.log import files
from sparklog.log.group_offsets import CommittedOffsets, offsets_of_fields
from sparklog.log.places import LogDirectory

NO_SEGMENT: Final = -1
_VERSION: Final = 1
_VERSION_WITH_OFFSETS: Final = 2
_BEGINNING_BYTES: Final = 512
_PATH = re.compile(r"(?:(?!\.{1,2}/)[A-Za-z0-9._-]+/)?(?!\.{1,2}$)[A-Za-z0-9._-]+")


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

    def followed_by(self, move: Append) -> Append | None:
        """Return one move equal to this one and the next together; None if there is none."""
        is_next = (self.source, self.source_position + self.length_bytes) == (move.source, move.source_position)
        if not is_next or (self.target, self.end_position) != (move.target, move.position):
            return None
        return replace(self, length_bytes=self.length_bytes + move.length_bytes)


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename ``source`` to ``target``, replacing it."""

    source: str
    target: str


Move = Append | Rename


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The start and end of a log before a commit; ``segment`` is `NO_SEGMENT` if it had none."""

    start_offset: int
    end_offset: int
    segment: int
    position: int


@dataclass(frozen=True)
class Journal:
    """One commit; see the module for the fields."""

    commit_id: str
    partitions: Mapping[str, LogExtent]
    moves: tuple[Move, ...]
    summary: Mapping[str, Any] = field(default_factory=dict)
    offsets: CommittedOffsets | None = None

    def to_json(self) -> bytes:
        offsets = {} if self.offsets is None else {"offsets": self.offsets.to_fields()}
        return json.dumps(
            {
                "version": _version(offsets),
                **offsets,
                "commit_id": self.commit_id,
                "partitions": {name: asdict(bound) for name, bound in self.partitions.items()},
                "moves": [_encoded(move) for move in self.moves],
                "summary": self.summary,
            }
        ).encode()


@lru_cache(maxsize=4)
def parse_journal(data: bytes, path: str) -> Journal:
    """Read a journal.

    Raises
    ------
    CorruptCheckpointError
        It is not JSON, has another version, or names a file outside its log directory.
    """
    try:
        found = json.loads(data)
        if found["version"] != _version(found):
            raise CorruptCheckpointError(f"unknown version {found['version']!r} of a commit journal", path=path)
        return Journal(
            commit_id=str(found["commit_id"]),
            partitions={_path(name): _bound(bound) for name, bound in found["partitions"].items()},
            moves=tuple(_move(move) for move in found["moves"]),
            summary=dict(found["summary"]),
            offsets=offsets_of_fields(found["offsets"]) if "offsets" in found else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"not a commit journal: {error!r}", path=path, hint="Nothing is changed while it cannot be read"
        ) from error


def _version(fields: Mapping[str, Any]) -> int:
    return _VERSION_WITH_OFFSETS if "offsets" in fields else _VERSION


def _encoded(move: Move) -> list[str | int]:
    if isinstance(move, Rename):
        return ["rename", move.source, move.target]
    return ["append", move.source, move.source_position, move.length_bytes, move.target, move.position]


def _bound(found: Mapping[str, Any]) -> LogExtent:
    return LogExtent(
        start_offset=_number(found["start_offset"]),
        end_offset=_number(found["end_offset"]),
        segment=_number(found["segment"], at_least=NO_SEGMENT),
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


@dataclass(frozen=True, slots=True)
class CommitVersion:
    """Identifies the last commit of a log directory: if it is equal at two times, no commit was made between them.

    Attributes
    ----------
    journal : bytes or None
        The journal, if there is one.
    last_commit : (bytes, int) or None
        The beginning of the account of the last commit, with the commit's id, and its size in bytes.
    """

    journal: bytes | None
    last_commit: tuple[bytes, int] | None

    def pending(self, directory: LogDirectory) -> Journal | None:
        """Return the commit that is decided and not yet carried out, or None."""
        return None if self.journal is None else parse_journal(self.journal, directory.file(files.JOURNAL))


def commit_version(directory: LogDirectory) -> CommitVersion:
    """Read the journal of a log directory, and the id of its last commit.

    The account of a commit grows with its partitions, and reading many partitions asks for it each time: only
    its beginning is read.
    """
    # In this order, a commit that becomes the last one in between is seen twice rather than not at all.
    last_commit = _beginning(directory, files.LAST_COMMIT)
    return CommitVersion(directory.storage.read_small(directory.file(files.JOURNAL)), last_commit)


def _beginning(directory: LogDirectory, name: str) -> tuple[bytes, int] | None:
    try:
        with directory.storage.open(directory.file(name)) as file:
            return bytes(file.read(0, _BEGINNING_BYTES)), file.size_bytes()
    except PathNotFoundError:
        return None


def pending(directory: LogDirectory) -> Journal | None:
    """Return the commit that was decided and is not done yet, if there is one."""
    path = directory.file(files.JOURNAL)
    data = directory.storage.read_small(path)
    return None if data is None else parse_journal(data, path)
