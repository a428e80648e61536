"""Sealed segments become new ones, all of a group at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cleaner.editor import Editor
from sparklog.cleaner.rewriting import Throttle
from sparklog.errors import CorruptBatchError, SeglogError
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.producer_state import Producers
from sparklog.log.windows import Window
from sparklog.write.recovery import recover_log
from tests.build import Record, control_batch, legacy_message, v2_batch, write_partition
from tests.cleaner.logs import (
    ALL,
    CONFIG,
    NOW_MS,
    KeepingSome,
    clean,
    every_third,
    findings,
    logs,
    names,
    values,
    write,
)
from tests.log.logs import batch
from tests.places import folder_at
from tests.storage.crash import EVERY_LOSS, CrashingStorage, crashes

# Two groups, of three and two segments of two batches; of the last source of the first one nothing is kept.
CONFIG_OF_TWO = replace(CONFIG, segment_bytes=1_600)


def test_segments_are_grouped_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    before = logs(folder)
    found = clean(folder)
    assert values(folder) == ALL
    assert len(before) > len(logs(folder)) == 1 + len(found)
    assert [each.is_changed for each in found] == [True] * len(found)
    assert findings(folder) == []


def test_segment_that_stays_as_it_is_is_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("*.log")}
    found = clean(folder, config=LogConfig(segment_bytes=600))
    assert {path.name: path.stat().st_ino for path in folder.glob("*.log")} == inodes
    assert not any(each.is_changed for each in found)


def test_source_that_is_longer_than_a_segment_may_be_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, limit_bytes = tmp_path / "events-0", 5 * len(batch(0))
    written = [batch(10 * number) for number in range(13)]
    write_partition(folder, written)
    (folder / f"{130:020d}.log").touch()
    before = values(folder)
    monkeypatch.setattr("sparklog.cleaner.new_segments.POSITION_MAX", limit_bytes)
    clean(folder, config=LogConfig())
    sizes = [path.stat().st_size for path in sorted(folder.glob("*.log"))]
    assert max(sizes) <= limit_bytes
    assert sum(sizes) == sum(map(len, written))
    assert values(folder) == before
    assert findings(folder) == []


def test_crash_at_any_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Of each group by itself; readers see it before recovery as after it."""

    def prepare(folder: Path) -> None:
        write(folder / "events-0")

    def run(storage: CrashingStorage, folder: Path) -> None:
        clean(folder / "events-0", KeepingSome(every_third), CONFIG_OF_TWO, storage)

    outcomes = []
    for crash in crashes(prepare, run, tmp_path, EVERY_LOSS):
        folder = crash.folder / "events-0"
        seen = values(folder)
        outcomes.append(seen)
        clean(folder, config=LogConfig(segment_bytes=600))
        assert values(folder) == seen, str(crash)
        assert findings(folder) == [], str(crash)
        assert not [name for name in names(folder) if name.endswith((".cleaned", ".swap", ".deleted"))], str(crash)
    expected = [values_after(groups) for groups in range(3)]
    assert all(seen in expected for seen in outcomes)
    assert [outcomes.count(each) > 0 for each in expected] == [True] * 3


def values_after(groups: int) -> list[bytes]:
    """Return what is there once so many groups were cleaned."""
    cleaned_to = (0, 60, 100)[groups]
    return [b"value of %d" % n for n in range(120) if n >= cleaned_to or every_third(n // 10 * 10)]


def test_batches_keep_what_is_theirs_where_segments_are_put_together(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    sealed = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))[:-1])
    clean(folder)
    assert (folder / "00000000000000000000.log").read_bytes() == sealed


def test_last_batch_of_a_group_stays_empty_where_none_of_its_records_does(tmp_path: Path) -> None:
    """Else a broker that finishes the swap would leave the last source beside it."""
    folder = tmp_path / "events-0"
    producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 3, "leader_epoch": 5}
    written = [batch(10 * n, base_sequence=10 * n, **producer) for n in range(6)]
    write_partition(folder, written, segment_bytes=600)
    clean(folder, KeepingSome(lambda offset: offset == 0))
    (segment, active) = read_layout(folder_at(folder)).segments
    with segment.open() as log:
        headers = [header.table[0] for header in log.single_headers(log.start)]
    assert active.base_offset == 40
    assert [(row["base_offset"], row["last_offset"], row["record_count"]) for row in headers] == [
        (0, 9, 10),
        (30, 39, 0),
    ]
    last = headers[-1]
    assert (last["producer_id"], last["producer_epoch"], last["base_sequence"], last["leader_epoch"]) == (9, 3, 30, 5)
    assert (last["max_timestamp"], last["attributes"]) == (1039, 0)
    assert findings(folder) == []


@pytest.mark.parametrize("kept", [(), (0,), (0, 1, 2, 3), (4, 5)])
def test_source_of_magic_1_of_which_nothing_stays_becomes_empty_and_goes_the_next_time(
    tmp_path: Path, kept: tuple[int, ...]
) -> None:
    folder = tmp_path / "events-0"
    messages = [legacy_message(n, b"k", b"value of %d" % n, timestamp=1000 + n, magic=1) for n in range(10)]
    size = 2 * len(messages[0])
    write_partition(folder, messages, segment_bytes=size)
    clean(folder, KeepingSome(lambda offset: offset in kept))
    wanted = [b"value of %d" % n for n in (*kept, 8, 9)]
    assert values(folder) == wanted
    with sparklog.open_log(folder) as log:
        assert (log.start_offset, log.end_offset) == (0, 10)
    clean(folder)
    assert values(folder) == wanted
    assert len(logs(folder)) <= 3


def test_crash_leaves_the_old_or_the_new_of_magic_1(tmp_path: Path) -> None:
    messages = [legacy_message(n, b"k", b"value of %d" % n, timestamp=1000 + n, magic=1) for n in range(8)]

    def prepare(folder: Path) -> None:
        write_partition(folder / "events-0", messages, segment_bytes=2 * len(messages[0]))

    def run(storage: CrashingStorage, folder: Path) -> None:
        clean(folder / "events-0", KeepingSome(lambda offset: offset == 1), storage=storage)

    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, ("kept", "lost")):
        folder = crash.folder / "events-0"
        seen = values(folder)
        clean(folder)
        assert values(folder) == seen, str(crash)
        outcomes.add(tuple(int(value.split()[-1]) for value in seen))
    # What is emptied goes by swaps of its own.
    assert outcomes == {tuple(range(8)), (1, 2, 3, 4, 5, 6, 7), (1, 4, 5, 6, 7), (1, 6, 7)}


def test_longer_batches_become_several_segments_and_are_there_at_once(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        write_partition(folder / "events-0", [batch(10 * n, codec="zstd") for n in range(9)], segment_bytes=600)

    def run(storage: CrashingStorage, folder: Path) -> None:
        clean(folder / "events-0", Longer(), replace(CONFIG, segment_bytes=1_000), storage)

    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, ("kept", "lost")):
        folder = crash.folder / "events-0"
        with sparklog.open_log(folder) as log:
            found = log.read(columns=["offset", "compression"]).to_pylist()
        assert [row["offset"] for row in found] == list(range(90)), str(crash)
        clean(folder, config=LogConfig(segment_bytes=600))
        assert values(folder) == ALL[:90], str(crash)
        assert findings(folder) == [], str(crash)
        outcomes.add("".join(row["compression"][0] for row in found[::10]))
    assert len(outcomes) > 1
    assert all("zn" not in each for each in outcomes)


class Longer(Editor):
    """Takes the compression away."""

    def edit(self, window: Window) -> Iterator[memoryview]:
        for offset in window.headers.column("base_offset").tolist():
            yield memoryview(batch(offset))


def test_new_segment_counts_as_last_written_to_when_its_last_source_was(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    for n, path in enumerate(sorted(folder.glob("*.log"))):
        os.utime(path, (1_600_000_000 + n, 1_600_000_000 + n))
    clean(folder)
    assert (folder / "00000000000000000000.log").stat().st_mtime == 1_600_000_004


def test_snapshots_and_aborted_transactions_stay_right(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    records = [Record(n, timestamp=1000, value=b"aborted") for n in range(10)]
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    aborted = v2_batch(records, base_offset=10, transactional=True, base_sequence=0, **producer)
    written = [batch(0), aborted, batch(20), control_batch("abort", 30, 7, timestamp=1000), batch(31), batch(41)]
    write_partition(folder, written, segment_bytes=600)
    recover_log(folder_at(folder), CONFIG, NOW_MS)
    bases = logs(folder)
    for base in bases[1:]:
        layout = read_layout(folder_at(folder))
        end = replace(layout, end=replace(layout.end, offset=base))
        (folder / f"{base:020d}.snapshot").write_bytes(producers_at_end(end).encode())
        for path in folder.glob(f"{base:020d}.*index"):
            path.unlink()
    recover_log(folder_at(folder), CONFIG, NOW_MS)
    clean(folder)
    assert len(logs(folder)) == 2
    assert sorted(path.name for path in folder.glob("*.snapshot")) == [f"{bases[-1]:020d}.snapshot"]
    assert (folder / "00000000000000000000.txnindex").stat().st_size == 34
    with sparklog.open_log(folder) as log:
        found = log.read(columns=["offset"], isolation_level="read_committed")["offset"].to_pylist()
    assert found == [*range(10), *range(20, 30), *range(31, 51)]
    assert findings(folder) == []


def test_editor_that_gives_what_is_no_log_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    before = names(folder)
    with pytest.raises(SeglogError, match="are not whole batches in the order"):
        clean(folder, Backwards())
    assert set(names(folder)) >= set(before)
    assert not [name for name in names(folder) if name.endswith(".cleaned")]
    assert values(folder) == ALL


class Backwards(Editor):
    def edit(self, window: Window) -> Iterator[memoryview]:
        for row in reversed(range(len(window.headers))):
            yield window.batch(row)


def test_damaged_source_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    recover_log(folder_at(folder), CONFIG, NOW_MS)
    log = folder / "00000000000000000020.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    (folder / "00000000000000000120.snapshot").write_bytes(Producers().encode())
    before = logs(folder)
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        clean(folder)
    assert logs(folder) == before


def test_throttle_sleeps_for_what_was_read_and_written(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    slept: list[float] = []
    sealed_bytes = sum(path.stat().st_size for path in sorted(folder.glob("*.log"))[:-1])
    clean(folder, throttle=Throttle(100.0, clock=lambda: sum(slept), sleep=slept.append))
    assert sum(slept) == pytest.approx(2 * sealed_bytes / 100)


def test_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    recover_log(folder_at(folder), CONFIG, NOW_MS)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    planned = clean(folder, KeepingSome(every_third), dry_run=True)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert clean(folder, KeepingSome(every_third)) == planned
