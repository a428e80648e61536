"""Reads and writes a set of backups: a folder with several backups of one log directory.

    backup-set.json              names the source, in the form of ``seglog.mirror``; see `sparklog.jobs.mirror.state`
    backup-set.json-locked       locked while a backup is made or removed
    manifests/<id>.json          one for each backup; its id is the time of the backup, such as 20261101T120000.000Z
    pieces/<xx>/<sha256>         bytes of files, named by their SHA-256 in hexadecimal; xx are its first two digits

A file of a log is one or more pieces, one after the other. Backups share pieces: a segment that did not change is
stored once, and the bytes that a segment got between two backups are one more piece. A piece never changes. It is
written beside, synced, and renamed, before a manifest names it; a manifest is written last, in the same way. So every
manifest is of a complete backup. A piece that no manifest names was left by a backup that died; ``prune`` removes it.

A manifest is one JSON object on one line:

    version       0
    id            the name of the file without .json
    made_ms       when the backup began, ms since the epoch
    source        identity of the source: some of path, cluster_id, node_id, directory_id
    topics        for each topic that has partitions here or that the cluster's metadata names: {"topic_id": text or
                  null, "partition_count": number, "configs": {name: value}}. The configs come from
                  topics.properties and of the cluster's metadata, if the directory has them
    partitions    a list of {"topic", "partition", "start_offset", "end_offset", "high_watermark", "error", "files"}:
                  the log start offset, the end of its last whole batch, the high watermark of the checkpoint or null,
                  and if the log is damaged at end_offset, the error; otherwise null
    files         files beside the logs, in the same form as in partitions; each name is relative to the log directory.
                  These are meta.properties, topics.properties, and sparklog's own files; and the files of
                  __cluster_metadata-0, whose log is not one of the partitions
    groups        committed offsets of groups: {group: {topic: {partition: [offset, metadata, commit timestamp in ms]}}}
    crc32c        checksum of the line; see `sparklog.log.checked_lines`

A file is {"name", "stamp", "pieces"}: its name in the folder of the partition; the numbers by which the next backup
sees that the file in the source has not changed, [[device, inode], modified_ns, size_bytes]; and a list of
[sha256, size_bytes]. A file without bytes has no pieces. Only ``modified_ns`` means anything to a restore: retention
uses the times of files whose records have no timestamps.

The files of a partition are the segments (``.log``) with the indexes of all but the last one, the producer snapshots
at or before the end offset, ``leader-epoch-checkpoint``, ``partition.metadata`` and ``seglog-identity``, as far as the
source has them. Checkpoints of the directory are not among the files: ``start_offset`` and ``high_watermark`` have what
they say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import repeat
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from sparklog.errors import CorruptCheckpointError, PathNotFoundError
from sparklog.jobs.backup.pieces import Piece
from sparklog.jobs.mirror.taken import BESIDE_LOGS, is_of_metadata, is_of_partition
from sparklog.log import files
from sparklog.log.checked_lines import encode_line, line_checksum
from sparklog.log.files import TopicPartition, checked_partition
from sparklog.log.group_offsets import CommittedOffsets, GroupOffsets, offsets_of_fields
from sparklog.log.places import LogDirectory, folder_of, path_of, split_path
from sparklog.storage.base import Stamp
from sparklog.write.small_files import write_atomically

SET_MARK: Final = "backup-set.json"
MANIFESTS: Final = "manifests"
_VERSION: Final = 0
_SUFFIX: Final = ".json"
_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_NUMBER_END: Final = 1 << 63
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True)
class BackupFile:
    """A file of the source, and its bytes in the set; see the module."""

    name: str
    stamp: Stamp
    pieces: tuple[Piece, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the stored bytes; the source's file may have had more after them."""
        return sum(piece.size_bytes for piece in self.pieces)


@dataclass(frozen=True)
class BackupTopic:
    """A topic as the source knew it; see the module."""

    topic_id: str | None
    partition_count: int
    configs: Mapping[str, str]


@dataclass(frozen=True)
class BackupPartition:
    """A log in a backup; see the module."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    high_watermark: int | None
    error: str | None
    files: tuple[BackupFile, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class BackupManifest:
    """One backup; see the module for the fields."""

    backup_id: str
    made_ms: int
    source: Mapping[str, str]
    topics: Mapping[str, BackupTopic] = field(default_factory=dict)
    partitions: tuple[BackupPartition, ...] = ()
    files: tuple[BackupFile, ...] = ()
    groups: GroupOffsets = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether no log of it was damaged."""
        return all(each.error is None for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The size of all its files; other backups may share pieces of them."""
        return sum(each.size_bytes for _, each in self.all_files())

    def all_files(self) -> Iterator[tuple[str, BackupFile]]:
        """Yield the files of all partitions, and those beside them, each with its path in the log directory."""
        for each in self.files:
            yield each.name, each
        for partition in self.partitions:
            for each in partition.files:
                yield path_of(str(partition.topic_partition), each.name), each


def new_backup_id(made_ms: int) -> str:
    """Return the id of a backup that begins at a time, ms since the epoch."""
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=made_ms)
    return f"{time:%Y%m%dT%H%M%S}.{made_ms % 1000:03d}Z"


def backup_ids(place: LogDirectory) -> list[str]:
    """Return the ids of the backups in a set, the oldest first."""
    if not place.storage.is_folder(place.file(MANIFESTS)):
        return []
    names = [each.name for each in place.storage.names(place.file(MANIFESTS)) if not each.is_folder]
    return sorted(name.removesuffix(_SUFFIX) for name in names if _ID.fullmatch(name.removesuffix(_SUFFIX)))


def manifest_path(backup_id: str) -> str:
    """Return the path of a manifest in its set."""
    return path_of(MANIFESTS, backup_id + _SUFFIX)


def write_manifest(place: LogDirectory, manifest: BackupManifest) -> None:
    """Write a manifest, all of whose pieces are on the disk: with it the backup is there."""
    write_atomically(
        LogDirectory(place.storage, place.file(MANIFESTS)), manifest.backup_id + _SUFFIX, _encode(manifest)
    )


def read_manifest(place: LogDirectory, backup_id: str) -> BackupManifest:
    """Read the manifest of a backup.

    Raises
    ------
    PathNotFoundError
        There is no such backup.
    CorruptCheckpointError
        The manifest is damaged, or of a later version, or names files that no backup makes.
    """
    path = place.file(manifest_path(backup_id))
    data = place.storage.read_small(path) if _ID.fullmatch(backup_id) else None
    if data is None:
        raise PathNotFoundError(f"no backup {backup_id!r} in {place.path}")
    try:
        line_checksum(data)
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"its version is {fields['version']!r}")
        found = _manifest(fields)
        if found.backup_id != backup_id:
            raise ValueError(f"it is of the backup {found.backup_id!r}")
    except _UNREADABLE as error:
        raise CorruptCheckpointError(f"not the manifest of a backup: {error!r}", path=path) from error
    return found


def _encode(manifest: BackupManifest) -> bytes:
    fields = asdict(replace(manifest, groups={}))
    groups = CommittedOffsets(manifest.groups).to_fields()["groups"]
    return encode_line({"version": _VERSION, "id": fields.pop("backup_id"), **fields, "groups": groups})


def _manifest(fields: Mapping[str, Any]) -> BackupManifest:
    groups = offsets_of_fields({"groups": fields["groups"]}).groups
    found: BackupManifest = _value(BackupManifest, {**fields, "backup_id": fields["id"], "groups": {}})
    for topic in found.topics:
        files.checked_topic(topic)
    for partition in found.partitions:
        checked_partition(partition.topic, partition.partition)
        _check_files(partition.files, is_of_partition)
    _check_files(found.files, _is_beside)
    return replace(found, groups=groups)


def _check_files(of: Iterable[BackupFile], is_expected: Callable[[str], bool]) -> None:
    for file in of:
        if not is_expected(file.name):
            raise ValueError(f"no backup has a file {file.name!r} there")
        if not all(_SHA256.fullmatch(piece.sha256) for piece in file.pieces):
            raise ValueError(f"a piece of {file.name} has no SHA-256 for its name")


def _is_beside(name: str) -> bool:
    folder = folder_of(name)
    return is_of_metadata(split_path(name)[1]) if folder == files.METADATA_FOLDER else name in BESIDE_LOGS


_hints: Final = cache(get_type_hints)


def _value(kind: Any, found: Any) -> Any:
    """Return a value of a type from JSON: of a class from its fields; raise one of Python's errors if it is no such."""
    if kind is int and (type(found) is not int or not 0 <= found < _NUMBER_END):
        raise ValueError(f"not a number: {str(found)[:200]}")
    if kind is str and not isinstance(found, str):
        raise ValueError(f"not a text: {str(found)[:200]}")
    if kind in (int, str):
        return found
    of = get_args(kind)
    if get_origin(kind) is UnionType:
        return None if found is None else _value(of[0], found)
    if get_origin(kind) is Mapping:
        return {_value(of[0], name): _value(of[1], each) for name, each in found.items()}
    if get_origin(kind) is tuple:
        kinds = repeat(of[0], len(found)) if of[-1] is ... else of
        return tuple(_value(one, each) for one, each in zip(kinds, found, strict=True))
    if issubclass(kind, tuple):
        return kind(*(_value(one, each) for one, each in zip(_hints(kind).values(), found, strict=True)))
    return kind(**{name: _value(one, found[name]) for name, one in _hints(kind).items()})
