"""Filters of whole logs: the rows that pass, and how much is read and decoded to find them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.reader import LogReader, open_log
from sparklog.record.decode.columns import BatchDecoder
from sparklog.record.format.headers import BatchHeaders
from tests.build import Record, v2_batch, write_partition
from tests.golden import golden_sets
from tests.log.logs import batch, batches, counted, only_log, write
from tests.log.test_reader import rows
from tests.oracle_where import as_text, passes
from tests.predicates import TOPIC, predicates
from tests.record.decode.test_where import records_of
from tests.strategies import logs


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), logs(mixed_magic=False), st.sampled_from([None, 1, 300]), st.sampled_from([1, 4096]))
def test_any_predicate_selects_what_the_oracle_says_of_any_log_on_disk(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    drawn: tuple[bytes, list[Any]],
    segment_bytes: int | None,
    interval_bytes: int,
) -> None:
    log, expected = drawn
    folder = tmp_path_factory.mktemp("logs") / f"{TOPIC}-3"
    pieces = [log[each.position : each.position + each.size_bytes] for each in expected]
    base_offset = expected[0].base_offset if expected else 0
    write_partition(
        folder, pieces, base_offset=base_offset, segment_bytes=segment_bytes, index_interval_bytes=interval_bytes
    )
    records = records_of(expected)
    predicate = data.draw(predicates(records))
    with open_log(folder) as opened:
        borders = sorted({opened.start_offset, opened.end_offset, *(record.offset for record in records)})
        start = data.draw(st.sampled_from(borders))
        end = data.draw(st.sampled_from([each for each in borders if each >= start]))
        found = opened.read(start, end, columns=["offset", "key"], where=as_text(predicate))
    chosen = [each for each in records if passes(predicate, each, TOPIC, 3) and start <= each.offset < end]
    assert found.to_pylist() == [{"offset": each.offset, "key": each.key} for each in chosen]


def test_golden_logs_are_filtered_as_pyarrow_filters_a_full_read() -> None:
    """Real brokers' logs of all formats, also compacted ones and those with transactions."""
    filtered = 0
    for golden in golden_sets():
        for topic, partition in golden.partitions:
            with open_log(str(golden.partition_dir(topic, partition))) as log:
                for level in ("read_uncommitted", "read_committed"):
                    whole = log.read(isolation_level=level)
                    for text, expression in _of_table(whole):
                        found = log.read(where=text, isolation_level=level)
                        assert rows(found) == rows(whole.filter(expression)), (golden.name, topic, text)
                        filtered += len(found) < len(whole)
    assert filtered > 200


def _of_table(whole: pa.Table) -> Iterator[tuple[str, pc.Expression]]:
    if not len(whole):
        return
    middle = whole.slice(len(whole) // 2, 1).to_pylist()[0]
    times = whole["timestamp"].cast(pa.int64())
    time, offset = times[len(whole) // 3].as_py(), middle["offset"]
    at = pc.scalar(pa.scalar(time, pa.timestamp("ms", "UTC")))
    key, value = pc.field("key"), pc.field("value")
    yield f"timestamp >= {time}", pc.field("timestamp") >= at
    yield f"timestamp < {time} OR offset = {offset}", (pc.field("timestamp") < at) | (pc.field("offset") == offset)
    yield f"NOT (offset > {offset} OR value IS NULL)", ~((pc.field("offset") > offset) | value.is_null())
    yield "value IS NULL", value.is_null()
    if middle["key"] is not None:
        hexadecimal = middle["key"].hex()
        yield f"key = X'{hexadecimal}'", key == pc.scalar(middle["key"])
        yield f"key != X'{hexadecimal}'", key != pc.scalar(middle["key"])
        yield f"NOT key startsWith X'{hexadecimal}'", ~pc.starts_with(key, middle["key"])


class Decodes:
    """Counts the batches and records that a read decodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = self.records = 0

        decode = BatchDecoder.decode

        def decode_counted(
            decoder: BatchDecoder, buffer: memoryview, headers: BatchHeaders
        ) -> Iterator[pa.RecordBatch]:
            self.batches += len(headers)
            self.records += int(headers.column("record_count").sum())
            return decode(decoder, buffer, headers)

        monkeypatch.setattr(BatchDecoder, "decode", decode_counted)


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Decodes:
    return Decodes(monkeypatch)


def found_offsets(log: LogReader, where: str, **options: Any) -> list[int]:
    return log.read(columns=["offset"], where=where, **options)["offset"].to_pylist()  # type: ignore[no-any-return]


def large_log(folder: Path) -> int:
    """Write five segments of 40,000 records in all, whose times are 1000 + offset; the bytes of the logs."""
    write_partition(folder, batches(4000), index_interval_bytes=4096, segment_bytes=250_000)
    assert len(list(folder.glob("*.log"))) == 5
    return sum(path.stat().st_size for path in folder.glob("*.log"))


@pytest.mark.parametrize(
    ("where", "first", "last"),
    [
        ("offset >= 20003 AND offset < 20010", 20003, 20009),
        ("offset IN (20009, 20003, 20005) AND key = 'k'", 20003, 20009),
        ("timestamp = 21003 AND offset < 20010", 20003, 20003),
        ("(offset = 20001 OR timestamp = 21002) AND offset > 20000 AND offset < 20010", 20001, 20002),
    ],
)
def test_offsets_bound_what_is_read_and_decoded(
    tmp_path: Path, decodes: Decodes, where: str, first: int, last: int
) -> None:
    log_bytes = large_log(tmp_path / "events-0")
    layout, storage = counted(tmp_path / "events-0")
    with LogReader(layout) as log:
        found = found_offsets(log, where)
    assert (found[0], found[-1]) == (first, last)
    assert decodes.batches == 1
    assert storage.read_bytes[".log"] < log_bytes / 10


def test_times_bound_where_reading_begins(tmp_path: Path, decodes: Decodes) -> None:
    log_bytes = large_log(tmp_path / "events-0")
    layout, storage = counted(tmp_path / "events-0")
    with LogReader(layout) as log:
        assert found_offsets(log, "timestamp >= 40998") == [39998, 39999]
    assert decodes.records == 10
    assert storage.read_bytes[".log"] < log_bytes / 10


def test_times_later_than_all_read_next_to_nothing(tmp_path: Path, decodes: Decodes) -> None:
    log_bytes = large_log(tmp_path / "events-0")
    layout, storage = counted(tmp_path / "events-0")
    with LogReader(layout) as log:
        assert found_offsets(log, "timestamp > 41000 AND key = 'k'") == []
    assert decodes.batches == 0
    assert storage.read_bytes[".log"] < log_bytes / 10


def test_an_end_of_times_rules_out_batches_by_log_append_time_only(tmp_path: Path, decodes: Decodes) -> None:
    appended = [batch(10 * n, log_append_time=True, max_timestamp=2000 + n) for n in range(20)]
    write_partition(tmp_path / "events-0", appended + batches(20, base_offset=200))
    with open_log(tmp_path / "events-0") as log:
        assert found_offsets(log, "timestamp < 2003 AND timestampType = 1") == list(range(30))
        assert decodes.batches == 3
        assert found_offsets(log, "timestamp < 1205") == list(range(200, 205))
        assert decodes.batches == 3 + 20


def test_another_partition_or_topic_reads_nothing(tmp_path: Path, decodes: Decodes) -> None:
    write(tmp_path / "events-3")
    layout, storage = counted(tmp_path / "events-3")
    with LogReader(layout) as log:
        assert found_offsets(log, "partition = 4 OR topic startsWith 'x'") == []
        assert storage.read_bytes == {}
        assert found_offsets(log, "partition = 3 AND topic = 'events' AND offset < 2") == [0, 1]
        assert len(found_offsets(log, "partition IN (1, 3)")) == 120


def test_columns_of_the_filter_alone_are_not_returned(tmp_path: Path) -> None:
    write(tmp_path)
    with open_log(tmp_path) as log:
        found = log.read(columns=["offset"], where="value = 'value of 17'")
        assert found.to_pylist() == [{"offset": 17}]
        assert sum(each.num_rows for each in log.batches(columns=[], where="key = 'k' AND offset > 100")) == 19


def test_batches_that_are_ruled_out_are_checked(tmp_path: Path, decodes: Decodes) -> None:
    write(tmp_path)
    path = only_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"value of 57")] ^= 1
    path.write_bytes(data)
    with open_log(tmp_path) as log:
        with pytest.raises(CorruptBatchError) as unfiltered:
            log.read()
        for where in ("timestampType = 1", "offset IN (0, 119)", "key = 'nobody'"):
            with pytest.raises(CorruptBatchError) as filtered:
                log.read(where=where)
            assert str(filtered.value) == str(unfiltered.value)
        assert found_offsets(log, "offset < 20") == list(range(20))


def test_records_of_aborted_transactions_do_not_pass(tmp_path: Path) -> None:
    golden = next(each for each in golden_sets() if "transactions" in each.name)
    for topic, partition in golden.partitions:
        with open_log(str(golden.partition_dir(topic, partition))) as log:
            level: Any = "read_committed"
            whole = log.read(isolation_level=level)
            assert log.read(isolation_level=level, where="offset >= 0") == whole


def test_a_segment_that_lost_its_end_is_damaged_also_where_times_rule_it_out(tmp_path: Path) -> None:
    write_partition(tmp_path, batches(40), index_interval_bytes=300, segment_bytes=5000)
    first = min(tmp_path.glob("*.log"))
    first.write_bytes(first.read_bytes()[: len(batch(0))])
    with open_log(tmp_path) as log, pytest.raises(CorruptBatchError, match="missing at its end"):
        log.read(where="timestamp >= 1390")


def test_a_filter_pickles_and_is_taken_as_it_is(tmp_path: Path) -> None:
    write(tmp_path)
    where = pickle.loads(pickle.dumps(parse_where("offset = 7 OR headers['a'] startsWith X'00'")))
    with open_log(tmp_path) as log:
        assert log.read(columns="offset", where=where).to_pylist() == [{"offset": 7}]


def test_a_record_above_the_last_offset_of_its_batch_is_found(tmp_path: Path) -> None:
    records = [Record(0, 1000, b"a"), Record(3, 1000, b"b")]
    odd = v2_batch(records, base_offset=0, last_offset_delta=1)
    write_partition(tmp_path, [odd, batch(10)])
    with open_log(tmp_path) as log:
        assert found_offsets(log, "offset = 3 OR key = 'b' AND timestampType = 1") == [3]


def test_a_batch_that_says_too_early_a_time_is_passed_over_by_tests_of_times_alone(tmp_path: Path) -> None:
    records = [Record(0, 1000, b"a"), Record(1, 9000, b"b")]
    write_partition(tmp_path, [v2_batch(records, base_offset=0, max_timestamp=1000), batch(10)])
    with open_log(tmp_path) as log:
        assert found_offsets(log, "timestamp >= 9000") == []
        assert found_offsets(log, "timestamp >= 9000 OR key = 'b'") == [1]
