"""What consumers of ours have committed: the views that show it."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog import views
from sparklog.errors import CorruptCheckpointError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.write.group_offsets import commit_group_offsets
from tests.places import directory_at
from tests.system.logs import put, write_log

EVENTS = TopicPartition("events", 0)


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


def test_commits_here_are_over_those_of_the_cluster(tmp_path: Path) -> None:
    steps = [
        put("OffsetCommit", {"group": group, "topic": "events", "partition": 0}, {"offset": 1}, 4) for group in "gh"
    ]
    write_log(tmp_path / "__consumer_offsets-0", steps)
    commit_group_offsets(directory_at(tmp_path), "g", {EVENTS: OffsetCommit(4, "", 8)})
    found = views.read(tmp_path, "consumer_offsets")
    assert dict(zip(*(found[name].to_pylist() for name in ("group", "offset")), strict=True)) == {"g": 4, "h": 1}
    assert sorted(views.read(tmp_path, "consumer_groups")["group"].to_pylist()) == ["g", "h"]
    assert views.read(tmp_path, "consumer_offsets", history=True).num_rows == 2
    assert views.read(tmp_path / "__consumer_offsets", "consumer_offsets")["offset"].to_pylist() == [1, 1]


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
