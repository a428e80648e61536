"""Keeps the bytes of damaged stretches, and a table of them, in a folder of the user's.

    <quarantine>/damage.jsonl                                  one line for each stretch, in the order of arrival
    <quarantine>/<folder>/<file>.<position>-<bytes>-<crc>.raw  the bytes of a stretch, as they are in the log
    <quarantine>/lock                                          held by the task that adds to the folder
    <quarantine>/unfinished.staged                             the file that it is copying

``<folder>`` and ``<file>`` are the names of the partition's folder and of the segment's file, ``<position>`` is that
of the first byte, ``<bytes>`` the number of bytes, and ``<crc>`` their CRC-32C, eight hexadecimal digits. So a stretch
that is found again has the same name, and other bytes at the same place have another. Bytes that the disk cannot read
are kept as 0xFF. A line has the columns of
`sparklog.log.damage_rows.DAMAGE_SCHEMA`, and ``kept``: the path of the bytes, relative to the folder; null if the
stretch has no bytes, or if they are gone.

Files are staged, synced and renamed; lines that a crash has left unfinished are removed by the next task that adds
some. No other file in the folder is changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any, Final

from crc32c import crc32c

from sparklog.errors import InvalidOptionError, OutputNameError, PathNotFoundError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.files import STAGED
from sparklog.log.places import LogDirectory, is_within, join_path, relative_path, split_path
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.bad_sectors import PastBadSectors
from sparklog.storage.base import ReadableFile, Storage, WritableStorage
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import Location

_log = logging.getLogger("sparklog")

DAMAGE_FILE: Final = "damage.jsonl"
_LOCK: Final = "lock"
_UNFINISHED: Final = "unfinished" + STAGED
_RAW: Final = ".raw"
_WINDOW_BYTES: Final = 1 << 20
_LOCK_TIMEOUT_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Quarantine:
    """A folder that keeps damaged stretches; a frozen value that pickles.

    Attributes
    ----------
    place : Location
        The folder; it is made when the first stretch is kept.
    """

    place: Location

    def check(self, directories: Iterable[LogDirectory]) -> None:
        """Raise `InvalidOptionError` if the folder cannot be written to, or is in a log directory that is read."""
        storage, path = to_writable(*self.place), self.place.path
        if storage.identity(path) is not None and not storage.is_folder(path):
            raise InvalidOptionError(f"quarantine is {path}, which is no folder: give a folder")
        for directory in directories:
            if directory.storage.scheme == storage.scheme and is_within(
                storage.real(path), directory.storage.real(directory.path)
            ):
                raise InvalidOptionError(
                    f"quarantine is {path}, which is in the log directory {directory.path}: a folder of others there "
                    f"stops a broker. Give another folder"
                )

    def keep(self, stretches: Sequence[DamagedStretch], source: Storage) -> None:
        """Keep stretches of files of a storage; a stretch that is there already is not doubled.

        Raises
        ------
        OutputNameError
            Another file has the name of a stretch.
        StorageError, ForeignNameError
            The folder cannot be written to, or a link is in the way.
        """
        if not stretches:
            return
        root, writable = self.place.path, to_writable(*self.place)
        writable.make_folder(root)
        # A job that has committed will not find the damage again.
        writable.sync_folder(split_path(root)[0])
        storage = writable.beneath(root)
        with storage.lock(join_path(root, _LOCK), _LOCK_TIMEOUT_SECONDS):
            rows = [asdict(each) | {"kept": self._keep_bytes(storage, each, source)} for each in stretches]
            _add_lines(storage, join_path(root, DAMAGE_FILE), rows)
            storage.sync_folder(root)

    def _keep_bytes(self, storage: WritableStorage, stretch: DamagedStretch, source: Storage) -> str | None:
        """Copy the bytes of a stretch; return their path relative to the folder, or None if there are none."""
        if not stretch.length_bytes:
            return None
        root, (parent, name) = self.place.path, split_path(stretch.file)
        folder, staged = split_path(parent)[1], join_path(root, _UNFINISHED)
        try:
            with PastBadSectors(source.open(stretch.file)) as file, storage.create(staged) as copy:
                checksum = 0
                for window in _windows(file, stretch.position, stretch.position + stretch.length_bytes):
                    copy.append(window)
                    checksum = crc32c(window, checksum)
                length_bytes = copy.size_bytes()
                copy.sync()
        except PathNotFoundError:
            _log.warning("%s is gone, and its damaged bytes at position %d with it", stretch.file, stretch.position)
            return None
        kept = relative_path(folder, f"{name}.{stretch.position}-{length_bytes}-{checksum:08x}{_RAW}")
        storage.make_folder(join_path(root, folder))
        _put_in_place(storage, staged, join_path(root, kept), checksum)
        storage.sync_folder(join_path(root, folder))
        return kept


def _windows(file: ReadableFile, position: int = 0, end: int = OFFSET_MAX) -> Iterator[memoryview]:
    """Yield the bytes of a range of a file; fewer if it is shorter."""
    while position < end and (window := file.read(position, min(_WINDOW_BYTES, end - position))):
        yield window
        position += len(window)


def _put_in_place(storage: WritableStorage, staged: str, path: str, checksum: int) -> None:
    """Give a staged file its name, or remove it if that file is there already."""
    if storage.identity(path) is None:
        storage.rename(staged, path)
        return
    with storage.open(path) as file:
        found = reduce(lambda before, window: crc32c(window, before), _windows(file), 0)
    storage.remove(staged)
    if found != checksum:
        raise OutputNameError(f"{path} is there already, and has other bytes than its name says: move it away")


def _add_lines(storage: WritableStorage, path: str, rows: Iterable[dict[str, Any]]) -> None:
    """Add the lines that a table does not have yet; the lock is held."""
    there, whole_bytes = set[bytes](), 0
    if storage.identity(path) is not None:
        with storage.open(path) as file:
            for line in _whole_lines(file):
                there.add(line)
                whole_bytes += len(line)
    lines = dict.fromkeys(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    new = [line for line in lines if line not in there]
    if new:
        with storage.open_for_append(path) as table:
            table.truncate(whole_bytes)
            table.append(b"".join(new))
            table.sync()


def _whole_lines(file: ReadableFile) -> Iterator[bytes]:
    """Yield the lines of a table up to the first that a crash has left cut off, or with zeros."""
    rest = b""
    for window in _windows(file):
        *lines, rest = (rest + window).split(b"\n")
        for line in lines:
            if b"\0" in line:
                return
            yield line + b"\n"
