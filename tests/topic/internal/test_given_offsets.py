"""What consumers of ours have committed: the views that show it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog import views
from sparklog.errors import CorruptCheckpointError, InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.topic.internal.groups import committed_by_groups
from sparklog.topic.log_manager import LogManager
from sparklog.write.group_offsets import commit_group_offsets
from tests.places import directory_at
from tests.system.logs import write_log
from tests.topic.groups import commits

EVENTS, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)


def test_views_show_what_is_committed_here(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError):
        views.read(tmp_path, "consumer_offsets")
    sparklog.PartitionLog.open(tmp_path / "events-0").close()
    with pytest.raises(PathNotFoundError, match="__consumer_offsets"):
        views.read(tmp_path, "consumer_offsets")
    commit_group_offsets(directory_at(tmp_path), "g", {EVENTS: OffsetCommit(4, "m", 8)})
    (row,) = views.read(str(tmp_path), "consumer_offsets").to_pylist()
    assert (row["group"], row["topic"], row["partition"], row["offset"], row["metadata"]) == ("g", "events", 0, 4, "m")
    (group,) = views.read([tmp_path], "consumer_groups").to_pylist()
    assert (group["group"], group["state"], group["members"]) == ("g", "Empty", [])
    (lag,) = views.lag(tmp_path).to_pylist()
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (4, 0, -4)


def test_later_commit_is_shown_and_where_it_is(tmp_path: Path) -> None:
    steps = [step for group in "gh" for step in commits(group, {EVENTS: 1, OTHER: 2}, time_ms=8)]
    write_log(tmp_path / "__consumer_offsets-0", steps)
    commit_group_offsets(directory_at(tmp_path), "g", {EVENTS: OffsetCommit(4, "", 9), OTHER: OffsetCommit(5, "", 7)})
    found = views.read(tmp_path, "consumer_offsets")
    columns = (found[name].to_pylist() for name in ("group", "partition", "offset", "committed_in"))
    assert set(zip(*columns, strict=True)) == {
        ("g", 0, 4, "seglog.offsets"),
        ("g", 1, 2, "__consumer_offsets"),
        ("h", 0, 1, "__consumer_offsets"),
        ("h", 1, 2, "__consumer_offsets"),
    }
    assert views.read(str(tmp_path) + "*", "consumer_offsets").equals(found)
    assert sorted(views.read(tmp_path, "consumer_groups")["group"].to_pylist()) == ["g", "h"]
    assert views.read(tmp_path, "consumer_offsets", history=True).num_rows == 4
    of_topic = views.read(tmp_path / "__consumer_offsets", "consumer_offsets")
    assert of_topic["offset"].to_pylist() == [1, 2, 1, 2]


def test_times_that_python_has_no_name_for_are_compared_and_shown(tmp_path: Path) -> None:
    write_log(tmp_path / "__consumer_offsets-0", commits("g", {EVENTS: 1}, time_ms=1 << 62))
    commit_group_offsets(directory_at(tmp_path), "g", {EVENTS: OffsetCommit(4, "", 9), OTHER: OffsetCommit(5, "", 7)})
    found = views.read(tmp_path, "consumer_offsets")
    assert found["offset"].to_pylist() == [1, 5]
    assert found["commit_timestamp"].cast("int64").to_pylist() == [1 << 62, 7]


def topic_with(tmp_path: Path, topic_id: str | None = None) -> LogManager:
    manager = LogManager(tmp_path)
    manager.create_topic("events", 2, topic_id=topic_id)
    commit_group_offsets(directory_at(tmp_path), "g", {EVENTS: OffsetCommit(4, "", 9)})
    return manager


def test_nothing_is_committed_of_a_topic_that_was_deleted_here(tmp_path: Path) -> None:
    manager = topic_with(tmp_path)
    write_log(tmp_path / "__consumer_offsets-0", commits("g", {EVENTS: 1}, time_ms=8))
    manager.delete_topic("events")
    assert views.read(tmp_path, "consumer_offsets").num_rows == 0
    manager.create_topic("events", 2)
    with pytest.raises(InvalidOptionError, match="no group 'g'"):
        committed_by_groups(["g"], [directory_at(tmp_path)])
    commit_group_offsets(directory_at(tmp_path), "g", {EVENTS: OffsetCommit(2, "", 10)})
    assert views.read(tmp_path, "consumer_offsets")["offset"].to_pylist() == [2]


def test_nothing_is_committed_of_a_topic_that_was_made_anew_by_others(tmp_path: Path) -> None:
    topic_with(tmp_path, "nT3VsuYvSyWUb7u3L98_lA")
    assert views.read(tmp_path, "consumer_offsets")["offset"].to_pylist() == [4]
    for number in range(2):
        shutil.rmtree(tmp_path / f"events-{number}")
        with sparklog.PartitionLog.open(tmp_path / f"events-{number}", topic_id="oT3VsuYvSyWUb7u3L98_lA") as log:
            log.append({"value": [b"new"] * 9})
    assert views.read(tmp_path, "consumer_offsets").num_rows == 0
    earliest = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with sparklog.Consumer(tmp_path, "events", group_id="g", **earliest) as consumer:
        assert consumer.position(EVENTS) == 0
        consumer.commit({OTHER: 3})
    assert views.read(tmp_path, "consumer_offsets").select(["partition", "offset"]).to_pylist() == [
        {"partition": 1, "offset": 3}
    ]


@pytest.mark.parametrize("offset", ["1e30", "1e400", "1" + "0" * 30])
def test_offset_that_is_none_is_an_error_of_the_file_in_every_view(tmp_path: Path, offset: str) -> None:
    sparklog.PartitionLog.open(tmp_path / "events-0").close()
    written = f'{{"version": 1, "groups": {{"g": {{"events": {{"0": [{offset}, "", 1]}}}}}}}}'
    (tmp_path / "seglog.offsets").write_text(written)
    message = r"not a file of committed offsets.*seglog\.offsets"
    with pytest.raises(CorruptCheckpointError, match=message):
        views.read(tmp_path, "consumer_offsets")
    with pytest.raises(CorruptCheckpointError, match=message):
        views.lag(tmp_path, "g")
