"""Columns as messages of magic 0 and 1, compared with what the slow oracle reads of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError, RecordTooLargeError
from sparklog.record.encode.batches import BatchSettings
from sparklog.record.encode.legacy import encode_messages
from tests import build
from tests.oracle import OracleBatch, decode_log

BYTES = st.none() | st.binary(max_size=60)
LOGS = st.lists(
    st.tuples(
        st.integers(0, 1 << 40), st.lists(st.tuples(BYTES, BYTES, st.integers(-1, 1 << 41)), min_size=1, max_size=40)
    ),
    min_size=1,
    max_size=3,
)
Row = tuple[bytes | None, bytes | None, int]


def columns(rows: list[Row]) -> pa.RecordBatch:
    keys, values, times = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
        }
    )


def encoded(logs: list[tuple[int, list[Row]]], config: BatchSettings) -> list[list[OracleBatch]]:
    """Encode logs together; the batches of each, whose headers say what the oracle reads."""
    # A slice, so that positions do not begin at 0.
    rows = columns([(b"before", b"before", 0), *(row for _, of_log in logs for row in of_log)]).slice(1)
    ends = np.cumsum([len(of_log) for _, of_log in logs])
    made, batch_ends = encode_messages(rows, config, ends, np.array([base for base, _ in logs]))
    found = []
    for first, end in pairwise((0, *batch_ends)):
        headers = made.headers[first:end]
        start = int(headers.column("position")[0])
        size = int(headers.column("batch_bytes").sum())
        batches = decode_log(bytes(made.data[start : start + size]))
        for number, batch in enumerate(batches):
            said = (int(headers.column(name)[number]) for name in ("base_offset", "last_offset", "record_count"))
            assert tuple(said) == (batch.records[0].offset, batch.records[-1].offset, len(batch.records))
            assert headers.column("max_timestamp")[number] == max(-1, *(each.timestamp for each in batch.records))
        found.append(batches)
    assert len(made.data) == int(made.headers.column("batch_bytes").sum())
    return found


@settings(deadline=None)
@given(
    LOGS,
    st.sampled_from([0, 1]),
    st.sampled_from(["none", "gzip", "snappy", "lz4"]),
    st.integers(0, 2000),
    st.booleans(),
)
def test_records_of_some_logs_are_read_by_the_oracle(
    logs: list[tuple[int, list[Row]]], magic: int, codec: str, batch_bytes: int, has_append_time: bool
) -> None:
    append_time = 99 if has_append_time and magic == 1 else None
    config = BatchSettings(codec=codec, magic=magic, batch_bytes=batch_bytes, append_time=append_time)
    for (base_offset, rows), batches in zip(logs, encoded(logs, config), strict=True):
        assert {(batch.magic, batch.codec) for batch in batches} == {(magic, codec)}
        times = [time if append_time is None else append_time for _, _, time in rows]
        kind = -1 if magic == 0 else int(append_time is not None)
        assert [
            (record.offset, record.key, record.value, record.timestamp, record.timestamp_type)
            for batch in batches
            for record in batch.records
        ] == [(base_offset + n, key, value, times[n] if magic else -1, kind) for n, (key, value, _) in enumerate(rows)]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_is_closed_before_its_messages_are_longer_than_a_batch(magic: int) -> None:
    message_bytes = (26, 34)[magic] + 100
    rows: list[Row] = [(None, bytes(100), 5)] * 20
    config = BatchSettings(codec="gzip", magic=magic, batch_bytes=(26, 34)[magic] + 6 * message_bytes)
    (batches,) = encoded([(0, rows)], config)
    assert [len(batch.records) for batch in batches] == [6, 6, 6, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_that_is_too_long_compressed_is_written_as_two(magic: int) -> None:
    values = [np.random.default_rng(n).bytes(300) for n in range(10)]
    rows: list[Row] = [(None, value, 5) for value in values]
    config = BatchSettings(codec="gzip", magic=magic, batch_bytes=1 << 20, batch_bytes_max=2000)
    (batches,) = encoded([(7, rows)], config)
    assert [len(batch.records) for batch in batches] == [5, 5]
    assert [record.value for batch in batches for record in batch.records] == values


@pytest.mark.parametrize(
    ("codec", "limits"),
    [
        ("none", {"batch_bytes_max": 1000}),
        ("gzip", {"batch_bytes_max": 1000}),
        ("gzip", {"decompressed_bytes_max": 1000}),
    ],
)
def test_record_that_fits_no_batch_is_refused_by_its_row(codec: str, limits: dict[str, Any]) -> None:
    rows: list[Row] = [(None, b"", 5), (None, np.random.default_rng(1).bytes(2000), 5)]
    with pytest.raises(RecordTooLargeError, match=r"row 1 .* is 1000"):
        encoded([(0, rows)], BatchSettings(codec=codec, magic=1, **limits))


def test_headers_are_refused_by_their_row() -> None:
    rows: Any = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b", b"c"], "headers": [None, [], [{"key": "h", "value": b"x"}]]}
    )
    with pytest.raises(InvalidOptionError, match="row 2 has headers, and format 1 has no room for them"):
        encode_messages(rows, BatchSettings(magic=1), np.array([3]), np.array([0]))


def test_lz4_of_magic_0_has_the_header_checksum_that_old_readers_want() -> None:
    for magic, header in enumerate((build.LZ4_HEADER_BROKEN, build.LZ4_HEADER)):
        made, _ = encode_messages(
            columns([(b"k", b"v", 1)]), BatchSettings(codec="lz4", magic=magic), np.array([1]), np.array([0])
        )
        assert header in bytes(made.data)
