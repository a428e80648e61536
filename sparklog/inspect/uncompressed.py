"""Measures the size of batches without compression, by decompressing them."""

from __future__ import annotations

from collections import Counter

from sparklog.log.windows import Window
from sparklog.record.batches.wrappers import wrapped
from sparklog.record.codecs.table import decompressor
from sparklog.record.format import v2
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.limits import DECOMPRESSED_BYTES_MAX


def uncompressed_bytes(window: Window, headers: BatchHeaders) -> Counter[int]:
    """Return the size without compression of some batches of a window, by codec id.

    A batch that cannot be decompressed counts with its size as stored: `sparklog.inspect.verify` reports its damage.
    """
    found: Counter[int] = Counter()
    rows = zip(
        headers.column("position").tolist(),
        headers.column("batch_bytes").tolist(),
        headers.column("magic").tolist(),
        headers.codec_ids.tolist(),
        strict=True,
    )
    for position, size_bytes, magic, codec_id in rows:
        start = position - headers.origin
        batch = window.buffer[start : start + size_bytes]
        found[codec_id] += size_bytes + (_saved_bytes(batch, magic, codec_id) if codec_id else 0)
    return found


def _saved_bytes(batch: memoryview, magic: int, codec_id: int) -> int:
    try:
        data = batch[v2.HEADER_BYTES :] if magic == 2 else wrapped(batch)
        return len(decompressor(codec_id, magic)(data, DECOMPRESSED_BYTES_MAX)) - len(data)
    except Exception:
        # Each library raises errors of its own.
        return 0
