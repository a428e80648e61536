"""Walking from batch to batch: where it stops, and what it says of what stands there."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.record.batches import framing
from sparklog.record.batches.framing import first_header, scan_headers, scan_pieces
from sparklog.record.format.headers import HEADERS_DTYPE, BatchHeaders
from tests import build
from tests.build import Record
from tests.oracle import OracleBatch, whole_bytes
from tests.strategies import logs

RECORDS = [Record(0, 1000, b"k", b"v"), Record(1, 1001, None, b"")]
BATCH_OF = {
    0: build.legacy_message(7, b"k", b"v", magic=0),
    1: build.legacy_message(7, b"k", b"v", magic=1, timestamp=5),
    2: build.v2_batch(RECORDS, base_offset=7),
}


def rows(headers: BatchHeaders) -> list[tuple[int, ...]]:
    return [tuple(row) for row in headers.table.tolist()]


def with_field(batch: bytes, position: int, code: str, value: int) -> bytes:
    field = struct.pack(code, value)
    return batch[:position] + field + batch[position + len(field) :]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_batch_cut_short_ends_the_log_before_it(magic: int) -> None:
    first, second = build.v2_batch(RECORDS), BATCH_OF[magic]
    for kept in range(len(second)):
        headers = scan_headers(first + second[:kept])
        assert (len(headers), headers.valid_bytes, headers.fault) == (1, len(first), None)
        assert headers.next_batch_bytes == (len(second) if kept >= 12 else 0)
    assert scan_headers(first + second).valid_bytes == len(first + second)


@given(logs())
def test_table_is_what_the_oracle_read(drawn: tuple[bytes, list[OracleBatch]]) -> None:
    data, batches = drawn
    headers = scan_headers(data, origin=1000)
    assert headers.valid_bytes == len(data) == whole_bytes(data)
    found = [
        (row["position"] - 1000, row["batch_bytes"], row["magic"], row["last_offset"], row["max_timestamp"])
        for row in headers.table
    ]
    assert found == [
        (batch.position, batch.size_bytes, batch.magic, batch.last_offset, batch.max_timestamp) for batch in batches
    ]
    assert headers.is_control.tolist() == [batch.is_control for batch in batches]
    assert headers.timestamp_types.tolist() == [batch.timestamp_type for batch in batches]
    assert headers.column("record_count").tolist() == [batch.record_count for batch in batches]


@given(logs())
def test_first_header_is_the_scan_of_one(drawn: tuple[bytes, list[OracleBatch]]) -> None:
    data, batches = drawn
    for batch in batches:
        whole = scan_headers(data[batch.position : batch.position + batch.size_bytes], origin=batch.position)
        head = first_header(data[batch.position : batch.position + 61], origin=batch.position)
        assert rows(head) == rows(whole)
        assert head.valid_bytes == whole.valid_bytes


@given(st.binary(max_size=80), st.integers(0, 3), st.integers(0, 200))
def test_random_header_is_judged_alike_by_both(noise: bytes, magic: int, size: int) -> None:
    data = noise[:8] + struct.pack(">i", size) + noise[8:12] + bytes([magic]) + noise[12:] + bytes(size)
    whole, head = scan_headers(data), first_header(data)
    if len(whole):
        assert rows(whole)[0] == rows(head)[0]
    elif whole.fault:
        assert (len(head), head.fault) == (0, whole.fault)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 13, -1, -(2**31)])
def test_size_below_any_batch_is_a_fault(magic: int, size: int) -> None:
    data = BATCH_OF[2] + with_field(BATCH_OF[magic], 8, ">i", size)
    headers = scan_headers(data)
    assert (len(headers), headers.valid_bytes, headers.next_batch_bytes) == (1, len(BATCH_OF[2]), 0)
    assert headers.fault == f"batch size {size} is less than any batch's"


def test_size_below_the_header_of_its_magic_is_a_fault() -> None:
    for magic, header_bytes in ((0, 26), (1, 34), (2, 61)):
        for size in range(14, header_bytes - 12):
            headers = scan_headers(with_field(BATCH_OF[magic], 8, ">i", size))
            assert not len(headers)
            assert headers.fault == f"batch size {size} is less than a header of magic {magic}"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_size_of_two_gigabytes_is_a_batch_that_is_not_whole(magic: int) -> None:
    headers = scan_headers(with_field(BATCH_OF[magic], 8, ">i", 2**31 - 1) + bytes(1000))
    assert (len(headers), headers.valid_bytes, headers.fault) == (0, 0, None)
    assert headers.next_batch_bytes == 2**31 - 1 + 12


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_unknown_magic_is_a_fault(magic: int) -> None:
    data = BATCH_OF[2] + with_field(BATCH_OF[2], 16, ">B", magic)
    headers = scan_headers(data)
    assert (headers.valid_bytes, headers.fault) == (len(BATCH_OF[2]), f"unknown magic {magic}")
    assert first_header(data[len(BATCH_OF[2]) :]).fault == f"unknown magic {magic}"


@pytest.mark.parametrize(
    ("position", "code", "value", "fault"),
    [
        (0, ">q", -1, "negative offset -1"),
        (23, ">i", -1, "last offset is below the base offset"),
        (0, ">q", 2**63 - 1, "last offset is below the base offset"),
        (57, ">i", -1, "negative record count -1"),
    ],
)
def test_header_that_no_broker_writes_is_a_fault(position: int, code: str, value: int, fault: str) -> None:
    damaged = with_field(BATCH_OF[2], position, code, value)
    headers = scan_headers(BATCH_OF[1] + damaged + BATCH_OF[2])
    assert (len(headers), headers.valid_bytes, headers.fault) == (1, len(BATCH_OF[1]), fault)
    assert first_header(damaged).fault == fault


def test_magics_may_be_mixed_in_one_buffer() -> None:
    headers = scan_headers(BATCH_OF[2] + BATCH_OF[0] + BATCH_OF[1] + BATCH_OF[2])
    assert headers.column("magic").tolist() == [2, 0, 1, 2]
    assert headers.fault is None


def test_zeros_after_the_last_batch_are_a_fault_there() -> None:
    headers = scan_headers(BATCH_OF[2] + bytes(100))
    assert (headers.valid_bytes, headers.fault) == (len(BATCH_OF[2]), "batch size 0 is less than any batch's")


def test_empty_buffer_has_no_batch_and_no_fault() -> None:
    for headers in (scan_headers(b""), first_header(b""), scan_headers(memoryview(b"\0" * 11))):
        assert (len(headers), headers.valid_bytes, headers.next_batch_bytes, headers.fault) == (0, 0, 0, None)


def test_table_grows_past_the_guess_of_the_first_batch() -> None:
    large = build.v2_batch([Record(0, 0, None, bytes(30_000))])
    data = large + BATCH_OF[0] * 3000
    headers = scan_headers(data, origin=5)
    assert len(headers) == 3001
    assert headers.valid_bytes == len(data)
    assert np.array_equal(np.diff(headers.column("position")), headers.column("batch_bytes")[:-1])
    assert headers.table.dtype == HEADERS_DTYPE


@pytest.mark.parametrize("batches_max", [1, 2, 7, 16, 17, 40, 41])
def test_walk_ends_behind_as_many_batches_as_are_wanted(batches_max: int) -> None:
    data = build.v2_batch([Record(value=bytes(900))]) + b"".join(
        build.v2_batch([Record()], base_offset=i) for i in range(1, 40)
    )
    headers, whole = scan_headers(data, 5, batches_max=batches_max), scan_headers(data, 5)
    assert len(headers) == min(batches_max, 40)
    assert (headers.table == whole.table[:batches_max]).all()
    assert headers.valid_bytes == int(headers.column("batch_bytes").sum())
    assert headers.fault is None


@pytest.mark.parametrize("end", [b"", b"\0" * 20, build.v2_batch([Record()])[:-1]])
@pytest.mark.parametrize("batches_max", [1, 3, 4, 5])
def test_pieces_are_the_whole_and_end_as_it_ends(end: bytes, batches_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "BATCHES_MAX", batches_max)
    data = b"".join(build.v2_batch([Record()], base_offset=i) for i in range(4)) + end
    whole, pieces = scan_headers(data, 5), list(scan_pieces(memoryview(data), 5))
    assert (np.concatenate([headers.table for _, headers in pieces]) == whole.table).all()
    assert max(len(headers) for _, headers in pieces) <= batches_max
    assert all(bytes(piece) == data[headers.origin - 5 :] for piece, headers in pieces)
    last = pieces[-1][1]
    assert (last.fault, last.next_batch_bytes) == (whole.fault, whole.next_batch_bytes)


def test_chosen_rows_keep_how_the_walk_ended() -> None:
    headers = scan_headers(BATCH_OF[2] + BATCH_OF[0] + BATCH_OF[1][:-1])
    for part in (headers[1:], headers.where(headers.column("magic") == 0)):
        assert rows(part) == rows(headers)[1:]
        assert (part.valid_bytes, part.next_batch_bytes) == (headers.valid_bytes, len(BATCH_OF[1]))
