"""A storage that counts what is asked of it: every call, and everything that a call lists, reads or syncs.

A cost that grows with the square of the work shows in these numbers without a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Self, cast

from sparklog.storage.base import WritableStorage
from sparklog.storage.local_writing import LocalWritableStorage

_OPENING = ("open", "open_for_append", "create", "beneath")
_LISTING = ("entries", "names")
_READING = ("read", "read_small", "read_into")
_SYNCING = ("sync_files", "sync_folders")


class _Counted:
    """A storage or a file whose calls are counted."""

    def __init__(self, inner: Any, counts: Counter[str]) -> None:
        self._inner, self._counts = inner, counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._counting(name, found) if callable(found) else found

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self._counts[name] += name != "beneath"  # which asks nothing of a disk
            result = call(*arguments, **named)
            if name in _LISTING:
                self._counts["names listed"] += len(result)
            elif name in _READING and result is not None:
                self._counts["bytes read"] += result if isinstance(result, int) else len(result)
            elif name in _SYNCING:
                self._counts["files and folders synced"] += len(arguments[0])
            return _Counted(result, self._counts) if name in _OPENING else result

        return counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._inner.close()


def counting_storage(inner: WritableStorage | None = None) -> tuple[WritableStorage, Counter[str]]:
    """Return a storage, of this machine unless said, and the counts of what is asked of it, by name of the call."""
    counts: Counter[str] = Counter()
    return cast("WritableStorage", _Counted(inner or LocalWritableStorage(), counts)), counts
