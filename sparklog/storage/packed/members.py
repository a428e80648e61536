"""Reads the lists of members of archives, and refuses names that lead out of the archive, links and devices.

Nothing is extracted by name: a member is a range of bytes, of the archive or of what it is decompressed to.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from typing import Final, NamedTuple

from sparklog.errors import ForeignNameError, StorageError
from sparklog.storage.base import ReadableFile

MEMBERS_MAX: Final = 4_000_000
_NAME_BYTES_MAX: Final = 4096
_HEADER_BYTES_MAX: Final = 1 << 20
_DIRECTORY_BYTES_MAX: Final = 1 << 30
_BLOCK_BYTES: Final = 512
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
_LOCAL_MAGIC: Final = b"PK\x03\x04"
_ENCRYPTED: Final = 1

assert _LOCAL_HEADER.size == 30


class Member(NamedTuple):
    """A file in an archive.

    Attributes
    ----------
    start : int
        The position of its bytes; of a compressed member of a zip, that of its local header.
    size_bytes : int
        Its size, uncompressed.
    modified_ns : int
        Its time, ns since the epoch.
    packed : zipfile.ZipInfo or None
        How it is compressed; None if its bytes are stored as they are.
    """

    start: int
    size_bytes: int
    modified_ns: int
    packed: zipfile.ZipInfo | None = None


class Reading(io.RawIOBase):
    """A file of a storage as a stream with a position, which refuses to read more than a bound at a time."""

    def __init__(self, file: ReadableFile, bytes_max: int) -> None:
        self._file, self._bytes_max, self._position = file, bytes_max, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes()}[whence]
        self._position = max(begin + offset, 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._file.size_bytes() - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > self._bytes_max:
            raise StorageError(
                f"{self._file.path}: a header at position {self._position} has {wanted} bytes, and may have "
                f"{self._bytes_max}: the archive is damaged, or made to use up memory"
            )
        data = bytes(self._file.read(self._position, wanted))
        self._position += len(data)
        return data


def members_of_tar(file: ReadableFile) -> dict[str, Member]:
    """List the files of a tar by name.

    Raises
    ------
    StorageError
        It is damaged or ends too early.
    ForeignNameError
        A member leads out of the archive, or is a link or a device.
    """
    found: dict[str, Member] = {}
    try:
        with tarfile.open(fileobj=Reading(file, _HEADER_BYTES_MAX), mode="r:") as archive:
            for each in archive:
                name = _checked(file.path, each.name, len(found))
                if each.isdir():
                    continue
                if not each.isreg() or each.issparse():
                    raise ForeignNameError(
                        f"{file.path}: its member {each.name!r} is a link, a device or a sparse file, and none is "
                        f"followed. Pack the folder again, with links replaced by their files (tar --dereference)"
                    )
                _add(file.path, found, name, Member(each.offset_data, each.size, int(each.mtime) * 1_000_000_000))
                archive.members.clear()  # type: ignore[attr-defined]
            end = archive.offset
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise _damaged(file, str(error)) from error
    _refuse_early_end(file, found, end)
    return found


def _refuse_early_end(file: ReadableFile, found: dict[str, Member], end: int) -> None:
    """Raise unless all members are whole and a block of zeros ends the archive, as every tar program writes it."""
    size_bytes = file.size_bytes()
    if any(each.start + each.size_bytes > size_bytes for each in found.values()):
        raise _damaged(file, "it ends within a member")
    last = max((each.start + each.size_bytes for each in found.values()), default=0)
    mark = -(-last // _BLOCK_BYTES) * _BLOCK_BYTES
    # Folders and headers may follow the last file; the mark is somewhere in the rest.
    tail = bytes(file.read(max(mark, end - 2 * _BLOCK_BYTES), 4 * _BLOCK_BYTES))
    if bytes(_BLOCK_BYTES) not in tail:
        raise _damaged(file, f"it ends at position {size_bytes} without the mark of its end: it was cut off")


def members_of_zip(file: ReadableFile) -> dict[str, Member]:
    """List the files of a zip by name; for errors see `members_of_tar`."""
    found: dict[str, Member] = {}
    try:
        with zipfile.ZipFile(Reading(file, _DIRECTORY_BYTES_MAX)) as archive:
            for each in archive.infolist():
                name = _checked(file.path, each.filename, len(found))
                if each.is_dir():
                    continue
                kind = each.external_attr >> 28
                if kind not in (0, 8):
                    raise ForeignNameError(
                        f"{file.path}: its member {each.filename!r} is a link or a device: remove it"
                    )
                if each.flag_bits & _ENCRYPTED:
                    raise StorageError(f"{file.path}: its member {each.filename!r} is encrypted: unpack it first")
                _add(file.path, found, name, _of_zip(file, each))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise _damaged(file, str(error)) from error
    return found


def _of_zip(file: ReadableFile, found: zipfile.ZipInfo) -> Member:
    if found.compress_type != zipfile.ZIP_STORED:
        return Member(found.header_offset, found.file_size, 0, found)
    header = bytes(file.read(found.header_offset, _LOCAL_HEADER.size))
    if len(header) < _LOCAL_HEADER.size or header[:4] != _LOCAL_MAGIC:
        raise _damaged(file, f"there is no member at position {found.header_offset}, where {found.filename!r} begins")
    _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    start = found.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if start + found.file_size > file.size_bytes():
        raise _damaged(file, f"it ends within its member {found.filename!r}")
    return Member(start, found.file_size, 0)


def _add(path: str, found: dict[str, Member], name: str, member: Member) -> None:
    if name in found:
        raise ForeignNameError(f"{path}: it has two members with the name {name!r}: pack the folder again")
    found[name] = member


def _checked(path: str, name: str, count: int) -> str:
    """Return the names of a member's path, joined."""
    if count >= MEMBERS_MAX:
        raise StorageError(f"{path}: it has more than {MEMBERS_MAX} members, which no log directory has")
    names = [each for each in name.split("/") if each not in ("", ".")]
    is_long = len(name.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX
    if name.startswith("/") or ".." in names or "\\" in name or "\0" in name or is_long:
        raise ForeignNameError(
            f"{path}: its member {name[:200]!r} leads out of the archive, or has a name that no file of a log has: it "
            f"is damaged or forged"
        )
    return "/".join(names)


def _damaged(file: ReadableFile, reason: str) -> StorageError:
    return StorageError(f"{file.path} is not a whole archive: {reason}. Get it again from where it was made")
