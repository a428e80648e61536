"""Encoding, read back by the slow oracle."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError, RecordTooLargeError
from sparklog.record.encode.batches import BatchSettings, encode_batches
from sparklog.record.format.schema import HEADERS_TYPE
from tests.oracle import decode_log

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        st.integers(-1, 2**62),
        st.none() | HEADERS,
    ),
    max_size=40,
)


def columns(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    keys, values, times, headers = zip(*rows, strict=True) if rows else ((), (), (), ())
    lists = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
            "headers": pa.array(lists, HEADERS_TYPE),
        }
    )


@settings(deadline=None)
@given(ROWS, st.sampled_from(CODECS), st.integers(62, 2000), st.integers(0, 2**40))
def test_oracle_reads_back_what_was_encoded(
    rows: list[tuple[Any, ...]], codec: str, batch_bytes: int, base_offset: int
) -> None:
    batches = decode_log(
        bytes(encode_batches(columns(rows), BatchSettings(codec=codec, batch_bytes=batch_bytes), base_offset).data)
    )
    found = [
        (record.key, record.value, record.timestamp, record.headers) for batch in batches for record in batch.records
    ]
    assert found == [(key, value, time, headers or []) for key, value, time, headers in rows]
    assert [record.offset for batch in batches for record in batch.records] == list(
        range(base_offset, base_offset + len(rows))
    )
    for batch in batches:
        assert batch.codec == codec
        assert batch.max_timestamp == max(record.timestamp for record in batch.records)
        assert batch.record_count == 1 or codec != "none" or batch.size_bytes <= batch_bytes


@given(ROWS.filter(bool), st.integers(0, 10), st.integers(0, 10))
def test_slice_of_a_batch_encodes_its_own_rows(rows: list[tuple[Any, ...]], start: int, length: int) -> None:
    whole = columns(rows)
    sliced = whole.slice(min(start, len(rows)), length)
    copied = columns(rows[start : start + length])
    assert (
        encode_batches(sliced, BatchSettings(codec="none")).data
        == encode_batches(copied, BatchSettings(codec="none")).data
    )


def test_log_append_time_stands_for_every_record() -> None:
    rows = [(None, b"a", 5, None), (None, b"b", 3, None)]
    (batch,) = decode_log(bytes(encode_batches(columns(rows), BatchSettings(append_time=99)).data))
    assert [(record.timestamp, record.timestamp_type) for record in batch.records] == [(99, 1), (99, 1)]


def test_batch_above_the_largest_size_is_cut_again() -> None:
    rows = [(None, bytes([n]) * 400, 0, None) for n in range(64)]
    made = encode_batches(columns(rows), BatchSettings(codec="none", batch_bytes=1 << 20, batch_bytes_max=2000))
    batches = decode_log(bytes(made.data))
    assert max(batch.size_bytes for batch in batches) <= 2000
    assert [record.value for batch in batches for record in batch.records] == [value for _, value, _, _ in rows]


@settings(deadline=None)
@given(st.lists(st.integers(0, 900), min_size=1, max_size=60), st.integers(300, 3000), st.sampled_from(["none", "lz4"]))
def test_batches_cut_again_keep_offsets_sequences_and_times(lengths: list[int], batch_bytes: int, codec: str) -> None:
    # Bytes that cannot be compressed, so that only some of the batches are too long.
    draw = random.Random(1)
    rows = [(None, draw.randbytes(length), n, None) for n, length in enumerate(lengths)]
    made = encode_batches(
        columns(rows),
        BatchSettings(codec, batch_bytes=batch_bytes, batch_bytes_max=1100, producer_id=7, base_sequence=5),
        base_offset=40,
    )
    batches = decode_log(bytes(made.data))
    records = [record for batch in batches for record in batch.records]
    assert [(each.value, each.timestamp) for each in records] == [(value, time) for _, value, time, _ in rows]
    assert [(each.offset, each.sequence) for each in records] == [(40 + n, 5 + n) for n in range(len(rows))]
    assert all(batch.size_bytes <= 1100 for batch in batches)
    assert made.headers.column("base_offset").tolist() == [batch.records[0].offset for batch in batches]
    assert made.headers.column("max_timestamp").tolist() == [batch.records[-1].timestamp for batch in batches]


def test_record_that_never_fits_is_named_by_its_row_however_often_its_batch_was_cut() -> None:
    rows = [(None, bytes(2000 if n == 41 else 300), 0, None) for n in range(64)]
    with pytest.raises(RecordTooLargeError, match="row 41 makes a batch of 20"):
        encode_batches(columns(rows), BatchSettings(codec="none", batch_bytes=8000, batch_bytes_max=1500))


def test_record_that_never_fits_is_named() -> None:
    rows = [(None, b"x", 0, None), (None, bytes(5000), 0, None)]
    with pytest.raises(
        RecordTooLargeError, match=r"row 1 makes a batch of 50\d\d bytes alone, and max.message.bytes is 2000"
    ):
        encode_batches(columns(rows), BatchSettings(codec="none", batch_bytes_max=2000))


def test_sequences_go_on_from_batch_to_batch_and_wrap() -> None:
    rows = [(None, b"x" * 50, 0, None)] * 10
    made = encode_batches(
        columns(rows),
        BatchSettings(codec="none", batch_bytes=200, producer_id=7, producer_epoch=1, base_sequence=2**31 - 3),
    )
    sequences = [record.sequence for batch in decode_log(bytes(made.data)) for record in batch.records]
    assert sequences == [2**31 - 3, 2**31 - 2, 2**31 - 1, *range(7)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(), pa.null()])
def test_text_and_bytes_of_any_width_are_taken(kind: pa.DataType) -> None:
    values = [None, None] if kind == pa.null() else pa.array([b"a", None], pa.binary()).cast(kind)
    batch = pa.record_batch({"value": pa.array(values, kind)})
    found = [
        record.value
        for batch in decode_log(bytes(encode_batches(batch, BatchSettings()).data))
        for record in batch.records
    ]
    assert found == ([None, None] if kind == pa.null() else [b"a", None])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"key": pa.array([b""])}), "Required attribute 'value' not found"),
        (pa.record_batch({"value": pa.array([1])}), "value attribute unsupported type int64"),
        (pa.record_batch({"value": pa.array([b""]), "timestamp": pa.array([-2])}), "timestamp of row 0 is -2 ms"),
        (pa.record_batch({"value": pa.array([b""]), "timestamp": pa.array(["x"])}), "timestamp attribute unsupported"),
        (pa.record_batch({"value": pa.array([b""]), "headers": pa.array([3])}), "headers attribute unsupported type"),
        (
            pa.record_batch(
                {"value": pa.array([b""] * 2), "headers": pa.array([[], [{"key": None, "value": b""}]], HEADERS_TYPE)}
            ),
            "a header of row 1 has no key",
        ),
    ],
)
def test_wrong_column_is_named(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        encode_batches(batch, BatchSettings())


@pytest.mark.parametrize(
    ("codec", "level"),
    [*itertools.product(["gzip"], [-1, 1, 9]), ("lz4", 1), ("lz4", 9), ("lz4", 17), ("zstd", -5), ("zstd", 22)],
)
def test_levels(codec: str, level: int) -> None:
    rows = [(None, b"some text that repeats " * 40, 0, None)] * 50
    made = bytes(encode_batches(columns(rows), BatchSettings(codec=codec, level=level)).data)
    assert [record.value for batch in decode_log(made) for record in batch.records] == [rows[0][1]] * 50
