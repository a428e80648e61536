"""Scans a segment to its end despite damage: yields its batches, and the bytes that cannot be read.

`sparklog.log.scans.of_range` stops at damage; this scan continues at the next whole batch, at whatever byte. Every
record is decoded, batch by batch if a window does not decode, so that everything not reported as unreadable can be
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparklog.errors import CorruptBatchError
from sparklog.log.damage import Damage, DamageScanner
from sparklog.log.segment import Segment
from sparklog.log.windows import Window, WindowScan
from sparklog.record.batches.framing import HEADER_BYTES_MAX, first_header
from sparklog.record.decode.columns import decode_batches
from sparklog.record.format.arrays import numbers_of
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.streams import Int64s

Flags = np.ndarray[Any, np.dtype[np.bool_]]
RecordArrays = tuple[Int64s, Int64s, Int64s]

_COLUMNS: Final = ("key", "offset", "timestamp", "position")


@dataclass(frozen=True)
class Unreadable:
    """Bytes that hold no sound batch.

    Attributes
    ----------
    path : str
        The segment's file.
    position, length_bytes : int
        The position of the first byte, and the number of bytes.
    first_offset, end_offset : int
        The offsets that the bytes may have held, the end exclusive. Without a sound batch after them, the end is the
        base offset of the next segment, or for the last segment the largest possible offset.
    reason : str
    damage : Damage or None
        The judgement of the bytes; None for one whole batch with a wrong checksum or wrong records.
    """

    path: str
    position: int
    length_bytes: int
    first_offset: int
    end_offset: int
    reason: str
    damage: Damage | None = None

    @property
    def is_log_end(self) -> bool:
        """Whether the log ends here without damage: a crash or a broker that preallocates files leaves such bytes."""
        return self.damage is not None and self.damage.is_log_end


@dataclass(frozen=True)
class CheckedBatches:
    """Consecutive batches, and whether the checksum and records of each are right: shape (n_batches,).

    Attributes
    ----------
    expected_offset : int
        The lowest offset that the first batch may have.
    records : tuple of three arrays, shape (n_records,)
        The position of the batch, the offset, and the timestamp of each record of the sound batches.
    """

    window: Window
    is_sound: Flags
    expected_offset: int
    records: RecordArrays

    @property
    def headers(self) -> BatchHeaders:
        return self.window.headers

    @property
    def sound(self) -> BatchHeaders:
        return self.window.headers.where(self.is_sound)


def scan_past_damage(segment: Segment) -> Iterator[CheckedBatches | Unreadable]:
    """Check every batch and every record of a segment.

    Yields
    ------
    CheckedBatches or Unreadable
        The parts of the file in order; the unreadable batches of a window come before the window. The bytes of a window
        are valid until the next one is requested.

    Raises
    ------
    SeglogError
        The file cannot be opened or read.
    """
    path, offset = segment.path(), segment.base_offset
    with segment.file() as file:
        scanner = DamageScanner(file, is_last=segment.is_last, upper_offset=segment.reach)
        next_position: int | None = 0
        while next_position is not None:
            # The position of the damaged batches directly before the boundary: if no batch follows them, a wrong size
            # may be the cause.
            doubtful_position: int | None = None
            scan = WindowScan(file, next_position)
            for window in scan:
                records, reasons = _decoded(window)
                for row, reason in reasons.items():
                    yield _unreadable_batch(path, window.headers.table[row], reason)
                is_sound = ~np.isin(np.arange(len(window.headers)), list(reasons))
                checked = CheckedBatches(window, is_sound, offset, records)
                yield checked
                ends = checked.sound.column("last_offset")
                ends = ends[ends < segment.reach]
                offset = int(ends[-1]) + 1 if len(ends) else offset
                if is_sound[-1]:
                    doubtful_position = None
                elif is_sound.any() or doubtful_position is None:
                    first = np.flatnonzero(np.append(True, is_sound))[-1]
                    doubtful_position = int(window.headers.column("position")[first])
            if scan.fault is None and scan.position >= scan.size_bytes:
                return
            damage = scanner.judge(
                scan.position,
                offset,
                scan.size_bytes,
                scan.fault,
                what=scan.what,
                doubtful_position=doubtful_position,
            )
            next_position, end_offset = damage.next_position, segment.upper_offset
            if next_position is not None:
                following = first_header(file.read(next_position, HEADER_BYTES_MAX), next_position)
                end_offset = max(int(following.column("base_offset")[0]), offset) if len(following) else offset
            yield Unreadable(path, damage.position, damage.length_bytes, offset, end_offset, damage.reason, damage)


def _unreadable_batch(path: str, batch: np.void, reason: str) -> Unreadable:
    position, batch_bytes = int(batch["position"]), int(batch["batch_bytes"])
    return Unreadable(path, position, batch_bytes, int(batch["base_offset"]), int(batch["last_offset"]) + 1, reason)


def _decoded(window: Window) -> tuple[RecordArrays, dict[int, str]]:
    """Decode every record of the sound batches; return also the reasons why other batches are not sound, by row."""
    headers = window.headers
    # Nothing keeps an error: its frames hold decompressed batches.
    with suppress(CorruptBatchError):
        return _joined(_pieces(window, headers)), {}
    pieces: list[RecordArrays] = []
    reasons: dict[int, str] = {}
    for row in range(len(headers)):
        try:
            pieces += _pieces(window, headers[row : row + 1])
        except CorruptBatchError as error:
            reasons[row] = error.reason
    return _joined(pieces), reasons


def _joined(pieces: list[RecordArrays]) -> RecordArrays:
    none = np.empty(0, dtype=np.int64)
    positions, offsets, timestamps = (np.concatenate([none, *(piece[n] for piece in pieces)]) for n in range(3))
    return positions, offsets, timestamps


def _pieces(window: Window, headers: BatchHeaders) -> list[RecordArrays]:
    return [
        (
            numbers_of(batch.column("position")),
            numbers_of(batch.column("offset")),
            numbers_of(batch.column("timestamp")),
        )
        for batch in decode_batches(window.buffer, headers, columns=_COLUMNS)
    ]
