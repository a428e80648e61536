"""Presents a backup as a log directory that is read where it is stored: nothing is copied.

The log directory of a backup has the path ``<set>/<id>``, so that errors name the set, the backup and the file. Nothing
is at that path; its files are the pieces that the manifest names, one after the other. The checkpoints of offsets are
made from the manifest.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self

from sparklog.errors import (
    CorruptCheckpointError,
    CorruptLogError,
    ForeignNameError,
    PathNotFoundError,
    SeglogError,
    StorageError,
)
from sparklog.jobs.backup.manifest import (
    BackupFile,
    BackupManifest,
    backup_ids,
    manifest_path,
    new_backup_id,
    read_manifest,
)
from sparklog.jobs.backup.pieces import Piece, open_piece, piece_of
from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint
from sparklog.log.folders import listed
from sparklog.log.places import LogDirectory, folder_of, is_within, split_path
from sparklog.storage.base import Capabilities, Entry, Name, ReadableFile, Stamp
from sparklog.storage.in_memory import InMemoryFile
from sparklog.storage.joined_file import JoinedFile

_log = logging.getLogger("sparklog")

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last one that an id can say."""
PIECE_ADVICE: Final = (
    "Restore another backup by --backup (backup=). If the source is there, the next backup stores a missing piece again"
)


@dataclass(frozen=True)
class BackupStorage:
    """A backup in a set, as a read-only storage with one log directory; see the module.

    The manifest is read when it is first needed, and is not in the pickle.

    Attributes
    ----------
    place : LogDirectory
        The set.
    """

    place: LogDirectory
    backup_id: str

    scheme: ClassVar[str] = "backup"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def __reduce__(self) -> tuple[Any, ...]:
        return BackupStorage, (self.place, self.backup_id)

    @property
    def directory(self) -> LogDirectory:
        """The backup as a log directory."""
        return LogDirectory(self, self.place.file(self.backup_id))

    @cached_property
    def manifest(self) -> BackupManifest:
        """The manifest; for errors see `read_manifest`."""
        return read_manifest(self.place, self.backup_id)

    @cached_property
    def _files(self) -> dict[str, BackupFile | bytes]:
        """The files of the log directory, by their path in it."""
        manifest = self.manifest
        starts = {each.topic_partition: each.start_offset for each in manifest.partitions}
        marks = {each.topic_partition: each.high_watermark for each in manifest.partitions}
        found: dict[str, BackupFile | bytes] = {
            files.LOG_START_CHECKPOINT: encode_offset_checkpoint(starts),
            files.HIGH_WATERMARK_CHECKPOINT: encode_offset_checkpoint(
                {at: offset for at, offset in marks.items() if offset is not None}
            ),
        }
        stored = dict(manifest.all_files())
        if len(starts) < len(manifest.partitions) or len(stored) < sum(1 for _ in manifest.all_files()):
            path = self.place.file(manifest_path(self.backup_id))
            raise CorruptCheckpointError("not the manifest of a backup: it names a file or partition twice", path=path)
        return found | stored

    @cached_property
    def _folders(self) -> dict[str, list[Entry]]:
        """The names in each folder of the log directory, sorted; the directory's own name is empty."""
        found: dict[str, list[Entry]] = {str(each.topic_partition): [] for each in self.manifest.partitions}
        for relative in self._files:
            path = self.directory.file(relative)
            stamp = self.stamp(path)
            size_bytes = 0 if stamp is None else stamp.size_bytes
            entry = Entry(split_path(path)[1], False, True, size_bytes, stamp=stamp)
            found.setdefault(folder_of(relative), []).append(entry)
        found[""] += [Entry(name, True, False, 0) for name in found if name]
        return {name: sorted(entries, key=lambda each: each.name) for name, entries in found.items()}

    def _relative(self, path: str) -> str | None:
        """Return the path in the log directory; None if it is elsewhere."""
        root = self.directory.path
        return path[len(root) :].strip("/") if is_within(path, root) else None

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        relative = self._relative(path)
        found = None if relative is None else self._folders.get(relative)
        if found is None:
            if relative in self._files:
                raise StorageError(f"not a folder: {path}")
            raise PathNotFoundError(f"no such file or folder: {path}")
        return [each for each in found if wanted is None or wanted(each.name)]

    def names(self, path: str) -> list[Name]:
        return [Name(each.name, each.is_folder) for each in self.entries(path)]

    def is_folder(self, path: str) -> bool:
        return self._relative(path) in self._folders

    def open(self, path: str) -> ReadableFile:
        """Open a file; raise `CorruptLogError` if a piece is missing, or has not its size."""
        found = self._files.get(self._relative(path) or "")
        if found is None:
            raise PathNotFoundError(f"no such file or folder: {path}")
        if isinstance(found, bytes):
            return JoinedFile(path, [InMemoryFile(memoryview(found))], self._made_ns)
        with ExitStack() as opened:
            pieces = [opened.enter_context(self._open_piece(each, path)) for each in found.pieces]
            opened.pop_all()
        return JoinedFile(path, pieces, found.stamp.modified_ns)

    def _open_piece(self, piece: Piece, path: str) -> ReadableFile:
        try:
            file = open_piece(self.place, piece)
        except (PathNotFoundError, ForeignNameError) as error:
            reason = f"its piece cannot be read: {error.message}"
            raise CorruptLogError(reason, path=path, hint=PIECE_ADVICE) from error
        size_bytes = file.size_bytes()
        if size_bytes != piece.size_bytes:
            file.close()
            reason = f"its piece {piece.name} has {size_bytes} bytes in the set, and had {piece.size_bytes}"
            raise CorruptLogError(reason, path=path, hint=PIECE_ADVICE)
        return file

    def read_small(self, path: str) -> bytes | None:
        """Return the contents of a small file, whose checksums are compared; None if there is none."""
        found, position = self._files.get(self._relative(path) or ""), 0
        if found is None:
            return None
        with self.open(path) as file:
            for piece in found.pieces if isinstance(found, BackupFile) else ():
                if piece_of(file, position, piece.size_bytes) != piece:
                    reason = f"the bytes of its piece {piece.name} have changed"
                    raise CorruptLogError(reason, path=path, hint=PIECE_ADVICE)
                position += piece.size_bytes
            return bytes(file.read(0, file.size_bytes()))

    def absolute(self, path: str) -> str:
        return path

    def real(self, path: str) -> str:
        return path

    def is_link(self, path: str) -> bool:  # noqa: ARG002 - a backup has none
        return False

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self.stamp(path)
        return None if found is None else found.identity

    def stamp(self, path: str) -> Stamp | None:
        relative = self._relative(path)
        if relative is None:
            return None
        found = self._files.get(relative)
        if found is None and relative not in self._folders:
            return None
        # A set may be made anew at the path of another one.
        contents = found.pieces if isinstance(found, BackupFile) else self.manifest.made_ms
        digest = hashlib.sha256(f"{path}\0{contents}".encode("utf-8", "surrogateescape")).digest()
        identity = (int.from_bytes(digest[:8]), int.from_bytes(digest[8:16]))
        if isinstance(found, BackupFile):
            return Stamp(identity, found.stamp.modified_ns, found.size_bytes)
        return Stamp(identity, self._made_ns, 0 if found is None else len(found))

    @property
    def _made_ns(self) -> int:
        return self.manifest.made_ms * 1_000_000

    def foresee(self, path: str, names: Sequence[str]) -> None:
        """Do nothing: the manifest has all names."""

    def pinned(self, folders: Collection[str]) -> Self:  # noqa: ARG002 - a backup does not change
        return self

    def beneath(self, path: str) -> Self:  # noqa: ARG002 - a manifest cannot name anything else
        return self


def backup_to_restore(place: LogDirectory, backup_id: str | None, to_ms: int | None) -> BackupStorage:
    """Choose a backup of a set; warnings name damaged ones that are passed over.

    Parameters
    ----------
    backup_id : str or None
        The backup that is wanted; by default a whole one: the oldest that was made at or after the time, otherwise the
        newest.
    to_ms : int or None
        A time, ms since the epoch.

    Raises
    ------
    PathNotFoundError
        There is no such backup, or no whole one.
    CorruptCheckpointError
        The manifest of the wanted backup is damaged.
    """
    found = _newest_whole(place, to_ms) if backup_id is None else BackupStorage(place, backup_id)
    for each in found.manifest.partitions:
        if each.error is not None:
            _log.warning(
                "backup %s has %s up to offset %d only, since the source was damaged there: %s",
                *(found.backup_id, each.topic_partition, each.end_offset, each.error),
            )
    if to_ms is not None and found.manifest.made_ms < to_ms:
        _log.warning(
            "backup %s of %s is restored, and was made before the given time: later records are missing",
            *(found.backup_id, place.path),
        )
    return found


def _newest_whole(place: LogDirectory, to_ms: int | None) -> BackupStorage:
    ids = backup_ids(place)
    bound = None if to_ms is None else new_backup_id(min(max(to_ms, 0), _LAST_MS))
    later = [each for each in ids if bound is not None and each >= bound]
    for backup_id in [*later, *(each for each in reversed(ids) if each not in later)]:
        found = BackupStorage(place, backup_id)
        try:
            damaged = next((each for each in found.manifest.partitions if each.error is not None), None)
        except SeglogError as error:
            _log.warning("backup %s is passed over: %s", backup_id, error)
            continue
        if damaged is None:
            return found
        _log.warning(
            "backup %s is passed over, since %s was damaged: %s", backup_id, damaged.topic_partition, damaged.error
        )
    there = f"give one of them by --backup (backup=): {listed(ids)}" if ids else "it has no backups at all"
    raise PathNotFoundError(f"no whole backup in {place.path}; {there}")
