"""Reads a file of a failing disk: bytes that the disk cannot read are given as filler, and are known.

Filler is bytes of 0xFF, which a scan must take for damage. A read that fails is halved until
one sector fails. The end of the bad range is looked for sector by sector, after `_SECTORS_MAX` of them in steps that
double, and then its border by halves. A disk may take seconds for each failed read: after `_FAILURES_MAX` of them, the
rest of the file counts as unreadable.
"""

from __future__ import annotations

from bisect import insort
from typing import Final, Self

from sparklog.errors import DiskError
from sparklog.storage.base import ReadableFile

_SECTOR_BYTES: Final = 1 << 9
_SECTORS_MAX: Final = 32
_FAILURES_MAX: Final = 1 << 10
_FILLER: Final = b"\xff"
_ENDLESS: Final = (1 << 63) - 1


class PastBadSectors:
    """A `ReadableFile` whose unreadable bytes are read as filler."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._bad: list[tuple[int, int]] = []
        self._failures = 0

    @property
    def path(self) -> str:
        return self._file.path

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def modified_ns(self) -> int:
        return self._file.modified_ns()

    def data_position(self, position: int) -> int | None:
        return self._file.data_position(position)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def read(self, position: int, length_bytes: int) -> memoryview:
        if not self._bad:
            try:
                return self._file.read(position, length_bytes)
            except DiskError:
                pass
        room = memoryview(bytearray(max(min(length_bytes, self._file.size_bytes() - position), 0)))
        return room[: self.read_into(position, room)]

    def read_into(self, position: int, room: memoryview) -> int:
        at, end = position, position + len(room)
        while at < end:
            first, stop = next(((first, stop) for first, stop in self._bad if stop > at), (end, end))
            if first > at:
                known = len(self._bad)
                count = self._read_part(at, room[at - position : min(first, end) - position])
                at += count
                if not count and len(self._bad) == known:
                    break
            else:
                stop = min(stop, end, self._file.size_bytes())
                if stop <= at:
                    break
                room[at - position : stop - position] = _FILLER * (stop - at)
                at = stop
        return at - position

    def fault(self, position: int, end_position: int) -> str | None:
        """Return why bytes of a range cannot be read; None if all can be, or none was asked for."""
        met = [max(bad, position) for bad, end in self._bad if max(bad, position) < min(end, end_position)]
        if not met:
            return None
        given_up = f", and after {self._failures} failed reads no more of the file was tried"
        return f"the disk cannot read the bytes from position {min(met)} on" + given_up * self._is_given_up

    @property
    def _is_given_up(self) -> bool:
        return self._failures >= _FAILURES_MAX

    def _read_part(self, position: int, room: memoryview) -> int:
        """Read up to the first bad sector, and note the bad range there."""
        count = self._tried(position, room)
        if count is not None:
            return count
        at, bad = position, position + len(room)
        while bad - at > _SECTOR_BYTES and not self._is_given_up:
            middle = (at + bad) // 2
            middle -= middle % _SECTOR_BYTES
            middle = middle if middle > at else at + _SECTOR_BYTES - at % _SECTOR_BYTES
            count = self._tried(at, room[at - position : middle - position])
            if count is None:
                bad = middle
            elif count < middle - at:
                return at + count - position
            else:
                at = middle
        if self._is_given_up:
            insort(self._bad, (at, _ENDLESS))
            return at - position
        # Bytes of two sectors, though fewer than one has.
        border = at + _SECTOR_BYTES - at % _SECTOR_BYTES
        if border < bad and self._tried(at, room[at - position : border - position]) is not None:
            at = border
        insort(self._bad, (at, self._end_of_bad(at - at % _SECTOR_BYTES)))
        return at - position

    def _end_of_bad(self, position: int) -> int:
        """Return where the disk can read again, behind a bad sector."""
        bad, step, sector = position, _SECTOR_BYTES, memoryview(bytearray(_SECTOR_BYTES))
        while self._tried(bad + step, sector) is None:
            if self._is_given_up:
                return _ENDLESS
            bad += step
            if bad - position >= _SECTORS_MAX * _SECTOR_BYTES:
                step *= 2
        good = bad + step
        while good - bad > _SECTOR_BYTES:
            middle = bad + (good - bad) // (2 * _SECTOR_BYTES) * _SECTOR_BYTES
            bad, good = (middle, good) if self._tried(middle, sector) is None else (bad, middle)
        return good

    def _tried(self, position: int, room: memoryview) -> int | None:
        """Read bytes; return None if the disk cannot."""
        try:
            return self._file.read_into(position, room)
        except DiskError:
            self._failures += 1
            return None
