"""Rewritten batches, compared with what the slow oracle makes of the batches before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.record.batches import checksums
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import DecodeLimits
from sparklog.record.rewrite.batches import rewritten
from sparklog.record.rewrite.changes import EMPTY, NULL, Changes
from sparklog.record.rewrite.spans import record_spans
from tests import build
from tests.build import Record
from tests.golden import golden_sets
from tests.oracle import OracleBatch, OracleRecord, decode_log
from tests.strategies import logs

LEGACY_CODECS = ("gzip", "snappy", "lz4")
HORIZON_BIT, APPEND_TIME_BIT = 0x40, 0x08


def rewrite(data: bytes, *, chunk_bytes: int = 1 << 20, **masks: Any) -> bytes:
    """Rewrite a log by masks over all of its records and batches."""
    out, record, batch = b"", 0, 0
    for spans in record_spans(memoryview(data), scan_headers(data), limits=DecodeLimits(chunk_bytes=chunk_bytes)):
        records, batches = slice(record, record + len(spans.table)), slice(batch, batch + len(spans))
        record, batch = records.stop, batches.stop
        part: dict[str, Any] = {
            name: np.array(masks[name], bool)[records] for name in ("keep", "blank") if name in masks
        }
        if "retain_empty" in masks:
            part["retain_empty"] = np.array(masks["retain_empty"], bool)[batches]
        if "delete_horizons" in masks:
            part["delete_horizons"] = np.array(masks["delete_horizons"], np.int64)[batches]
        others = {name: masks[name] for name in ("codec", "level", "blank_bytes") if name in masks}
        out += b"".join(rewritten(spans, Changes(**part, **others)))
    return out


def expected(before: OracleBatch, kept: list[OracleRecord], **changes: Any) -> OracleBatch | None:
    """Say what a batch is after its rewriting, but for its place and size; None where it is gone."""
    codec, horizon = changes.get("codec"), changes.get("horizon", -1)
    if before.magic < 2:
        if not kept:
            return None
        if before.codec == "none":
            return replace(before, records=kept)
        is_new = kept != before.records or codec not in (None, before.codec)
        latest = max(record.timestamp for record in kept)
        timestamp = -1 if before.magic == 0 else before.max_timestamp if before.timestamp_type == 1 else latest
        codec = codec or before.codec
        attributes = before.attributes & APPEND_TIME_BIT | build.CODEC_IDS[codec] if is_new else before.attributes
        return replace(
            before,
            codec=codec,
            attributes=attributes,
            base_offset=kept[0].offset,
            last_offset=kept[-1].offset if is_new else before.last_offset,
            base_timestamp=timestamp if is_new else before.base_timestamp,
            max_timestamp=timestamp if is_new else before.max_timestamp,
            records=kept,
        )
    if not kept:
        if not changes["retain_empty"]:
            return None
        if not before.records:
            return before
        attributes = before.attributes & ~(HORIZON_BIT | 0x07)
        return replace(before, codec="none", attributes=attributes, base_timestamp=-1, record_count=0, records=[])
    codec = before.codec if codec is None or before.is_control else codec
    attributes = before.attributes & ~0x07 | build.CODEC_IDS[codec]
    base_timestamp = before.base_timestamp
    if horizon >= 0:
        attributes, base_timestamp = attributes | HORIZON_BIT, horizon
    after = replace(
        before, codec=codec, attributes=attributes, base_timestamp=base_timestamp, record_count=len(kept), records=kept
    )
    if after == before or before.timestamp_type == 1:
        return after
    return replace(after, max_timestamp=max(-1, *(record.timestamp for record in kept)))


def alike(batch: OracleBatch) -> OracleBatch:
    return replace(batch, position=0, size_bytes=0)


def assert_rewritten_as_expected(data: bytes, batches: list[OracleBatch], draw: Any, chunk_bytes: int) -> None:
    records = sum(len(batch.records) for batch in batches)
    flags = st.lists(st.booleans(), min_size=records, max_size=records)
    keep, blank = draw(flags), draw(flags | st.just([False] * records))
    retain = draw(st.lists(st.booleans(), min_size=len(batches), max_size=len(batches)))
    times = st.just(-1) | st.integers(0, 2**42)
    horizons = draw(st.lists(times, min_size=len(batches), max_size=len(batches)))
    horizons = [-1 if batch.magic < 2 else horizon for batch, horizon in zip(batches, horizons, strict=True)]
    blank_bytes = draw(st.sampled_from([NULL, EMPTY]))
    codecs = [None, *LEGACY_CODECS]
    if all(batch.magic == 2 or batch.codec == "none" for batch in batches):
        codecs += ["none", "zstd"]
    codec = draw(st.sampled_from(codecs))
    masks: dict[str, Any] = {"keep": keep, "blank": blank, "retain_empty": retain, "delete_horizons": horizons}
    after = rewrite(data, chunk_bytes=chunk_bytes, codec=codec, blank_bytes=blank_bytes, **masks)
    wanted, row = [], 0
    for place, batch in enumerate(batches):
        kept = []
        for record in batch.records:
            value = (None if blank_bytes == NULL else b"") if blank[row] else record.value
            kept += [replace(record, value=value)] if keep[row] else []
            row += 1
        new = expected(batch, kept, retain_empty=retain[place], codec=codec, horizon=horizons[place])
        wanted += [] if new is None else [alike(new)]
    assert [alike(batch) for batch in decode_log(after)] == wanted


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(logs(), st.data(), st.sampled_from([1, 100, 1 << 20]))
def test_rewritten_log_is_what_the_oracle_says(
    drawn: tuple[bytes, list[OracleBatch]], data: st.DataObject, chunk_bytes: int
) -> None:
    # The oracle reads single flags of batches as they were; a wrapper that does not change stays as odd as it is.
    assert_rewritten_as_expected(drawn[0], drawn[1], data.draw, chunk_bytes)


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda each: each.name)
def test_every_third_record_of_real_brokers_goes(golden: Any) -> None:
    for segment in sorted(golden.log_dir.glob("*/*.log")):
        data = segment.read_bytes()
        data = data[: scan_headers(data).valid_bytes]
        before = decode_log(data)
        records = [record for batch in before for record in batch.records]
        keep = [row % 3 > 0 for row in range(len(records))]
        after = decode_log(rewrite(data, keep=keep))
        assert [record for batch in after for record in batch.records] == [
            record for record, is_kept in zip(records, keep, strict=True) if is_kept
        ]
        for batch, same in zip(
            [each for each in before if each.magic == 2], [each for each in after if each.magic == 2], strict=True
        ):
            names = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch")
            assert all(getattr(batch, name) == getattr(same, name) for name in names)


RECORDS = [
    Record(0, 1000, b"key", b"value", [("name", b"content"), ("name", None)]),
    Record(1, 990, None, b"", [("", b"")]),
    Record(3, 2000, b"", None),
]


def test_batches_that_lose_nothing_are_the_bytes_of_the_log_in_as_few_pieces_as_can_be() -> None:
    same = [build.v2_batch(RECORDS, base_offset=10 * n, codec="gzip-members") for n in range(5)]
    data = b"".join(same)
    keep = [True] * 15
    keep[7] = False
    (spans,) = record_spans(memoryview(data), scan_headers(data))
    pieces = list(rewritten(spans, Changes(keep=np.array(keep))))
    assert [bytes(piece) for piece in (pieces[0], pieces[2])] == [b"".join(same[:2]), b"".join(same[3:])]
    assert len(pieces) == 3
    assert [piece.obj is spans.buffer.obj for piece in pieces] == [True, False, True]


def test_value_that_is_blank_already_changes_no_batch() -> None:
    data = build.v2_batch([Record(0, 0, b"k", None), Record(1, 0, b"l", b"")], codec="gzip-members")
    assert rewrite(data, blank=[True, False], blank_bytes=NULL) == data
    assert rewrite(data, blank=[False, True], blank_bytes=EMPTY) == data
    assert rewrite(data, blank=[True, True], blank_bytes=EMPTY) != data


def test_codec_that_a_batch_has_already_changes_nothing() -> None:
    data = build.v2_batch(RECORDS, codec="gzip-members") + build.empty_batch(9, 9)
    assert rewrite(data, codec="gzip", level=9) == data


def test_records_count_from_the_delete_horizon_and_keep_their_timestamps() -> None:
    data = build.v2_batch([*RECORDS, Record(7, 2**63 - 1)], codec="lz4")
    (after,) = decode_log(rewrite(data, delete_horizons=[5_000]))
    assert after.base_timestamp == 5_000
    assert [record.timestamp for record in after.records] == [1000, 990, 2000, 2**63 - 1]
    again = rewrite(data, delete_horizons=[5_000])
    assert rewrite(again, delete_horizons=[5_000]) == again


def test_wrapper_whose_last_messages_go_ends_where_the_rest_does() -> None:
    data = build.legacy_wrapper([Record(n, 100 + n, b"k") for n in (0, 2, 5)], base_offset=40, codec="snappy")
    (after,) = decode_log(rewrite(data, keep=[False, True, False]))
    assert (after.base_offset, after.last_offset, after.max_timestamp) == (42, 42, 102)


def test_wrapper_of_old_librdkafka_gets_its_offset() -> None:
    data = build.legacy_wrapper([Record(n) for n in range(3)], offset=0, codec="gzip")
    (after,) = decode_log(rewrite(data, keep=[False, True, True]))
    assert [record.offset for record in after.records] == [1, 2]
    assert after.last_offset == 2


def test_lz4_of_magic_0_has_the_header_checksum_that_old_readers_want() -> None:
    wide = [Record(n, 0, b"k", bytes(90_000)) for n in range(2)]
    data = build.legacy_wrapper(wide, magic=0, inner_magic=0, codec="lz4-broken-checksum")
    for level in (None, 3):
        after = rewrite(data, codec="lz4", keep=[True, False], level=level)
        assert build.LZ4_HEADER_BROKEN in after
        assert build.LZ4_HEADER not in after
        (batch,) = decode_log(after)
        assert len(batch.records) == 1


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_codec_that_no_wrapper_can_have_is_refused(codec: str) -> None:
    with pytest.raises(InvalidOptionError, match="magic 1 inside a wrapper cannot have the codec"):
        rewrite(build.legacy_wrapper(RECORDS, codec="gzip"), codec=codec)


def test_bytes_behind_the_value_of_a_blanked_message_go() -> None:
    data = build.legacy_message(7, b"k", b"secret", tail=b"more secret", timestamp=5)
    assert rewrite(data, blank=[True]) == build.legacy_message(7, b"k", None, timestamp=5)


def test_checksums_are_right_where_kernels_compute_none(monkeypatch: pytest.MonkeyPatch) -> None:
    data = build.v2_batch(RECORDS, codec="lz4") + build.v2_batch(RECORDS, base_offset=9)
    wanted = rewrite(data, keep=[False, True, True] * 2)
    monkeypatch.setattr(checksums, "IN_KERNELS", False)
    assert rewrite(data, keep=[False, True, True] * 2) == wanted
    assert len(decode_log(wanted)) == 2
