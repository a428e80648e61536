"""Storage whose disk is full: from one of its changes on, or at that one only, as when somebody makes room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from sparklog.storage.local import to_write_error
from tests.storage.crash import CrashingFile, CrashingStorage

NEEDS_NO_ROOM: Final = ("remove", "remove_folder")
"""Changes that a full disk lets through; a sync or a rename it may refuse, since some write only then."""


class FullDisk(CrashingStorage):
    """Storage of this machine that has no room for its n-th change.

    Parameters
    ----------
    full_at : int
        The change.
    stays_full : bool
        Whether there is no room for any later one, until `make_room`; a truncation is let through.

    Attributes
    ----------
    refused : str
        The last change that was.
    """

    def __init__(self, root: Path, full_at: int, *, stays_full: bool) -> None:
        super().__init__(root)
        self._full_at, self._stays_full = full_at, stays_full
        self.refused = "nothing"

    def make_room(self) -> None:
        self._full_at = -1

    def step(self, name: str, path: str) -> None:
        super().step(name, path)
        number = len(self.calls)
        is_later = self._stays_full and 0 < self._full_at < number and name != "truncate"
        if name not in NEEDS_NO_ROOM and (number == self._full_at or is_later):
            self.refused = self.calls[-1]
            raise to_write_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path)

    def open_for_append(self, path: str) -> CrashingFile:
        if not Path(path).exists():
            self.step("make", path)
        return FullFile(self.inner.open_for_append(path), self)


class FullFile(CrashingFile):
    """An open file of a `FullDisk`: of a write for which there is no room, half is made."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        before = self._storage.calls[:]
        try:
            super().append(data)
        except Exception:
            if len(self._storage.calls) > len(before):
                self.file.append(memoryview(data)[: len(data) // 2])
            raise
