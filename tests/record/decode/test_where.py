"""Filters: what a program selects, and which batches a header rules out, compared with the slow oracle."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError
from sparklog.log.filters.where_parser import parse_where
from sparklog.record.batches.framing import scan_headers
from sparklog.record.decode.columns import decode_batches
from sparklog.record.decode.where import Where
from sparklog.record.decode.where_program import BatchFilter, program_of
from sparklog.record.format.schema import RECORD_COLUMNS
from tests import build
from tests.build import Record
from tests.oracle import OracleBatch, OracleRecord
from tests.oracle_where import as_text, passes
from tests.predicates import TOPIC, predicates
from tests.record.decode.test_columns import LIMITS_TO_CUT_AT, table_rows
from tests.strategies import logs


def records_of(batches: list[OracleBatch]) -> list[OracleRecord]:
    return [record for batch in batches if not batch.is_control for record in batch.records]


def in_partition(text: str) -> Where:
    return parse_where(text).of_partition(TOPIC, 3)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_predicate_selects_what_the_oracle_says_of_any_log(data: st.DataObject) -> None:
    log, batches = data.draw(logs())
    records = records_of(batches)
    predicate = data.draw(predicates(records))
    where = in_partition(as_text(predicate))
    columns = data.draw(st.sets(st.sampled_from(RECORD_COLUMNS)))
    found = table_rows(
        log, columns={"offset", *columns}, program=program_of(where.tree), limits=data.draw(LIMITS_TO_CUT_AT)
    )
    chosen = {record.offset for record in records if passes(predicate, record, TOPIC, 3)}
    whole = table_rows(log, columns={"offset", *columns})
    assert found == [row for row in whole if row["offset"] in chosen]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_header_rules_out_a_batch_that_has_what_passes(data: st.DataObject) -> None:
    log, batches = data.draw(logs())
    predicate = data.draw(predicates(records_of(batches)))
    where = in_partition(as_text(predicate))
    may_pass = BatchFilter(where.tree).may_pass(scan_headers(log)).tolist()
    bounds = where.bounds()
    for batch, may in zip(batches, may_pass, strict=True):
        for record in batch.records:
            if passes(predicate, record, TOPIC, 3):
                assert may
                assert bounds is not None
                assert bounds.offsets[0] <= record.offset <= bounds.offsets[1]
                assert bounds.timestamps[0] <= record.timestamp <= bounds.timestamps[1]


def headers_of(*batches: bytes) -> Any:
    return scan_headers(b"".join(batches))


@pytest.mark.parametrize(
    ("text", "may_pass"),
    [
        ("offset = 12", [False, True, False, False]),
        ("offset < 10 OR offset > 25", [True, False, True, True]),
        ("offset IN (5, 100) AND key = 'k'", [True, False, False, True]),
        ("timestamp >= 1100", [False, True, True, True]),
        ("timestamp < 1100", [True, True, False, True]),
        ("timestamp = 1200 OR offset = 3", [True, False, True, True]),
        ("timestampType = 1", [False, False, True, False]),
        ("NOT timestampType = 1 AND timestamp > 1150", [False, False, False, True]),
        ("key = 'other'", [True, True, True, True]),
    ],
)
def test_headers_rule_out_batches_by_offset_time_and_type(text: str, may_pass: list[bool]) -> None:
    def batch(base_offset: int, **fields: Any) -> bytes:
        records = [Record(n, 1000 + 10 * base_offset + n, b"k") for n in range(10)]
        return build.v2_batch(records, base_offset=base_offset, **fields)

    log = headers_of(
        batch(0), batch(10), batch(20, log_append_time=True, max_timestamp=1200), batch(30, max_timestamp=2000)
    )
    assert BatchFilter(in_partition(text).tree).may_pass(log).tolist() == may_pass


def test_wrapper_of_magic_0_that_holds_times_is_looked_into() -> None:
    inner = [Record(0, 5000, b"a"), Record(1, 6000, b"b")]
    wrapper = build.legacy_wrapper(inner, magic=0, codec="gzip", base_offset=0, inner_magic=1)
    chosen = BatchFilter(parse_where("timestamp > 5500").tree)
    assert chosen.may_pass(scan_headers(wrapper)).tolist() == [True]
    assert [row["key"] for row in table_rows(wrapper, program=chosen.program)] == [b"b"]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_every_flipped_bit_is_refused_alike_with_and_without_a_filter(codec: str) -> None:
    records = [Record(0, 1000, b"key", b"value", [("name", b"content")]), Record(1, 990, None, b"")]
    batch = build.v2_batch(records, base_offset=100, codec=codec)
    program = program_of(parse_where("key = 'nobody' OR headers['name'] IS NULL").tree)
    for bit in range(len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        assert outcome(bytes(flipped), program) == outcome(bytes(flipped), None)


def test_every_damaged_record_is_refused_alike_with_and_without_a_filter() -> None:
    """The checksums are right, so that only the parser of records sees the damage."""
    records = [Record(0, 1000, b"key", b"value", [("name", b"content")]), Record(1, 990, None, b"")]
    raw = b"".join(build.v2_record(record, 1000) for record in records)
    program = program_of(parse_where("headers['name'] = 'other' OR value contains 'z'").tree)
    refused = 0
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        data = build.v2_batch(records, base_offset=100, raw_records=bytes(flipped))
        found, expected = outcome(data, program), outcome(data, None)
        assert found == expected
        refused += expected is not None
    assert refused > 50


def outcome(data: bytes, program: Any) -> str | None:
    headers = scan_headers(data)
    if not len(headers):
        return headers.fault or "cut short"
    try:
        for _ in decode_batches(memoryview(data), headers, program=program):
            pass
    except CorruptBatchError as error:
        return str(error)
    return None


BOUNDS = """
from hypothesis import settings
settings.register_profile("bounds", deadline=None, max_examples=150, database=None)
settings.load_profile("bounds")
from tests.record.decode import test_where
test_where.test_any_predicate_selects_what_the_oracle_says_of_any_log()
test_where.test_every_damaged_record_is_refused_alike_with_and_without_a_filter()
"""


def test_filtering_kernels_stay_in_their_bounds() -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    subprocess.run([sys.executable, "-c", BOUNDS], check=True, env=environment, timeout=300)


def test_many_values_are_looked_up_and_not_tried_one_by_one() -> None:
    wanted = [b"user-%d" % (7 * n) for n in range(2000)]
    log = build.v2_batch([Record(n, 0, b"user-%d" % n) for n in range(500)])
    text = f"key IN ({', '.join(repr(key.decode()) for key in wanted)})"
    program = program_of(parse_where(text).tree)
    assert len(program.tests) == 8
    found = table_rows(log, columns=["key"], program=program)
    assert [row["key"] for row in found] == [b"user-%d" % n for n in range(0, 500, 7)]
