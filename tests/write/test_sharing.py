"""One log and many who would write to it: threads, other handles, forked processes, and the timer that flushes it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError, LockedError, StorageError
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log.config import LogConfig
from sparklog.log.reader import open_log
from sparklog.storage.base import WritableFile
from sparklog.storage.local_writing import LocalWritableFile, LocalWritableStorage
from sparklog.write.locking import hold
from sparklog.write.partition import LogWriter
from tests.places import directory_at, folder_at

PLAIN = LogConfig(compression_type="uncompressed")


def table(*values: bytes) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def values(folder: Path) -> list[bytes]:
    with open_log(folder) as log:
        found: list[bytes] = log.read(columns=["value"])["value"].to_pylist()
    return found


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: names and contents, but of the locks, which would be lost if they were opened."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and "lock" not in path.name else None
        for path in folder.rglob("*")
    }


def in_child(act: Callable[[], object]) -> int:
    """Run something in a forked process; its exit status, 0 where nothing was raised."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    for _ in range(600):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError("the forked process hangs")


def run_all(*actions: Callable[[], None]) -> None:
    """Run each in a thread of its own; raise what one of them raised."""
    errors: list[BaseException] = []

    def guarded(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


# Threads


def test_four_threads_append_and_every_offset_is_given_out_once(tmp_path: Path) -> None:
    """Small segments: they roll while the others wait."""
    config = LogConfig(compression_type="uncompressed", segment_bytes=1 << 20, segment_index_bytes=4096)
    config = replace(config, index_interval_bytes=0)
    given: dict[int, list[tuple[int, int]]] = {n: [] for n in range(4)}
    ends: list[int] = []
    with LogWriter.open(tmp_path / "events-0", config) as log:

        def append(thread: int) -> Callable[[], None]:
            def run() -> None:
                for n in range(800):
                    given[thread].append(log.append(table(*(b"%d %d %d" % (thread, n, row) for row in range(n % 3)))))
                    ends.append(log.end_offset)
                    if n % 100 == 0:
                        log.flush()

            return run

        run_all(*(append(thread) for thread in range(4)))
        assert log.start_offset == 0
        assert log.end_offset == 4 * sum(n % 3 for n in range(800))
    offsets = sorted(offset for ranges in given.values() for first, last in ranges for offset in range(first, last + 1))
    assert offsets == list(range(len(offsets)))
    found = values(tmp_path / "events-0")
    for thread, ranges in given.items():
        own = [b"%d %d %d" % (thread, n, row) for n in range(800) for row in range(n % 3)]
        assert [value for value in found if value.startswith(b"%d " % thread)] == own
        assert [found[offset] for first, last in ranges for offset in range(first, last + 1)] == own
    assert len(list((tmp_path / "events-0").glob("*.log"))) > 1
    events = verify_partition(folder_at(tmp_path / "events-0"))
    assert [each for each in events if isinstance(each, Finding) and each.severity is not Severity.NOTE] == []


def test_log_that_is_closed_while_threads_append_refuses_the_rest(tmp_path: Path) -> None:
    log = LogWriter.open(tmp_path / "events-0", PLAIN)
    appended: list[bytes] = []
    told: list[str] = []
    begun = threading.Barrier(4)

    def append() -> None:
        begun.wait()
        for n in range(10_000):
            value = b"%d %d" % (threading.get_ident(), n)
            try:
                log.append(table(value))
            except StorageError as error:
                told.append(str(error))
                return
            appended.append(value)

    def close() -> None:
        begun.wait()
        time.sleep(0.1)
        log.close()

    run_all(append, append, append, close)
    assert 0 < len(appended) < 30_000
    assert len(told) == 3
    assert all("is closed" in each for each in told)
    assert sorted(values(tmp_path / "events-0")) == sorted(appended)
    LogWriter.open(tmp_path / "events-0").close()


def test_handler_of_a_signal_does_not_write_in_the_midst_of_an_append(tmp_path: Path) -> None:
    """A lock does not keep the thread that holds it out."""

    class Signalling(LocalWritableFile):
        def append(self, data: bytes | bytearray | memoryview) -> None:
            super().append(data)
            if self.path.endswith(".log"):
                signal.raise_signal(signal.SIGUSR1)

    class SignallingStorage(LocalWritableStorage):
        def open_for_append(self, path: str) -> WritableFile:
            return Signalling(path)

    with LogWriter.open(tmp_path / "events-0", PLAIN) as log:
        log.append(table(b"before"))
    told: list[str] = []

    def handle(*_: object) -> None:
        for act in (lambda: log.append(table(b"handler")), log.flush, log.close):
            with pytest.raises(StorageError) as raised:
                act()
            told.append(str(raised.value))

    old = signal.signal(signal.SIGUSR1, handle)
    try:
        with LogWriter.open(tmp_path / "events-0", PLAIN, storage=SignallingStorage()) as log:
            assert log.append(table(b"after")) == (1, 1)
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert len(told) == 3
    assert all("is being written to by this thread" in each for each in told)
    assert values(tmp_path / "events-0") == [b"before", b"after"]


# Handles


SPELLINGS: dict[str, Callable[[Path, Path], Path | str]] = {
    "the same": lambda logs, _: logs / "events-0",
    "..": lambda logs, _: f"{logs}/../{logs.name}/events-0",
    ".. from within": lambda logs, _: f"{logs}/events-0/../events-0",
    ".. behind a link": lambda logs, elsewhere: f"{linked(elsewhere / 'within', logs / 'other-0')}/../events-0",
    ".": lambda logs, _: f"{logs}/./events-0/.",
    "slashes": lambda logs, _: f"/{logs}//events-0//",
    "URL": lambda logs, _: f"file://{logs}/events%2D0",
    "link to the log directory": lambda logs, elsewhere: linked(elsewhere / "logs", logs) / "events-0",
    "link beside it": lambda logs, _: linked(logs / "link-0", logs / "events-0"),
    "link elsewhere": lambda logs, elsewhere: linked(elsewhere / "events-0", logs / "events-0"),
    "link of another name": lambda logs, elsewhere: linked(elsewhere / "e", logs / "events-0"),
    "link to a link": lambda logs, elsewhere: linked(
        elsewhere / "events-0", linked(elsewhere / "e", logs / "events-0")
    ),
}


def linked(link: Path, target: Path) -> Path:
    link.parent.mkdir(exist_ok=True)
    target.mkdir(exist_ok=True)
    link.symlink_to(target)
    return link


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_folder_is_one_writers_however_its_path_is_spelled(tmp_path: Path, spelling: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with LogWriter.open(logs / "events-0") as log:
        log.append(table(b"first"))
        other = SPELLINGS[spelling](logs, tmp_path / "elsewhere")
        with pytest.raises(LockedError, match="is open in this process already") as raised:
            LogWriter.open(other)
        assert str(other) in str(raised.value)
        assert str(logs / "events-0") in str(raised.value)
        log.append(table(b"second"))
    assert values(logs / "events-0") == [b"first", b"second"]
    if not spelling.startswith("link"):
        with LogWriter.open(other) as log:
            assert log.append(table(b"third")) == (2, 2)
        assert "elsewhere" not in [path.name for path in (tmp_path / "elsewhere").rglob("seglog.*")]


def test_relative_path_is_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with LogWriter.open("logs/events-0"), pytest.raises(LockedError):
        LogWriter.open(tmp_path / "logs" / "events-0")


def test_folder_that_was_moved_or_made_anew_is_its_writers_until_it_closes(tmp_path: Path) -> None:
    folder, moved = tmp_path / "events-0", tmp_path / "moved-0"
    log = LogWriter.open(folder, PLAIN)
    folder.rename(moved)
    for _ in range(2):
        for path in (folder, moved):
            with pytest.raises(LockedError):
                LogWriter.open(path, PLAIN)
        folder.mkdir(exist_ok=True)
    log.close()
    LogWriter.open(folder, PLAIN).close()


@pytest.mark.parametrize("name", ["events-0", "other-0", "e"])
def test_link_to_a_partitions_folder_is_not_written_to(tmp_path: Path, name: str) -> None:
    """A broker on the one directory and a writer on the other would both have a lock."""
    logs = tmp_path / "logs"
    with LogWriter.open(logs / "events-0") as log:
        log.append(table(b"first"))
    link = linked(tmp_path / "disk" / name, logs / "events-0")
    before = tree(tmp_path)
    with pytest.raises(InvalidOptionError, match="is a link to") as raised:
        LogWriter.open(link)
    assert str(logs / "events-0") in str(raised.value)
    assert tree(tmp_path) == before
    assert values(link) == [b"first"]


def test_lock_of_a_directory_is_shared_through_a_link_and_kept_until_the_last_has_closed(tmp_path: Path) -> None:
    """A second descriptor of the lock's file, closed, would take the lock from all of the process."""
    logs = tmp_path / "logs"
    link = tmp_path / "link"
    first = LogWriter.open(logs / "events-0")
    link.symlink_to(logs)
    LogWriter.open(link / "events-1").close()
    with pytest.raises(LockedError), hold(directory_at(link), 0.1):
        pass

    def ask() -> None:
        with pytest.raises(LockedError):
            LogWriter.open(logs / "events-1", lock_timeout_seconds=0.1)

    assert in_child(ask) == 0
    first.close()
    assert in_child(lambda: LogWriter.open(logs / "events-1", lock_timeout_seconds=0.1).close()) == 0


def test_marker_of_a_clean_shutdown_is_hidden_until_the_last_spelling_has_closed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "link").symlink_to(logs)
    marker = logs / ".kafka_cleanshutdown"
    marker.write_text("{}")
    with LogWriter.open(logs / "events-0"):
        with LogWriter.open(tmp_path / "link" / "events-1"):
            assert not marker.exists()
        assert not marker.exists()
    assert marker.read_text() == "{}"


# Forked processes


def test_forked_process_does_not_write_with_its_parents_log(tmp_path: Path) -> None:
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_text("{}")
    with LogWriter.open(tmp_path / "events-0", LogConfig(preallocate=True, flush_ms=60_000)) as log:
        log.append(table(b"parent"))
        before = tree(tmp_path)

        def use() -> None:
            acts: list[Callable[[], object]] = [
                lambda: log.append(table(b"child")),
                log.flush,
                lambda: log.end_offset,
                lambda: log.start_offset,
            ]
            for act in acts:
                with pytest.raises(LockedError, match=f"opened by process {os.getppid()}, and this is process"):
                    act()
            assert "opened by process" in repr(log)
            # In the parent it is still open, and the kernel knows.
            with pytest.raises(LockedError):
                LogWriter.open(tmp_path / "events-0", lock_timeout_seconds=0.1)
            log.close()
            log.close()
            with pytest.raises(LockedError):
                LogWriter.open(tmp_path / "events-0", lock_timeout_seconds=0.1)

        assert in_child(use) == 0
        # The child has waited for its turn.
        assert tree(tmp_path) == {**before, "seglog.queue": b""}
        assert not marker.exists()
        with pytest.raises(LockedError):
            LogWriter.open(tmp_path / "events-0")
        assert log.append(table(b"parent again")) == (1, 1)
    assert values(tmp_path / "events-0") == [b"parent", b"parent again"]
    assert marker.exists()


def test_forked_process_leaves_the_with_block_of_its_parent_without_a_trace(tmp_path: Path) -> None:
    def fork_within() -> int:
        with LogWriter.open(tmp_path / "events-0", PLAIN) as log:
            log.append(table(b"parent"))
            before = tree(tmp_path)
            process = os.fork()
            if process:
                assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
                assert tree(tmp_path) == before
                log.append(table(b"again"))
        return process

    status = 1
    try:
        process = fork_within()
        status = 0
    finally:
        if "process" not in locals() or not process:
            os._exit(status)
    assert values(tmp_path / "events-0") == [b"parent", b"again"]


def test_forked_process_opens_a_log_of_its_own_when_the_parent_has_closed(tmp_path: Path) -> None:
    log = LogWriter.open(tmp_path / "events-0", PLAIN)
    log.append(table(b"parent"))
    to_child, to_parent = os.pipe(), os.pipe()

    def wait_and_append() -> None:
        os.write(to_parent[1], b".")
        os.read(to_child[0], 1)
        with LogWriter.open(tmp_path / "events-0", PLAIN) as own:
            assert own.append(table(b"child")) == (1, 1)
            # The parent's handle lets go of nothing of this one's.
            log.close()
            with pytest.raises(LockedError):
                LogWriter.open(tmp_path / "events-0", PLAIN)
            assert own.append(table(b"again")) == (2, 2)

    def close() -> None:
        os.read(to_parent[0], 1)
        log.close()
        os.write(to_child[1], b".")

    closer = threading.Thread(target=close)
    closer.start()
    assert in_child(wait_and_append) == 0
    closer.join()
    assert values(tmp_path / "events-0") == [b"parent", b"child", b"again"]


def test_forked_process_is_not_stopped_by_locks_that_threads_of_its_parent_held(tmp_path: Path) -> None:
    """Threads that append, open and close all the time: at the fork they hold whatever there is to hold.

    The child appends nothing: Arrow's functions import modules when they are called, and Python's locks of imports are
    not made anew in a child.
    """
    is_done = threading.Event()
    log = LogWriter.open(tmp_path / "events-0", PLAIN)

    def append() -> None:
        while not is_done.is_set():
            log.append(table(b"parent"))

    def reopen() -> None:
        while not is_done.is_set():
            LogWriter.open(tmp_path / "events-1", PLAIN).close()

    def use(n: int) -> Callable[[], None]:
        def run() -> None:
            with pytest.raises(LockedError):
                log.append(table(b"child"))
            log.close()
            with pytest.raises(LockedError):
                LogWriter.open(tmp_path / "events-1", PLAIN, lock_timeout_seconds=0)
            with LogWriter.open(tmp_path / f"own{n}" / "events-0", PLAIN) as own:
                own.flush()

        return run

    def fork() -> None:
        try:
            assert [in_child(use(n)) for n in range(20)] == [0] * 20
        finally:
            is_done.set()

    run_all(append, reopen, fork)
    end_offset = log.end_offset
    log.close()
    assert values(tmp_path / "events-0") == [b"parent"] * end_offset


def test_lock_of_a_directory_is_not_inherited(tmp_path: Path) -> None:
    """What a commit holds: a child that asks for it asks the kernel, and its end takes nothing from the parent."""
    storage = LocalWritableStorage()

    def ask() -> None:
        with pytest.raises(LockedError), hold(directory_at(tmp_path, storage), 0.1, is_shared=True):
            pass

    for is_shared in (False, True):
        with hold(directory_at(tmp_path, storage), 1, is_shared=is_shared):
            assert in_child(ask) == 0
            assert in_child(ask) == 0

    def leave() -> int:
        with hold(directory_at(tmp_path, storage), 1):
            process = os.fork()
            if process:
                os.waitpid(process, 0)
                assert in_child(ask) == 0
        return process

    process = -1
    try:
        process = leave()
    finally:
        if not process:
            os._exit(0)


def _append_in_worker(log: LogWriter) -> str:
    try:
        log.append(table(b"child"))
    except LockedError as error:
        return str(error)
    return "appended"


_shared: list[LogWriter] = []


def _append_shared(_: int) -> str:
    return _append_in_worker(_shared[0])


def test_workers_of_a_forking_pool_are_refused(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path / "events-0", PLAIN) as log:
        _shared[:] = [log]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            told = pool.map(_append_shared, range(20))
        _shared.clear()
        assert all("forked from it" in each for each in told)
        log.append(table(b"parent"))
    assert values(tmp_path / "events-0") == [b"parent"]


# What is flushed, and when


class CountingFile(LocalWritableFile):
    """Counts, in its storage, the syncs of a log; they fail while the storage says so."""

    def __init__(self, path: str, storage: CountingStorage) -> None:
        super().__init__(path)
        self._storage = storage

    def sync(self) -> None:
        if self.path.endswith(".log"):
            if self._storage.is_failing:
                raise StorageError(f"cannot write {self.path}: the disk is gone")
            self._storage.syncs += 1
        super().sync()


class CountingStorage(LocalWritableStorage):
    """Storage of this machine that counts the syncs of logs."""

    def __init__(self) -> None:
        self.syncs = 0
        self.is_failing = False

    def foresee(self, path: str, names: Sequence[str]) -> None:
        """Do nothing: a folder is listed as fast later."""

    def pinned(self, folders: Collection[str]) -> Self:  # noqa: ARG002
        return self

    def beneath(self, path: str) -> Self:  # noqa: ARG002
        return self

    def open_for_append(self, path: str) -> WritableFile:
        return CountingFile(path, self)


def counting(folder: Path, **options: Any) -> tuple[LogWriter, CountingStorage]:
    storage = CountingStorage()
    config = LogConfig(compression_type="uncompressed", **options)
    log = LogWriter.open(folder, config, storage=storage)
    storage.syncs = 0
    return log, storage


def await_syncs(storage: CountingStorage, count: int) -> None:
    for _ in range(500):
        if storage.syncs >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{storage.syncs} syncs, and not {count}")


def timers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("flush ")]


def test_log_is_synced_after_so_many_records(tmp_path: Path) -> None:
    log, storage = counting(tmp_path / "events-0", flush_messages=5)
    found = []
    with log:
        for _ in range(6):
            log.append(table(b"x", b"y"))
            found.append(storage.syncs)
    assert found == [0, 0, 1, 1, 1, 2]


def test_log_is_synced_by_an_append_when_the_last_sync_is_long_ago(tmp_path: Path) -> None:
    now_ms = [1_700_000_000_000]
    storage, config = CountingStorage(), LogConfig(compression_type="uncompressed", flush_ms=1000)
    with LogWriter.open(tmp_path / "events-0", config, storage=storage, clock=lambda: now_ms[0]) as log:
        storage.syncs, found = 0, []
        for later_ms in (0, 999, 1, 999, 1):
            now_ms[0] += later_ms
            log.append(table(b"x"))
            found.append(storage.syncs)
    assert found == [0, 0, 1, 1, 2]


def test_log_is_synced_in_time_though_nothing_more_is_appended(tmp_path: Path) -> None:
    log, storage = counting(tmp_path / "events-0", flush_ms=200)
    with log:
        log.append(table(b"x"))
        assert storage.syncs == 0
        await_syncs(storage, 1)
        # Nothing is there to be synced.
        time.sleep(0.5)
        assert storage.syncs == 1
        assert timers() == []
        log.append(table(b"y"))
        await_syncs(storage, 2)
    assert values(tmp_path / "events-0") == [b"x", b"y"]


def test_timer_waits_for_what_was_appended_since_the_last_sync(tmp_path: Path) -> None:
    log, storage = counting(tmp_path / "events-0", flush_ms=600)
    with log:
        log.append(table(b"x"))
        time.sleep(0.3)
        log.flush()
        log.append(table(b"y"))
        # When the timer of the first append is over, the second has not waited long enough.
        time.sleep(0.4)
        assert storage.syncs == 1
        await_syncs(storage, 2)


def test_no_thread_is_made_unless_flush_ms_is_set(tmp_path: Path) -> None:
    log, storage = counting(tmp_path / "events-0")
    with log:
        log.append(table(b"x"))
        assert (timers(), storage.syncs) == ([], 0)
    log, _ = counting(tmp_path / "events-0", flush_ms=60_000)
    with log:
        assert timers() == []
        log.append(table(b"x"))
        log.append(table(b"x"))
        assert len(timers()) == 1
    for _ in range(100):
        if not timers():
            break
        time.sleep(0.02)
    assert timers() == []


@pytest.mark.parametrize("call", ["append", "flush", "close"])
def test_sync_that_failed_on_the_timer_is_told_to_the_next_caller(tmp_path: Path, call: str) -> None:
    log, storage = counting(tmp_path / "events-0", flush_ms=50)
    storage.is_failing = True
    log.append(table(b"x"))
    for _ in range(500):
        if not timers():
            break
        time.sleep(0.01)
    storage.is_failing = False
    act: dict[str, Callable[[], object]] = {
        "append": lambda: log.append(table(b"not")),
        "flush": log.flush,
        "close": log.close,
    }
    with pytest.raises(StorageError, match=r"could not be synced while nobody used it.*the disk is gone"):
        act[call]()
    if call != "close":
        log.append(table(b"y"))
        log.flush()
        assert storage.syncs > 0
    log.close()
    assert values(tmp_path / "events-0") == ([b"x"] if call == "close" else [b"x", b"y"])


def test_append_whose_sync_fails_leaves_the_log_as_before(tmp_path: Path) -> None:
    log, storage = counting(tmp_path / "events-0", flush_messages=2)
    with log:
        log.append(table(b"x"))
        storage.is_failing = True
        with pytest.raises(StorageError, match="the disk is gone"):
            log.append(table(b"y"))
        storage.is_failing = False
        assert values(tmp_path / "events-0") == [b"x"]
        assert log.append(table(b"z")) == (1, 1)
        assert storage.syncs == 1
    assert values(tmp_path / "events-0") == [b"x", b"z"]
