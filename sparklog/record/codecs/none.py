"""Copies records without compression."""

from __future__ import annotations

from typing import Final

from sparklog.record.codecs.table import Functions, copy_into, write_into

FUNCTIONS: Final = Functions(
    lambda data, _: bytes(data),
    lambda _: write_into,
    lambda data, target, _: copy_into(data, target),
    prefix=lambda data, limit_bytes: iter([bytes(data[:limit_bytes])]),
)
