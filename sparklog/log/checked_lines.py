"""Encodes and checks the lines of files that grow: each line is one JSON object with a checksum.

The last field of a line, ``crc32c``, in 8 hexadecimal digits, is the checksum of the bytes of all lines up to here,
each without this field and its comma. So a line fits only after the lines that it was written after.

A crash may leave a part of the last line. If a last line does not end, or has zero bytes, it was not written, and the
next writer cuts it off. Every other wrong line is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from crc32c import crc32c

_CHECKSUM: Final = b',"crc32c":"%08x"}\n'
_CHECKSUM_BYTES: Final = len(_CHECKSUM % 0)


def encode_line(fields: Mapping[str, Any], checksum: int = 0) -> bytes:
    """Return the line with some fields that follows the lines with a checksum."""
    text = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    return text + _CHECKSUM % crc32c(text, checksum)


def line_checksum(line: bytes, before: int = 0) -> int:
    """Return the checksum of the lines up to a line, if it is in the line; otherwise raise `ValueError`.

    Parameters
    ----------
    before : int
        The checksum of the lines before it.
    """
    text = line[:-_CHECKSUM_BYTES]
    found = crc32c(text, before)
    if line[len(text) :] != _CHECKSUM % found:
        raise ValueError("its checksum does not fit its bytes")
    return found


def line_ending(checksum: int) -> bytes:
    """Return the last bytes of the line with a checksum."""
    return _CHECKSUM % checksum


def whole_lines(data: bytes) -> list[bytes]:
    """Split bytes into lines with their ends, without a last line that a crash has left in part."""
    *lines, rest = data.split(b"\n")
    if lines and not rest and b"\0" in lines[-1]:
        lines.pop()
    return [line + b"\n" for line in lines]
