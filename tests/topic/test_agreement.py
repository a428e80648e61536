"""A path means the same to a read, to a write, at the command line, and to who opens one partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.jobs.named_logs import logs_at
from sparklog.log.reader import open_log
from sparklog.topic.places.discovery import discover
from sparklog.topic.write.target import find_target
from sparklog.write.partition import LogWriter
from tests.log.test_folders import LOG, UUID, made
from tests.places import location_of

CASES = {
    # What is there, the path, what it is.
    "log directory": (["events-0/"], ".", "directory"),
    "log directory of a broker": (["meta.properties", "events-0/"], ".", "directory"),
    "log directory named like a partition": (["kafka-logs-1/meta.properties"], "kafka-logs-1", "directory"),
    "the same with a topic": (["kafka-logs-1/events-0/"], "kafka-logs-1", "directory"),
    "the same, of a broker that runs": (["kafka-logs-1/.lock", "kafka-logs-1/events-0/"], "kafka-logs-1", "directory"),
    "the same, that was written into": (["kafka-logs-1/.lock", f"kafka-logs-1/{LOG}"], "kafka-logs-1", "directory"),
    "partition": ([f"events-0/{LOG}"], "events-0", "partition"),
    "partition beside a broker's files": (["meta.properties", f"events-0/{LOG}"], "events-0", "partition"),
    "empty partition": (["events-0/", "events-1/"], "events-0", "partition"),
    "partition that is being written for the first time": (
        ["events-0/seglog-0123456789ab01-0-1-0.log.staged"],
        "events-0",
        "partition",
    ),
    "topic": (["events-0/", "events-1/"], "events", "topic"),
    "topic beside a folder of its name": (["events-0/", "events/"], "events", "topic"),
    "partitions and segments": (["kafka-logs-1/events-0/", f"kafka-logs-1/{LOG}"], "kafka-logs-1", "nothing"),
    "foreign folder named like a partition": (["dbus-1/system.d/"], "dbus-1", "nothing"),
    "foreign file in such a folder": (["notes-1/a.txt"], "notes-1", "nothing"),
    "folder whose children are named so": (["etc/dbus-1/system.d/"], "etc", "foreign"),
    "file": (["events-0"], "events-0", "nothing"),
}


@pytest.mark.parametrize("case", CASES)
def test_path_means_the_same_to_all(tmp_path: Path, case: str) -> None:
    there, path, meant = CASES[case]
    logs = made(tmp_path / "logs", *there)
    at = logs / path
    if meant in ("nothing", "foreign"):
        with pytest.raises(PathNotFoundError):
            discover([str(at)])
        if meant == "nothing":
            with pytest.raises(PathNotFoundError):
                find_target(location_of(at), "events", 1, has_topic_column=False)
        with pytest.raises(PathNotFoundError):
            open_log(at)
        with pytest.raises(InvalidOptionError):
            LogWriter.open(at)
        if "segments" not in case:
            with pytest.raises(PathNotFoundError):
                logs_at(str(at))
        return
    read = {each.location for each in discover([str(at)]).partitions}
    written = (
        find_target(location_of(at), "new" if meant == "directory" else None, 3, has_topic_column=False)
        if meant != "topic"
        else find_target(location_of(at), None, None, has_topic_column=False)
    )
    shown = logs_at(str(at))
    assert {each.location for each in shown.folders} == read
    assert shown.is_directory == (meant == "directory")
    assert written.directory.path == (str(at) if meant == "directory" else str(logs))
    if meant == "partition":
        assert read == {str(at)}
        assert f"{written.topic}-{written.partition}" == at.name
        open_log(at)
    else:
        assert written.partition is None
        with pytest.raises(SeglogError):
            open_log(at)
        with pytest.raises(InvalidOptionError):
            LogWriter.open(at)


TWO_READINGS = ["a-0/", "a-0-0/", "a-0-1/", "b-0/"]


def test_partition_that_is_the_path_of_a_topic_too_is_refused_by_all(tmp_path: Path) -> None:
    logs = made(tmp_path / "logs", *TWO_READINGS, f"a-0/{LOG}", f"a-0-0/{LOG}")
    said = "a-0 is the folder of a-0, and the path of topic 'a-0', of which there is .*a-0-0: name the log directory"
    for find in (
        lambda: discover([str(logs / "a-0")]),
        lambda: logs_at(str(logs / "a-0")),
        lambda: find_target(location_of(logs / "a-0"), None, None, has_topic_column=False),
        lambda: find_target(location_of(logs / "a-0"), "a-0", None, has_topic_column=False),
        lambda: discover([str(tmp_path / "log?" / "a-0")]),
    ):
        with pytest.raises(InvalidOptionError, match=said):
            find()
    assert [each.name for each in discover([str(logs / "a-0-1")]).partitions] == ["a-0-1"]
    assert [each.name for each in discover([str(logs / "b-0")]).partitions] == ["b-0"]
    assert [each.name for each in discover([str(logs / "a")]).partitions] == ["a-0"]
    assert find_target(location_of(logs), "a-0", None, has_topic_column=False).partitions_of("a-0") == 2


def test_pattern_stands_for_the_folders_that_it_matches_and_not_for_topics_of_their_names(tmp_path: Path) -> None:
    logs = made(tmp_path / "logs", *TWO_READINGS)
    assert [each.name for each in discover([f"{logs}/a-[0]"]).partitions] == ["a-0"]
    assert [each.name for each in logs_at(f"{logs}/a-[0]").folders] == ["a-0"]
    assert [each.name for each in discover([f"{logs}/a-*"]).partitions] == ["a-0", "a-0-0", "a-0-1"]


def test_log_directories_are_not_taken_for_the_partitions_of_a_topic(tmp_path: Path) -> None:
    made(tmp_path, "kafka-logs-0/meta.properties", "kafka-logs-0/e-0/", "kafka-logs-1/meta.properties")
    for find in (
        lambda: discover([str(tmp_path / "kafka-logs")]),
        lambda: find_target(location_of(tmp_path / "kafka-logs"), None, None, has_topic_column=True),
    ):
        with pytest.raises(InvalidOptionError, match=r"is no topic's path: .*kafka-logs-0 is a log directory"):
            find()


@pytest.mark.parametrize("name", ["backup", f"events-0.{UUID}-delete"])
def test_copy_and_what_kafka_has_set_aside_are_looked_at_and_not_written_into(tmp_path: Path, name: str) -> None:
    folder = made(tmp_path / name, LOG)
    assert [each.location for each in logs_at(str(folder)).folders] == [str(folder)]
    with pytest.raises(PathNotFoundError):
        discover([str(folder)])
    with pytest.raises(PathNotFoundError, match="is not a log directory"):
        find_target(location_of(folder), "events", 1, has_topic_column=False)


def test_partitions_folder_does_not_become_a_log_directory_by_a_write(tmp_path: Path) -> None:
    folder = made(tmp_path / "events-0", LOG)
    for path, topic in ((folder / "new", None), (folder / "other-0", "x")):
        with pytest.raises(SeglogError, match="is not a log directory: it holds the files of a partition"):
            find_target(location_of(path), topic, 1, has_topic_column=False)


def test_link_to_a_partitions_folder_is_not_written_to(tmp_path: Path) -> None:
    logs = made(tmp_path / "logs", "events-1/")
    made(tmp_path / "disk", f"events-0/{LOG}")
    (logs / "events-0").symlink_to(tmp_path / "disk" / "events-0")
    for path in (logs / "events-0", logs / "events"):
        with pytest.raises(InvalidOptionError, match=r"logs/events-0 is a link to .*disk/events-0"):
            find_target(location_of(path), None, None, has_topic_column=False)
    with pytest.raises(InvalidOptionError, match="is a link to"):
        find_target(location_of(logs), "events", None, has_topic_column=False)
    assert len(discover([str(logs)]).partitions) == 2
    assert find_target(location_of(logs), None, None, has_topic_column=True).directory.path == str(logs)


def test_partition_that_two_paths_lead_to_is_in_one_place(tmp_path: Path) -> None:
    logs = made(tmp_path / "logs", "events-0/", "events-1/")
    (tmp_path / "link").symlink_to(logs)
    found = discover([str(logs), str(tmp_path / "link"), f"{logs}/events-0/../events-0"])
    assert [str(each.topic_partition) for each in found.partitions] == ["events-0", "events-1"]
    assert [str(each.topic_partition) for each in discover([f"{logs}/events-0/.."]).partitions] == [
        "events-0",
        "events-1",
    ]


def test_segments_in_a_log_directory_itself_are_not_passed_over_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    discover([str(made(tmp_path / "logs", "meta.properties", "events-0/"))])
    assert not caplog.text
    discover([str(made(tmp_path / "logs", LOG))])
    assert "is a log directory, and holds segments itself" in caplog.text
