"""A storage in memory that counts what it is asked, so that a test can say how a cost grows without a clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparklog.storage.base import Storage
from tests.storage.memory import MemoryFile, MemoryStorage

_CALLS = frozenset(name for name in (*vars(Storage), *vars(MemoryStorage)) if not name.startswith("_")) - {
    "scheme",
    "capabilities",
    "lose_unsynced",
}


class CountingMemory(MemoryStorage):
    """Counts every call, of its files too; what a file is asked to write counts as ``change``.

    Attributes
    ----------
    calls : Counter of str
        By the name of the method.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__()

    def __getattribute__(self, name: str) -> Any:
        if name in _CALLS:
            super().__getattribute__("calls")[name] += 1
        return super().__getattribute__(name)

    def open(self, path: str) -> MemoryFile:
        file = super().open(path)
        return _CountedFile(self, path, file._file)


class _CountedFile(MemoryFile):
    def read(self, position: int, length_bytes: int) -> memoryview:
        self._storage.calls["read"] += 1  # type: ignore[attr-defined]
        return super().read(position, length_bytes)
