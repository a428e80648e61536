"""Reads one object by ranges, as the version that was listed.

Headers, indexes and the ends of logs are short reads near each other: a short read fetches `_SPAN_BYTES` from its
position on, a small object is fetched whole, and the process keeps these bytes, up to a bound. A scan is reads one
after the other, longer and longer: from the second on, the next pieces are fetched while one is decoded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, Self

from sparklog.storage.base import Stamp
from sparklog.storage.objects.failures import answered
from sparklog.storage.objects.wire import answer, send
from sparklog.storage.process import ProcessState

_SPAN_BYTES: Final = 1 << 16
_WHOLE_BYTES_MAX: Final = 1 << 18
_KEPT_BYTES_MAX: Final = 1 << 26
_PIECE_BYTES: Final = 1 << 22
_PIECES_AHEAD_MAX: Final = 4
_PIECE_SECONDS_MAX: Final = 300.0

_Version = tuple[str, str, int]


class _Span(NamedTuple):
    start: int
    data: memoryview

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class _Spans:
    """Parts of objects that this process has fetched, the last used ones."""

    def __init__(self) -> None:
        self._kept: dict[tuple[_Version, int], _Span] = {}
        self._starts: dict[_Version, list[int]] = {}
        self._ours = ProcessState(threading.Lock, self._kept, self._starts)  # Its number is the bytes of all spans.

    def find(self, version: _Version, position: int, length_bytes: int) -> _Span | None:
        with self._ours.lock:
            for start in self._starts.get(version, ()):
                span = self._kept[version, start]
                if start <= position and position + length_bytes <= span.end:
                    self._kept[version, start] = self._kept.pop((version, start))
                    return span
        return None

    def keep(self, version: _Version, span: _Span) -> None:
        with self._ours.lock:
            if (version, span.start) in self._kept:
                self._drop((version, span.start))
            self._kept[version, span.start] = span
            self._starts.setdefault(version, []).append(span.start)
            self._ours.number += len(span.data)
            while self._ours.number > _KEPT_BYTES_MAX:
                self._drop(next(iter(self._kept)))

    def _drop(self, at: tuple[_Version, int]) -> None:
        version, start = at
        self._ours.number -= len(self._kept.pop(at).data)
        self._starts[version].remove(start)
        if not self._starts[version]:
            del self._starts[version]


_spans: Final = _Spans()


class _Piece(NamedTuple):
    """A part that is being fetched."""

    start: int
    end: int
    coming: Future[Any]


class ObjectFile:
    """One version of an object as a `sparklog.storage.base.ReadableFile`; one thread uses it at a time."""

    def __init__(self, path: str, read: Callable[[int, int], memoryview], stamp: Stamp) -> None:
        self.path, self._read, self._stamp = path, read, stamp
        self._version: _Version = (path, stamp.tag, stamp.modified_ns)
        self._ahead: deque[_Piece] = deque()
        self._pieces_ahead = 1
        self._last_end = -1
        self._last_start = -1

    def size_bytes(self) -> int:
        return self._stamp.size_bytes

    def modified_ns(self) -> int:
        return self._stamp.modified_ns

    def read(self, position: int, length_bytes: int) -> memoryview:
        length_bytes = max(min(length_bytes, self._stamp.size_bytes - position), 0)
        data = self._some(position, length_bytes)
        if len(data) == length_bytes:
            return data
        room = memoryview(bytearray(length_bytes))
        room[: len(data)] = data
        self.read_into(position + len(data), room[len(data) :])
        return room

    def read_into(self, position: int, room: memoryview) -> int:
        wanted, filled = max(min(len(room), self._stamp.size_bytes - position), 0), 0
        while filled < wanted:
            data = self._some(position + filled, wanted - filled)
            room[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def _some(self, position: int, length_bytes: int) -> memoryview:
        """Return some of the bytes from a position on, at least one unless none is wanted."""
        if not length_bytes:
            return memoryview(b"")
        if length_bytes <= _SPAN_BYTES or self._stamp.size_bytes <= _WHOLE_BYTES_MAX:
            span = self._span(position, length_bytes)
            self._last_start, self._last_end = position, position + length_bytes
            return span.data[position - span.start :][:length_bytes]
        if self._ahead or self._last_start < position <= self._last_end:
            return self._read_ahead(position, length_bytes)
        self._last_start, self._last_end = position, position + length_bytes
        return self._fetched(position, position + length_bytes)

    def data_position(self, position: int) -> int | None:
        return position if position < self._stamp.size_bytes else None

    def close(self) -> None:
        for piece in self._ahead:
            piece.coming.cancel()
        self._ahead.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _span(self, position: int, length_bytes: int) -> _Span:
        found = _spans.find(self._version, position, length_bytes)
        if found is None:
            size_bytes = self._stamp.size_bytes
            start = 0 if size_bytes <= _WHOLE_BYTES_MAX else position
            end = size_bytes if size_bytes <= _WHOLE_BYTES_MAX else min(position + _SPAN_BYTES, size_bytes)
            found = _Span(start, self._fetched(start, end))
            _spans.keep(self._version, found)
        return found

    def _read_ahead(self, position: int, length_bytes: int) -> memoryview:
        """Read from the first piece under way, and begin to fetch the next ones."""
        while self._ahead and not self._ahead[0].start <= position < self._ahead[0].end:
            self._ahead.popleft().coming.cancel()
            # A longer scan reads further ahead, so that a short one fetches little that it does not want.
            self._pieces_ahead = min(2 * self._pieces_ahead, _PIECES_AHEAD_MAX)
        size_bytes = self._stamp.size_bytes
        while len(self._ahead) < self._pieces_ahead:
            start = self._ahead[-1].end if self._ahead else position
            end = min(start + _PIECE_BYTES, size_bytes)
            if start >= end:
                break
            self._ahead.append(_Piece(start, end, send(partial(self._read, start, end))))
        self._last_start, self._last_end = position, position + length_bytes
        first = self._ahead[0]
        return self._arrived(first)[position - first.start :][:length_bytes]

    def _arrived(self, piece: _Piece) -> memoryview:
        try:
            data: memoryview = piece.coming.result(_PIECE_SECONDS_MAX)
        except Exception:
            # Asked again, since the answer may have broken off; a lasting error is raised there.
            data = self._fetched(piece.start, piece.end)
            done: Future[Any] = Future()
            done.set_result(data)
            self._ahead[self._ahead.index(piece)] = piece._replace(coming=done)
        return data

    def _fetched(self, start: int, end: int) -> memoryview:
        return answered(lambda: answer(partial(self._read, start, end)), self.path)
