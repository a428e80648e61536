"""The end of a log, its damage, and indexes that lie."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError, SeglogError
from sparklog.log import windows
from sparklog.log.kept_by_stamp import LastUsed
from sparklog.log.layout import read_layout
from sparklog.log.reader import IsolationLevel, LogReader, open_log
from sparklog.log.transactions import last_stable_offset
from sparklog.storage.local import LocalFile
from tests.build import Record, offset_index, time_index, v2_batch, write_partition
from tests.log.logs import RECORDS_PER_BATCH, batch, batches, counted, offsets, only_log, write
from tests.places import folder_at

INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"


def test_batch_cut_short_ends_the_log_before_it(tmp_path: Path) -> None:
    written = write(tmp_path, 3)
    log = only_log(tmp_path)
    whole = log.read_bytes()
    for cut in range(1, len(written[-1]) + 1):
        log.write_bytes(whole[:-cut])
        with open_log(str(tmp_path)) as reader:
            assert offsets(reader) == list(range(2 * RECORDS_PER_BATCH))


def test_zero_filled_tail_ends_the_log_before_it(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with only_log(tmp_path).open("ab") as log:
        log.write(bytes(10_000))
        log.truncate(1 << 30)
    assert open_log(str(tmp_path)).end_offset == 30


@pytest.mark.parametrize("tail", [b"\x00" * 40 + b"\x01", b"garbage that is longer than any header" * 3, b"\xff" * 100])
def test_tail_that_is_neither_torn_nor_zero_is_damage(tmp_path: Path, tail: bytes) -> None:
    written = write(tmp_path, 3)
    with only_log(tmp_path).open("ab") as log:
        log.write(tail)
    with pytest.raises(CorruptBatchError) as raised:
        open_log(str(tmp_path))
    assert (raised.value.path, raised.value.position) == (str(only_log(tmp_path)), sum(map(len, written)))
    assert raised.value.offset == 30


def test_torn_batch_with_whole_batches_behind_it_is_damage(tmp_path: Path) -> None:
    written = write(tmp_path, 6, with_indexes=False)
    log = bytearray(only_log(tmp_path).read_bytes())
    position = sum(map(len, written[:2]))
    log[position + 8 : position + 12] = (1 << 30).to_bytes(4, "big")
    only_log(tmp_path).write_bytes(log)
    with pytest.raises(
        CorruptBatchError, match=f"another batch follows it at position {sum(map(len, written[:3]))}"
    ) as e:
        open_log(str(tmp_path))
    assert (e.value.position, e.value.offset) == (position, 20)


def test_torn_tail_that_only_looks_like_a_batch_ends_the_log(tmp_path: Path) -> None:
    """A value may hold the bytes of a batch of another log; its offsets are not those expected here."""
    write(tmp_path, 3)
    torn = batch(30, 2)
    inner = batch(5, 1) + torn[70:80]
    with only_log(tmp_path).open("ab") as log:
        log.write(torn[:70] + inner)
    with pytest.raises(CorruptBatchError):
        LogReader(read_layout(folder_at(tmp_path))).read()
    size = only_log(tmp_path).stat().st_size
    with only_log(tmp_path).open("r+b") as log:
        log.seek(size - len(inner) - 70 + 8)
        log.write((1 << 20).to_bytes(4, "big"))
    assert open_log(str(tmp_path)).end_offset == 30


@pytest.mark.parametrize("base_offset", [-(1 << 62), 5, 1 << 62])
def test_torn_batch_with_a_whole_one_of_any_offset_at_the_end_of_the_file_is_damage(
    tmp_path: Path, base_offset: int
) -> None:
    """Its size was flipped, and the offset of the next one, too: the log does not end before it."""
    write(tmp_path, 3)
    with only_log(tmp_path).open("ab") as log:
        log.write(batch(30, 2)[:8] + (1 << 20).to_bytes(4, "big") + batch(30, 2)[12:] + batch(base_offset, 2))
    with pytest.raises(CorruptBatchError, match="another batch follows it"):
        open_log(str(tmp_path))


@pytest.mark.parametrize("row", [3, 9])
def test_base_offset_above_the_end_of_the_log_does_not_end_a_read(
    tmp_path: Path, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log end offset is found by the index, behind that batch, and no window holds it and the next."""
    written = write(tmp_path, 10)
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">ii", 89, sum(map(len, written[:8]))))
    monkeypatch.setattr(windows, "WINDOW_BYTES", len(written[0]))
    with only_log(tmp_path).open("r+b") as log:
        log.seek(sum(map(len, written[:row])))
        log.write((1 << 30).to_bytes(8, "big"))
    with open_log(str(tmp_path)) as reader:
        if row == 9:
            # Nothing is behind it: nobody can tell.
            assert reader.end_offset == (1 << 30) + 10
        else:
            assert reader.end_offset == 100
            with pytest.raises(CorruptBatchError, match="out of order"):
                reader.read()


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_torn_end_of_a_segment_that_is_not_the_last_is_damage(tmp_path: Path, damage: str) -> None:
    last_batch_bytes = len(write(tmp_path, 12, segment_bytes=1000)[3])
    first, second = sorted(tmp_path.glob("*.log"))[:2]
    whole = first.read_bytes()
    first.write_bytes(whole[:-5] if damage == "cut" else whole[:-20] + bytes(20))
    with open_log(str(tmp_path)) as reader, pytest.raises(CorruptBatchError) as raised:
        reader.read()
    assert raised.value.path == str(first)
    assert (raised.value.position, raised.value.offset) == (len(whole) - last_batch_bytes, 30)
    with open_log(str(tmp_path)) as reader:
        after = int(second.stem)
        assert offsets(reader, after, 120) == list(range(after, 120))


def test_offsets_that_go_back_are_damage(tmp_path: Path) -> None:
    write_partition(tmp_path, [batch(0), batch(5), batch(20)], with_indexes=False)
    with pytest.raises(CorruptBatchError, match=r"offsets 5 to 14 is out of order: expected offsets from 10"):
        open_log(str(tmp_path)).read()


def test_offsets_of_the_next_segment_are_damage(tmp_path: Path) -> None:
    write_partition(tmp_path, [batch(0), batch(10)], with_indexes=False)
    (tmp_path / "00000000000000000015.log").write_bytes(batch(15))
    with pytest.raises(CorruptBatchError, match="expected offsets from 10 to 14"):
        open_log(str(tmp_path)).read()


def _answers(folder: Path) -> tuple[list[int], int, list[int | None]]:
    """Everything that an index could spoil: reads from each offset, the end, times."""
    with open_log(str(folder)) as log:
        firsts = [offsets(log, offset, min(offset + 3, log.end_offset))[0] for offset in range(log.end_offset)]
        times = [log.offset_for_time(time) for time in range(990, 1130, 7)]
        return firsts, log.end_offset, times


OTHER_LOG = offset_index([(15, 77), (31, 500), (44, 1203)])
WRONG_INDEXES = {
    "missing": None,
    "empty": b"",
    "all zeros": bytes(4096),
    "cut inside an entry": offset_index([(19, 300)])[:5],
    "of another log": OTHER_LOG,
    "positions past the end": offset_index([(19, 1 << 30), (119, (1 << 31) - 1)]),
    "negative": offset_index([(-5, -7), (19, -1)]),
    "descending": offset_index([(119, 20), (19, 3000), (1, 1)]),
    "all at the start": offset_index([(n, 0) for n in range(1, 120)]),
}


@pytest.mark.parametrize("name", WRONG_INDEXES)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_wrong_index_gives_no_wrong_answer(tmp_path: Path, name: str, suffix: str) -> None:
    write(tmp_path)
    expected = _answers(tmp_path)
    index = tmp_path / f"00000000000000000000{suffix}"
    wrong = WRONG_INDEXES[name]
    if wrong is None:
        index.unlink()
    else:
        index.write_bytes(wrong)
    assert _answers(tmp_path) == expected


def test_older_index_gives_no_wrong_answer(tmp_path: Path) -> None:
    write(tmp_path)
    expected = _answers(tmp_path)
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        index = tmp_path / f"00000000000000000000{suffix}"
        index.write_bytes(index.read_bytes()[: 3 * entry_bytes])
    assert _answers(tmp_path) == expected


def test_index_of_an_append_of_several_batches_is_used(tmp_path: Path) -> None:
    """Brokers before 4 wrote the last offset of an append, with the position of its first batch."""
    written = write(tmp_path)
    expected = _answers(tmp_path)
    earlier, position = sum(map(len, written[:3])), sum(map(len, written[:8]))
    (tmp_path / INDEX).write_bytes(offset_index([(49, earlier), (109, position)]))
    assert _answers(tmp_path) == expected
    layout, storage = counted(tmp_path)
    with layout.segments[0].open() as log:
        # An entry earlier than need be: what the batch says of its own offset is held against those before it.
        assert log.seek(115).position == earlier
    assert storage.read_bytes[".index"] <= 128


@settings(max_examples=30)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_indexes_give_no_wrong_answer(
    tmp_path_factory: pytest.TempPathFactory, one: bytes, other: bytes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    write(folder, 4)
    expected = _answers(folder)
    (folder / INDEX).write_bytes(one)
    (folder / TIME_INDEX).write_bytes(other)
    assert _answers(folder) == expected


def test_time_index_whose_entry_is_not_in_the_log_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path)
    expected = _answers(tmp_path)
    (tmp_path / TIME_INDEX).write_bytes(time_index([(1050, 109), (1060, 119)]))
    assert _answers(tmp_path) == expected


def test_falling_timestamps_are_found_in_log_order(tmp_path: Path) -> None:
    times = [5000, 3000, 9000, 1000, 9000]
    falling = [v2_batch([Record(0, timestamp=time)], base_offset=n) for n, time in enumerate(times)]
    write_partition(tmp_path, falling, index_interval_bytes=1)
    with open_log(str(tmp_path)) as log:
        assert [log.offset_for_time(time) for time in (0, 1000, 5000, 5001, 9000, 9001)] == [0, 0, 0, 2, 2, None]


@pytest.mark.parametrize("seek", ["offset", "time"])
def test_one_offset_or_time_reads_one_index_lookup_and_one_interval(tmp_path: Path, seek: str) -> None:
    interval_bytes = 4096
    write_partition(tmp_path, batches(4000), index_interval_bytes=interval_bytes)
    log_bytes = only_log(tmp_path).stat().st_size
    layout, storage = counted(tmp_path)
    with LogReader(layout) as log:
        if seek == "offset":
            with layout.segments[0].open() as segment:
                header = segment.first_batch_from(20_005)
                assert header is not None
                assert header.column("base_offset")[0] == 20_000
        else:
            assert log.offset_for_time(1000 + 20_005) == 20_005
    assert log_bytes > 100 * interval_bytes
    batch_bytes = len(batch(20_000))
    assert storage.read_bytes[".log"] <= 2 * (interval_bytes + 3 * batch_bytes)
    assert sum(storage.read_bytes.values()) <= 4 * interval_bytes


def test_log_that_grows_while_it_is_read_ends_where_it_ended_when_opened(tmp_path: Path) -> None:
    written = write(tmp_path, 6)
    with open_log(str(tmp_path)) as log:
        stream = log.batches(columns=["offset"])
        first = next(stream)
        with only_log(tmp_path).open("ab") as file:
            file.write(batch(60))
            file.write(batch(70)[:-3])
        rest = [n for piece in stream for n in piece.column("offset").to_pylist()]
        assert first.column("offset").to_pylist() + rest == list(range(10 * len(written)))
        assert offsets(log) == list(range(60))
    assert open_log(str(tmp_path)).end_offset == 70


@pytest.mark.parametrize("zeros", [0, 4000])
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_batches_appended_between_any_calls_of_a_reader_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: IsolationLevel, zeros: int
) -> None:
    """Two of them: the first ends behind what the reader wants, and the second while it looks at what follows."""
    written = write(tmp_path, 3, with_indexes=False)
    log, calls, appends_before = only_log(tmp_path), 0, list[int]()

    def growing(name: str) -> None:
        plain = getattr(LocalFile, name)

        def call(self: LocalFile, *arguments: Any) -> Any:
            nonlocal calls
            if calls in appends_before:
                with log.open("r+b") as file:
                    # Into the zeros of a file that was made longer beforehand, or behind its end.
                    row = appends_before.index(calls)
                    file.seek(sum(map(len, [*written, batch(30)][: 3 + row])))
                    file.write(batch(30 + 10 * row))
            calls += 1
            return plain(self, *arguments)

        monkeypatch.setattr(LocalFile, name, call)

    def read() -> list[int]:
        nonlocal calls
        calls = 0
        log.write_bytes(b"".join(written) + bytes(zeros))
        layout = read_layout(folder_at(tmp_path))
        if level == "read_uncommitted":
            return offsets(LogReader(layout))
        monkeypatch.setattr("sparklog.log.transactions._seen", LastUsed(1))
        stable_offset = last_stable_offset(layout)
        assert stable_offset == layout.end_offset
        return offsets(LogReader(layout, stable_offset))

    for name in ("size_bytes", "read", "read_into"):
        growing(name)
    assert read() == list(range(30))
    calls_of_a_read = calls
    assert calls_of_a_read > 5
    for first, second in itertools.combinations(range(calls_of_a_read), 2):
        appends_before[:] = [first, second]
        found = read()
        assert found == list(range(len(found)))
        assert len(found) in (30, 40, 50)


def test_log_cut_while_it_is_read_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    write_partition(tmp_path, batches(20_000))
    with open_log(str(tmp_path)) as log:
        stream = log.batches(columns=["offset"])
        next(stream)
        os.truncate(only_log(tmp_path), 100)
        with pytest.raises(SeglogError, match=r"gone|cut short"):
            list(stream)


def test_one_record_of_a_long_log_is_read_with_few_batches_beside_it(tmp_path: Path) -> None:
    write_partition(tmp_path, batches(8000), index_interval_bytes=4096)
    layout, storage = counted(tmp_path)
    assert offsets(LogReader(layout), 20_005, 20_006) == [20_005]
    assert only_log(tmp_path).stat().st_size > 1 << 21
    assert storage.read_bytes[".log"] <= 1 << 17
