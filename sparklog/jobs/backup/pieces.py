"""Stores and reads the pieces of a set of backups; `sparklog.jobs.backup.manifest` describes the set."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from sparklog.log import files
from sparklog.log.places import LogDirectory, folder_of, path_of
from sparklog.storage.base import ReadableFile

PIECES: Final = "pieces"
_READ_BYTES: Final = 1 << 20


class Piece(NamedTuple):
    """Bytes that are stored once, by their SHA-256 in hexadecimal."""

    sha256: str
    size_bytes: int

    @property
    def name(self) -> str:
        """The path of the piece in the set."""
        return path_of(PIECES, self.sha256[:2], self.sha256)


def piece_of(file: ReadableFile, position: int, length_bytes: int) -> Piece:
    """Return the piece that a part of a file is; it is shorter if the file ends before."""
    digest, read_bytes = hashlib.sha256(), 0
    while read_bytes < length_bytes:
        data = file.read(position + read_bytes, min(_READ_BYTES, length_bytes - read_bytes))
        if not len(data):
            break
        digest.update(data)
        read_bytes += len(data)
    return Piece(digest.hexdigest(), read_bytes)


def open_piece(place: LogDirectory, piece: Piece) -> ReadableFile:
    """Open a piece of a set; raise `SeglogError` if it is missing, or a link to elsewhere, which others may plant."""
    return place.storage.beneath(place.path).open(place.file(piece.name))


class PieceStore:
    """Stores pieces in a set, for a ``with`` block: at its end, pieces without a name from `publish` are removed.

    Parameters
    ----------
    place : LogDirectory
        The folder of the set, which the caller has locked.
    """

    def __init__(self, place: LogDirectory) -> None:
        self._place, self._storage = place, place.writable
        self._staged: list[tuple[str, Piece]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for path, _ in self._staged:
            self._storage.remove(path)

    def has(self, piece: Piece) -> bool:
        """Return whether a piece is in the set, by its size."""
        stamp = self._place.storage.stamp(self._place.file(piece.name))
        return stamp is not None and stamp.size_bytes == piece.size_bytes

    def put(self, parts: Iterable[memoryview | bytes]) -> tuple[Piece, ...]:
        """Stage bytes as one piece; none if there are no bytes. If the parts raise, what came before is staged."""
        path = self._place.file(path_of(PIECES, files.being_written(secrets.token_hex(16))))
        digest, size_bytes = hashlib.sha256(), 0
        with self._storage.create(path) as out:
            try:
                for part in parts:
                    out.append(part)
                    digest.update(part)
                    size_bytes += len(part)
            finally:
                self._staged.append((path, Piece(digest.hexdigest(), size_bytes)))
        return self.last

    @property
    def last(self) -> tuple[Piece, ...]:
        """The piece that was staged last, if it has bytes."""
        return tuple(piece for _, piece in self._staged[-1:] if piece.size_bytes)

    def publish(self) -> None:
        """Sync the staged pieces, and give them their names."""
        staged = [each for each in self._staged if each[1].size_bytes]
        self._storage.sync_files([path for path, _ in staged])
        folders = sorted({folder_of(piece.name) for _, piece in staged})
        for folder in folders:
            self._storage.make_folder(self._place.file(folder))
        for path, piece in staged:
            self._storage.rename(path, self._place.file(piece.name))
        self._storage.sync_folders([self._place.file(each) for each in [*folders, PIECES]])
        self._staged = [each for each in self._staged if not each[1].size_bytes]
