"""Logs that others write to: each look is what a fresh one would be, and reads only what has changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.log.transactions import last_stable_offset
from sparklog.storage.local import LocalFile, LocalStorage
from sparklog.topic.places import live
from sparklog.topic.places.discovery import discover, layouts_by_partition
from sparklog.topic.places.live import LiveLogs
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.growth import Work, counted_work
from tests.log.logs import batch
from tests.spark.stream.test_reader import append


def ends(logs: LiveLogs, path: Path) -> dict[str, tuple[int, int]]:
    found = logs.look(discover([path]).partitions)
    return {str(at): (each.layout.start_offset, each.latest) for at, each in found.items()}


def fresh(path: Path) -> dict[str, tuple[int, int]]:
    found = layouts_by_partition(discover([path]).partitions)
    return {str(at): (each.start_offset, each.end_offset) for at, each in found.items()}


IN_TRANSACTION: dict[str, Any] = {"transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the bytes of each read of a file from now on."""
    found: list[int] = []
    plain_read, plain_read_into = LocalFile.read, LocalFile.read_into

    def counted_read(self: LocalFile, position: int, length_bytes: int) -> memoryview:
        data = plain_read(self, position, length_bytes)
        found.append(len(data))
        return data

    def counted_read_into(self: LocalFile, position: int, room: memoryview) -> int:
        found.append(plain_read_into(self, position, room))
        return found[-1]

    monkeypatch.setattr(LocalFile, "read", counted_read)
    monkeypatch.setattr(LocalFile, "read_into", counted_read_into)
    return found


def age(path: Path) -> None:
    """Let the files be as old as if nothing had been written for a while."""
    for each in [*path.rglob("*"), path]:
        os.utime(each, ns=(0, each.stat().st_mtime_ns - 10_000_000_000))


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "roll", "drop", "tear", "make", "remove", "age"]), st.integers(0, 2)),
    max_size=12,
)


@settings(max_examples=60)
@given(STEPS)
def test_look_finds_what_a_fresh_one_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("logs")
    append(path / "t-0", 0, 5)
    logs, next_offset = LiveLogs(is_committed=False), {0: 5}
    for step, number in steps:
        folder = path / f"t-{number}"
        end = next_offset.get(number)
        if step == "make" and end is None:
            append(folder, 0, 3)
            next_offset[number] = 3
        elif step == "age":
            age(path)
        elif end is None:
            continue
        elif step == "append":
            (layout,) = layouts_by_partition(
                each for each in discover([path]).partitions if each.name == folder.name
            ).values()
            os.truncate(max(folder.glob("*.log")), layout.end.position)
            append(folder, end, 4)
            next_offset[number] = end + 4
        elif step == "roll":
            (folder / f"{end:020}.log").write_bytes(v2_batch([Record(0, 1, None, b"v")], base_offset=end))
            next_offset[number] = end + 1
        elif step == "drop" and len(list(folder.glob("*.log"))) > 1:
            min(folder.glob("*.log")).unlink()
        elif step == "tear":
            with max(folder.glob("*.log")).open("r+b") as log:
                log.truncate(max(log.seek(0, 2) - 7, 0))
            next_offset[number] = fresh(path)[f"t-{number}"][1]
        elif step == "remove" and len(next_offset) > 1:
            shutil.rmtree(folder)
            del next_offset[number]
        assert ends(logs, path) == fresh(path)


def test_log_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        append(tmp_path / f"t-{number}", 0, 20)
    age(tmp_path)
    logs = LiveLogs(is_committed=False)
    first = ends(logs, tmp_path)
    opened: list[str] = []
    plain_open = LocalStorage.open

    def counted(self: LocalStorage, path: str) -> object:
        opened.append(path)
        return plain_open(self, path)

    monkeypatch.setattr(LocalStorage, "open", counted)
    assert ends(logs, tmp_path) == first
    assert [path for path in opened if path.endswith(".log")] == []
    append(tmp_path / "t-3", 20, 1)
    assert ends(logs, tmp_path)["t-3"] == (0, 21)
    assert {Path(path).parent.name for path in opened if path.endswith(".log")} == {"t-3"}


def test_trigger_of_committed_reads_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a transaction is open from the beginning of the log on, and over a roll."""
    old = [batch(0, 5, **IN_TRANSACTION), *(batch(5 + 10 * number, 10) for number in range(1600))]
    first = end = 5 + 10 * 1600
    write_partition(tmp_path / "t-0", old, segment_bytes=100_000)
    logs = LiveLogs(is_committed=True)
    new, sizes, rolled = list[bytes](), list[int](), set[str]()
    with monkeypatch.context() as patched:
        counted = bytes_read(patched)
        assert ends(logs, tmp_path) == {"t-0": (0, 0)}
        first_bytes = sum(counted)
        for _ in range(80):
            new.append(batch(end, 10))
            end += 10
            write_partition(tmp_path / "t-0", new, base_offset=first, segment_bytes=15_000)
            rolled.add(max((tmp_path / "t-0").glob("*.log")).name)
            counted.clear()
            assert ends(logs, tmp_path) == {"t-0": (0, 0)}
            sizes.append(sum(counted))
    assert len(rolled) > 1
    # Each place in a log is sought by its index, and what is read begins an interval of the index before it at most.
    assert max(sizes) < 10 * 4096 < first_bytes / 20
    new.append(control_batch("commit", end, 1, 0, 5000))
    write_partition(tmp_path / "t-0", new, base_offset=first, segment_bytes=15_000)
    assert ends(logs, tmp_path) == {"t-0": (0, end + 1)}


TRANSACTIONS = st.lists(
    st.tuples(st.sampled_from(["data", "in", "commit", "abort", "roll", "cut", "look"]), st.integers(1, 3)),
    max_size=25,
)


@settings(max_examples=100)
@given(TRANSACTIONS)
def test_last_stable_offset_is_what_a_fresh_look_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("logs")
    folder = path / "t-0"
    folder.mkdir()
    log, end = folder / f"{0:020}.log", 0
    log.write_bytes(b"")
    logs = LiveLogs(is_committed=True)
    for number, (step, producer) in enumerate(steps):
        of_producer = {**IN_TRANSACTION, "producer_id": producer, "base_sequence": number}
        made = {
            "data": batch(end, producer),
            "in": batch(end, 2, **of_producer),
            "commit": control_batch("commit", end, producer, 0, 5000),
            "abort": control_batch("abort", end, producer, 0, 5000),
        }.get(step)
        if made is not None:
            with log.open("ab") as file:
                file.write(made)
            end += {"data": producer, "in": 2}.get(step, 1)
        elif step == "roll":
            log = folder / f"{end:020}.log"
            log.touch()
        elif step == "cut":
            # The last segment is lost, and something else may be written in its place.
            log.write_bytes(b"")
            end = int(log.stem)
        if step in ("look", "cut"):
            (layout,) = layouts_by_partition(discover([path]).partitions).values()
            assert ends(logs, path) == {"t-0": (0, last_stable_offset(layout))}


@pytest.mark.parametrize("is_cut", [False, True])
def test_log_that_does_not_go_on_from_what_is_known_is_read_again(tmp_path: Path, is_cut: bool) -> None:
    open_since_20 = [batch(0, 20), batch(20, 5, **IN_TRANSACTION)]
    write_partition(tmp_path / "t-0", open_since_20, segment_bytes=None)
    logs = LiveLogs(is_committed=True)
    assert ends(logs, tmp_path) == {"t-0": (0, 20)}
    # The open transaction is not there any more: nothing of it may be remembered.
    shutil.rmtree(tmp_path / "t-0")
    write_partition(tmp_path / "t-0", [batch(0, 20), *([] if is_cut else [batch(20, 5), batch(25, 5)])])
    assert ends(logs, tmp_path) == {"t-0": (0, 20 if is_cut else 30)}


def test_change_that_leaves_the_same_stamp_is_seen_while_it_is_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t-0", 0, 20)
    log = tmp_path / "t-0" / f"{0:020}.log"
    size, time_ns = log.stat().st_size, log.stat().st_mtime_ns
    # The segment's file has its last size ahead, as with preallocation.
    with log.open("r+b") as file:
        file.truncate(size + 500)
    os.utime(log, ns=(time_ns, time_ns))
    logs = LiveLogs(is_committed=False)
    assert ends(logs, tmp_path) == {"t-0": (0, 20)}
    with log.open("r+b") as file:
        file.seek(size)
        file.write(v2_batch([Record(0, 1, None, b"v")], base_offset=20))
    os.utime(log, ns=(time_ns, time_ns))
    assert log.stat().st_size == size + 500
    assert ends(logs, tmp_path) == {"t-0": (0, 21)}
    # Once it is older than any clock is coarse, the stamp is believed.
    monkeypatch.setattr(live, "wall_clock_ns", lambda: time_ns + 60_000_000_000)
    assert ends(logs, tmp_path) == {"t-0": (0, 21)}
    assert logs._seen


def segments(folder: Path, count: int) -> int:
    """Write segments of three records each; the end offset."""
    for row in range(count):
        append(folder, 3 * row, 3)
        (folder / f"{3 * row + 3:020}.log").touch()
    return 3 * count


@pytest.mark.parametrize("is_committed", [False, True])
def test_look_at_a_log_that_has_grown_works_the_same_with_many_segments(tmp_path: Path, is_committed: bool) -> None:
    found = list[Work]()
    for count in (10, 30, 90):
        path = tmp_path / f"logs{count}"
        end = segments(path / "t-0", count)
        age(path)
        logs = LiveLogs(is_committed=is_committed)
        partitions = discover([path]).partitions
        logs.look(partitions)
        for more in (1, 2):
            append(path / "t-0", end, 1)
            end += 1
            with counted_work() as work:
                (log,) = logs.look(partitions).values()
            assert (log.latest, len(log.layout.segments)) == (end, count + 1), more
        found.append(work)
    assert [(each.calls, each.names) for each in found] == [(found[0].calls, 0)] * 3
    # The text of an offset has more digits in a longer log.
    assert max(each.read_bytes for each in found) < 1.1 * found[0].read_bytes


def test_growth_of_a_log_whose_last_segment_was_replaced_is_seen(tmp_path: Path) -> None:
    end = segments(tmp_path / "t-0", 3)
    age(tmp_path)
    logs = LiveLogs(is_committed=False)
    ends(logs, tmp_path)
    append(tmp_path / "t-0", end, 2)
    assert ends(logs, tmp_path) == {"t-0": (0, end + 2)}
    # Retention, a roll and a cut each change the folder.
    (tmp_path / "t-0" / f"{0:020}.log").rename(tmp_path / "t-0" / f"{0:020}.log.deleted")
    assert ends(logs, tmp_path) == {"t-0": (3, end + 2)}
    age(tmp_path)
    assert ends(logs, tmp_path) == {"t-0": (3, end + 2)}
    (tmp_path / "t-0" / f"{end:020}.log").unlink()
    assert ends(logs, tmp_path) == {"t-0": (3, end)}


def test_growth_of_a_preallocated_file_is_seen(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 2)
    (last,) = (tmp_path / "t-0").glob("*.log")
    written = last.read_bytes()
    last.write_bytes(written.ljust(4096, b"\0"))
    age(tmp_path)
    logs = LiveLogs(is_committed=False)
    assert ends(logs, tmp_path) == {"t-0": (0, 2)}
    with last.open("r+b") as file:
        file.seek(len(written))
        file.write(batch(2, 3))
    assert ends(logs, tmp_path) == {"t-0": (0, 5)}
