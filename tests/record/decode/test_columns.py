"""Decoding, compared with the slow oracle."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError, DecompressedSizeError
from sparklog.record.batches import framing
from sparklog.record.batches.framing import scan_headers, scan_pieces
from sparklog.record.decode.columns import BatchDecoder, DecodeLimits, check_crcs, decode_batches
from sparklog.record.format.headers import BatchHeaders
from sparklog.record.format.schema import RECORD_COLUMNS, RECORD_SCHEMA, selector
from tests import build
from tests.build import Record
from tests.oracle import OracleBatch, java_utf8
from tests.strategies import logs

_schema = selector(RECORD_SCHEMA)


def expected(batches: list[OracleBatch]) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": record.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
            "sequence": record.sequence,
            "leader_epoch": batch.leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "is_transactional": batch.is_transactional,
            "compression": batch.codec,
            "magic": batch.magic,
            "position": batch.position,
        }
        for batch in batches
        if not batch.is_control
        for record in batch.records
    ]


def table_rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    """Decode data batches; timestamps are plain ms, since Python's own cannot hold every one of Kafka's."""
    headers = scan_headers(data)
    data_batches = headers.where(~headers.is_control)
    rows: list[dict[str, Any]] = []
    for batch in decode_batches(memoryview(data), data_batches, **options):
        table = pa.table(batch)
        where = table.schema.get_field_index("timestamp")
        if where >= 0:
            table = table.set_column(where, "timestamp", table["timestamp"].cast(pa.int64()))
        rows += table.to_pylist()
    return rows


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs())
def test_any_log_decodes_as_the_oracle_says(drawn: tuple[bytes, list[OracleBatch]]) -> None:
    data, batches = drawn
    found = table_rows(data, columns=RECORD_COLUMNS)
    assert [{key: row[key] for key in want} for row, want in zip(found, expected(batches), strict=True)] == expected(
        batches
    )


LIMITS_TO_CUT_AT = st.builds(
    DecodeLimits,
    chunk_bytes=st.sampled_from([1, 100, 1 << 18]),
    output_bytes_max=st.sampled_from([1, 50, 500, 1 << 22]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), LIMITS_TO_CUT_AT)
def test_pieces_of_any_size_hold_the_same_rows(drawn: tuple[bytes, list[OracleBatch]], limits: DecodeLimits) -> None:
    data, _ = drawn
    assert table_rows(data, limits=limits) == table_rows(data)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), st.sets(st.sampled_from(RECORD_COLUMNS)), st.data())
def test_any_columns_and_offsets_are_a_part_of_the_whole(
    drawn: tuple[bytes, list[OracleBatch]], columns: set[str], data: st.DataObject
) -> None:
    log, batches = drawn
    whole = table_rows(log, columns=RECORD_COLUMNS)
    borders = [
        0,
        *(record.offset + step for batch in batches for record in batch.records for step in (0, 1)),
        2**63 - 1,
    ]
    start, end = data.draw(st.sampled_from(borders)), data.draw(st.sampled_from(borders))
    limits = data.draw(LIMITS_TO_CUT_AT)
    found = table_rows(log, columns=columns, start_offset=start, end_offset=end, limits=limits)
    assert found == [
        {name: row[name] for name in RECORD_COLUMNS if name in columns} for row in whole if start <= row["offset"] < end
    ]


def pieces_of(data: bytes, batches_max: int) -> list[tuple[memoryview, BatchHeaders]]:
    """Return the pieces of a log without their control batches, in memory of their own as a reader has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "BATCHES_MAX", batches_max)
        pieces = list(scan_pieces(memoryview(data), 0))
    return [(piece, headers.where(~headers.is_control)) for piece, headers in pieces]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), LIMITS_TO_CUT_AT, st.integers(1, 5), st.sampled_from([RECORD_COLUMNS, (), ("sequence",), ("key",)]))
def test_rows_of_many_pieces_are_those_of_the_whole(
    drawn: tuple[bytes, list[OracleBatch]], limits: DecodeLimits, batches_max: int, columns: tuple[str, ...]
) -> None:
    data, _ = drawn
    decoder = BatchDecoder(columns, limits=limits)
    found = [batch for piece in pieces_of(data, batches_max) for batch in decoder.decode(*piece)]
    found += decoder.flush()
    headers = scan_headers(data)
    whole = decode_batches(memoryview(data), headers.where(~headers.is_control), columns=columns)
    if columns:
        schema = _schema(columns)
        assert pa.Table.from_batches(found, schema).equals(pa.Table.from_batches(whole, schema))
    else:
        assert sum(batch.num_rows for batch in found) == sum(batch.num_rows for batch in whole)


RECORDS = [
    Record(0, 1000, b"key", b"value", [("name", b"content"), ("name", None)]),
    Record(1, 990, None, b"", [("", b"")]),
    Record(3, 2000, b"", None),
]
BEFORE = build.v2_batch([Record(0, 5, b"before", b"x" * 70)], base_offset=90)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_flipped_bit_is_refused_with_its_place_or_changes_no_record(codec: str) -> None:
    batch = build.v2_batch(RECORDS, base_offset=100, codec=codec)
    want = table_rows(BEFORE + batch)
    for bit in range(len(batch) * 8):
        flipped = bytearray(BEFORE + batch)
        flipped[len(BEFORE) + bit // 8] ^= 1 << bit % 8
        place = bit // 8
        if place < 8 or 12 <= place < 16:
            continue  # offsets and epochs are not covered by the checksum, so that brokers can write them
        headers = scan_headers(bytes(flipped))
        if len(headers) == 1:
            assert headers.valid_bytes == len(BEFORE)
            continue
        found: list[pa.RecordBatch] = []
        with pytest.raises(CorruptBatchError) as caught:
            found.extend(decode_batches(memoryview(flipped), headers))
        assert (caught.value.position, caught.value.offset) == (len(BEFORE), 100)
        assert sum(piece.num_rows for piece in found) in (0, 1)
    assert len(want) == 4


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_flipped_bit_under_a_right_checksum_is_rows_or_an_error_with_its_place(codec: str) -> None:
    raw = b"".join(build.v2_record(record, 1000) for record in RECORDS)
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        data = BEFORE + build.v2_batch(RECORDS, base_offset=100, codec=codec, raw_records=bytes(damaged))
        try:
            rows = table_rows(data)
        except CorruptBatchError as error:
            assert (error.position, error.offset) == (len(BEFORE), 100)  # noqa: PT017
        else:
            assert [row["offset"] for row in rows][:1] == [90]
            assert len(rows) == 4


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_before_the_damage_are_yielded_before_it_is_raised(codec: str) -> None:
    good = [build.v2_batch(RECORDS, base_offset=10 * i, codec=codec) for i in range(3)]
    bad = build.v2_batch(RECORDS, base_offset=30, codec=codec, crc=1)
    data = b"".join(good) + bad + good[0]
    for columns in (RECORD_COLUMNS, ("producer_id",)):
        found: list[pa.RecordBatch] = []
        with pytest.raises(CorruptBatchError, match=r"CRC-32C is [0-9a-f]{8}, the batch says 00000001"):
            found.extend(decode_batches(memoryview(data), scan_headers(data), columns=columns))
        assert sum(piece.num_rows for piece in found) == 9


def test_rows_of_pieces_wait_for_each_other_until_the_range_or_the_buffer_ends() -> None:
    data = b"".join(build.v2_batch([Record(0, i, b"k", b"v" * i)], base_offset=i) for i in range(10))
    for end_offset, counts in ((2**63 - 1, [0, 0, 0, 10]), (6, [0, 6])):
        decoder = BatchDecoder(("value", "timestampType"), end_offset=end_offset)
        pieces = pieces_of(data, 3)[: len(counts)]
        found = [sum(batch.num_rows for batch in decoder.decode(*piece)) for piece in pieces]
        assert found == counts
        assert not list(decoder.flush())


def test_rows_of_earlier_pieces_are_yielded_before_damage_is_raised() -> None:
    batches = [build.v2_batch([Record(0, i, b"k", b"v")], base_offset=i) for i in range(5)]
    batches[3] = build.v2_batch([Record(0)], base_offset=3, crc=1)
    decoder, found = BatchDecoder(("offset",)), list[pa.RecordBatch]()
    pieces = pieces_of(b"".join(batches), 2)
    with pytest.raises(CorruptBatchError, match="CRC-32C") as caught:
        found.extend(batch for piece in pieces for batch in decoder.decode(*piece))
    assert pa.Table.from_batches(found)["offset"].to_pylist() == [0, 1, 2]
    assert caught.value.offset == 3


def test_timestamp_types_of_pieces_that_differ_are_told_for_each() -> None:
    batches = [build.v2_batch([Record(0, 5)], base_offset=i, attributes=8 * (i > 1)) for i in range(3)]
    decoder = BatchDecoder(("timestampType", "position"))
    found = [batch for piece in pieces_of(b"".join(batches), 2) for batch in decoder.decode(*piece)]
    assert pa.Table.from_batches(found).to_pydict() == {
        "timestampType": [0, 0, 1],
        "position": [0, len(batches[0]), 2 * len(batches[0])],
    }


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SOME_COLUMNS: list[tuple[str, ...]] = [(), ("offset",), ("producer_id", "timestampType"), ("key",), ("value", "offset")]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("columns", SOME_COLUMNS)
@pytest.mark.parametrize("count", [3, 50_000_000])
@pytest.mark.parametrize("body", [b"", None, b"\xa5" * 40], ids=["nothing", "empty stream", "noise"])
def test_body_that_cannot_be_decoded_counts_no_rows_whatever_is_asked_for(
    codec: str, columns: tuple[str, ...], count: int, body: bytes | None
) -> None:
    stream = build.compress(codec, b"") if body is None else body
    fields: dict[str, Any] = {"codec": codec, "record_count": count, "last_offset_delta": count - 1}
    dense = BEFORE + build.v2_batch(RECORDS, base_offset=100, compressed_records=stream, **fields)
    append_time = BEFORE + build.v2_batch(
        RECORDS, base_offset=100, compressed_records=stream, log_append_time=True, max_timestamp=9, **fields
    )
    for data in (dense, append_time):
        found: list[pa.RecordBatch] = []
        with pytest.raises(CorruptBatchError) as caught:
            found.extend(decode_batches(memoryview(data), scan_headers(data), columns=columns))
        assert (caught.value.position, caught.value.offset) == (len(BEFORE), 100)
        assert sum(piece.num_rows for piece in found) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_tiny_records_that_compress_to_next_to_nothing_are_all_counted(codec: str) -> None:
    raw = b"".join(build.v2_record(Record(n)) for n in range(60_000))
    data = build.v2_batch([Record()], codec=codec, raw_records=raw, record_count=60_000, last_offset_delta=59_999)
    for columns in SOME_COLUMNS:
        pieces = decode_batches(memoryview(data), scan_headers(data), columns=columns)
        assert sum(piece.num_rows for piece in pieces) == 60_000


@pytest.mark.parametrize("columns", [*SOME_COLUMNS, RECORD_COLUMNS])
def test_offsets_above_the_last_of_their_batch_are_given_as_kafka_gives_them(columns: tuple[str, ...]) -> None:
    wide = build.v2_batch([Record(0), Record(1), Record(6)], base_offset=10, last_offset_delta=1)
    after = build.v2_batch([Record(0), Record(1)], base_offset=17)
    rows = table_rows(wide + after, columns=columns)
    expected = [10, 11, 16, 17, 18]
    assert [row.get("offset", offset) for row, offset in zip(rows, expected, strict=True)] == expected


@pytest.mark.parametrize("columns", [*SOME_COLUMNS, RECORD_COLUMNS])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batch_that_begins_below_the_record_before_it_is_refused(columns: tuple[str, ...], codec: str) -> None:
    wide = build.v2_batch([Record(0), Record(1), Record(6)], base_offset=10, codec=codec, last_offset_delta=1)
    after = build.v2_batch([Record(0), Record(1)], base_offset=16, codec=codec)
    decoder = BatchDecoder(columns)
    for data, position, rows in ((wide + after, len(wide), 3), (wide, None, 3), (after, 0, 0)):
        found: list[pa.RecordBatch] = []
        decoded = (BatchDecoder(columns) if position else decoder).decode(memoryview(data), scan_headers(data))
        if position is None:
            found.extend(decoded)
        else:
            with pytest.raises(CorruptBatchError, match="not above the one before it") as caught:
                found.extend(decoded)
            assert (caught.value.position, caught.value.offset) == (position, 16)
        assert sum(piece.num_rows for piece in found) == rows


def test_record_above_its_batch_and_past_the_range_is_an_error_but_at_the_end_of_the_log() -> None:
    wide = build.v2_batch([Record(0), Record(1), Record(6)], base_offset=10, last_offset_delta=1)
    for end_offset in (12, 16):
        with pytest.raises(CorruptBatchError, match="past the range"):
            table_rows(wide, end_offset=end_offset)
        rows = table_rows(wide, end_offset=end_offset, reaches_log_end=True)
        assert [row["offset"] for row in rows] == [10, 11, 16]
    # Whoever reads on from 11 reads the batch once more.
    assert [row["offset"] for row in table_rows(wide, end_offset=11)] == [10]
    assert [row["offset"] for row in table_rows(wide, start_offset=11)] == [11, 16]
    beyond = build.v2_batch([Record(0), Record(3)], base_offset=2**63 - 2, last_offset_delta=0)
    with pytest.raises(CorruptBatchError, match="offset"):
        table_rows(beyond)


def test_no_columns_still_count_the_rows() -> None:
    data = build.v2_batch([Record(i) for i in range(5)])
    for gaps in (data, build.v2_batch(RECORDS)):
        headers = scan_headers(gaps)
        pieces = list(decode_batches(memoryview(gaps), headers, columns=()))
        assert sum(piece.num_rows for piece in pieces) == headers.column("record_count").sum()


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("columns", [("value",), ("offset",)])
@pytest.mark.parametrize("count", [4, 2**31 - 1])
def test_count_that_the_bytes_cannot_hold_is_refused(codec: str, columns: tuple[str, ...], count: int) -> None:
    data = build.v2_batch(RECORDS, codec=codec, record_count=count, last_offset_delta=count)
    with pytest.raises(CorruptBatchError):
        table_rows(data, columns=columns)
    data = build.v2_batch(RECORDS, codec=codec, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    with pytest.raises(CorruptBatchError, match="more than the batch's bytes can hold"):
        table_rows(data, columns=("value",) if codec == "lz4" else columns)


def test_count_below_what_is_there_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="left over"):
        table_rows(build.v2_batch(RECORDS, record_count=2))


def test_offsets_at_the_end_of_64_bits_do_not_wrap() -> None:
    base = 2**63 - 5
    rows = table_rows(build.v2_batch(RECORDS, base_offset=base), columns=("offset",))
    assert [row["offset"] for row in rows] == [base, base + 1, base + 3]
    beyond = build.v2_batch([Record(0), Record(4)], base_offset=base, last_offset_delta=3)
    with pytest.raises(CorruptBatchError, match="offset"):
        table_rows(beyond)
    below = build.v2_batch([Record(-1), Record(0)], base_offset=5)
    with pytest.raises(CorruptBatchError, match="offset"):
        table_rows(below)


def test_timestamps_wrap_as_in_java() -> None:
    data = build.v2_batch([Record(0, -(2**63) + 5)], base_timestamp=2**63 - 1, max_timestamp=0)
    assert [row["timestamp"] for row in table_rows(data)] == [-(2**63) + 5]


def test_batch_that_decompresses_past_the_limit_is_refused() -> None:
    data = BEFORE + build.v2_batch([Record(0, 0, None, bytes(5000))], base_offset=100, codec="zstd")
    with pytest.raises(DecompressedSizeError) as caught:
        table_rows(data, limits=DecodeLimits(decompressed_bytes_max=4000))
    assert (caught.value.position, caught.value.offset) == (len(BEFORE), 100)
    assert len(table_rows(data, limits=DecodeLimits(decompressed_bytes_max=6000))) == 2


def test_arrow_batches_are_cut_between_batches_and_inside_only_the_longest() -> None:
    small = [Record(i, 0, None, bytes(100)) for i in range(3)]
    long = build.v2_batch([Record(i, 0, None, bytes(100)) for i in range(20)], base_offset=12)
    data = b"".join(build.v2_batch(small, base_offset=base_offset) for base_offset in (0, 3, 6, 9)) + long
    pieces = decode_batches(memoryview(data), scan_headers(data), limits=DecodeLimits(output_bytes_max=800))
    assert [piece.num_rows for piece in pieces] == [6, 6, 7, 7, 6]


def test_record_with_more_headers_than_room_is_read() -> None:
    many = [("h", None)] * 70_000
    data = build.v2_batch([Record(0, 0, None, b"a", [("x", b"y")]), Record(1, 0, None, b"b", many), Record(2)])
    rows = table_rows(data)
    assert [len(row["headers"] or ()) for row in rows] == [1, 70_000, 0]


def test_header_names_that_are_no_utf8_decode_as_in_java() -> None:
    names = [b"\xff", b"a\xed\xa0\x80b", b"\xe2\x82", b"ok"]
    data = build.v2_batch([Record(0, 0, None, None, [(name, b"") for name in names])])
    assert [header["key"] for header in table_rows(data)[0]["headers"]] == [java_utf8(name) for name in names]


def test_headers_outside_the_buffer_are_refused() -> None:
    data = build.v2_batch(RECORDS)
    headers = scan_headers(data + data)
    for columns in (("value",), ("producer_id",)):
        with pytest.raises(CorruptBatchError, match=r"outside the bytes|CRC"):
            list(decode_batches(memoryview(data), headers, columns=columns))


def test_check_crcs_tells_the_first_wrong_batch_of_any_magic() -> None:
    for bad in (build.v2_batch(RECORDS, crc=1), build.empty_batch(5, 5, crc=1), build.legacy_wrapper(RECORDS, crc=1)):
        data = BEFORE + bad + bad
        with pytest.raises(CorruptBatchError, match="CRC-32") as caught:
            check_crcs(memoryview(data), scan_headers(data))
        assert caught.value.position == len(BEFORE)
        with pytest.raises(CorruptBatchError, match="CRC-32"):
            table_rows(data)


def test_column_of_no_headers_is_no_larger_than_its_rows_when_it_is_copied() -> None:
    data = build.v2_batch([Record(row, 0, b"k", b"v") for row in range(9)])
    (batch,) = decode_batches(memoryview(data), scan_headers(data), columns=["headers"])
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [None] * 9
    assert batch.serialize().size < 1000
