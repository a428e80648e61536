"""Scans the batches of one ``.log`` file in order, a window of whole batches at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparklog.log.damage import LARGE_BATCH_BYTES, WRONG_CHECKSUM_REASON, DamageKind, is_intact_at
from sparklog.record.batches.framing import HEADER_BYTES_MAX, first_header, scan_pieces
from sparklog.record.format.headers import BatchHeaders
from sparklog.storage.base import ReadableFile

WINDOW_BYTES: Final = 1 << 22
_FIRST_WINDOW_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 1 << 12
_SKIPPED_BYTES_MIN: Final = 1 << 18
"""To read the header alone of a shorter batch takes longer than to read on, if the file is in memory."""


@dataclass(frozen=True)
class Window:
    """Consecutive whole batches and their bytes, which are valid until the next window is requested.

    A scan that skips long batches yields the header of each without bytes.
    """

    buffer: memoryview
    headers: BatchHeaders

    def batch(self, row: int) -> memoryview:
        """Return the bytes of one batch."""
        start = int(self.headers.column("position")[row]) - self.headers.origin
        return self.buffer[start : start + int(self.headers.column("batch_bytes")[row])]


class WindowScan:
    """Yields the whole batches of a ``.log`` file in order, some at a time, up to the first other bytes.

    The first windows are small, and a longer batch has one of its own. Only sizes and headers are checked, and
    the checksum of a batch so long that its size alone must not make us allocate memory.

    Parameters
    ----------
    file : ReadableFile
    position : int
        The position of the first batch.
    end_position : int, optional
        A batch boundary; no bytes after it are read.
    skips_from : int, optional
        Only the header is read of a long data batch that ends at this offset or later. By default all is read.

    Attributes
    ----------
    position : int
        The end of the batches yielded so far.
    size_bytes : int
        The size of the file, or ``end_position``, taken before the last bytes were read.
    fault : str or None
        Once the scan has ended: why the bytes at ``position`` are no batch; None if the file ends there, or if
        they may begin a longer batch.
    what : DamageKind
        The kind of damage if there is a fault.
    """

    def __init__(
        self, file: ReadableFile, position: int, end_position: int | None = None, skips_from: int | None = None
    ) -> None:
        self._file = file
        self._end_position = end_position
        self._skips_from = skips_from
        self.position = position
        self.size_bytes = 0
        self.fault: str | None = None
        self.what = DamageKind.NOT_A_BATCH

    def __iter__(self) -> Iterator[Window]:
        window_bytes = wanted_bytes = min(_FIRST_WINDOW_BYTES, WINDOW_BYTES)
        memory = memoryview(b"")
        while True:
            # Taken before the bytes: batches that a broker appends meanwhile do not belong to the tail to judge.
            size_bytes = self._file.size_bytes()
            self.size_bytes = size_bytes if self._end_position is None else min(size_bytes, self._end_position)
            asked_bytes = min(wanted_bytes, max(self.size_bytes - self.position, 0))
            if asked_bytes > len(memory):
                memory = memoryview(np.empty(asked_bytes, dtype=np.uint8).data)
            # Into the same memory each time: new pages would cost almost as much as reading.
            origin, buffer = self.position, memory[: self._file.read_into(self.position, memory[:asked_bytes])]
            for piece, headers in scan_pieces(buffer, self.position):
                if len(headers):
                    self.position += headers.valid_bytes
                    yield Window(piece, headers)
            next_batch_bytes, self.fault = headers.next_batch_bytes, headers.fault
            if self.fault or len(buffer) < wanted_bytes or self.position + next_batch_bytes > self.size_bytes:
                return
            header = self._skipped(buffer[self.position - origin :], next_batch_bytes)
            if header is not None:
                self.position += header.valid_bytes
                window_bytes = wanted_bytes = _PAGE_BYTES
                yield Window(memoryview(b""), header)
                continue
            window_bytes = min(8 * window_bytes, WINDOW_BYTES)
            wanted_bytes = max(window_bytes, next_batch_bytes)
            if wanted_bytes > LARGE_BATCH_BYTES and not is_intact_at(self._file, self.position, next_batch_bytes):
                self.fault, self.what = WRONG_CHECKSUM_REASON, DamageKind.WRONG_CHECKSUM
                return

    def _skipped(self, rest: memoryview, batch_bytes: int) -> BatchHeaders | None:
        """Return the header of the next batch if its other bytes need not be read.

        Parameters
        ----------
        rest : memoryview
            Its first bytes, as far as they have been read.
        """
        if self._skips_from is None or not _SKIPPED_BYTES_MIN <= batch_bytes <= LARGE_BATCH_BYTES:
            return None
        lead = rest if len(rest) >= HEADER_BYTES_MAX else self._file.read(self.position, HEADER_BYTES_MAX)
        header = first_header(lead[:HEADER_BYTES_MAX], self.position)
        # The file may have changed since its size was read; a fault is found by reading on.
        if len(header) != 1 or header.valid_bytes != batch_bytes or header.is_control[0]:
            return None
        return header if int(header.column("last_offset")[0]) >= self._skips_from else None
