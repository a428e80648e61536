"""Damage in a log that is merged from replicas: every batch that one of them has whole is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.errors import CorruptBatchError, DataLossError, StorageError
from sparklog.storage.local import LocalFile
from tests.build import Record, legacy_wrapper, write_partition
from tests.log.replicas import FOLDER, Copy, expected, merged, run, written

END = 45
BATCHES = run(0, END)
SEGMENT_BYTES = 4 * max(map(len, BATCHES)) + 1
Damage = Callable[[bytearray, int, int], None]


def flip(data: bytearray, start: int, end: int) -> None:
    data[end - 20] ^= 0x40


def zero_header(data: bytearray, start: int, end: int) -> None:
    data[start : start + 61] = bytes(61)


def zero_all(data: bytearray, start: int, end: int) -> None:
    data[start:end] = bytes(end - start)


def make_noise(data: bytearray, start: int, end: int) -> None:
    data[start:end] = random.Random(start).randbytes(end - start)


def lengthen(data: bytearray, start: int, end: int) -> None:
    data[start + 8 : start + 12] = (end - start - 12 + 100).to_bytes(4, "big")


def shorten(data: bytearray, start: int, end: int) -> None:
    data[start + 8 : start + 12] = (100).to_bytes(4, "big")


def raise_last_offset(data: bytearray, start: int, end: int) -> None:
    data[start + 23 : start + 27] = (1000).to_bytes(4, "big")


DAMAGES = (flip, zero_header, zero_all, make_noise, lengthen, shorten, raise_last_offset)


def damage(directory: Path, rows: set[int], how: Damage) -> None:
    """Damage batches of a log of `BATCHES`, counted from 0."""
    row = 0
    for path in sorted((directory / FOLDER).glob("*.log")):
        data, position = bytearray(path.read_bytes()), 0
        while position < len(data):
            end = position + int.from_bytes(data[position + 8 : position + 12], "big") + 12
            if row in rows:
                how(data, position, end)
            position, row = end, row + 1
        path.write_bytes(data)
    assert row == len(BATCHES)


@pytest.mark.parametrize("segment_bytes", [None, SEGMENT_BYTES])
@pytest.mark.parametrize("how", DAMAGES)
def test_log_is_whole_if_each_batch_is_sound_in_one_replica(
    tmp_path: Path, how: Damage, segment_bytes: int | None
) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=segment_bytes)] * 3)
    for number, directory in enumerate(directories):
        damage(directory, {row for row in range(len(BATCHES)) if row % 3 != number}, how)
    assert merged(directories, 1) == expected((0, END, 0))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2]), min_size=len(BATCHES), max_size=len(BATCHES)),
    st.sampled_from(DAMAGES),
    st.sampled_from([None, SEGMENT_BYTES]),
    st.booleans(),
)
def test_any_share_of_sound_batches_makes_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory,
    sound_in: list[int],
    how: Damage,
    segment_bytes: int | None,
    with_indexes: bool,
) -> None:
    copies = [Copy(BATCHES, segment_bytes=segment_bytes, with_indexes=with_indexes)] * 3
    directories = written(tmp_path_factory.mktemp("brokers"), *copies)
    for number, directory in enumerate(directories):
        damage(directory, {row for row, whole in enumerate(sound_in) if whole != number}, how)
    assert merged(directories, 1) == expected((0, END, 0))


@pytest.mark.parametrize("segment_bytes", [None, SEGMENT_BYTES])
@pytest.mark.parametrize("row", range(0, len(BATCHES), 2))
@pytest.mark.parametrize("delta", [-3, 1, 3, 40, 1 << 40])
def test_wrong_offset_that_no_checksum_covers_never_makes_records_up(
    tmp_path: Path, delta: int, row: int, segment_bytes: int | None
) -> None:
    def move(data: bytearray, start: int, end: int) -> None:
        offset = int.from_bytes(data[start : start + 8], "big") + delta
        data[start : start + 8] = max(offset, 0).to_bytes(8, "big")

    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=segment_bytes, high_watermark=END)] * 2)
    damage(directories[0], {row}, move)
    try:
        found = merged(directories)
    except CorruptBatchError:
        return  # Which of two batches has the wrong offset cannot always be told.
    assert found == expected((0, END, 0))


@pytest.mark.parametrize("start", range(0, END, 7))
def test_part_of_a_damaged_log_is_read_from_any_offset(tmp_path: Path, start: int) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=SEGMENT_BYTES)] * 2)
    damage(directories[0], {0, 1, 5, 6, 7, 14}, zero_header)
    damage(directories[1], {2, 3, 4, 8}, flip)
    with sparklog.open_topic(directories, replicas="merge") as topic:
        (log,) = topic.logs.values()
        for end in (start + 1, start + 2, start + 8, END):
            assert log.read(start, min(end, END), "offset")["offset"].to_pylist() == list(range(start, min(end, END)))
            raw = b"".join(each.data for each in log.raw_batches(start, min(end, END)))
            assert raw == b"".join(BATCHES[start // 3 : -(-min(end, END) // 3)])


def test_batch_that_is_damaged_in_all_replicas_is_an_error_after_all_before_it(tmp_path: Path) -> None:
    directories = written(tmp_path, Copy(BATCHES), Copy(BATCHES[:12]))
    for directory in directories[:1]:
        damage(directory, {5}, flip)
    path = directories[1] / FOLDER / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    zero_all(data, 5 * len(BATCHES[0]), 6 * len(BATCHES[0]))
    path.write_bytes(data)
    with sparklog.open_topic(directories, replicas="merge") as topic:
        seen: list[int] = []
        with pytest.raises(CorruptBatchError) as failure:
            seen.extend(n for each in topic.batches(columns="offset") for n in each["offset"].to_pylist())
    assert seen == list(range(15))
    assert (failure.value.path, failure.value.offset) == (str(directories[0] / FOLDER / f"{0:020d}.log"), 15)


def test_what_was_healed_is_told_once_with_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directories = written(tmp_path, Copy(BATCHES), Copy(BATCHES))
    damage(directories[0], {2, 7}, flip)
    assert merged(directories) == expected((0, END, 0))
    (warning,) = [each for each in caplog.messages if "from other replicas" in each]
    assert "2 damaged places were read from other replicas, the first at offsets [6, 9)" in warning


@pytest.mark.parametrize("suffixes", [("log",), ("log", "index", "timeindex")])
@pytest.mark.parametrize("row", range(4))
def test_segment_that_one_replica_lost_is_read_from_another(
    tmp_path: Path, row: int, suffixes: tuple[str, ...]
) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=SEGMENT_BYTES)] * 2)
    lost = sorted((directories[0] / FOLDER).glob("*.log"))[row]
    for suffix in suffixes:
        lost.with_suffix(f".{suffix}").unlink()
    assert merged(directories) == expected((0, END, 0))


def test_records_that_the_leader_compacted_away_do_not_come_back(tmp_path: Path) -> None:
    compacted = Copy([each for row, each in enumerate(BATCHES) if row not in (3, 4, 9)], compacted_to=END)
    directories = written(tmp_path, Copy(BATCHES[:-1]), compacted)
    kept = [offset for offset in range(END) if offset // 3 not in (3, 4, 9)]
    assert [offset for offset, _ in merged(directories)] == kept
    # A damaged batch of the leader is healed nevertheless.
    path = directories[1] / FOLDER / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    flip(data, 0, len(BATCHES[0]))
    path.write_bytes(data)
    assert [offset for offset, _ in merged(directories)] == kept


def test_time_is_found_in_a_log_of_which_no_replica_is_whole(tmp_path: Path) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=SEGMENT_BYTES)] * 2)
    damage(directories[0], {4, 5}, zero_header)
    damage(directories[1], {0, 1, 13}, flip)
    (directories[0] / FOLDER / f"{24:020d}.log").unlink()
    with sparklog.open_topic(directories, replicas="merge") as topic:
        (log,) = topic.logs.values()
        assert [log.offset_for_time(1000 + offset) for offset in range(END)] == list(range(END))
        assert log.offset_for_time(1000 + END) is None
        found = log.read(where="timestamp >= 1014 AND timestamp < 1026", columns="offset")["offset"].to_pylist()
    assert found == list(range(14, 26))


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_of_old_formats_are_healed_without_doubles(tmp_path: Path, magic: int) -> None:
    wrappers = [
        legacy_wrapper([Record(row, 1000, None, b"v") for row in range(3)], base_offset=n, magic=magic, codec="gzip")
        for n in range(0, 30, 3)
    ]
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory, broken in zip(directories, (4, 7), strict=True):
        write_partition(directory / FOLDER, wrappers)
        path = directory / FOLDER / f"{0:020d}.log"
        data, start = bytearray(path.read_bytes()), sum(len(each) for each in wrappers[:broken])
        flip(data, start, start + len(wrappers[broken]))
        path.write_bytes(data)
    with sparklog.open_topic(directories, replicas="merge") as topic:
        assert topic.read(columns="offset")["offset"].to_pylist() == list(range(30))


def test_folder_that_goes_while_it_is_read_is_replaced_by_another_replica(tmp_path: Path) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=SEGMENT_BYTES)] * 2)
    with sparklog.open_topic(directories, replicas="merge") as topic:
        (log,) = topic.logs.values()
        for path in (directories[0] / FOLDER).iterdir():
            path.unlink()
        (directories[0] / FOLDER).rmdir()
        assert log.read(columns="offset")["offset"].to_pylist() == list(range(END))


def test_segments_whose_files_cannot_be_read_are_read_from_another_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=SEGMENT_BYTES)] * 2)
    broken = {directories[0] / FOLDER / f"{base:020d}.log" for base in (0, 12)}
    broken.add(directories[1] / FOLDER / f"{24:020d}.log")
    read_into = LocalFile.read_into

    def fail(file: LocalFile, position: int, room: memoryview) -> int:
        if Path(file.path) in broken:
            raise StorageError(f"{file.path}: Input/output error")
        return read_into(file, position, room)

    with sparklog.open_topic(directories, replicas="merge") as topic:
        (log,) = topic.logs.values()
        monkeypatch.setattr(LocalFile, "read_into", fail)
        assert log.read(columns="offset")["offset"].to_pylist() == list(range(END))
        broken.add(directories[1] / FOLDER / f"{12:020d}.log")
        with pytest.raises(StorageError, match="Input/output error"):
            list(log.batches(columns="offset", fail_on_data_loss=False))


def test_offsets_that_no_replica_has_any_more_are_a_loss(tmp_path: Path) -> None:
    directories = written(tmp_path, *[Copy(BATCHES, segment_bytes=SEGMENT_BYTES)] * 2)
    with sparklog.open_topic(directories, replicas="merge") as topic:
        (log,) = topic.logs.values()
        for directory in directories:
            (directory / FOLDER / f"{12:020d}.log").unlink()
        with pytest.raises(DataLossError):
            log.read(columns="offset")
        kept = [each for batch in log.batches(columns="offset", fail_on_data_loss=False) for each in batch["offset"]]
    assert [each.as_py() for each in kept] == [*range(12), *range(24, END)]
