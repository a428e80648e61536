"""Splits off the prefix that Confluent's serializers write before a key or value.

    byte  size  field
    0     1     magic       0
    1     4     schema_id   big-endian, signed as a registry's ids are
    5     ...   payload; for protobuf, the message index and then the payload

The message index names the payload's message in the schema's file. It is a count and that many numbers, all
zigzag varints: the number of a message in the file, then of one nested in it, and so on. The count 0 alone means
the first message of the file.

Source: confluentinc/schema-registry, AbstractKafkaSchemaSerDe.java and MessageIndexes.java.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.record.format.streams import Int64s

MAGIC: Final = 0
SCHEMA_PREFIX_BYTES: Final = 5
_VARINT_BYTES_MAX: Final = 5


class FramedValues(NamedTuple):
    """Values without their prefix.

    Attributes
    ----------
    schema_ids : int64 array, shape (n_values,)
        The ids; -1 for a value without a prefix.
    payloads : pyarrow.BinaryArray, length n_values
        The rest of the values; null for a value without a prefix.
    reasons : dict of int to str
        By row, the fault of each value without a prefix.
    """

    schema_ids: Int64s
    payloads: pa.Array
    reasons: dict[int, str]


def split_prefix(values: pa.Array) -> FramedValues:
    """Split the prefix off values; none may be null."""
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(4), np.int32, len(values) + 1, values.offset * 4)
    lengths = np.diff(offsets)
    is_long = lengths >= SCHEMA_PREFIX_BYTES
    octets = np.frombuffer(data_buffer or b"", np.uint8)
    heads = np.zeros((len(values), SCHEMA_PREFIX_BYTES), np.uint8)
    heads[is_long] = octets[offsets[:-1][is_long, None] + np.arange(SCHEMA_PREFIX_BYTES)]
    is_framed = is_long & (heads[:, 0] == MAGIC)
    ids = np.ascontiguousarray(heads[:, 1:]).view(">i4")[:, 0].astype(np.int64)
    reasons = {
        row: (
            f"the first byte is {heads[row, 0]}, and not 0, with which Confluent's prefix begins"
            if is_long[row]
            else f"the value has {lengths[row]} bytes, and Confluent's prefix has {SCHEMA_PREFIX_BYTES}"
        )
        for row in np.flatnonzero(~is_framed).tolist()
    }
    # Prefixes and payloads alternate over the same bytes: pyarrow's own binary_slice fails for short values.
    bounds = np.empty(2 * len(values) + 1, np.int32)
    bounds[::2] = offsets
    bounds[1::2] = np.where(is_long, offsets[:-1] + SCHEMA_PREFIX_BYTES, offsets[:-1])
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), data_buffer])
    payloads = pieces.take(pa.array(np.arange(1, len(bounds), 2), mask=~is_framed))
    return FramedValues(np.where(is_framed, ids, -1), payloads, reasons)


def split_message_index(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Split the message index off a protobuf payload.

    Raises
    ------
    ValueError
        It is cut short, or no valid index.
    """
    count, position = _varint(payload, 0)
    if not count:
        return (0,), payload[position:]
    if not 0 < count <= len(payload) - position:
        raise ValueError(f"the message index has the length {count}, and {len(payload) - position} bytes follow")
    index = []
    for _ in range(count):
        number, position = _varint(payload, position)
        index.append(number)
    return tuple(index), payload[position:]


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint; return its value and end position."""
    raw = 0
    for each in range(_VARINT_BYTES_MAX):
        if position + each >= len(payload):
            raise ValueError("the message index is cut short")
        byte = payload[position + each]
        raw |= (byte & 0x7F) << (7 * each)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + each + 1
    raise ValueError("the message index has a number of more than 32 bits")
