"""Confluent's prefix: golden bytes, every truncation, and message indexes."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.values.framing import split_message_index, split_prefix


def zigzag(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 31)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


@given(st.lists(st.binary(max_size=9)), st.integers(0, 3))
def test_prefix_is_split_as_struct_splits_it(values: list[bytes], skipped: int) -> None:
    array = pa.array([b"skipped"] * skipped + values, pa.binary())[skipped:]
    framed = split_prefix(array)
    for row, value in enumerate(values):
        if len(value) >= 5 and value[0] == 0:
            assert framed.schema_ids[row] == struct.unpack(">i", value[1:5])[0]
            assert framed.payloads[row].as_py() == value[5:]
            assert row not in framed.reasons
        else:
            assert framed.schema_ids[row] == -1
            assert framed.payloads[row].as_py() is None
            assert framed.reasons[row]


def test_reason_says_what_is_there_instead_of_a_prefix() -> None:
    assert split_prefix(pa.array([b"", b"{}", b"{1234", b"\0\0\1\0\2"])).reasons == {
        0: "the value has 0 bytes, and Confluent's prefix has 5",
        1: "the value has 2 bytes, and Confluent's prefix has 5",
        2: "the first byte is 123, and not 0, with which Confluent's prefix begins",
    }


@pytest.mark.parametrize(
    ("payload", "index", "rest"),
    [
        (b"\0abc", (0,), b"abc"),
        (b"\0", (0,), b""),
        (b"\x02\x02abc", (1,), b"abc"),
        (b"\x04\x02\x00", (1, 0), b""),
        (b"\x02\x80\x01", (64,), b""),
    ],
)
def test_message_index_of_golden_bytes(payload: bytes, index: tuple[int, ...], rest: bytes) -> None:
    assert split_message_index(payload) == (index, rest)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4), st.binary(max_size=4))
def test_message_index_is_read_back_and_every_truncation_is_told(index: list[int], rest: bytes) -> None:
    written = zigzag(len(index)) + b"".join(map(zigzag, index))
    assert split_message_index(written + rest) == (tuple(index), rest)
    for cut in range(len(written)):
        with pytest.raises(ValueError, match="message index"):
            split_message_index(written[:cut])


@pytest.mark.parametrize(
    "payload", [b"", b"\x01", b"\xfe\xff\xff\xff\x0f", b"\xff" * 9, b"\x02\xff\xff\xff\xff\xff\x01"]
)
def test_message_index_that_is_none_is_told_and_takes_no_memory(payload: bytes) -> None:
    with pytest.raises(ValueError, match="message index"):
        split_message_index(payload)
