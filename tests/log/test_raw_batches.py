"""Raw batches in memory are decoded as a reader decodes them from a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sparklog
from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.record.decode.columns import DecodeLimits
from tests.build import control_batch
from tests.golden import golden_set
from tests.log.logs import batch, batches, only_log, write

IN_TRANSACTION = {"transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


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
