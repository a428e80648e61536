"""What a copy is asked for by a user, and what is refused before anything is made."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.log.index import OFFSET_ENTRY
from sparklog.topic.write.configs import read_properties
from tests.jobs.tables import EXAMPLES, append, read
from tests.places import directory_at


def test_every_record_is_copied_once_and_a_rerun_copies_what_is_new(tmp_path: Path) -> None:
    append(tmp_path / "in" / "events-0", "a", "b")
    assert sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1).rows == 2
    append(tmp_path / "in" / "events-0", "c")
    assert sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1).rows == 1
    assert sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1).rows == 0
    assert [row["value"] for row in read(tmp_path / "out")] == [b"a", b"b", b"c"]


def test_two_sources_of_one_partition_are_merged(tmp_path: Path) -> None:
    append(tmp_path / "one" / "events-0", "a")
    append(tmp_path / "two" / "events-0", "b")
    summary = sparklog.copy([tmp_path / "one", tmp_path / "two"], tmp_path / "out", processes=1)
    assert summary.rows == 2
    assert [row["value"] for row in read(tmp_path / "out")] == [b"a", b"b"]


def test_a_dry_run_plans_and_makes_nothing(tmp_path: Path) -> None:
    summary = sparklog.copy(EXAMPLES, tmp_path / "out", dry_run=True)
    planned = {piece.target for task in summary.planned for piece in task.pieces}
    assert planned == {path.name for path in EXAMPLES.glob("shop-*")}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"recompress": "brotli"}, InvalidOptionError, "brotli"),
        ({"task_bytes": 0}, InvalidOptionError, "task_bytes"),
        ({"isolation_level": "serializable"}, InvalidOptionError, "read_committed"),
        ({"config": {"segment.byte": "5"}}, InvalidOptionError, "segment.bytes"),
        ({"start_offsets": {("nothing", 0): 5}}, InvalidOptionError, "nothing-0"),
        ({"topics": "nothing"}, PathNotFoundError, "nothing"),
        ({"topics": "a", "partitions": [("a", 0)]}, InvalidOptionError, "topics and partitions are given"),
        ({"topics": "a", "topic_pattern": "b.*"}, InvalidOptionError, "topics and topic_pattern are given"),
        ({"topic_pattern": "b", "partitions": [("a", 0)]}, InvalidOptionError, "topic_pattern and partitions are"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        sparklog.copy(EXAMPLES, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_log_directory_that_is_read_gets_no_folder_of_others(tmp_path: Path) -> None:
    append(tmp_path / "logs" / "events-0", "a")
    for inside in ("sub", "sub/deep", "events-0"):
        with pytest.raises(InvalidOptionError, match=r"stops a broker|whole one"):
            sparklog.copy(tmp_path / "logs", tmp_path / "logs" / inside, processes=1)
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    with pytest.raises(InvalidOptionError, match=r"link/sub is in .*logs, whose logs are read"):
        sparklog.copy(tmp_path / "logs" / "events-0", tmp_path / "link" / "sub", processes=1)
    assert [path.name for path in (tmp_path / "logs").iterdir() if path.is_dir()] == ["events-0"]
    # Under another name it may be copied beside itself, and into a directory above.
    assert sparklog.copy(tmp_path / "logs", tmp_path / "link", renames={"events": "more"}, processes=1).rows == 1


def test_a_topic_that_is_renamed_and_not_copied_is_told(tmp_path: Path) -> None:
    append(tmp_path / "in" / "events-0", "a")
    append(tmp_path / "in" / "other-0", "a")
    with pytest.raises(InvalidOptionError, match=r"renames has the topic 'event', .*did you mean 'events'"):
        sparklog.copy(tmp_path / "in", tmp_path / "out", renames={"event": "b"}, processes=1)
    with pytest.raises(InvalidOptionError, match=r"renames has the topic 'other', which is not copied"):
        sparklog.copy(tmp_path / "in", tmp_path / "out", topics="events", renames={"other": "b"}, processes=1)
    assert not (tmp_path / "out").exists()


def segments(folder: Path) -> int:
    return len(list(folder.glob("*.log")))


def index_entries(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.index")) // OFFSET_ENTRY.itemsize


def test_what_is_stored_for_a_topic_of_the_target_is_obeyed_and_what_is_asked_for_is_over_it(tmp_path: Path) -> None:
    for topic in ("events", "plain"):
        for value in range(20):
            append(tmp_path / "in" / f"{topic}-0", f"{value:0500}")
    for name in ("stored", "asked"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "topics.properties").write_text(
            "new/segment.bytes=1500\nnew/index.interval.bytes=0\nnew/compression.type=zstd\nevents/segment.bytes=14\n"
        )
    sparklog.copy(tmp_path / "in", tmp_path / "stored", renames={"events": "new"}, processes=1)
    asked = {"segment.bytes": str(1 << 30), "index.interval.bytes": "4096"}
    sparklog.copy(tmp_path / "in", tmp_path / "asked", renames={"events": "new"}, config=asked, processes=1)
    assert segments(tmp_path / "stored" / "new-0") > 1
    assert index_entries(tmp_path / "stored" / "new-0") > 2 * index_entries(tmp_path / "asked" / "new-0")
    assert segments(tmp_path / "stored" / "plain-0") == segments(tmp_path / "asked" / "new-0") == 1
    # The properties of a topic of the source that is renamed, and its codec, are of other records.
    copied = b"".join(path.read_bytes() for path in sorted((tmp_path / "stored" / "new-0").glob("*.log")))
    assert copied == b"".join(path.read_bytes() for path in (tmp_path / "in" / "events-0").glob("*.log"))
    assert [row["value"] for row in read(tmp_path / "stored")] == [row["value"] for row in read(tmp_path / "in")]


def test_new_topics_bring_their_stored_properties_along(tmp_path: Path) -> None:
    for topic in ("events", "other", "there", "plain"):
        append(tmp_path / "in" / f"{topic}-0", "a")
    (tmp_path / "in" / "topics.properties").write_text(
        "events/retention.ms=1000\nevents/cleanup.policy=compact\nother/segment.bytes=2000\nthere/retention.ms=5\n"
    )
    append(tmp_path / "out" / "there-0", "b")
    (tmp_path / "out" / "topics.properties").write_text("# ours\nother/retention.ms=7\n")
    for _ in range(2):
        sparklog.copy(tmp_path / "in", tmp_path / "out", renames={"events": "new"}, processes=1)
        assert read_properties(directory_at(tmp_path / "out")) == {
            "new": {"retention.ms": "1000", "cleanup.policy": "compact"},
            "other": {"retention.ms": "7"},
        }
    assert "# ours" in (tmp_path / "out" / "topics.properties").read_text()
    for name, is_planned in (("planned", True), ("without", False)):
        sparklog.copy(
            tmp_path / "in", tmp_path / name, dry_run=is_planned, without_properties=not is_planned, processes=1
        )
        assert not (tmp_path / name / "topics.properties").exists()


def test_properties_that_are_brought_along_say_how_the_copy_rolls_and_come_with_it_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in range(20):
        append(tmp_path / "in" / "events-0", f"{value:0500}")
    (tmp_path / "in" / "topics.properties").write_text("events/segment.bytes=1500\n")
    with monkeypatch.context() as patch:
        patch.setattr("sparklog.jobs.copy.job.commit", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1)
    assert not (tmp_path / "out" / "topics.properties").exists()
    sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1)
    assert segments(tmp_path / "out" / "events-0") > 1
    assert (tmp_path / "out" / "topics.properties").read_text() == "events/segment.bytes=1500\n"


TOPIC_IDS = ("Q2TYVrXaSDWPZ5lUZtm3Jg", "AAAAAAAAAAAAAAAAAAAAAQ")


def with_id(folder: Path, topic_id: str, cluster: str | None = None) -> None:
    append(folder, "a")
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster is not None:
        (folder.parent / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")


def topic_ids(directory: Path) -> dict[str, str]:
    found = sorted(directory.glob("*/partition.metadata"))
    return {path.parent.name: path.read_text().rpartition(" ")[2].strip() for path in found}


@pytest.mark.parametrize(("cluster", "is_kept"), [(None, True), ("A", True), ("B", False)])
def test_topic_ids_come_along_to_the_same_cluster_and_to_a_directory_of_nobody(
    tmp_path: Path, cluster: str | None, is_kept: bool
) -> None:
    with_id(tmp_path / "in" / "events-0", TOPIC_IDS[0], "A")
    with_id(tmp_path / "in" / "events-1", TOPIC_IDS[0])
    append(tmp_path / "in" / "plain-0", "a")
    (tmp_path / "out").mkdir()
    if cluster is not None:
        (tmp_path / "out" / "meta.properties").write_text(f"version=1\nnode.id=2\ncluster.id={cluster}\n")
    # Only one partition first: the other has the same id, whoever brings it.
    sparklog.copy(tmp_path / "in", tmp_path / "out", partitions=[("events", 1)], processes=1)
    sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1)
    assert topic_ids(tmp_path / "out") == (dict.fromkeys(("events-0", "events-1"), TOPIC_IDS[0]) if is_kept else {})
    # A topic of another name is another topic.
    sparklog.copy(tmp_path / "in", tmp_path / "out", renames={"events": "again"}, processes=1)
    assert not any(name.startswith("again") for name in topic_ids(tmp_path / "out"))


def test_a_topic_that_is_merged_of_several_has_the_id_of_none(tmp_path: Path) -> None:
    for name, topic_id in zip("ab", TOPIC_IDS, strict=True):
        with_id(tmp_path / name / f"events-{'ab'.index(name)}", topic_id)
    sparklog.copy([tmp_path / "a", tmp_path / "b"], tmp_path / "out", processes=1)
    assert topic_ids(tmp_path / "out") == {}
    sparklog.copy(tmp_path / "a", tmp_path / "one", processes=1)
    sparklog.copy(tmp_path / "b", tmp_path / "one", processes=1)
    assert topic_ids(tmp_path / "one") == {"events-0": TOPIC_IDS[0]}


def test_a_large_copy_rolls_its_own_files_by_what_is_stored(tmp_path: Path) -> None:
    for _ in range(8):
        append(tmp_path / "in" / "events-0", *(secrets.token_hex(40_000) for _ in range(8)))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "topics.properties").write_text("events/segment.bytes=1000000\n")
    sparklog.copy(tmp_path / "in", tmp_path / "out", processes=1)
    sizes = [path.stat().st_size for path in (tmp_path / "out" / "events-0").glob("*.log")]
    assert len(sizes) > 1
    assert max(sizes) <= 1_000_000


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_stored_property_that_is_wrong_or_contradicts_is_told_before_anything_is_made(
    tmp_path: Path, dry_run: bool
) -> None:
    append(tmp_path / "in" / "events-0", "a")
    (tmp_path / "out").mkdir()
    for stored, config, said in (
        ("events/segment.bytes=much\n", {}, "segment.bytes"),
        ("events/max.compaction.lag.ms=5\n", {"min.compaction.lag.ms": "10"}, "the stored properties of topic events"),
    ):
        (tmp_path / "out" / "topics.properties").write_text(stored)
        with pytest.raises(InvalidOptionError, match=said):
            sparklog.copy(tmp_path / "in", tmp_path / "out", config=config, processes=1, dry_run=dry_run)
        locks = {".lock", "seglog.lock", "seglog.jobs.lock"}
        assert {path.name for path in (tmp_path / "out").iterdir()} - locks == {"topics.properties"}
