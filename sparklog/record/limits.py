"""Limits that are known without anything that decodes."""

from __future__ import annotations

from typing import Final

DECOMPRESSED_BYTES_MAX: Final = 1 << 30
"""To how many bytes a batch may decompress unless ``max.decompressed.message.bytes`` says otherwise."""

DECOMPRESSED_BYTES_LIMIT: Final = (1 << 31) - 9
"""The most that it can say: what an array of Java's holds, and Kafka's own default."""
