"""Batches in another format or codec, compared with what the slow oracle reads of them before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import DecodeLimits
from sparklog.record.rewrite.convert import Losses, converted, losses
from sparklog.record.rewrite.spans import record_spans
from tests import build
from tests.build import Record
from tests.golden import golden_sets
from tests.oracle import OracleBatch, OracleRecord, decode_log
from tests.strategies import logs


def convert(data: bytes, magic: int | None = None, codec: str | None = None, **options: Any) -> bytes:
    chunk_bytes = options.pop("chunk_bytes", 1 << 20)
    spanned = record_spans(memoryview(data), scan_headers(data), limits=DecodeLimits(chunk_bytes=chunk_bytes))
    return b"".join(b"".join(converted(spans, magic, codec, **options)) for spans in spanned)


def lost(data: bytes, magic: int | None) -> Losses:
    return sum((losses(spans, magic) for spans in record_spans(memoryview(data), scan_headers(data))), Losses())


def as_format(record: OracleRecord, magic: int, of_magic: int) -> OracleRecord:
    """Say what a record is in another format."""
    if magic == of_magic:
        return record
    plain = replace(record, sequence=-1, headers=record.headers if magic == 2 else [])
    if magic == 0:
        return replace(plain, timestamp=-1, timestamp_type=-1)
    return replace(plain, timestamp_type=max(record.timestamp_type, 0))


def expected(batches: list[OracleBatch], magic: int | None) -> list[OracleRecord]:
    return [
        as_format(record, batch.magic if magic is None else magic, batch.magic)
        for batch in batches
        for record in batch.records
        if not batch.is_control or magic in (None, 2)
    ]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    logs(mixed_magic=False),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, "none", "gzip", "snappy", "lz4"]),
    st.sampled_from([1, 1 << 20]),
)
def test_records_of_any_log_are_the_same_in_every_format_and_codec(
    drawn: tuple[bytes, list[OracleBatch]], magic: int | None, codec: str | None, chunk_bytes: int
) -> None:
    data, before = drawn
    if codec is None and magic in (0, 1) and any(batch.codec == "zstd" for batch in before):
        with pytest.raises(InvalidOptionError, match="does not have the codec zstd: name gzip, snappy, lz4 or none"):
            convert(data, magic)
        return
    after = decode_log(convert(data, magic, codec, chunk_bytes=chunk_bytes))
    assert [record for batch in after for record in batch.records] == expected(before, magic)
    assert {batch.magic for batch in after} <= ({batch.magic for batch in before} if magic is None else {magic})
    if codec is not None:
        assert {batch.codec for batch in after if batch.records and not batch.is_control} <= {codec}
    for batch in after:
        if batch.magic == 2 and batch.timestamp_type == 0 and batch.records:
            assert batch.max_timestamp == max(-1, *(record.timestamp for record in batch.records))


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda each: each.name)
def test_records_of_real_brokers_survive_the_way_up_and_back(golden: Any) -> None:
    for segment in sorted(golden.log_dir.glob("*/*.log")):
        data = segment.read_bytes()
        data = data[: scan_headers(data).valid_bytes]
        before = decode_log(data)
        up = convert(data, 2, "zstd")
        assert [record for batch in decode_log(up) for record in batch.records] == expected(before, 2)
        for magic in (1, 0):
            down = convert(up, magic, "snappy")
            assert [record for batch in decode_log(down) for record in batch.records] == [
                as_format(record, magic, 2) for record in expected(decode_log(up), magic)
            ]


RECORDS = [Record(n, 100 + n, b"k%d" % n, b"v") for n in range(4)]


def test_messages_side_by_side_become_one_batch_until_it_is_full() -> None:
    data = b"".join(build.legacy_message(n, b"k", bytes(1000), timestamp=n) for n in range(40))
    batches = decode_log(convert(data, 2))
    assert [batch.record_count for batch in batches] == [15, 15, 10]
    assert [(batch.leader_epoch, batch.producer_id, batch.base_sequence) for batch in batches] == [(-1, -1, -1)] * 3
    wrappers = decode_log(convert(data, None, "gzip"))
    assert [len(batch.records) for batch in wrappers] == [15, 15, 10]
    assert convert(convert(data, None, "gzip"), None, "none") == data


def test_messages_of_other_append_times_are_not_put_together() -> None:
    data = b"".join(
        build.legacy_message(n, b"k", b"v", timestamp=time, log_append_time=True) for n, time in enumerate((5, 5, 6))
    )
    batches = decode_log(convert(data, 2))
    assert [(batch.max_timestamp, batch.record_count) for batch in batches] == [(5, 2), (6, 1)]


def test_offsets_too_far_apart_for_one_batch_become_two() -> None:
    data = build.legacy_wrapper([Record(0), Record(5), Record(2**31 + 3), Record(2**33)], base_offset=7)
    batches = decode_log(convert(data, 2))
    assert [[record.offset for record in batch.records] for batch in batches] == [
        [7, 12],
        [2**31 + 10],
        [2**33 + 7],
    ]


def test_what_a_format_has_no_room_for_is_counted() -> None:
    headers = [("h", b"x")]
    data = (
        build.v2_batch(
            [Record(0, 5, headers=headers), Record(1, -1)], producer_id=3, base_sequence=0, transactional=True
        )
        + build.control_batch("commit", 2, 3)
        + build.empty_batch(3, 4)
        + build.v2_batch([Record(0, 7)], base_offset=5)
    )
    assert lost(data, 1) == Losses(headers=1, sequences=2, control_batches=1, empty_batches=1)
    assert lost(data, 0) == Losses(headers=1, timestamps=2, sequences=2, control_batches=1, empty_batches=1)
    assert not lost(data, 2)
    assert not lost(data, None)
    assert str(lost(data, 1)) == "1 headers, 2 sequences, 1 control batches, 1 empty batches"
    assert lost(build.legacy_message(0, b"k", b"v", timestamp=5), 0) == Losses(timestamps=1)


def test_records_that_do_not_stay_are_left_out_on_the_way_down() -> None:
    data = build.v2_batch(RECORDS, base_offset=5) + build.control_batch("abort", 9, 1)
    after = convert(data, 1, keep=np.array([False, True, True, False, True]))
    assert [record.offset for batch in decode_log(after) for record in batch.records] == [6, 7]


def test_batches_that_are_as_they_should_be_are_the_same_bytes() -> None:
    data = build.v2_batch(RECORDS, codec="gzip-members")
    assert convert(data, 2, "gzip") == data
    assert convert(data) == data
    message = build.legacy_message(0, b"k", b"v", tail=b"x")
    assert convert(message, 1, "none") == message


def test_lz4_of_magic_0_has_the_header_checksum_that_old_readers_want() -> None:
    assert build.LZ4_HEADER_BROKEN in convert(build.v2_batch(RECORDS), 0, "lz4")
    assert build.LZ4_HEADER in convert(build.v2_batch(RECORDS), 1, "lz4")
