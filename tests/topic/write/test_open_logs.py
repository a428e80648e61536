"""The open logs that writers of a process share: their properties, who closes them, and whose their errors are."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import LockedError, StorageError
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.topic.log_manager import LogManager
from sparklog.topic.transactions.writer import transaction
from sparklog.topic.write.open_logs import OpenLogs, SharedLogs
from sparklog.write.partition import LogWriter
from tests.growth import counted_work, settle
from tests.places import directory_at, folder_at

ROWS = {"value": [b"a"]}


def shared_logs() -> SharedLogs:
    return SharedLogs(lambda _: LogConfig())


def enter(block: AbstractContextManager[None]) -> None:
    with block:
        pass


def test_log_has_the_properties_of_its_topic(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    manager.create_topic("small", 1, {"segment.bytes": "300"})
    manager.create_topic("large", 1)
    with transaction(tmp_path, "loader", LogConfig(compression_type="uncompressed")) as writer:
        for _ in range(3):
            for topic in ("small", "large"):
                writer.append(topic, 0, {"value": [bytes(200)]})
    small, large = (read_layout(folder_at(tmp_path / f"{topic}-0")) for topic in ("small", "large"))
    # The marker begins a segment too.
    assert len(small.segments) == 4
    assert len(large.segments) == 1


def test_opening_a_log_does_not_read_the_properties_of_all_topics(tmp_path: Path) -> None:
    read_bytes = []
    for count in (1, 1000):
        path = tmp_path / str(count)
        path.mkdir()
        lines = "".join(f"t{number}/segment.bytes=300\n" for number in range(count))
        (path / "topics.properties").write_text(lines)
        settle(path)
        with OpenLogs(directory_at(path), LogConfig()) as logs:
            logs.append("t0", 0, ROWS)
            with counted_work() as work:
                logs.append("t0", 1, ROWS)
        read_bytes.append(work.read_bytes)
    assert read_bytes[0] == read_bytes[1]


def test_log_is_open_until_its_last_writer_lets_go(tmp_path: Path) -> None:
    folder = folder_at(tmp_path / "events-0")
    first, second = shared_logs(), shared_logs()
    assert [each.append(folder, ROWS) for each in (first, second)] == [(0, 0), (1, 1)]
    first.close()
    with pytest.raises(LockedError, match="is open in this process"):
        LogWriter.open(tmp_path / "events-0")
    second.close()
    LogWriter.open(tmp_path / "events-0").close()
    assert second.append(folder, ROWS) == (2, 2)
    second.close()


def test_log_that_is_closed_for_a_while_is_opened_by_the_next_append(tmp_path: Path) -> None:
    folder = folder_at(tmp_path / "events-0")
    first, second = shared_logs(), shared_logs()
    for each in (first, second):
        each.append(folder, ROWS)
    with first.closed([folder]):
        LogWriter.open(tmp_path / "events-0").close()
    second.flush(folder)
    assert second.append(folder, ROWS) == (2, 2)
    for each in (first, second):
        each.close()


@pytest.mark.parametrize("method", ["close", "flush"])
def test_log_that_cannot_be_synced_is_an_error_of_every_writer_that_shares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    folder = folder_at(tmp_path / "events-0")
    first, second = shared_logs(), shared_logs()
    for each in (first, second):
        each.append(folder, ROWS)
    whole = getattr(LogWriter, method)

    def fail(self: LogWriter) -> Any:
        whole(self)
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(LogWriter, method, fail)
        with pytest.raises(StorageError, match="the disk is gone"):
            {"flush": lambda: first.flush(folder), "close": lambda: enter(first.closed([folder]))}[method]()
    with pytest.raises(StorageError, match="the disk is gone"):
        enter(second.closed([folder]))
    # It was told.
    second.flush(folder)
    first.flush(folder)
    for each in (first, second):
        each.close()


def test_logs_of_a_directory_are_named_by_topic_and_partition(tmp_path: Path) -> None:
    with OpenLogs(directory_at(tmp_path), LogConfig()) as logs:
        assert logs.append("events", 3, ROWS) == (0, 0)
        with logs.closed(["events-3", "events-4"]):
            LogWriter.open(tmp_path / "events-3").close()
    LogWriter.open(tmp_path / "events-3").close()
