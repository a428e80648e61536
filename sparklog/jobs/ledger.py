"""Reads and writes ledgers. A ledger records what jobs have moved to a target, and the next job continues from there.

A ledger is a file of JSON lines: ``_seglog/ledger.jsonl`` in a folder of tables, ``seglog.ledger.jsonl`` in a log
directory. A commit adds its lines at once: one for each range of offsets that was moved, or file that was loaded, and
then a line of kind ``commit``, which makes them valid:

    {"kind": "moved", "topic": "events", "partition": 0, "from": 0, "to": 1000, "rows": 998, "log_bytes": 98304,
     "topic_id": "...", "leader_epoch": 3, "source": "/logs", "target_topic": "events",
     "producers_of": "/logs",
     "files": [{"path": "...", "bytes": 40960, "rows": 998, "crc32c": 305419896, "staged": "..."}]}
    {"kind": "loaded", "path": "/in/a.parquet", "into": "events", "bytes": 40960,
     "modified_ns": 1700000000000000000, "rows": 998}
    {"kind": "landed", "folder": "events-0", "log_id": "...", "to": 1000}
    {"kind": "settings",
     "settings": {"format": "parquet", "columns": "key, value", "partition_by": "topic", "where": ""}}
    {"kind": "commit", "version": 1, "number": 7, "job": "export", "run": "...", "time_ms": 1700000000000,
     "lines": 2, "crc32c": 305419896}

    from, to              the offsets that were moved, the end exclusive; the ranges of a partition are consecutive
    rows                  the number of records in them for a reader of the job's isolation level
    topic_id              from ``partition.metadata``; null if there is none
    leader_epoch          epoch of the last offset by ``leader-epoch-checkpoint``; null if there is none
    log_id, end_batch     see `sparklog.log.log_identity`, at the end of the range; left out if there is none
    source, target_topic  of a copy: the log directory that it has read, and the topic that it has written to
    producers_of          of a copy: the source whose producers got other ids; null if they kept their ids
    into                  the topic, or topic:partition, that a load was given; null if rows name their topics
    files.path            relative to the target
    dead_letters          files of records that were not decoded, with the same fields; left out if there is none
    lost                  the damage in the range, or directly after it: rows of `sparklog.log.damage_rows` without
                          topic and partition; left out if there is none
    files.staged          the name under which the file was staged, in the ledger's folder; a commit renames the file
    landed                a log that a load or a copy has written to, its id and its end after that commit
    settings              how all files of a folder of tables are written; the first commit has it
    number                counts the commits from 0
    crc32c                of a file's bytes; in a commit, of the bytes of its own lines before it

Lines after the last commit belong to a run that died while it wrote them, and are ignored. In a folder of tables a
commit is decided once its lines are on the disk; then its files are renamed, and the next run renames those that are
left.

Old entries of a ledger are never removed, since it also lists the files and their checksums. A run reads all of it
once, or twice after a run that died: 10,000 commits of ten ranges each, 34 MiB, take 0.7 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from sparklog.errors import CorruptCheckpointError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.files import TopicPartition
from sparklog.log.log_identity import EndBatch, LogIdentity
from sparklog.log.reads.damage_table import DAMAGE_SCHEMA
from sparklog.storage.base import Storage

_VERSION: Final = 1
_MOVED, _LOADED, _LANDED, _SETTINGS, _COMMIT = "moved", "loaded", "landed", "settings", "commit"
_COMMIT_MARK: Final = b'"kind":"commit"'
_WINDOW_BYTES: Final = 1 << 22
_OF_LOST: Final = tuple(name for name in DAMAGE_SCHEMA.names if name not in TopicPartition._fields)
_OF_COPY: Final = ("source", "target_topic", "producers_of")
_LINE_BYTES_MAX: Final = 1 << 26
_COMMIT_LINE_BYTES_MAX: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file that a commit made visible. The module describes the fields."""

    path: str
    size_bytes: int
    rows: int
    crc32c: int
    staged: str

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "bytes": self.size_bytes,
            "rows": self.rows,
            "crc32c": self.crc32c,
            "staged": self.staged,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> MovedFile:
        size_bytes, rows, checksum = (int(found[name]) for name in ("bytes", "rows", "crc32c"))
        return cls(str(found["path"]), size_bytes, rows, checksum, str(found["staged"]))


@dataclass(frozen=True, slots=True)
class Moved:
    """A range of offsets of a partition that was moved. The module describes the fields."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    rows: int
    log_bytes: int
    topic_id: str | None = None
    leader_epoch: int | None = None
    files: tuple[MovedFile, ...] = ()
    source: str | None = None
    target_topic: str | None = None
    dead_letters: tuple[MovedFile, ...] = ()
    log_id: str | None = None
    end_batch: EndBatch | None = None
    producers_of: str | None = None
    lost: tuple[DamagedStretch, ...] = ()

    @property
    def identity(self) -> LogIdentity:
        """The identity of the log at the end of the range."""
        return LogIdentity(self.topic_id, self.log_id, self.end_batch)

    @property
    def is_empty(self) -> bool:
        """Whether the range has no offset, and no damage was found there."""
        return self.end_offset <= self.start_offset and not self.lost

    @property
    def all_files(self) -> tuple[MovedFile, ...]:
        """The files of rows and the files of dead letters."""
        return self.files + self.dead_letters

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def to_json(self) -> dict[str, Any]:
        of_copy = {name: getattr(self, name) for name in _OF_COPY if self.source is not None}
        written = {
            "kind": _MOVED,
            "topic": self.topic,
            "partition": self.partition,
            "from": self.start_offset,
            "to": self.end_offset,
            "rows": self.rows,
            "log_bytes": self.log_bytes,
            "topic_id": self.topic_id,
            "leader_epoch": self.leader_epoch,
            **of_copy,
            "files": [each.to_json() for each in self.files],
        }
        written |= self.identity.fields()
        if self.dead_letters:
            written["dead_letters"] = [each.to_json() for each in self.dead_letters]
        if self.lost:
            written["lost"] = [{name: getattr(each, name) for name in _OF_LOST} for each in self.lost]
        return written

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Moved:
        files = tuple(MovedFile.from_json(each) for each in found["files"])
        identity = LogIdentity.of_fields({"topic_id": found["topic_id"], **found})
        epoch, source = found["leader_epoch"], found.get("source")
        target_topic = found.get("target_topic")
        return cls(
            topic=str(found["topic"]),
            partition=int(found["partition"]),
            start_offset=int(found["from"]),
            end_offset=int(found["to"]),
            rows=int(found["rows"]),
            log_bytes=int(found["log_bytes"]),
            topic_id=identity.topic_id,
            leader_epoch=None if epoch is None else int(epoch),
            files=files,
            source=None if source is None else str(source),
            target_topic=None if target_topic is None else str(target_topic),
            dead_letters=tuple(MovedFile.from_json(each) for each in found.get("dead_letters", ())),
            log_id=identity.log_id,
            end_batch=identity.end_batch,
            producers_of=None if found.get("producers_of") is None else str(found["producers_of"]),
            lost=lost_of(TopicPartition(str(found["topic"]), int(found["partition"])), found),
        )


def lost_of(at: TopicPartition, found: Mapping[str, Any]) -> tuple[DamagedStretch, ...]:
    """Restore the field ``lost`` of an entry for a partition; it may be missing."""
    return tuple(_stretch_of(at, each) for each in found.get("lost", ()))


def _stretch_of(at: TopicPartition, found: Mapping[str, Any]) -> DamagedStretch:
    position, length_bytes, first_offset, end_offset = (int(found[name]) for name in _OF_LOST[1:-1])
    return DamagedStretch(
        *at, str(found["file"]), position, length_bytes, first_offset, end_offset, str(found["reason"])
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file of rows that was loaded into logs, with its size and time then. The module describes the fields."""

    path: str
    into: str | None
    size_bytes: int
    modified_ns: int
    rows: int

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": _LOADED,
            "path": self.path,
            "into": self.into,
            "bytes": self.size_bytes,
            "modified_ns": self.modified_ns,
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Loaded:
        into = None if found["into"] is None else str(found["into"])
        return cls(str(found["path"]), into, int(found["bytes"]), int(found["modified_ns"]), int(found["rows"]))


@dataclass(frozen=True, slots=True)
class Settings:
    """How everything that is moved to a target is written: settings by their names."""

    values: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {"kind": _SETTINGS, "settings": dict(self.values)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Settings:
        return cls(tuple((str(name), str(value)) for name, value in dict(found["settings"]).items()))


@dataclass(frozen=True, slots=True)
class Landed:
    """A log as a commit of a load or a copy has left it. The module describes the fields."""

    folder: str
    log_id: str | None
    end_offset: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": _LANDED, "folder": self.folder, "log_id": self.log_id, "to": self.end_offset}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Landed:
        log_id = None if found["log_id"] is None else str(found["log_id"])
        return cls(str(found["folder"]), log_id, int(found["to"]))


LedgerEntry = Moved | Loaded | Landed | Settings
_KINDS: Final[Mapping[str, type[Moved] | type[Loaded] | type[Landed] | type[Settings]]] = {
    _MOVED: Moved,
    _LOADED: Loaded,
    _LANDED: Landed,
    _SETTINGS: Settings,
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    _MOVED: ("kind", "topic", "partition"),
    _LOADED: ("kind", "path", "into"),
    _LANDED: ("kind", "folder"),
    _SETTINGS: ("kind",),
}


@dataclass(frozen=True)
class LedgerCommit:
    """One commit of a ledger; ``end_position`` is the position after its last byte."""

    number: int
    job: str
    run: str
    time_ms: int
    entries: tuple[LedgerEntry, ...]
    end_position: int

    @property
    def moved(self) -> list[Moved]:
        """The entries for ranges that were moved."""
        return [each for each in self.entries if isinstance(each, Moved)]


@dataclass(frozen=True)
class Ledger:
    """The valid content of a ledger: the last entry of each kind and key.

    Attributes
    ----------
    size_bytes : int
        The size of its commits; bytes after them are ignored.
    last : LedgerCommit or None
        The last commit.
    moved : mapping of TopicPartition to Moved
        The range that was moved last of each partition.
    loaded : mapping of (str, str or None) to Loaded
        The last load of each path into each topic.
    landed : mapping of (str, str or None) to tuple of Landed
        By the keys of ``loaded``: the logs that the commit of that load has written to.
    settings : Settings or None
        How everything that was moved is written.
    """

    size_bytes: int = 0
    last: LedgerCommit | None = None
    moved: Mapping[TopicPartition, Moved] = field(default_factory=dict)
    loaded: Mapping[tuple[str, str | None], Loaded] = field(default_factory=dict)
    landed: Mapping[tuple[str, str | None], tuple[Landed, ...]] = field(default_factory=dict)
    settings: Settings | None = None

    @property
    def next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1


def read_ledger(storage: Storage, path: str) -> Ledger:
    """Read a ledger. A missing file is an empty ledger.

    Raises
    ------
    CorruptCheckpointError
        The ledger is damaged. Nothing may be moved then, since it might be moved twice.
    """
    # Later entries replace nearly all entries of an old ledger: only those that still count are made objects.
    latest: dict[tuple[object, ...], _Line] = {}
    last, lines = None, list[_Line]()
    landed: dict[tuple[Any, ...], tuple[Landed, ...]] = {}
    for commit, lines in _read_commits(storage, path):
        last, logs = commit, tuple(line.entry(path) for line in lines if line.said["kind"] == _LANDED)
        for line in lines:
            latest[line.key()] = line
            if line.said["kind"] == _LOADED:
                landed[line.key()[1:]] = tuple(each for each in logs if isinstance(each, Landed))
    entries = [line.entry(path) for line in latest.values()]
    return Ledger(
        0 if last is None else last.end_position,
        None if last is None else replace(last, entries=tuple(line.entry(path) for line in lines)),
        {each.topic_partition: each for each in entries if isinstance(each, Moved)},
        {(each.path, each.into): each for each in entries if isinstance(each, Loaded)},
        landed,
        next((each for each in entries if isinstance(each, Settings)), None),
    )


def commits(storage: Storage, path: str) -> Iterator[LedgerCommit]:
    """Yield the commits of a ledger in their order; errors: see `read_ledger`."""
    for commit, lines in _read_commits(storage, path):
        yield replace(commit, entries=tuple(line.entry(path) for line in lines))


class _Line(NamedTuple):
    """A line with an entry: its number in the file, its position, and its parsed content."""

    number: int
    position: int
    said: dict[str, Any]

    def key(self) -> tuple[object, ...]:
        """Return the key of the entry: a later entry with the same key replaces it."""
        return tuple(map(self.said.get, _KEYS[self.said["kind"]]))

    def entry(self, path: str) -> LedgerEntry:
        try:
            return _KINDS[self.said["kind"]].from_json(self.said)
        except (KeyError, TypeError, ValueError) as error:
            raise _corrupt(path, self.position, f"line {self.number} is none of a ledger: {error!r}") from error


def _read_commits(storage: Storage, path: str) -> Iterator[tuple[LedgerCommit, list[_Line]]]:
    """Yield each commit without its entries, and the lines of these, whose checksum has been verified."""
    lines: list[_Line] = []
    checksum = position = expected = 0
    is_torn = False
    for number, line in enumerate(_lines(storage, path), 1):
        where = f"line {number}"
        # A run that died in a commit leaves a line cut off, or with zeros for bytes that had not reached the disk.
        is_behind_torn, is_torn = is_torn, is_torn or not line.endswith(b"\n") or b"\0" in line
        if is_behind_torn and _COMMIT_MARK in line:
            raise _corrupt(path, position, f"{where} is a commit, and stands behind lines that are cut off")
        if is_torn:
            continue
        found = _parsed(line, path, position, where)
        if found["kind"] != _COMMIT:
            lines.append(_Line(number, position, found))
            checksum, position = crc32c(line, checksum), position + len(line)
            continue
        commit = _commit(found, position + len(line), path, where)
        if (found.get("lines"), found.get("crc32c"), commit.number) != (len(lines), checksum, expected):
            raise _corrupt(path, position, f"the lines before {where} are not those of commit {commit.number}")
        yield commit, lines
        lines, checksum, position, expected = [], 0, commit.end_position, expected + 1


def encode_commit(number: int, job: str, run: str, time_ms: int, entries: Iterable[LedgerEntry]) -> bytes:
    """Return the lines of a commit, which must be added to a ledger at once.

    Parameters
    ----------
    number : int
        `Ledger.next_number`.
    job, run : str
        The kind of job, such as "export", and the id of its run.
    time_ms : int
        Wall-clock time, ms since the epoch.
    """
    lines = [_line(each.to_json()) for each in entries]
    data = b"".join(lines)
    last = {"kind": _COMMIT, "version": _VERSION, "number": number, "job": job, "run": run, "time_ms": time_ms}
    return data + _line({**last, "lines": len(lines), "crc32c": crc32c(data)})


def next_number(storage: Storage, path: str) -> int:
    """Return the number of the next commit from the last line alone; the ledger is empty or ends with a commit."""
    if storage.identity(path) is None:
        return 0
    with storage.open(path) as file:
        size_bytes = file.size_bytes()
        if not size_bytes:
            return 0
        start = max(size_bytes - _COMMIT_LINE_BYTES_MAX, 0)
        line = bytes(file.read(start, _COMMIT_LINE_BYTES_MAX)).rstrip(b"\n").rpartition(b"\n")[2]
    found = _parsed(line, path, size_bytes - len(line) - 1, "the last line")
    return _commit(found, size_bytes, path, "the last line").number + 1


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _lines(storage: Storage, path: str) -> Iterator[bytes]:
    """Yield the lines of a file with their line ends; none if the file does not exist."""
    if storage.identity(path) is None:
        return
    with storage.open(path) as file:
        position, rest = 0, b""
        while window := bytes(file.read(position, _WINDOW_BYTES)):
            position += len(window)
            *whole, rest = (rest + window).split(b"\n")
            for line in whole:
                yield line + b"\n"
            if len(rest) > _LINE_BYTES_MAX:
                raise _corrupt(path, position - len(rest), "a line is longer than any of ours")
        if rest:
            yield rest


def _parsed(line: bytes, path: str, position: int, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, position, f"{where} is no JSON: {error!r}") from error
    if not isinstance(found, dict) or found.get("kind") not in (*_KINDS, _COMMIT):
        raise _corrupt(path, position, f"{where} is none of a ledger, or of one that a later sparklog wrote")
    return found


def _commit(found: Mapping[str, Any], end_position: int, path: str, where: str) -> LedgerCommit:
    if found.get("version") != _VERSION:
        raise CorruptCheckpointError(
            f"{where} is of version {found.get('version')!r} of ledgers, and this sparklog knows {_VERSION}", path=path
        )
    try:
        number, time_ms = int(found["number"]), int(found["time_ms"])
        return LedgerCommit(number, str(found["job"]), str(found["run"]), time_ms, (), end_position)
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, end_position, f"{where} is none of a ledger: {error!r}") from error


def _corrupt(path: str, position: int, reason: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"the ledger is damaged: {reason}",
        path=path,
        position=position,
        hint="Nothing is moved, since it might be moved twice. Restore it, or move to another target",
    )
