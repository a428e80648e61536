"""Reads and writes the files by which a mirror knows its source and the bytes that it holds of it.

``seglog.mirror`` in the log directory of the mirror names the source:

    version      0
    source       identity of the source: cluster_id, node_id and directory_id of its meta.properties, as far as it has
                 them, else its path. A directory with meta.properties may move to another path
    crc32c       checksum of the line; see `sparklog.log.checked_lines`

``seglog-mirror`` in the folder of each log says which bytes there are the source's, and on the disk. Bytes after them
were left by a mirror that died, and the next one cuts them off; a log that is not named is replaced.

    version      0
    files        by name: [device, inode, modified_ns, size_bytes, copied_bytes, last_position]: the source's file when
                 it was copied, how many of its first bytes are here, and where the last batch of them begins. If a
                 later change might not have changed modified_ns, size_bytes is 0
    crc32c       as above

Each is one JSON object on one line. A broker ignores both files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import javaproperties

from sparklog.errors import CorruptCheckpointError, InvalidOptionError, PathNotFoundError
from sparklog.log import files
from sparklog.log.checked_lines import encode_line, line_checksum
from sparklog.log.places import LogDirectory, PartitionFolder, is_within
from sparklog.storage.base import Stamp
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import place_at
from sparklog.write.small_files import write_atomically

_VERSION: Final = 0
_PROPERTIES: Final = {"cluster.id": "cluster_id", "node.id": "node_id", "directory.id": "directory_id"}
_OWN: Final = frozenset({files.LOCK, files.WRITERS_LOCK, files.WRITERS_QUEUE})
"""Files that a mirror may leave in a directory before it has named its source."""
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)

SourceIdentity = Mapping[str, str]


class HeldBytes(NamedTuple):
    """The first bytes of a source's file, which the mirror has; see the module."""

    stamp: Stamp
    copied_bytes: int
    last_position: int = 0


MirrorState = dict[str, HeldBytes]


def identity_of(source: LogDirectory) -> SourceIdentity:
    """Return what distinguishes a log directory from others; see the module."""
    data = source.storage.read_small(source.file(files.META_PROPERTIES)) or b""
    try:
        found = javaproperties.loads(data)
    except ValueError as error:
        raise CorruptCheckpointError("not a file of properties", path=source.file(files.META_PROPERTIES)) from error
    known = {name: found[key] for key, name in _PROPERTIES.items() if found.get(key)}
    return known or {"path": source.storage.real(source.path)}


def places_of(source: PathText, target: PathText, mark: str, what: str) -> tuple[LogDirectory, LogDirectory]:
    """Return the places of a log directory and of its copy; for the parameters and errors see `refuse_other_target`.

    Raises
    ------
    PathNotFoundError
        There is no source.
    InvalidOptionError
        The target cannot be written, or one is in the other, or the target is another directory's.
    """
    theirs, ours = LogDirectory(*place_at(source, "source")), LogDirectory(*place_at(target, "target"))
    to_writable(ours.storage, ours.path)
    if not theirs.storage.is_folder(theirs.path):
        raise PathNotFoundError(f"no such log directory: {theirs.path}")
    one, other = theirs.storage.real(theirs.path), ours.storage.real(ours.path)
    if theirs.storage.scheme == ours.storage.scheme and (is_within(one, other) or is_within(other, one)):
        raise InvalidOptionError(
            f"one of {theirs.path} and {ours.path} is in the other: a folder of others in a log directory stops a "
            f"broker. Give a folder outside"
        )
    refuse_other_target(theirs, ours, mark, what)
    return theirs, ours


def claim_target(source: LogDirectory, target: LogDirectory, mark: str, what: str) -> None:
    """Name the source in a directory, unless it is named already; the caller has locked it. For errors see
    `refuse_other_target`.
    """
    refuse_other_target(source, target, mark, what)
    if target.storage.read_small(target.file(mark)) is None:
        line = encode_line({"version": _VERSION, "source": dict(identity_of(source))})
        write_atomically(target, mark, line)


def refuse_other_target(source: LogDirectory, target: LogDirectory, mark: str, what: str) -> None:
    """Raise `InvalidOptionError` if a directory names another source, or names none and has something in it.

    Parameters
    ----------
    mark : str
        The name of the file that names the source.
    what : str
        What the directory is, for errors.
    """
    identity, path = identity_of(source), target.file(mark)
    data = target.storage.read_small(path)
    if data is None:
        names = (
            [each.name for each in target.storage.names(target.path)] if target.storage.is_folder(target.path) else []
        )
        foreign = [name for name in names if name not in {*_OWN, files.being_written(mark), locked_name(mark)}]
        if foreign:
            raise InvalidOptionError(
                f"{target.path} is no {what}: it has no {mark}, and it has {foreign[0]!r}. Give an empty folder"
            )
        return
    known = _fields(data, path)["source"]
    if known != identity:
        raise InvalidOptionError(
            f"{target.path} is the {what} of another directory, {_said(known)}, and {source.path} is "
            f"{_said(identity)}. Give another folder"
        )


def locked_name(mark: str) -> str:
    """Return the name of the file that is locked while a directory with a mark is changed."""
    return f"{mark}-locked"


def _said(identity: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in dict(identity).items())


def read_state(folder: PartitionFolder) -> MirrorState:
    """Return what a log of a mirror holds; nothing if that is not known, so that all is copied again."""
    path = folder.file(files.MIRROR_STATE)
    data = folder.storage.read_small(path)
    try:
        return {} if data is None else {name: _held(*numbers) for name, numbers in _fields(data, path)["files"].items()}
    except (CorruptCheckpointError, *_UNREADABLE):
        return {}


def write_state(folder: PartitionFolder, state: MirrorState) -> None:
    """Write what a log of a mirror holds; it is on the disk by now."""
    held = {
        name: [*each.stamp.identity, each.stamp.modified_ns, each.stamp.size_bytes, *each[1:]]
        for name, each in state.items()
    }
    write_atomically(folder, files.MIRROR_STATE, encode_line({"version": _VERSION, "files": held}))


def _held(
    device: int, inode: int, modified_ns: int, size_bytes: int, copied_bytes: int, last_position: int
) -> HeldBytes:
    if not 0 <= last_position <= copied_bytes:
        raise ValueError("positions out of order")
    return HeldBytes(Stamp((device, inode), modified_ns, size_bytes), copied_bytes, last_position)


def _fields(data: bytes, path: str) -> dict[str, Any]:
    try:
        line_checksum(data)
        found = json.loads(data)
        if found["version"] != _VERSION:
            raise ValueError(f"its version is {found['version']!r}")
        return dict(found)
    except _UNREADABLE as error:
        raise CorruptCheckpointError(f"not a file of a mirror: {error!r}", path=path) from error
