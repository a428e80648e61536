"""Places: what they are called, that they pickle small, and how often a directory is asked about one log."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.log import files
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder, folder_of, split_path
from sparklog.log.reader import LogReader
from sparklog.storage.base import Entry, Name, Stamp
from sparklog.storage.local import LocalFile
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.storage.registry import Location
from sparklog.topic.places.discovery import interpret, layouts_by_partition
from tests.build import write_partition
from tests.log.logs import batches
from tests.places import LOCAL, directory_at, folder_at


class CountingStorage(LocalWritableStorage):
    """Storage of this machine that counts how often each small file is read, and each folder listed, by its name.

    A checkpoint counts when it is looked at: that it is missing, or as before, is known without a read.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def read_small(self, path: str) -> bytes | None:
        self.counts[split_path(path)[1]] += 1
        return super().read_small(path)

    def stamp(self, path: str) -> Stamp | None:
        if path.endswith("-checkpoint"):
            self.counts[split_path(path)[1]] += 1
        return super().stamp(path)

    def open(self, path: str) -> LocalFile:
        if split_path(path)[1] == files.LAST_COMMIT:
            self.counts[files.LAST_COMMIT] += 1
        return super().open(path)

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        self.counts[split_path(path)[1]] += 1
        return super().entries(path, wanted)

    def names(self, path: str) -> list[Name]:
        self.counts[f"names of {split_path(path)[1]}"] += 1
        return super().names(path)


def test_folder_is_known_by_its_directory_topic_and_partition() -> None:
    folder = PartitionFolder(LogDirectory(LOCAL, "/logs"), "my-topic", 3)
    assert folder == folder_at("/logs/my-topic-3")
    assert (folder.name, folder.location) == ("my-topic-3", "/logs/my-topic-3")
    assert folder.path(4000, files.LOG) == "/logs/my-topic-3/00000000000000004000.log"
    assert folder.relative("x") == "my-topic-3/x"
    assert folder_of(folder.relative("x")) == "my-topic-3"
    assert folder_of("x") == ""


@pytest.mark.parametrize("name", ["backup", "events-0.0123456789abcdef0123456789abcdef-delete", "__cluster_metadata-0"])
def test_folder_that_no_partition_is_named_for_has_no_partition(name: str) -> None:
    folder = folder_at(f"/logs/{name}")
    assert (folder.name, folder.partition, folder.topic_partition) == (name, None, None)
    assert folder.location == f"/logs/{name}"


def test_root_is_a_directory_like_any_other() -> None:
    folder = folder_at("/events-0")
    assert folder.directory == directory_at("/")
    assert (folder.location, folder.file("x")) == ("/events-0", "/events-0/x")


def test_place_brings_its_storage_along_and_pickles_small() -> None:
    folder = folder_at("/logs/events-0")
    data = pickle.dumps(folder)
    assert pickle.loads(data) == folder
    assert pickle.loads(data).storage == LOCAL
    assert len(data) < 300


def test_one_log_is_planned_and_read_by_few_questions(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches(5))
    (tmp_path / "meta.properties").touch()
    # A folder that was changed just now is listed twice.
    os.utime(tmp_path / "events-0", (1_700_000_000, 1_700_000_000))
    storage = CountingStorage()
    found = interpret(Location(storage, str(tmp_path / "events-0")))
    layouts = layouts_by_partition(found.partitions)
    assert storage.counts == {
        "names of events-0": 1,
        # Whether the path is that of a topic "events-0" as well, which would be two meanings.
        f"names of {tmp_path.name}": 1,
        "events-0": 1,
        files.JOURNAL: 2,
        files.LAST_COMMIT: 2,
        files.LOG_START_CHECKPOINT: 1,
        files.RECOVERY_POINT_CHECKPOINT: 1,
    }
    storage.counts.clear()
    with LogReader(read_layout(layouts[TopicPartition("events", 0)].folder)) as log:
        assert log.read().num_rows > 0
    assert storage.counts == {
        # Whether indexes behind the end of the log prove that a segment is lost there.
        "names of events-0": 1,
        "events-0": 1,
        files.JOURNAL: 2,
        files.LAST_COMMIT: 2,
        files.LOG_START_CHECKPOINT: 1,
        files.RECOVERY_POINT_CHECKPOINT: 1,
    }


def test_directory_is_asked_as_often_about_many_logs_as_about_one(tmp_path: Path) -> None:
    for n in range(20):
        write_partition(tmp_path / f"events-{n}", batches(1))
    storage = CountingStorage()
    found = interpret(Location(storage, str(tmp_path)))
    storage.counts.clear()
    assert len(layouts_by_partition(found.partitions)) == 20
    assert {name: count for name, count in storage.counts.items() if not name.startswith("events-")} == {
        files.JOURNAL: 2,
        files.LAST_COMMIT: 2,
        files.LOG_START_CHECKPOINT: 1,
        files.RECOVERY_POINT_CHECKPOINT: 1,
    }


def test_log_of_a_topic_made_anew_while_many_are_planned_is_not_left_out(tmp_path: Path) -> None:
    """Its start offset was raised, and then it was deleted and made again, after the checkpoint was read."""
    checkpoint = tmp_path / files.LOG_START_CHECKPOINT
    for n in range(2):
        write_partition(tmp_path / f"events-{n}", batches(1))
    checkpoint.write_text("0\n1\nevents 1 500\n")

    class MadeAnew(LocalWritableStorage):
        def read_small(self, path: str) -> bytes | None:
            found = super().read_small(path)
            if path == str(checkpoint):
                checkpoint.write_text("0\n0\n")
            return found

    layouts = layouts_by_partition([folder_at(tmp_path / f"events-{n}", MadeAnew()) for n in range(2)])
    assert [(layout.start_offset, len(layout.segments)) for layout in layouts.values()] == [(0, 1), (0, 1)]
