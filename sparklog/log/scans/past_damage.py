"""Scans a segment to its end despite damage, and decodes it: yields its sound batches, and bytes that cannot be read.

`sparklog.log.sound_batches` finds the sound batches. Every record is decoded; a batch that does not decode is left out
too, as by a read that skips damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptBatchError
from sparklog.log.segment import Segment
from sparklog.log.sound_batches import Unreadable, scan_sound, unreadable_batch
from sparklog.log.windows import Window
from sparklog.record.decode.columns import BatchDecoder
from sparklog.record.format.arrays import numbers_of
from sparklog.record.format.streams import Int64s

_COLUMNS: Final = ("key", "offset", "timestamp", "position")


@dataclass(frozen=True)
class CheckedBatches(Window):
    """Sound batches.

    Attributes
    ----------
    records : int64 array, shape (3, n_records)
        The position of the batch, the offset, and the timestamp of each record.
    """

    records: Int64s


def scan_past_damage(segment: Segment) -> Iterator[CheckedBatches | Unreadable]:
    """Check every batch and every record of a segment.

    Yields
    ------
    CheckedBatches or Unreadable
        The parts in order; the unreadable batches of a window come before the window. The bytes of a window are valid
        until the next one is requested.

    Raises
    ------
    SeglogError
        The file cannot be opened or read.
    """
    decoder = BatchDecoder(_COLUMNS)
    with segment.open() as log:
        for found in scan_sound(log, log.start):
            if isinstance(found, Unreadable):
                yield found
                continue
            rest, wrong, pieces = found.headers, list[int](), list[Int64s]()
            while len(rest):
                try:
                    for batch in decoder.decode(found.buffer, rest):
                        pieces.append(_numbers(batch))
                    break
                except CorruptBatchError as error:
                    # Nothing keeps an error: its frames hold decompressed batches.
                    wrong.append(error.position or 0)
                    reason = error.reason
                row = int(np.searchsorted(rest.column("position"), wrong[-1]))
                yield unreadable_batch(segment.path(), rest.table[row], reason)
                decoder, rest = BatchDecoder(_COLUMNS), rest[row + 1 :]
            pieces += map(_numbers, decoder.flush())
            records = np.concatenate([np.empty((3, 0), np.int64), *pieces], axis=1)
            headers = found.headers.where(~np.isin(found.headers.column("position"), wrong))
            if len(headers):
                yield CheckedBatches(found.buffer, headers, records[:, ~np.isin(records[0], wrong)])


def _numbers(batch: pa.RecordBatch) -> Int64s:
    return np.stack([numbers_of(batch.column(name)) for name in ("position", "offset", "timestamp")])
