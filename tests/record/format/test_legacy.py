"""Messages of magic 0 and 1: golden bytes, wrappers, and their offset and timestamp rules."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from sparklog.errors import CorruptBatchError
from tests import build
from tests.build import Record
from tests.record.decode.test_columns import table_rows

MESSAGE_0 = bytes.fromhex("000000000000000700000010000000000000000000016b0000000176")
MESSAGE_1 = bytes.fromhex("0000000000000007000000170000000001080000018bcfe56800000000016bffffffff")
THREE = [Record(0, 10, b"a", b"1"), Record(2, 30, None, b"2"), Record(5, 20, b"c", None)]


def with_crc(message: bytes) -> bytes:
    return message[:12] + struct.pack(">I", zlib.crc32(message[16:])) + message[16:]


def told(data: bytes) -> list[tuple[Any, ...]]:
    rows = table_rows(data, columns=("key", "value", "offset", "timestamp", "timestampType"))
    return [tuple(row.values()) for row in rows]


def test_messages_are_the_golden_bytes() -> None:
    assert told(with_crc(MESSAGE_0)) == [(b"k", b"v", 7, -1, -1)]
    assert told(with_crc(MESSAGE_1)) == [(b"k", None, 7, 1_700_000_000_000, 1)]


def test_magic_1_offsets_count_back_from_the_wrapper_over_gaps() -> None:
    data = build.legacy_wrapper(THREE, base_offset=100)
    assert [row[2:4] for row in told(data)] == [(100, 10), (102, 30), (105, 20)]


def test_magic_0_offsets_inside_are_those_of_the_log() -> None:
    data = build.legacy_wrapper(THREE, magic=0, base_offset=100)
    assert [row[2:] for row in told(data)] == [(100, -1, -1), (102, -1, -1), (105, -1, -1)]


def test_wrapper_offset_zero_leaves_inner_offsets_alone() -> None:
    data = build.legacy_wrapper(THREE, relative=False, base_offset=40, offset=0)
    assert [row[2] for row in told(data)] == [40, 42, 45]


def test_append_time_of_a_wrapper_is_that_of_all_inside() -> None:
    data = build.legacy_wrapper(THREE, timestamp=77, log_append_time=True)
    assert [row[3:] for row in told(data)] == [(77, 1)] * 3


def test_inner_message_of_magic_0_has_no_timestamp() -> None:
    data = build.legacy_wrapper(THREE, inner_magic=0, timestamp=77, log_append_time=True)
    assert [row[3] for row in told(data)] == [-1] * 3


def test_bytes_after_the_value_are_passed_over() -> None:
    assert told(build.legacy_message(3, b"k", b"v", tail=b"tail"))[0][:2] == (b"k", b"v")


INNER = build.message_set(THREE)
DAMAGE = {
    "wrapper checksum": build.legacy_wrapper(THREE, crc=1),
    "message checksum": build.legacy_message(3, b"k", b"v", crc=1),
    "inner checksum": build.legacy_wrapper(THREE, inner=INNER[:-1] + b"?"),
    "inner cut short": build.legacy_wrapper(THREE, inner=INNER[:-1]),
    "inner of a few bytes": build.legacy_wrapper(THREE, inner=INNER + bytes(5)),
    "inner size negative": build.legacy_wrapper(THREE, inner=INNER[:8] + b"\xff\xff\xff\xff" + INNER[12:]),
    "inner magic 2": build.legacy_wrapper(THREE, inner=build.v2_batch(THREE)),
    "nothing inside": build.legacy_wrapper(THREE, inner=b""),
    "null value": build.legacy_message(3, None, None, codec_bits=1),
    "nested": build.legacy_wrapper(THREE, inner=build.legacy_wrapper(THREE)),
    "offset below the last inside": build.legacy_wrapper(THREE, base_offset=40, relative=False, offset=3),
    "inner offsets descend": build.legacy_wrapper(THREE, inner=INNER + INNER),
    "zstd": build.legacy_message(3, None, build.compress("zstd", INNER), codec_bits=4),
    "unknown codec": build.legacy_message(3, None, INNER, codec_bits=7),
    "key past the end": with_crc(MESSAGE_0[:18] + b"\0\0\0\x09" + MESSAGE_0[22:]),
    "value past the end": with_crc(MESSAGE_0[:23] + b"\0\0\0\x09" + MESSAGE_0[27:]),
    "value of two gigabytes": with_crc(MESSAGE_0[:23] + b"\x7f\xff\xff\xff" + MESSAGE_0[27:]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told_with_position_and_offset(name: str) -> None:
    before = build.legacy_message(2, None, b"before")
    with pytest.raises(CorruptBatchError) as caught:
        told(before + DAMAGE[name])
    assert caught.value.position == len(before)
    assert caught.value.offset is not None
