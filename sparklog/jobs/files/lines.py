"""Reads lines of text in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.jobs.files.row_sizes import row_too_long

BLOCK_BYTES: Final = 1 << 22
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANK: Final = " \t\r\n"


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file.

    Attributes
    ----------
    block : bytes
        The bytes of the lines.
    first : int
        The number of the first line in its file, from 1.
    texts : pyarrow.Array of string
        The lines, without surrounding blanks and without blank lines.
    """

    block: bytes
    first: int
    texts: pa.Array


def blocks_of_lines(stream: Any, line_bytes_max: int) -> Iterator[bytes]:
    """Yield the bytes of a stream in blocks that end with a line; raise `ValueError` if a line is too long."""
    rest: list[bytes] = []
    is_first = True
    while True:
        data = bytes(stream.read(BLOCK_BYTES))
        if is_first:
            data, is_first = data.removeprefix(_BYTE_ORDER_MARK), False
        cut = data.rfind(b"\n") + 1 if data else 0
        if cut or not data:
            block = b"".join([*rest, data[:cut]])
            rest = [data[cut:]]
            if block:
                yield block
        else:
            rest.append(data)
            if sum(map(len, rest)) > line_bytes_max:
                raise row_too_long(line_bytes_max)
        if not data:
            return


def split_lines(block: bytes, first: int) -> Lines:
    """Split bytes into lines; raise `pyarrow.ArrowInvalid` if they are not UTF-8."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    if not len(ends) or ends[-1] != len(block):
        ends = np.append(ends, len(block))
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block))
    texts.validate(full=True)
    trimmed = pc.ascii_trim(texts, characters=_BLANK)
    is_blank = pc.equal(trimmed, "")
    return Lines(block, first, trimmed.filter(pc.invert(is_blank)) if pc.any(is_blank).as_py() else trimmed)
