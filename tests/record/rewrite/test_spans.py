"""Where the parts of records are, compared with the slow oracle and with decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import DecodeLimits, decode_batches
from sparklog.record.kernels import spans as spans
from sparklog.record.rewrite.spans import RecordSpans, SpanProgress, record_spans
from tests import build
from tests.build import Record
from tests.golden import golden_sets
from tests.oracle import OracleBatch, decode_log
from tests.strategies import logs

Row = dict[str, Any]


def rows_of(found: RecordSpans) -> list[list[Row]]:
    """Cut the records of each batch out of the bytes, by the table alone."""
    octets = found.octets.tobytes()

    def part(position: int, length: int) -> bytes | None:
        return None if length < 0 else octets[position : position + length]

    batches, first = [], 0
    for end in found.batch_ends.tolist():
        table = found.table[first:end].tolist()
        batches.append(
            [
                {
                    "offset": row[spans.OFFSET],
                    "timestamp": row[spans.TIMESTAMP],
                    "key": part(row[spans.KEY], row[spans.KEY_BYTES]),
                    "value": part(row[spans.VALUE], row[spans.VALUE_BYTES]),
                    "headers": row[spans.HEADER_COUNT],
                    "whole": octets[row[spans.START] : row[spans.END]],
                    "headers_bytes": octets[row[spans.HEADERS] : row[spans.END]],
                }
                for row in table
            ]
        )
        first = end
    return batches


def spanned(data: bytes, **options: Any) -> list[list[Row]]:
    return [
        batch for found in record_spans(memoryview(data), scan_headers(data), **options) for batch in rows_of(found)
    ]


def expected(batch: OracleBatch) -> list[Row]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": len(record.headers),
        }
        for record in batch.records
    ]


def assert_as_the_oracle_says(data: bytes, batches: list[OracleBatch], **options: Any) -> None:
    found = spanned(data, **options)
    assert len(found) == len(batches)
    for rows, batch in zip(found, batches, strict=True):
        wanted = expected(batch)
        assert [{name: row[name] for name in wanted[0]} for row in rows] == wanted if wanted else not rows
        for row, record in zip(rows, batch.records, strict=True):
            assert row["whole"].endswith(row["headers_bytes"])
            if batch.magic == 2:
                assert row["headers_bytes"] == b"".join(
                    build.varint(len(name.encode()))
                    + name.encode()
                    + (build.varint(-1) if value is None else build.varint(len(value)) + value)
                    for name, value in record.headers
                )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), st.sampled_from([1, 100, 1 << 20]))
def test_parts_of_any_log_are_what_the_oracle_says(drawn: tuple[bytes, list[OracleBatch]], chunk_bytes: int) -> None:
    data, batches = drawn
    assert_as_the_oracle_says(data, batches, limits=DecodeLimits(chunk_bytes=chunk_bytes))


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda each: each.name)
def test_parts_of_the_records_of_real_brokers_are_what_the_oracle_says(golden: Any) -> None:
    segments = sorted(golden.log_dir.glob("*/*.log"))
    assert segments
    for segment in segments:
        data = segment.read_bytes()
        headers = scan_headers(data)
        whole = data[: headers.valid_bytes]
        batches = decode_log(whole)
        assert_as_the_oracle_says(whole, batches)


RECORDS = [
    Record(0, 1000, b"key", b"value", [("name", b"content"), ("name", None)]),
    Record(1, 990, None, b"", [("", b"")]),
    Record(3, 2000, b"", None),
]
BEFORE = build.v2_batch([Record(0, 5, b"before", b"x" * 70)], base_offset=90)
DAMAGED = [
    *(build.v2_batch(RECORDS, base_offset=100, codec=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    build.legacy_wrapper(RECORDS, base_offset=100, codec="gzip", magic=1),
    build.legacy_wrapper(RECORDS, base_offset=100, codec="snappy", magic=0, inner_magic=0),
    build.legacy_message(100, b"key", b"value", magic=1, timestamp=7),
]


def both(data: bytes) -> tuple[list[int], list[int], Any, Any]:
    """Offsets and the error, by spans and by decoding."""
    results: list[Any] = []
    for by_spans in (True, False):
        offsets: list[int] = []
        error = None
        try:
            if by_spans:
                for found in record_spans(memoryview(data), scan_headers(data)):
                    offsets += found.table[:, spans.OFFSET].tolist()
            else:
                for batch in decode_batches(memoryview(data), scan_headers(data)):
                    offsets += batch.column("offset").to_pylist()
        except CorruptBatchError as caught:
            error = (caught.position, caught.offset, str(caught))
        results += [offsets, error]
    return results[0], results[2], results[1], results[3]


@pytest.mark.parametrize("batch", DAMAGED, ids=range(len(DAMAGED)))
def test_every_flipped_bit_is_refused_as_by_decoding(batch: bytes) -> None:
    refused = 0
    for bit in range(len(batch) * 8):
        flipped = bytearray(BEFORE + batch)
        flipped[len(BEFORE) + bit // 8] ^= 1 << bit % 8
        found, wanted, error, decoding_error = both(bytes(flipped))
        assert found == wanted
        assert error == decoding_error
        refused += error is not None
    assert refused > len(batch) * 4


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_flipped_bit_under_a_right_checksum_is_refused_as_by_decoding(codec: str) -> None:
    raw = b"".join(build.v2_record(record, 1000) for record in RECORDS)
    refused = 0
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        data = BEFORE + build.v2_batch(RECORDS, base_offset=100, codec=codec, raw_records=bytes(damaged))
        found, wanted, error, decoding_error = both(data)
        assert (found, error) == (wanted, decoding_error)
        refused += error is not None
    assert refused > 50


def test_records_cut_short_under_a_right_checksum_are_refused() -> None:
    raw = b"".join(build.v2_record(record, 1000) for record in RECORDS)
    for cut in range(len(raw)):
        data = BEFORE + build.v2_batch(RECORDS, base_offset=100, raw_records=raw[:cut])
        found, wanted, error, decoding_error = both(data)
        assert found == wanted == [90]
        assert error == decoding_error
        assert error is not None


def test_log_cut_short_gives_the_whole_batches_before_the_cut() -> None:
    batch = build.v2_batch(RECORDS, base_offset=100, codec="lz4")
    for cut in range(len(batch)):
        assert len(spanned(BEFORE + batch[:cut])) == 1


def test_record_count_that_bytes_cannot_hold_takes_no_memory_for_it() -> None:
    data = BEFORE + build.v2_batch(RECORDS, codec="zstd", base_offset=100, record_count=2**31 - 1)
    with pytest.raises(CorruptBatchError, match="more than the batch's bytes can hold"):
        spanned(data)


def test_record_at_the_highest_offset_is_refused_not_left_out() -> None:
    data = build.v2_batch([Record(0), Record(1)], base_offset=2**63 - 2)
    with pytest.raises(CorruptBatchError, match="offset"):
        spanned(data)


def test_batches_whose_offsets_do_not_ascend_from_window_to_window_are_refused() -> None:
    progress = SpanProgress()
    assert len(spanned(BEFORE, progress=progress)) == 1
    assert progress.next_offset == 91
    with pytest.raises(CorruptBatchError, match="not above the one before it"):
        spanned(BEFORE, progress=progress)


def test_batches_without_records_are_among_the_others() -> None:
    data = build.empty_batch(5, 9) + BEFORE + build.empty_batch(95, 99)
    (found,) = record_spans(memoryview(data), scan_headers(data))
    assert found.batch_ends.tolist() == [0, 1, 1]
    assert len(found) == 3


def test_spans_of_many_records_are_cut_into_chunks() -> None:
    data = b"".join(
        build.v2_batch([Record(n, 0, b"k", b"v" * 90) for n in range(40)], base_offset=40 * i, codec=codec)
        for i, codec in enumerate(["none"] * 30 + ["lz4"] * 30)
    )
    pieces = [
        len(found)
        for found in record_spans(memoryview(data), scan_headers(data), limits=DecodeLimits(chunk_bytes=10_000))
    ]
    assert sum(pieces) == 60
    assert max(pieces) <= 3


def test_headers_of_the_caller_are_not_changed() -> None:
    data = build.legacy_wrapper(RECORDS, base_offset=100, codec="gzip", magic=1)
    headers = scan_headers(data)
    (found,) = record_spans(memoryview(data), headers)
    assert (headers.column("base_offset").tolist(), found.headers.column("base_offset").tolist()) == ([103], [100])


def test_a_table_of_spans_is_as_long_as_its_records() -> None:
    (found,) = record_spans(memoryview(BEFORE), scan_headers(BEFORE))
    assert found.table.shape == (1, spans.SPAN_FIELDS)
    assert found.table.dtype == np.int64
    assert pa.array(found.batch_ends).to_pylist() == [1]
