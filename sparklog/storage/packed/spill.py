"""Decompresses what cannot be read by position into a temporary file, once for a process.

The file has no name, so that nothing is left of it however the process ends. Decompression stops where the disk would
become full: a few bytes can stand for any number of others.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final, Self

import zstandard

from sparklog.errors import StorageError
from sparklog.storage.base import ReadableFile
from sparklog.storage.packed.members import Member, Reading

_PIECE_BYTES: Final = 1 << 20
_LEFT_FREE_BYTES: Final = 1 << 29
_GZIP: Final = 31
"""For zlib: with the header and the checksum of gzip."""


class Spill:
    """A temporary file that pieces are added to. Threads and forked processes may read from it."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._descriptor, name = tempfile.mkstemp(prefix="sparklog-")
            weakref.finalize(self, os.close, self._descriptor)
            os.unlink(name)  # noqa: PTH108 - as the calls beside it
        except OSError as error:
            raise StorageError(f"cannot decompress {path}: no temporary file can be made: {error.strerror}") from error
        self._lock = threading.Lock()
        self._end = 0

    def add(self, pieces: Iterator[bytes]) -> tuple[int, int]:
        """Add pieces, and return the start and the end position of all of them."""
        with self._lock:
            start = position = self._end
            for piece in pieces:
                self._refuse_full(len(piece))
                try:
                    position += os.pwrite(self._descriptor, piece, position)
                except OSError as error:
                    raise StorageError(f"cannot decompress {self._path}: {error.strerror}; set TMPDIR") from error
            self._end = position
            return start, position

    def _refuse_full(self, more_bytes: int) -> None:
        room = os.fstatvfs(self._descriptor)
        if room.f_bavail * room.f_frsize - more_bytes < _LEFT_FREE_BYTES:
            raise StorageError(
                f"cannot decompress {self._path}: the disk of {tempfile.gettempdir()} has no room for it: set TMPDIR "
                f"to a folder on a larger disk, or unpack it there"
            )

    def read(self, position: int, length_bytes: int) -> bytes:
        return os.pread(self._descriptor, length_bytes, position)


class SpilledFile:
    """A part of a `Spill` as a `sparklog.storage.base.ReadableFile`."""

    def __init__(self, path: str, spill: Spill, start: int, end: int, modified_ns: int) -> None:
        self.path, self._spill, self._start, self._end, self._modified_ns = path, spill, start, end, modified_ns

    def size_bytes(self) -> int:
        return self._end - self._start

    def modified_ns(self) -> int:
        return self._modified_ns

    def read(self, position: int, length_bytes: int) -> memoryview:
        length_bytes = max(min(length_bytes, self.size_bytes() - position), 0)
        return memoryview(self._spill.read(self._start + position, length_bytes) if length_bytes else b"")

    def read_into(self, position: int, room: memoryview) -> int:
        filled = 0
        while filled < len(room):
            data = self.read(position + filled, min(len(room) - filled, _PIECE_BYTES))
            if not data:
                break
            room[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def data_position(self, position: int) -> int | None:
        return position if position < self.size_bytes() else None

    def close(self) -> None:
        """Do nothing: the file is the archive's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def gunzipped(file: ReadableFile) -> Iterator[bytes]:
    """Yield the bytes of a gzip file, of one or several members.

    Raises
    ------
    StorageError
        It is damaged or ends too early.
    """
    position, size_bytes, data = 0, file.size_bytes(), b""
    while position < size_bytes or data:
        inflate = zlib.decompressobj(_GZIP)
        while not inflate.eof:
            data = data or bytes(file.read(position, min(_PIECE_BYTES, size_bytes - position)))
            if not data:
                raise _cut(file, position)
            position += len(data)
            try:
                yield from _inflated(inflate, data)
            except zlib.error as error:
                raise StorageError(f"{file.path} is damaged before position {position}: {error}") from error
            data = b""
        data, position = inflate.unused_data, position - len(inflate.unused_data)


def _inflated(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what some bytes stand for, a bounded piece at a time."""
    while data and not inflate.eof:
        yield inflate.decompress(data, _PIECE_BYTES)
        data = inflate.unconsumed_tail


def unzstandarded(file: ReadableFile) -> Iterator[bytes]:
    """Yield the bytes of a zstandard file, of one or several frames; for errors see `gunzipped`."""
    position, size_bytes, data = 0, file.size_bytes(), b""
    while position < size_bytes or data:
        frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(write_size=_PIECE_BYTES)
        while not frame.eof:
            # A piece of 64 KiB stands for at most 512 blocks of 128 KiB.
            data = data or bytes(file.read(position, min(1 << 16, size_bytes - position)))
            if not data:
                raise _cut(file, position)
            position += len(data)
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise StorageError(f"{file.path} is damaged before position {position}: {error}") from error
            data = b""
        data, position = frame.unused_data, position - len(frame.unused_data)


def unzipped(file: ReadableFile, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a compressed member of a zip, whose checksum is compared; for errors see `gunzipped`."""
    packed, total_bytes = member.packed, 0
    if packed is None:
        raise AssertionError("a compressed member")
    try:
        with zipfile.ZipFile(Reading(file, 1 << 30)) as archive, archive.open(packed) as opened:
            while piece := opened.read(_PIECE_BYTES):
                total_bytes += len(piece)
                yield piece
    except (zipfile.BadZipFile, NotImplementedError, zlib.error, EOFError, ValueError) as error:
        raise StorageError(f"{file.path}: its member {packed.filename!r} is damaged: {error}") from error
    if total_bytes != member.size_bytes:
        raise StorageError(f"{file.path}: its member {packed.filename!r} is damaged: it ends too early")


def _cut(file: ReadableFile, position: int) -> StorageError:
    return StorageError(f"{file.path} ends at position {position}, within its compressed bytes: it was cut off")
