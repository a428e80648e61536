"""Views of internal topics: from paths to tables."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog import views
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.system.views import VIEWS
from tests.golden import golden_set
from tests.system.logs import Put, put, write_log

GOLDEN = golden_set("v2-internal").log_dir


def test_views_are_of_the_package() -> None:
    assert sparklog.views is views
    assert {"consumer_offsets", "consumer_groups", "transactions"} <= set(views.NAMES)


NOT_THERE = {"share_group_state", "remote_log_segments"}


@pytest.mark.parametrize("name", views.NAMES)
@pytest.mark.parametrize("history", [False, True])
def test_table_has_the_columns_of_its_schema(tmp_path: Path, name: str, history: bool) -> None:
    if name in NOT_THERE:
        write_log(tmp_path / f"{VIEWS[name].topic}-0", [])
        assert views.read(tmp_path, name, history=history).schema == views.schema(name, history=history)
        with pytest.raises(PathNotFoundError, match=VIEWS[name].topic):
            views.read(GOLDEN, name)
        return
    assert views.read(GOLDEN, name, history=history).schema == views.schema(name, history=history)


@pytest.mark.parametrize("path", ["", "__consumer_offsets", "__consumer_offsets-0"])
def test_path_may_be_of_the_directory_the_topic_or_the_partition(path: str) -> None:
    assert views.read(GOLDEN / path, "consumer_offsets").num_rows == 6
    assert views.read(str(GOLDEN / path), "consumer_groups").num_rows == 3


def test_partitions_are_put_together(tmp_path: Path) -> None:
    for partition in range(3):
        key = {"group": f"g{partition}", "topic": "t", "partition": 0}
        steps = [put("OffsetCommit", key, {"offset": partition}, 4)]
        write_log(tmp_path / f"__consumer_offsets-{partition}", steps)
    assert views.read(tmp_path, "consumer_offsets")["group"].to_pylist() == ["g0", "g1", "g2"]
    assert views.read(tmp_path, "consumer_offsets", history=True)["log_partition"].to_pylist() == [0, 1, 2]


def test_topics_that_assignments_name_by_id_are_named_by_the_directory(tmp_path: Path) -> None:
    topic_id = "nT3VsuYvSyWUb7u3L98_lA"
    key = {"groupId": "g", "memberId": "m"}
    current = {"memberEpoch": 1, "assignedPartitions": [{"topicId": topic_id, "partitions": [0]}]}
    steps = [
        put("ConsumerGroupMemberMetadata", key, {}),
        put("ConsumerGroupCurrentMemberAssignment", key, current),
    ]
    write_log(tmp_path / "__consumer_offsets-0", steps)
    shutil.copytree(GOLDEN / "read-by-groups-0", tmp_path / "read-by-groups-0")
    (row,) = views.read(tmp_path, "consumer_groups").to_pylist()
    assert row["members"][0]["assigned_partitions"][0]["topic"] == "read-by-groups"


def test_wrong_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'consumer_offsets'"):
        views.read(GOLDEN, "consumer_offset")
    with pytest.raises(InvalidOptionError, match="there are consumer_offsets, consumer_groups"):
        views.schema("xyz")


@pytest.mark.parametrize("path", ["", "__cluster_metadata-0"])
def test_metadata_of_a_cluster_is_found_by_its_folder_or_the_directory(path: str) -> None:
    assert views.read(GOLDEN / path, "cluster_topics").num_rows == 3


def test_metadata_of_a_cluster_is_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="2 paths are given"):
        views.read([GOLDEN, GOLDEN], "cluster_topics")
    with pytest.raises(PathNotFoundError, match="no __cluster_metadata-0 at"):
        views.read(tmp_path, "cluster_topics")


@pytest.mark.parametrize("path", ["read-by-groups-0", "nothing"])
def test_path_without_the_topic_is_refused(path: str) -> None:
    with pytest.raises(PathNotFoundError):
        views.read(GOLDEN / path, "transactions")


def test_one_warning_counts_all_that_cannot_be_decoded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for partition in range(2):
        write_log(tmp_path / f"__consumer_offsets-{partition}", [Put(b"\0\1", b""), Put(b"\0", b"")])
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert views.read(tmp_path, "consumer_offsets").num_rows == 0
        assert views.read(tmp_path, "consumer_offsets", history=True).num_rows == 4
    current, history = (record.getMessage() for record in caplog.records)
    assert current.startswith("4 records cannot be decoded, and are left out")
    assert "__consumer_offsets-0, offset 0: OffsetCommitKey version 0 is cut short" in current
    assert history.startswith("4 records cannot be decoded, and have their bytes in raw_key and raw_value")
