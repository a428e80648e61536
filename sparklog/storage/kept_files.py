"""Files that stay open from one look at them to the next."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from sparklog.storage.base import ReadableFile, Storage


class KeptFiles:
    """Files that stay open until they are closed here, so that asking a file several things opens it once.

    This is for whoever holds the lock of a log directory: nobody else puts another file under a name meanwhile. Before
    the holder does so, it calls `forget`.
    """

    def __init__(self) -> None:
        self._open: dict[str, ReadableFile] = {}

    def open(self, storage: Storage, path: str) -> AbstractContextManager[ReadableFile]:
        """Open a file for a ``with`` block, which leaves it open; `PathNotFoundError` where there is none."""
        if path not in self._open:
            self._open[path] = storage.open(path)
        return nullcontext(self._open[path])

    def forget(self, path: str) -> None:
        """Close the file of a path, if it is open."""
        if path in self._open:
            self._open.pop(path).close()

    def close(self) -> None:
        """Close all files."""
        for path in tuple(self._open):
            self.forget(path)
