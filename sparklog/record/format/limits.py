"""Limits the size of decompressed batches, in a module that imports nothing."""

from __future__ import annotations

from typing import Final

DECOMPRESSED_BYTES_MAX: Final = 1 << 30
"""The default of ``max.decompressed.message.bytes``, the most bytes that a batch may decompress to."""

DECOMPRESSED_BYTES_LIMIT: Final = (1 << 31) - 9
"""The largest value of that property: the size of the largest array in Java, which is Kafka's own default."""
