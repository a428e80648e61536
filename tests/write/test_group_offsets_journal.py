"""Commits are lines of a journal: what a crash leaves of it, damage, other processes, and how much work a commit is."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from sparklog.errors import CorruptCheckpointError, StorageError
from sparklog.log.files import GROUP_OFFSETS, GROUP_OFFSETS_JOURNAL, TopicPartition
from sparklog.log.group_offsets import (
    NO_OFFSET,
    CommittedOffsets,
    GroupOffsets,
    OffsetCommit,
    StoredOffsets,
    add_lines,
    parse_group_offsets,
)
from sparklog.log.journal import Journal
from sparklog.log.places import LogDirectory
from sparklog.topic.internal.groups import committed
from sparklog.write.group_offsets import (
    _journals,
    commit_group_offsets,
    forget_offsets,
    next_transaction,
    read_group_offsets,
)
from sparklog.write.journal import apply_journal, write_journal
from tests.growth import Work, counted_work, settle
from tests.places import directory_at
from tests.storage.crash import EVERY_LOSS, CrashingStorage, FailingStorage, Loss, crashes

EVENTS, OTHER = (TopicPartition("events", number) for number in range(2))
NOW_MS = 1_700_000_000_000
OFTEN: Final[tuple[Loss, ...]] = (*EVERY_LOSS, *(("pages",) * 8))
"""Each time other pages are lost."""
LIMIT: Final = "sparklog.log.group_offsets._JOURNAL_BYTES_MIN"


def at(offset: int) -> OffsetCommit:
    return OffsetCommit(offset, "", NOW_MS)


def nothing(folder: Path) -> None:
    """Leave a folder empty."""


def commit(place: Path | LogDirectory, offset: int, group: str = "g") -> None:
    directory = directory_at(place) if isinstance(place, Path) else place
    commit_group_offsets(directory, group, {EVENTS: at(offset), OTHER: at(offset)})


def offset_in(folder: Path, group: str = "g", *, with_decided: bool = False) -> int:
    """Return the offset of both partitions, which were committed together."""
    found = read_group_offsets(directory_at(folder), group, with_decided=with_decided)
    offsets = {each.offset for each in found[group].values()} if found else {0}
    assert len(offsets) == 1
    return offsets.pop()


def decide(directory: LogDirectory, group: str, offsets: dict[TopicPartition, OffsetCommit], name: str = "1") -> None:
    write_journal(directory, Journal(name, {}, (), offsets=next_transaction(directory, {group: offsets})))


def lines(folder: Path) -> list[bytes]:
    return (folder / GROUP_OFFSETS_JOURNAL).read_bytes().splitlines(keepends=True)


def test_commit_writes_a_line_and_changes_no_name(tmp_path: Path) -> None:
    for offset in (1, 2):
        commit(tmp_path, offset)
    before, names = (tmp_path / GROUP_OFFSETS).read_bytes(), tmp_path.stat()
    for offset in (3, 4):
        commit(tmp_path, offset, "h")
    assert (tmp_path / GROUP_OFFSETS).read_bytes() == before
    assert (tmp_path.stat().st_mtime_ns, tmp_path.stat().st_ino) == (names.st_mtime_ns, names.st_ino)
    assert len(lines(tmp_path)) == 3
    assert (offset_in(tmp_path), offset_in(tmp_path, "h"), offset_in(tmp_path, "none")) == (2, 4, 0)


def test_journal_is_folded_when_it_is_as_large_as_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMIT, 0)
    folds = set()
    for offset in range(1, 60):
        commit(tmp_path, offset)
        folds.add((tmp_path / GROUP_OFFSETS).read_bytes())
        journal, file = tmp_path / GROUP_OFFSETS_JOURNAL, (tmp_path / GROUP_OFFSETS).stat().st_size
        assert not journal.exists() or 0 < journal.stat().st_size <= file
        assert offset_in(tmp_path) == offset
    assert 20 < len(folds) < 40


@pytest.mark.parametrize("limit", [0, 400, 1 << 16])
def test_commits_that_stop_anywhere_are_there_whole_and_acknowledged_ones_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(LIMIT, limit)

    def run(storage: CrashingStorage, folder: Path) -> None:
        storage.reached = 0
        for offset in range(1, 6):
            commit(directory_at(folder, storage), offset)
            storage.reached = offset

    found = set()
    for crash in crashes(nothing, run, tmp_path, EVERY_LOSS):
        assert isinstance(crash.reached, int)
        offset = offset_in(crash.folder)
        assert offset in (crash.reached, crash.reached + 1), str(crash)
        found.add((offset, offset - crash.reached))
        commit(crash.folder, 9, "h")
        commit(crash.folder, 10, "h")
        assert (offset_in(crash.folder), offset_in(crash.folder, "h")) == (offset, 10), str(crash)
    assert found >= {*((n, 0) for n in range(6)), *((n, 1) for n in range(1, 6))}


def test_transactions_with_offsets_that_stop_anywhere_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMIT, 400)

    def run(storage: CrashingStorage, folder: Path) -> None:
        directory = directory_at(folder, storage)
        storage.reached = 0
        for offset in range(1, 5):
            decide(directory, "g", {EVENTS: at(offset), OTHER: at(offset)}, str(offset))
            storage.reached = offset
            if offset % 2:
                commit(directory, offset, "h")
            apply_journal(directory)

    for crash in crashes(nothing, run, tmp_path, EVERY_LOSS):
        assert isinstance(crash.reached, int)
        offset = offset_in(crash.folder, with_decided=True)
        assert offset in (crash.reached, crash.reached + 1), str(crash)
        of_h = offset_in(crash.folder, "h")
        commit(crash.folder, 7, "i")
        assert offset_in(crash.folder, with_decided=True) == offset, str(crash)
        apply_journal(directory_at(crash.folder))
        assert offset_in(crash.folder) == offset, str(crash)
        assert offset_in(crash.folder, "h") == of_h, str(crash)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("note_bytes", [0, 40, 90, 200])
def test_line_that_a_dead_process_has_not_synced_damages_no_commit_when_the_power_goes(
    tmp_path: Path, is_half: bool, note_bytes: int
) -> None:
    def prepare(folder: Path) -> None:
        for offset in (1, 2):
            commit(folder, offset)

    def run(storage: CrashingStorage, folder: Path) -> None:
        storage.reached = 2
        file, journal = folder / GROUP_OFFSETS, folder / GROUP_OFFSETS_JOURNAL
        stored = add_lines(parse_group_offsets(file.read_bytes(), ""), journal.read_bytes(), "")
        line = stored.line(CommittedOffsets({"dead": {EVENTS: OffsetCommit(7, "n" * note_bytes, NOW_MS)}}))
        assert line is not None
        with storage.open_for_append(str(journal)) as dead:
            dead.append(line[: len(line) // 2] if is_half else line)
        commit(directory_at(folder, storage), 3)
        storage.reached = 3
        commit(directory_at(folder, storage), 4)

    for crash in crashes(prepare, run, tmp_path, OFTEN):
        assert isinstance(crash.reached, int)
        assert offset_in(crash.folder) in (crash.reached, crash.reached + 1), str(crash)


def test_bytes_of_a_journal_that_counts_for_nothing_do_not_mix_with_new_ones(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        for offset in range(9):
            commit(folder, offset)
        # The next commit finds another file, as after a crash.
        (folder / GROUP_OFFSETS).write_bytes(CommittedOffsets().to_json("another"))

    def run(storage: CrashingStorage, folder: Path) -> None:
        storage.reached = 0
        for offset in (1, 2):
            commit(directory_at(folder, storage), offset)
            storage.reached = offset

    for crash in crashes(prepare, run, tmp_path, OFTEN):
        assert isinstance(crash.reached, int)
        assert offset_in(crash.folder) in (crash.reached, crash.reached + 1), str(crash)


def test_reader_whom_a_new_file_overtakes_takes_no_file_without_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit replaces the file and removes the journal between its reads of the two."""
    directory, limits = directory_at(tmp_path), [0]
    plain = _journals.read

    def read(place: LogDirectory, name: str, first: StoredOffsets) -> StoredOffsets:
        if limits:
            monkeypatch.setattr(LIMIT, limits.pop())
            commit(tmp_path, 4)
        return plain(place, name, first)

    for offset in (1, 2, 3):
        commit(tmp_path, offset)
    decide(directory, "g", {EVENTS: at(3), OTHER: at(3)})
    apply_journal(directory)
    assert len(lines(tmp_path)) == 3
    monkeypatch.setattr(_journals, "read", read)
    # It is lost if its number is not above the last one, which is in the journal.
    offered = next_transaction(directory, {"g": {EVENTS: OffsetCommit(5, "", 0)}})
    assert not (tmp_path / GROUP_OFFSETS_JOURNAL).exists()
    assert offered is not None
    assert offered.transactions == NOW_MS + 1
    assert offset_in(tmp_path) == 4


def test_commit_that_fails_anywhere_is_not_there_and_the_next_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0
    for is_full in (False, True):
        for fail_at in range(1, 12):
            for limit in (0, 1 << 16):
                monkeypatch.setattr(LIMIT, limit)
                folder = tmp_path / f"{is_full}-{fail_at}-{limit}"
                folder.mkdir()
                commit(folder, 1)
                (folder / GROUP_OFFSETS_JOURNAL).unlink(missing_ok=True)
                commit(folder, 2)
                commit(folder, 3)
                storage = FailingStorage(folder, fail_at, is_full=is_full)
                try:
                    commit(directory_at(folder, storage), 4)
                    expected = 4
                except StorageError:
                    # The name of a file that was put in place may not be on the disk.
                    is_in_place = any(call.startswith("rename") for call in storage.calls[:-1])
                    failed, expected = failed + 1, 4 if is_in_place and storage.calls[-1] == "sync_folder ." else 3
                assert offset_in(folder) == expected, (is_full, storage.calls)
                commit(folder, 5)
                assert offset_in(folder) == 5
    assert failed > 10


def journal_of(count: int) -> tuple[bytes, bytes]:
    """Return a file of offsets with metadata, and a journal of so many lines."""
    file = CommittedOffsets({"g": {EVENTS: OffsetCommit(1, "a @ J", NOW_MS)}}, 7, topics={"events": "id"}).to_json("x")
    stored, journal = parse_group_offsets(file, ""), b""
    for offset in range(count):
        line = stored.line(CommittedOffsets({"g @ J": {EVENTS: at(offset)}}))
        assert line is not None
        journal += line
        stored = add_lines(stored, line, "")
    return file, journal


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for position in range(len(data)):
        for bit in range(8):
            yield position, data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def test_file_with_a_flipped_bit_is_refused() -> None:
    file, _ = journal_of(0)
    for _, flipped in flips(file):
        with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets"):
            parse_group_offsets(flipped, GROUP_OFFSETS)


def test_flipped_bit_is_an_error_unless_it_makes_the_last_line_one_that_a_crash_leaves() -> None:
    file, journal = journal_of(3)
    first, starts = parse_group_offsets(file, ""), [0]
    for line in journal.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    whole, left_out = add_lines(first, journal, ""), 0
    assert whole.end_position == starts.pop() == len(journal)
    for position, flipped in flips(journal):
        start = max(each for each in starts if each <= position)
        if position >= starts[-1] and (flipped[-1:] != b"\n" or flipped[position] == 0):
            found = add_lines(first, flipped, "")
            assert (found.end_position, found.offsets.groups["g @ J"]) == (starts[-1], {EVENTS: at(1)})
            left_out += 1
        else:
            with pytest.raises(CorruptCheckpointError) as caught:
                add_lines(first, flipped, GROUP_OFFSETS_JOURNAL)
            assert (caught.value.path, caught.value.position) == (GROUP_OFFSETS_JOURNAL, start), position
    assert left_out == 8 + sum(journal[starts[-1] :].count(each) for each in b" @")


def test_journal_cut_anywhere_has_its_whole_lines() -> None:
    file, journal = journal_of(3)
    first = parse_group_offsets(file, "")
    for cut in range(len(journal)):
        for zeros in (0, 1, 100):
            found = add_lines(first, journal[:cut] + b"\0" * zeros, "")
            assert found.end_position == journal.rfind(b"\n", 0, cut) + 1


def test_journal_whose_lines_are_others_is_refused_and_not_written_to(tmp_path: Path) -> None:
    for offset in range(5):
        commit(tmp_path, offset)
    one, two, three, four = lines(tmp_path)
    for wrong in ([one, three, four], [one, two, two, three], [two, one], [two], [one, b"\n", two], [b"x" + one]):
        (tmp_path / GROUP_OFFSETS_JOURNAL).write_bytes(b"".join(wrong))
        with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets\.journal.*Nothing is changed"):
            read_group_offsets(directory_at(tmp_path))
        with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets\.journal"):
            commit(tmp_path, 9)
        assert (tmp_path / GROUP_OFFSETS_JOURNAL).read_bytes() == b"".join(wrong)
    (tmp_path / GROUP_OFFSETS_JOURNAL).write_bytes(one + two)
    assert offset_in(tmp_path) == 2


def test_journal_of_another_file_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for offset in (1, 2, 3):
        commit(tmp_path, offset)
    earlier = {name: (tmp_path / name).read_bytes() for name in (GROUP_OFFSETS, GROUP_OFFSETS_JOURNAL)}
    monkeypatch.setattr(LIMIT, 0)
    commit(tmp_path, 4)
    assert not (tmp_path / GROUP_OFFSETS_JOURNAL).exists()
    # The journal comes back, as after a crash.
    (tmp_path / GROUP_OFFSETS_JOURNAL).write_bytes(earlier[GROUP_OFFSETS_JOURNAL])
    assert offset_in(tmp_path) == 4
    monkeypatch.undo()
    commit(tmp_path, 5)
    assert (offset_in(tmp_path), len(lines(tmp_path))) == (5, 1)
    # A file of an earlier version, one that is lost, and one of a backup, with its journal and without.
    old = b'{"version": 1, "groups": {"g": {"events": {"0": [1, "", 8], "1": [1, "", 8]}}}}'
    for file, journal, expected in (
        (old, None, 1),
        (None, None, 0),
        (earlier[GROUP_OFFSETS], None, 1),
        (earlier[GROUP_OFFSETS], earlier[GROUP_OFFSETS_JOURNAL], 3),
    ):
        commit(tmp_path, 6)
        commit(tmp_path, 7)
        assert lines(tmp_path)
        (tmp_path / GROUP_OFFSETS).unlink()
        if file is not None:
            (tmp_path / GROUP_OFFSETS).write_bytes(file)
        if journal is not None:
            (tmp_path / GROUP_OFFSETS_JOURNAL).write_bytes(journal)
        assert offset_in(tmp_path) == expected
        commit(tmp_path, 8, "h")
        assert (offset_in(tmp_path), offset_in(tmp_path, "h")) == (expected, 8)


def test_file_of_an_earlier_version_is_read_and_continued(tmp_path: Path) -> None:
    data = (
        b'{\n "version": 1, "transactions": 5, "groups": {"g": {"events": {"0": [4, "m", 8]}}}, "topics": {},'
        b'"before": {"g": {"events": {"0": [3, "", 7]}}}}'
    )
    (tmp_path / GROUP_OFFSETS).write_bytes(data)
    directory = directory_at(tmp_path)
    assert read_group_offsets(directory) == {"g": {EVENTS: OffsetCommit(4, "m", 8)}}
    assert (tmp_path / GROUP_OFFSETS).read_bytes() == data
    commit_group_offsets(directory, "g", {OTHER: at(1)})
    assert read_group_offsets(directory) == {"g": {EVENTS: OffsetCommit(4, "m", 8), OTHER: at(1)}}
    # An earlier version would not see the journal. It refuses a file that has one.
    assert (tmp_path / GROUP_OFFSETS).read_bytes().startswith(b'{"version":2,')


def in_child(act: Callable[[], None]) -> int:
    """Fork a process that does something, and return its id."""
    child = os.fork()
    if not child:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return child


def ended_well(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_processes_that_commit_in_turn_see_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMIT, 600)
    for offset in range(1, 30, 2):
        commit(tmp_path, offset)

        def act(expected: int = offset) -> None:
            assert offset_in(tmp_path) == expected
            commit(tmp_path, expected + 1)

        assert ended_well(in_child(act))
        assert offset_in(tmp_path) == offset + 1


def test_processes_that_commit_at_once_lose_nothing_and_readers_see_no_step_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMIT, 600)
    commit(tmp_path, 1, "all")
    count, groups = 40, ("g0", "g1", "g2")

    def loop(group: str) -> None:
        for offset in range(1, count + 1):
            commit(tmp_path, offset, group)

    children = [in_child(lambda group=group: loop(group)) for group in groups]  # type: ignore[misc]
    seen, ends = dict.fromkeys(groups, 0), time.monotonic() + 60
    while min(seen.values()) < count and time.monotonic() < ends:
        for group in groups:
            found = offset_in(tmp_path, group)
            assert found >= seen[group]
            seen[group] = found
        assert offset_in(tmp_path, "all") == 1
    assert all(ended_well(child) for child in children)
    assert seen == dict.fromkeys(groups, count)


class Oracle:
    """What groups have committed, in dicts: all of it, and what an undone transaction still hides."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, TopicPartition], OffsetCommit] = {}
        self.hidden: dict[tuple[str, TopicPartition], OffsetCommit] = {}

    def commit(self, group: str, offsets: dict[TopicPartition, OffsetCommit]) -> None:
        for at, each in offsets.items():
            known = self.seen.get((group, at), each)
            self.seen[group, at] = each._replace(timestamp=max(each.timestamp, known.timestamp))
            self.hidden.pop((group, at), None)

    def decide(self, group: str, offsets: dict[TopicPartition, OffsetCommit]) -> None:
        hidden = {(group, at): self.seen.get((group, at), OffsetCommit(NO_OFFSET, "", 0)) for at in offsets}
        self.commit(group, offsets)
        self.hidden = hidden

    def forget(self, partition: TopicPartition, now_ms: int) -> None:
        for group, at in list(self.seen):
            if at == partition:
                self.commit(group, {at: OffsetCommit(NO_OFFSET, "", now_ms)})

    def check(self, directory: LogDirectory) -> None:
        for with_decided, expected in ((True, self.seen), (False, {**self.seen, **self.hidden})):
            found = read_group_offsets(directory, with_decided=with_decided)
            assert flat(found) == {key: each for key, each in expected.items() if each.offset != NO_OFFSET}
            for group in ("g", "h"):
                alone = read_group_offsets(directory, group, with_decided=with_decided)
                assert flat(alone) == {key: each for key, each in flat(found).items() if key[0] == group}


def flat(groups: GroupOffsets) -> dict[tuple[str, TopicPartition], OffsetCommit]:
    pairs = ((group, at, each) for group, offsets in groups.items() for at, each in offsets.items())
    return {(group, at): each for group, at, each in pairs if each.offset != NO_OFFSET}


@pytest.mark.parametrize("seed", range(8))
def test_any_history_is_read_as_dicts_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng, oracle, logs = random.Random(seed), Oracle(), tmp_path / "logs"
    logs.mkdir()
    directory = directory_at(logs)
    partitions = [TopicPartition(topic, number) for topic in ("events", "orders") for number in range(3)]
    for step in range(60):
        monkeypatch.setattr(LIMIT, rng.choice([0, 500, 500, 1 << 16]))
        now_ms = NOW_MS + rng.randrange(-50, 50) + step
        group = rng.choice("gh")
        offsets = {each: OffsetCommit(rng.randrange(99), "", now_ms) for each in rng.sample(partitions, 3)}
        action = rng.choice(["commit"] * 4 + ["decide", "carry out", "forget", "again"])
        if action == "commit":
            commit_group_offsets(directory, group, offsets)
            oracle.commit(group, offsets)
        elif action == "again":
            # Nothing of another directory is known yet.
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(logs, tmp_path / "copy")
            oracle.check(directory_at(tmp_path / "copy"))
        else:
            apply_journal(directory)
            oracle.hidden = {}
            if action == "decide":
                decide(directory, group, offsets, f"{step:x}")
                oracle.decide(group, offsets)
            if action == "forget":
                gone = rng.choice(partitions)
                forget_offsets(directory, lambda at, gone=gone: at == gone, now_ms, 60)  # type: ignore[misc]
                oracle.forget(gone, now_ms)
        oracle.check(directory)


SIZES = (10, 100, 1000)


def groups_of(folder: Path, count: int) -> None:
    """Make a file with the offsets of so many groups in a hundred partitions each."""
    folder.mkdir()
    offsets = {TopicPartition("events", number): at(number) for number in range(100)}
    data = CommittedOffsets({f"group-{number}": offsets for number in range(count)}).to_json(str(count))
    (folder / GROUP_OFFSETS).write_bytes(data)
    settle(folder)


def test_work_of_commits_and_of_a_look_at_one_group_does_not_grow_with_the_groups(tmp_path: Path) -> None:
    commits, looks = list[Work](), list[Work]()
    for count in SIZES:
        folder = tmp_path / str(count)
        groups_of(folder, count)
        commit(folder, 1, "group-3")
        settle(folder)
        read_group_offsets(directory_at(folder))
        with counted_work() as work:
            for offset in range(100):
                commit(folder, offset, "group-3")
        commits.append(work)
        settle(folder)
        read_group_offsets(directory_at(folder))
        with counted_work() as work:
            for _ in range(100):
                assert committed(directory_at(folder), "group-5", of_cluster={})[OTHER].offset == 1
        looks.append(work)
    for found in (commits, looks):
        for each in found[1:]:
            for name, value in vars(each).items():
                assert value <= 1.1 * max(vars(found[0])[name], 1), (name, found)


def test_replacing_the_file_costs_a_commit_no_more_than_its_own_line(tmp_path: Path) -> None:
    """Amortised: the file is written again after as many bytes of lines as it has."""
    for count in SIZES[:2]:
        folder = tmp_path / str(count)
        groups_of(folder, count)
        offsets = {TopicPartition("events", number): at(number) for number in range(100)}
        commit_group_offsets(directory_at(folder), "group-3", offsets)
        line_bytes, commits = (folder / GROUP_OFFSETS_JOURNAL).stat().st_size, 0
        with counted_work() as work:
            while (folder / GROUP_OFFSETS_JOURNAL).exists():
                commit_group_offsets(directory_at(folder), "group-3", offsets)
                commits += 1
        assert commits > 0.9 * count
        assert work.written_bytes < 2.2 * (commits + 1) * line_bytes
