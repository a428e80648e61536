"""The layout of v2 batches, byte for byte, and control records."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from sparklog.record.format import v2
from tests import build
from tests.build import Record

# One record, key "k", value null, header "h" = "", at base offset 4000, written by hand.
GOLDEN = bytes.fromhex(
    "0000000000000fa0"  # base offset 4000
    "0000003d"  # size
    "00000003"  # leader epoch
    "02"  # magic
    "00000000"  # crc, set below
    "0018"  # attributes: log append time, transactional
    "00000005"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56801"  # max timestamp
    "000000000000002a"  # producer id
    "0001"  # producer epoch
    "7fffffff"  # base sequence
    "00000001"  # record count
    "16" + "00" + "02" + "04" + "02" + "6b" + "01" + "02" + "02" + "68" + "00" + "00"
)


def test_header_is_the_golden_bytes() -> None:
    header = np.frombuffer(GOLDEN, v2.HEADER, count=1)[0]
    assert header.tolist() == (
        4000,
        61,
        3,
        2,
        0,
        0x18,
        5,
        1_700_000_000_000,
        1_700_000_000_001,
        42,
        1,
        2**31 - 1,
        1,
    )


@pytest.mark.parametrize(
    ("kind", "found"), [("abort", v2.ABORT), ("commit", v2.COMMIT), ("leader-change", 2), (99, 99)]
)
def test_control_type_is_that_of_the_record(kind: str | int, found: int) -> None:
    assert v2.control_type(memoryview(build.control_batch(kind, 5, producer_id=1))) == found


def test_emptied_marker_has_no_type() -> None:
    assert v2.control_type(memoryview(build.empty_batch(5, 5, control=True, transactional=True))) is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0", b"\xff\xff\0\1", None])
def test_marker_with_a_damaged_key_has_no_type(key: bytes | None) -> None:
    batch = build.v2_batch([Record(0, 0, key, bytes(6))], control=True)
    assert v2.control_type(memoryview(batch)) is None


def test_marker_of_a_newer_version_is_read_as_the_first() -> None:
    key = struct.pack(">hh", 7, 1)
    assert v2.control_type(memoryview(build.control_batch("commit", 5, 1, key=key))) == v2.COMMIT


def test_marker_cut_anywhere_or_flipped_is_a_type_or_none() -> None:
    batch = build.control_batch("commit", 5, producer_id=1)
    for cut in range(len(batch)):
        assert v2.control_type(memoryview(batch[:cut])) in (None, 0, 1)
    for bit in range(61 * 8, len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        kind = v2.control_type(memoryview(flipped))
        assert kind is None or -(2**15) <= kind < 2**15
