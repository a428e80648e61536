"""Wrappers of magic 0 and 1, whose own offset no checksum covers: whole logs of them, with that offset damaged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import CorruptBatchError, SeglogError
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding
from sparklog.log.reader import open_log
from sparklog.log.segment import OpenSegment
from sparklog.write.partition import LogWriter
from tests import build
from tests.build import Record
from tests.log.logs import batch, only_log
from tests.places import folder_at

Rows = list[tuple[int, bytes]]


def wrapper(base_offset: int, deltas: range | list[int], magic: int, **fields: Any) -> bytes:
    records = [Record(delta, 1000 + base_offset + delta, b"k", b"%d" % (base_offset + delta)) for delta in deltas]
    return build.legacy_wrapper(records, magic=magic, base_offset=base_offset, **fields)


def write(folder: Path, batches: list[bytes], base_offset: int = 0) -> Path:
    folder.mkdir()
    log = folder / f"{base_offset:020d}.log"
    log.write_bytes(b"".join(batches))
    return folder


def read(folder: Path, start: int | None = None, end: int | None = None) -> Rows:
    with open_log(str(folder)) as log:
        table = log.read(start, end, columns=["offset", "value"])
    return list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def some_log(magic: int) -> list[bytes]:
    """Batches 0 to 9, 10 to 12, 20 to 22 and 23: with a gap, and a wrapper of one message at the end."""
    spans = ((0, range(10)), (10, range(3)), (20, [0, 2]), (23, range(1)))
    return [wrapper(base_offset, deltas, magic) for base_offset, deltas in spans]


def flips(batches: list[bytes]) -> list[tuple[int, int, bytes]]:
    """Return the log with each bit of each batch's offset flipped: the batch, the bit, the bytes."""
    log, found, position = b"".join(batches), [], 0
    for row, each in enumerate(batches):
        for bit in range(64):
            flipped = bytearray(log)
            flipped[position + bit // 8] ^= 0x80 >> bit % 8
            found.append((row, bit, bytes(flipped)))
        position += len(each)
    return found


@pytest.mark.parametrize("columns", [("offset", "value"), ("offset",), ()])
def test_no_flip_in_the_offset_of_a_wrapper_of_magic_0_is_passed_over(tmp_path: Path, columns: tuple[str, ...]) -> None:
    batches = some_log(0)
    folder = write(tmp_path / "t-0", batches)
    positions = [sum(map(len, batches[:row])) for row in range(4)]
    for row, bit, log in flips(batches):
        only_log(folder).write_bytes(log)
        with pytest.raises(CorruptBatchError) as caught, open_log(str(folder)) as reader:
            reader.read(columns=columns)
        assert caught.value.path is not None, (row, bit)
        assert caught.value.offset is not None, (row, bit)
        assert caught.value.position in positions[row : row + 2], (row, bit)


def test_no_flip_in_the_offset_of_a_wrapper_of_magic_1_doubles_loses_or_disorders_rows(tmp_path: Path) -> None:
    batches = some_log(1)
    folder = write(tmp_path / "t-0", batches)
    whole, shifted = read(folder), 0
    for row, bit, log in flips(batches):
        only_log(folder).write_bytes(log)
        try:
            found = read(folder)
        except CorruptBatchError as error:
            assert (error.path, error.position is None) == (str(only_log(folder)), False)  # noqa: PT017
            continue
        # What is left is what the format cannot see: a wrapper that moved to offsets that no other batch has.
        assert [value for _, value in found] == [value for _, value in whole], (row, bit)
        assert all(before < after for (before, _), (after, _) in pairwise(found)), (row, bit)
        shifted += 1
    # The last of them can move up, and those around the gap a little.
    assert 0 < shifted < 70


@pytest.mark.parametrize("magic", [0, 1])
def test_ranges_of_a_log_with_a_flip_hold_no_row_twice(tmp_path: Path, magic: int) -> None:
    batches = some_log(magic)
    folder = write(tmp_path / "t-0", batches)
    for row, bit, log in flips(batches):
        if bit < 58:
            continue
        only_log(folder).write_bytes(log)
        for start, end in ((0, 5), (5, 12), (11, 21), (21, 24), (12, None), (22, None)):
            try:
                found = read(folder, start, end)
            except SeglogError:
                continue
            assert all(before < after for (before, _), (after, _) in pairwise(found)), (row, bit, start)
            if magic == 0:
                assert all(value == b"%d" % offset for offset, value in found), (row, bit, start)


def test_wrapper_of_magic_0_is_refused_where_none_of_its_records_is_in_the_range(tmp_path: Path) -> None:
    # The last wrapper holds 5, 7 and 9 and says 6, so that the log seems to end at 7.
    folder = write(tmp_path / "t-0", [wrapper(0, range(5), 0), wrapper(5, [0, 2, 4], 0, offset=6)])
    for start in (0, 6):
        with pytest.raises(CorruptBatchError, match="not that of the last message") as caught:
            read(folder, start)
        assert (caught.value.position, caught.value.offset) == (len(wrapper(0, range(5), 0)), 6)


def test_last_wrapper_of_magic_1_that_moved_into_the_batch_before_is_refused(tmp_path: Path) -> None:
    first = wrapper(50, range(10), 1)
    # 58, 59, 59, 60 were read, and before that the end of the log was lost.
    folder = write(tmp_path / "t-0", [first, wrapper(60, range(2), 1, offset=60)], base_offset=50)
    for columns in (["offset"], ["value"], []):
        refused = pytest.raises(CorruptBatchError, match="below the end of the batch before")
        with refused as caught, open_log(str(folder)) as log:
            log.read(columns=columns)
        assert (caught.value.path, caught.value.position) == (str(only_log(folder)), len(first))
    with pytest.raises(CorruptBatchError, match="below the end of the batch before"):
        read(folder, 60)


def test_first_wrapper_of_magic_1_that_moved_below_its_segment_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "t-0", [wrapper(50, range(10), 1, offset=57)], base_offset=50)
    with pytest.raises(CorruptBatchError, match="below the end of the batch before"):
        read(folder)


WINDOWS = [(64, None), (200, None), (1 << 22, None)]


@pytest.mark.parametrize("defaults", WINDOWS)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_offsets_ascend_over_windows_and_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defaults: tuple[int, None], codec: str
) -> None:
    monkeypatch.setattr(OpenSegment.windows, "__defaults__", defaults)
    wide = build.v2_batch([Record(0), Record(1), Record(6)], base_offset=10, codec=codec, last_offset_delta=1)
    folder = write(tmp_path / "t-0", [batch(0), wide, batch(16, 4)])
    for columns in (["offset"], ["value"], []):
        refused = pytest.raises(CorruptBatchError, match="not above the one before")
        with refused as caught, open_log(str(folder)) as log:
            log.read(columns=columns)
        assert caught.value.position == len(batch(0)) + len(wide)
    only_log(folder).write_bytes(batch(0) + wide)
    (folder / f"{12:020d}.log").write_bytes(batch(16, 4))
    with pytest.raises(CorruptBatchError, match="not above the one before") as caught, open_log(str(folder)) as log:
        log.read(columns=["offset"])
    assert caught.value.position == 0
    (folder / f"{12:020d}.log").write_bytes(batch(17, 4))
    with open_log(str(folder)) as log:
        assert log.read(columns=["offset"])["offset"].to_pylist() == [*range(12), 16, *range(17, 21)]


def test_record_above_the_last_offset_of_the_last_batch_is_read_to_the_end_and_never_dropped(tmp_path: Path) -> None:
    wide = build.v2_batch([Record(0), Record(1), Record(6)], base_offset=10, last_offset_delta=1)
    folder = write(tmp_path / "t-0", [batch(0), wide])
    with open_log(str(folder)) as log:
        assert log.end_offset == 12
        assert log.read(columns=["offset"])["offset"].to_pylist() == [*range(12), 16]
        assert log.read(0, 10, columns=["offset"])["offset"].to_pylist() == [*range(10)]
    only_log(folder).write_bytes(batch(0) + wide + batch(30))
    with open_log(str(folder)) as log:
        assert log.read(columns=["offset"])["offset"].to_pylist() == [*range(12), 16, *range(30, 40)]
        # Who reads from 12 on does not come past the batch.
        with pytest.raises(CorruptBatchError, match="past the range"):
            log.read(0, 12, columns=["offset"])


ZERO = [Record(n, 1 + n, b"%d" % n, b"%d" % n) for n in range(3)]


def test_wrapper_of_offset_zero_is_read_as_in_kafkas_own_test(tmp_path: Path) -> None:
    folder = write(tmp_path / "t-0", [build.legacy_wrapper(ZERO, offset=0)])
    three = [(0, b"0"), (1, b"1"), (2, b"2")]
    assert read(folder) == three
    assert read(folder, 1) == three[1:]
    with open_log(str(folder)) as log:
        assert (log.start_offset, log.end_offset) == (0, 3)
        assert log.offset_for_time(3) == 2
        assert log.read(columns=["base_offset"])["base_offset"].to_pylist() == [0, 0, 0]
    only_log(folder).write_bytes(build.legacy_wrapper(ZERO, offset=0) + wrapper(3, range(2), 1))
    assert read(folder) == [*three, (3, b"3"), (4, b"4")]
    assert read(folder, 2, 4) == [(2, b"2"), (3, b"3")]
    only_log(folder).write_bytes(build.legacy_wrapper(ZERO, offset=0) + wrapper(1, range(2), 1))
    with pytest.raises(CorruptBatchError, match="out of order"):
        read(folder)


def test_wrapper_of_offset_zero_is_appended_after(tmp_path: Path) -> None:
    folder = write(tmp_path / "t-0", [build.legacy_wrapper(ZERO, offset=0)])
    with open_log(str(folder)) as log:
        table = log.read(columns=["key", "value"])
    with LogWriter.open(str(folder)) as partition:
        assert partition.append(table) == (3, 5)
    assert [offset for offset, _ in read(folder)] == [*range(6)]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "stream": lambda message: message[:-3] + b"???",
    "checksum": lambda message: message[:12] + b"????" + message[16:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_wrapper_of_offset_zero_that_is_damaged_is_refused_and_hides_nothing(tmp_path: Path, name: str) -> None:
    damaged = DAMAGE[name](build.legacy_wrapper(ZERO, offset=0))
    if name == "stream":
        damaged = damaged[:12] + struct.pack(">I", zlib.crc32(damaged[16:])) + damaged[16:]
    folder = write(tmp_path / "t-0", [damaged, wrapper(3, range(2), 1)])
    with pytest.raises(CorruptBatchError):
        read(folder)


@pytest.mark.parametrize("magic", [0, 1])
def test_base_offset_of_a_wrapper_is_that_of_the_first_message_inside(tmp_path: Path, magic: int) -> None:
    plain = build.legacy_message(30, b"k", b"v", magic=magic)
    folder = write(tmp_path / "t-0", [*some_log(magic), plain, batch(40, 2)])
    expected = [*[0] * 10, *[10] * 3, *[20] * 2, 23, 30, 40, 40]
    with open_log(str(folder)) as log:
        assert log.read(columns=["base_offset"])["base_offset"].to_pylist() == expected
        assert log.read(8, 11, columns=["base_offset"])["base_offset"].to_pylist() == [0, 0, 10]


def findings(folder: Path) -> list[tuple[str, int | None]]:
    events = verify_partition(folder_at(folder))
    return [(event.code, event.position) for event in events if isinstance(event, Finding)]


def test_verify_tells_wrappers_whose_offset_is_wrong(tmp_path: Path) -> None:
    first = wrapper(0, range(10), 0)
    folder = write(tmp_path / "t-0", [first, wrapper(10, range(3), 0, offset=13)])
    assert ("corrupt-batch", len(first)) in findings(folder)
    first = wrapper(0, range(10), 1)
    only_log(folder).write_bytes(first + wrapper(10, range(3), 1, offset=11))
    assert ("offset-order", len(first)) in findings(folder)
    wide = build.v2_batch([Record(0), Record(1), Record(6)], base_offset=10, last_offset_delta=1)
    only_log(folder).write_bytes(wide + batch(16))
    assert ("offset-order", len(wide)) in findings(folder)
    only_log(folder).write_bytes(wide + batch(17))
    assert "offset-order" not in [code for code, _ in findings(folder)]
