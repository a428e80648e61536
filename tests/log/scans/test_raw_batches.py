"""Raw batches: decoded in memory as a reader decodes them from a file, and read without being decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog
from sparklog.errors import CorruptBatchError, InvalidOptionError, OffsetOutOfRangeError
from sparklog.log import windows
from sparklog.log.reads.columns import LOG_SCHEMA
from sparklog.record.decode.columns import DecodeLimits
from tests.build import control_batch
from tests.golden import GoldenSet, golden_set, golden_sets
from tests.log.logs import batch, batches, only_log, write
from tests.oracle import OracleBatch
from tests.strategies import logs

IN_TRANSACTION = {"transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}

COLUMNS = ["offset", "key", "value", "timestamp", "timestampType", "headers", "producer_id", "compression", "magic"]


def decoded(data: bytes, start: int, end: int) -> pa.Table:
    """Decode the records of a range."""
    schema = pa.schema([LOG_SCHEMA.field(name) for name in COLUMNS])
    table = pa.Table.from_batches(sparklog.decode(data, COLUMNS), schema=schema)
    is_within = pc.and_(pc.greater_equal(table["offset"], start), pc.less(table["offset"], end))
    return table.filter(is_within)


def taken(last_offsets: Iterator[int]) -> tuple[int, str]:
    """Return the last offset that a read comes to, and the error with which it ends."""
    found = [-1]
    try:
        found.extend(last_offsets)
    except CorruptBatchError as error:
        return found[-1], str(error)
    raise AssertionError("no damage was found")


def _offsets_of(batch: OracleBatch) -> list[int]:
    return [batch.base_offset, *(record.offset for record in batch.records)]


def offsets(data: bytes | bytearray | memoryview) -> list[int]:
    return [offset for each in sparklog.decode(data, "offset") for offset in each.column("offset").to_pylist()]


@pytest.mark.parametrize("name", ["v2-codecs", "v2-records", "v2-transactions", "old-codecs", "old-mixed"])
def test_golden_segments_are_decoded_as_their_logs_are_read(name: str) -> None:
    folders = [each for each in sorted(golden_set(name).log_dir.iterdir()) if list(each.glob("*.log"))]
    assert folders
    for folder in folders:
        with sparklog.open_log(folder) as log:
            expected = log.read()
        pieces = [each for path in sorted(folder.glob("*.log")) for each in sparklog.decode(path.read_bytes())]
        found = pa.Table.from_batches(pieces, schema=expected.schema)
        assert found.filter(pc.greater_equal(found["offset"], log.start_offset)) == expected


def test_data_may_begin_anywhere_in_a_log_and_end_within_a_batch() -> None:
    data = b"".join(batches(6, 5_000_000_000))
    first, last = len(batch(5_000_000_000)), len(batch(5_000_000_050))
    for cut in (0, 1, 11, 40, last - 1):
        end = 60 if not cut else 50
        assert offsets(data[first : len(data) - cut]) == [5_000_000_000 + n for n in range(10, end)]
    assert offsets(data + bytes(500)) == [5_000_000_000 + n for n in range(60)]
    assert offsets(b"") == []
    assert offsets(memoryview(bytearray(data))[: 2 * first]) == [5_000_000_000 + n for n in range(20)]


def test_no_flipped_bit_is_passed_over() -> None:
    written = batches(3)
    data = b"".join(written)
    start, end = len(written[0]), len(written[0]) + len(written[1])
    for position in range(start, end):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        found: list[pa.Array] = []
        # Base offset and leader epoch have no checksum: the offsets of the records show a wrong base offset.
        if start + 12 <= position < start + 16:
            continue
        with pytest.raises(CorruptBatchError) as raised:
            found += (each.column("offset") for each in sparklog.decode(damaged, "offset"))
        assert pa.chunked_array(found).to_pylist()[:10] == list(range(10)), position
        assert "position" in str(raised.value)


@pytest.mark.parametrize("cut", [1, 16, 60, 200])
def test_data_without_a_whole_batch_are_an_error(cut: int) -> None:
    with pytest.raises(CorruptBatchError, match="position 0"):
        offsets(batch(0)[:cut])


def test_markers_are_checked_and_left_out() -> None:
    marker = control_batch("commit", 10, 1)
    data = batch(0, **IN_TRANSACTION) + marker + batch(11)
    assert offsets(data) == [*range(10), *range(11, 21)]
    damaged = bytearray(data)
    damaged[len(batch(0, **IN_TRANSACTION)) + len(marker) - 1] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        offsets(damaged)


def test_columns_limits_and_types(tmp_path: Path) -> None:
    write(tmp_path / "t-0")
    data = only_log(tmp_path / "t-0").read_bytes()
    (found,) = sparklog.decode(data, ["value", "position", "offset"])
    assert found.schema.names == ["value", "position", "offset"]
    assert len(list(sparklog.decode(data, limits=DecodeLimits(output_bytes_max=100)))) > 10
    for wrong, said in ((3, "bytes in one piece, and not int"), ("text", "and not str")):
        with pytest.raises(InvalidOptionError, match=said):
            sparklog.decode(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="no column 'file'"):
        sparklog.decode(data, "file")


@given(logs(), st.data())
def test_raw_batches_of_any_range_decode_to_its_records(
    log_of: tuple[bytes, list[OracleBatch]], data: st.DataObject
) -> None:
    written, expected = log_of
    base_offset = min((offset for each in expected[:1] for offset in _offsets_of(each)), default=0)
    with TemporaryDirectory() as root:
        folder = Path(root, "t-0")
        folder.mkdir()
        (folder / f"{base_offset:020d}.log").write_bytes(written)
        with sparklog.open_log(folder) as log:
            ends = st.integers(log.start_offset, log.end_offset)
            begin, end = sorted((data.draw(ends), data.draw(ends)))
            raw = list(log.raw_batches(begin, end))
            assert decoded(b"".join(each.data for each in raw), begin, end) == log.read(begin, end, COLUMNS)
    first = next((row for row, each in enumerate(expected) if each.last_offset >= begin), 0)
    last = next((row for row, each in enumerate(expected) if each.last_offset >= end - 1), 0)
    chosen = expected[first : last + 1] if begin < end else []
    assert [each.data for each in raw] == [written[each.position :][: each.size_bytes] for each in chosen]
    for found, wanted in zip(raw, chosen, strict=True):
        for name in ("last_offset", "magic", "attributes", "codec", "is_control", "is_transactional", "max_timestamp",
                     "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "record_count"):  # fmt: skip
            assert getattr(found, name) == getattr(wanted, name), name
        if wanted.record_count >= 0:
            assert (found.base_offset, found.base_timestamp) == (wanted.base_offset, wanted.base_timestamp)


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda each: each.name)
def test_raw_batches_of_golden_logs_decode_to_their_records(golden: GoldenSet) -> None:
    for topic, partition in golden.partitions:
        with sparklog.open_log(golden.partition_dir(topic, partition)) as log:
            raw = b"".join(each.data for each in log.raw_batches())
            assert decoded(raw, log.start_offset, log.end_offset) == log.read(columns=COLUMNS)


def test_raw_batches_come_before_damage_which_is_that_of_a_read(tmp_path: Path) -> None:
    written = write(tmp_path / "t-0", 6)
    path = only_log(tmp_path / "t-0")
    reached = list[int]()
    sound, start = path.read_bytes(), len(written[0]) + len(written[1])
    # The prefix, the checksum, and the records: not the leader epoch, which no checksum covers.
    for position in (*range(start + 4, start + 12), *range(start + 16, start + len(written[2]), 7)):
        damaged = bytearray(sound)
        damaged[position] ^= 0x40
        path.write_bytes(damaged)
        with sparklog.open_log(tmp_path / "t-0") as log:
            of_read = taken(each["offset"][-1].as_py() for each in log.batches())
            found = taken(each.last_offset for each in log.raw_batches())
        assert found == of_read, position
        reached.append(found[0])
    assert set(reached) == {19}
    assert reached.count(19) > reached.count(-1)


def test_bytes_of_raw_batches_outlive_the_read_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1000)
    written = write(tmp_path / "t-0", 12, segment_bytes=1200)
    with sparklog.open_log(tmp_path / "t-0") as log:
        found = list(log.raw_batches())
        assert [each.base_offset for each in log.raw_batches(15, 31)] == [10, 20, 30]
        assert list(log.raw_batches(15, 15)) == []
        for begin, end in ((-1, 5), (5, 121)):
            with pytest.raises(OffsetOutOfRangeError, match=r"are not in the log, which has \[0, 120\)"):
                log.raw_batches(begin, end)
    for path in (tmp_path / "t-0").glob("*.log"):
        path.write_bytes(bytes(path.stat().st_size))
    assert [each.data for each in found] == written
