"""Many open logs in a process that may have few files open: the least recently used let go of theirs."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import StorageError
from sparklog.log.config import LogConfig
from sparklog.log.files import LOG_IDENTITY
from sparklog.log.reader import open_log
from sparklog.storage.base import WritableFile
from sparklog.write import open_files
from sparklog.write.partition import LogWriter
from tests.limits import descriptors_beneath, with_open_files
from tests.storage.crash import EVERY_LOSS, CrashingStorage, crashes
from tests.storage.wrapping import WrappedFile, WrappedStorage
from tests.write.test_partition import findings
from tests.write.test_sharing import in_child, run_all

PLAIN = LogConfig(compression_type="uncompressed")
LIMIT, OPEN_LOGS = 20, 4
"""With so few files, so many logs have theirs open."""
MANY, MANY_LIMIT = 150, 100


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    open_files._used.clear()
    monkeypatch.setattr(open_files, "files_max", lambda: LIMIT)
    yield
    open_files._used.clear()


def opened(
    directory: Path, count: int, held: ExitStack, config: LogConfig = PLAIN, **options: object
) -> list[LogWriter]:
    """Open logs, of which only the last few have their files open afterwards."""
    paths = [directory / f"events-{number}" for number in range(count)]
    return [held.enter_context(LogWriter.open(path, config, **options)) for path in paths]  # type: ignore[arg-type]


def row(value: bytes) -> dict[str, list[bytes]]:
    return {"value": [value]}


def values(folder: Path) -> list[bytes]:
    with open_log(folder) as log:
        found: list[bytes] = log.read(columns="value")["value"].to_pylist()
    return found


# Many logs


def write_by_hand(directory: Path) -> None:
    order = random.Random(0)
    with ExitStack() as held:
        logs = [held.enter_context(sparklog.PartitionLog.open(directory / f"events-{n}")) for n in range(MANY)]
        for number in range(3):
            for log in order.sample(logs, MANY):
                log.append(row(b"%d" % number))


def test_logs_by_hand_are_more_than_may_be_open(tmp_path: Path) -> None:
    with_open_files(MANY_LIMIT, write_by_hand, tmp_path)
    for number in range(MANY):
        assert values(tmp_path / f"events-{number}") == [b"0", b"1", b"2"]
        assert findings(tmp_path / f"events-{number}") == []


def test_log_that_was_used_last_keeps_its_files_open(tmp_path: Path) -> None:
    with ExitStack() as held:
        logs = opened(tmp_path, 10, held)
        locks = descriptors_beneath(tmp_path) - 3 * OPEN_LOGS
        assert 0 < locks < 3
        for _ in range(3):
            for log in (logs[0], *logs[5:7]):
                log.append(row(b"a"))
        assert [log._end.files.are_open for log in logs[:1] + logs[5:7]] == [True] * 3
        assert descriptors_beneath(tmp_path) - locks <= 3 * OPEN_LOGS
    assert descriptors_beneath(tmp_path) == 0


@pytest.mark.parametrize("preallocate", [False, True])
def test_log_that_let_go_ends_like_one_that_did_not(tmp_path: Path, preallocate: bool) -> None:
    config = replace(PLAIN, segment_bytes=2000, segment_index_bytes=1 << 12, index_interval_bytes=0)
    config = replace(config, preallocate=preallocate)
    for name, others in (("few", 0), ("many", 9)):
        with ExitStack() as held:
            log, *rest = opened(tmp_path / name, 1 + others, held, config, clock=lambda: 1, rng=lambda: 0)
            for number in range(30):
                log.append({"value": [b"%d" % number * 10], "timestamp": [number]}, now_ms=1)
                for each in rest:
                    each.append(row(b"x"))
                assert log._end.files.are_open != bool(rest)
    files = {path.name: path.read_bytes() for path in (tmp_path / "few" / "events-0").iterdir()}
    again = {path.name: path.read_bytes() for path in (tmp_path / "many" / "events-0").iterdir()}
    # Each log has an id of its own.
    assert {name for name in files if files[name] != again.get(name)} == {LOG_IDENTITY}
    assert len([name for name in files if name.endswith(".log") and name[0] == "0"]) > 1
    assert files.keys() == again.keys()
    assert findings(tmp_path / "many" / "events-0") == []


def test_open_logs_are_flushed_and_closed_without_room(tmp_path: Path) -> None:
    with ExitStack() as held:
        logs = opened(tmp_path, 10, held)
        for log in logs:
            log.append(row(b"a"))
        for log in logs:
            log.flush()
        assert [log.end_offset for log in logs] == [1] * 10
    assert not open_files._used
    assert [values(tmp_path / f"events-{n}") for n in range(10)] == [[b"a"]] * 10


# Crashes and errors


def test_flushed_records_of_logs_that_let_go_survive_a_crash_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_SYNCS_AT_ONCE", 1)
    monkeypatch.setattr(open_files, "files_max", lambda: 1)
    monkeypatch.setattr(open_files, "_LOGS_MIN", 1)

    def run(storage: CrashingStorage, folder: Path) -> None:
        storage.reached = 0
        with ExitStack() as held:
            logs = opened(folder, 2, held, storage=storage)
            for number in range(1, 4):
                for log in logs:
                    log.append(row(b"%d" % number))
                for log in logs:
                    log.flush()
                storage.reached = number

    checked = 0
    for crash in crashes(lambda _: None, run, tmp_path, EVERY_LOSS):
        assert isinstance(crash.reached, int)
        for number in range(2):
            folder = crash.folder / f"events-{number}"
            if not folder.exists():
                assert not crash.reached
                continue
            LogWriter.open(folder, PLAIN).close()
            found, flushed = values(folder), [b"1", b"2", b"3"][: crash.reached]
            assert found == [b"1", b"2", b"3"][: len(found)], str(crash)
            # The first log had synced them when it let go of its files.
            assert found[: len(flushed)] == flushed, str(crash)
            assert findings(folder) == [], str(crash)
            checked += bool(flushed)
    assert checked > 50


class FailingSync(WrappedStorage):
    """A disk that cannot sync the files of one log."""

    folder = ""
    syncs = 0

    def open_for_append(self, path: str) -> WritableFile:
        return FailingFile(self.inner.open_for_append(path), self)


class FailingFile(WrappedFile):
    def __init__(self, file: WritableFile, storage: FailingSync) -> None:
        super().__init__(file)
        self._storage = storage

    def sync(self) -> None:
        self._storage.syncs += 1
        if self._storage.folder and self._storage.folder in self.path:
            raise StorageError("the disk is gone")
        super().sync()


def test_log_that_could_not_be_synced_for_others_tells_its_own_user(tmp_path: Path) -> None:
    storage = FailingSync()
    with ExitStack() as held:
        log = LogWriter.open(tmp_path / "broken-0", PLAIN, storage=storage)
        log.append(row(b"a"))
        storage.folder = "broken-0"
        for each in opened(tmp_path, 10, held, storage=storage):
            assert each.append(row(b"b")) == (0, 0)
        with pytest.raises(StorageError, match=r"broken-0 could not be synced while nobody used it.*the disk is gone"):
            log.append(row(b"c"))
        for call in (log.flush, log.close):
            with pytest.raises(StorageError, match=r"broken-0 could not be put right after an error"):
                call()
        log.close()
    storage.folder = ""
    with LogWriter.open(tmp_path / "broken-0", PLAIN, storage=storage) as log:
        assert log.append(row(b"c")) == (1, 1)
    assert not open_files._used


def test_records_are_synced_once_by_a_flush_and_not_again_for_others(tmp_path: Path) -> None:
    storage = FailingSync()
    with ExitStack() as held:
        logs = opened(tmp_path, 8, held, storage=storage)
        for log in logs[:4]:
            log.append(row(b"a"))
            log.flush()
        before = storage.syncs
        for log in logs[4:]:
            log.append(row(b"a"))
        assert not any(log._end.files.are_open for log in logs[:3])
        assert storage.syncs == before


@pytest.mark.parametrize("change", ["longer", "shorter", "gone"])
def test_file_that_another_program_changed_meanwhile_is_refused_and_left(tmp_path: Path, change: str) -> None:
    with ExitStack() as held:
        log = LogWriter.open(tmp_path / "changed-0", PLAIN)
        log.append(row(b"a"))
        opened(tmp_path, 8, held)
        path = tmp_path / "changed-0" / f"{0:020}.log"
        if change == "gone":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size + (1 if change == "longer" else -1))
        for call in (lambda: log.append(row(b"b")), lambda: log.append(row(b"b")), log.close):
            with pytest.raises(StorageError, match="another program has changed it while the log was open") as raised:
                call()
            assert str(path) in str(raised.value)
        assert path.exists() == (change != "gone")
        log.close()
        if change == "shorter":
            LogWriter.open(tmp_path / "changed-0", PLAIN).close()


def test_logs_let_go_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with ExitStack() as held:
        logs = opened(tmp_path, 8, held)
        assert sum(log._end.files.are_open for log in logs) <= OPEN_LOGS


# Threads and processes


def test_threads_append_while_their_logs_let_go(tmp_path: Path) -> None:
    given: dict[tuple[int, int], list[int]] = {}
    with ExitStack() as held:
        logs = opened(tmp_path, 12, held)

        def append(thread: int) -> None:
            order = random.Random(thread)
            for number in range(300):
                log = order.randrange(len(logs))
                first, _ = logs[log].append(row(b"%d %d" % (thread, number)))
                given.setdefault((thread, log), []).append(first)
                if not number % 50:
                    logs[log].flush()

        run_all(*(lambda thread=thread: append(thread) for thread in range(4)))
    for log in range(12):
        offsets = sorted(offset for (_, each), found in given.items() if each == log for offset in found)
        found = values(tmp_path / f"events-{log}")
        assert offsets == list(range(len(found)))
        for thread in range(4):
            numbers = [int(each.split()[1]) for each in found if each.startswith(b"%d " % thread)]
            assert numbers == sorted(numbers)
        assert findings(tmp_path / f"events-{log}") == []


def test_forked_process_has_no_files_of_its_parents_logs_and_opens_logs_of_its_own(tmp_path: Path) -> None:
    with ExitStack() as held:
        logs = opened(tmp_path / "parent", 8, held)
        stop = threading.Event()

        def append() -> None:
            while not stop.is_set():
                for log in logs:
                    log.append(row(b"a"))

        def use(child: int) -> None:
            # A thread of the parent may have been opening the files of one log.
            assert descriptors_beneath(tmp_path / "parent") <= 3
            with ExitStack() as own:
                for log in opened(tmp_path / f"child-{child}", 8, own):
                    log.append(row(b"b"))

        appending = threading.Thread(target=append)
        appending.start()
        for number in range(5):
            assert in_child(lambda child=number: use(child)) == 0  # type: ignore[misc]
        stop.set()
        appending.join()
        ends = [log.end_offset for log in logs]
    assert [len(values(tmp_path / "parent" / f"events-{n}")) for n in range(8)] == ends
    assert min(ends) > 0
    for child in range(5):
        assert [values(tmp_path / f"child-{child}" / f"events-{n}") for n in range(8)] == [[b"b"]] * 8
