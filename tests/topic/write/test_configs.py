"""Stored properties of topics: where they are, which count, and who obeys them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.properties import AT_APPEND
from sparklog.topic.write.configs import read_properties, stored_configs, topic_config, update_configs
from sparklog.topic.write.target import WriteTarget
from tests.golden import golden_set
from tests.places import directory_at
from tests.topic.staged import rows
from tests.topic.write.test_accumulator import accumulator

FILE = "topics.properties"
CLUSTER = golden_set("v2-internal").log_dir


def test_no_file_and_no_metadata_store_nothing(tmp_path: Path) -> None:
    assert stored_configs(directory_at(tmp_path)) == {}
    assert stored_configs(directory_at(tmp_path / "nothing")) == {}


def test_topic_with_dots_is_told_from_its_property(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("# kept\na.retention.ms/retention.ms=5\na/segment.bytes = 100\n")
    assert stored_configs(directory_at(tmp_path)) == {
        "a.retention.ms": {"retention.ms": "5"},
        "a": {"segment.bytes": "100"},
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("events.retention.ms=5", "<topic>/<property>"),
        ("/retention.ms=5", "<topic>/<property>"),
        ("events/retention.ns=5", "did you mean 'retention.ms'"),
        ("events/retention.ms=soon", "retention.ms must be a whole number"),
        ("events/retention.ms=5\nevents/retention.ms=6", "given twice"),
        ("events/min.compaction.lag.ms=6\nevents/max.compaction.lag.ms=5", "must not be greater"),
    ],
)
def test_wrong_line_is_refused_and_the_file_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / FILE).write_text(line)
    with pytest.raises(InvalidOptionError, match=said) as error:
        stored_configs(directory_at(tmp_path))
    assert FILE in error.value.message


def test_update_keeps_comments_and_the_other_topics(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("# by hand\na/segment.bytes=100\nb/retention.ms=7\n")
    directory = directory_at(tmp_path)
    now = update_configs(directory, "a", {"cleanup.policy": "compact,delete", "segment.bytes": None})
    assert now == {"cleanup.policy": "compact,delete"}
    assert (tmp_path / FILE).read_text().startswith("# by hand\n")
    assert read_properties(directory) == {"b": {"retention.ms": "7"}, "a": {"cleanup.policy": "compact,delete"}}


def test_refused_update_changes_nothing(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    update_configs(directory, "a", {"retention.ms": "7"})
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(InvalidOptionError, match=r"segment\.bytes"):
        update_configs(directory, "a", {"retention.ms": "8", "segment.bytes": "1"})
    assert (tmp_path / FILE).read_bytes() == before


def test_metadata_of_the_cluster_are_below_the_file(tmp_path: Path) -> None:
    shutil.copytree(CLUSTER / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    of_cluster = stored_configs(directory_at(tmp_path))
    topic, properties = next((topic, found) for topic, found in of_cluster.items() if "cleanup.policy" in found)
    (tmp_path / FILE).write_text(f"{topic}/cleanup.policy=delete\nother/retention.ms=5\n")
    assert stored_configs(directory_at(tmp_path)) == {
        **of_cluster,
        topic: {**properties, "cleanup.policy": "delete"},
        "other": {"retention.ms": "5"},
    }


def test_damaged_metadata_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(CLUSTER / "__cluster_metadata-0", folder)
    for path in folder.iterdir():
        if path.suffix in (".log", ".checkpoint"):
            data = bytearray(path.read_bytes())
            data[70:90] = b"\xff" * len(data[70:90])
            path.write_bytes(data)
    (tmp_path / FILE).write_text("a/retention.ms=5")
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert stored_configs(directory_at(tmp_path)) == {"a": {"retention.ms": "5"}}
    assert "__cluster_metadata-0" in caplog.text


def test_what_the_caller_says_is_over_what_is_stored_and_that_over_defaults() -> None:
    stored = {"a": {"segment.bytes": "100", "retention.ms": "7", "compression.type": "zstd"}}
    given = LogConfig.from_properties({"compression.type": "gzip", "log.retention.ms": "604800000"})
    found = topic_config("a", given, stored)
    assert (found.segment_bytes, found.retention_ms, found.compression_type) == (100, 604_800_000, "gzip")
    assert found.batch_size == LogConfig().batch_size
    assert topic_config("b", given, stored) is given
    assert topic_config("a", LogConfig(segment_bytes=200), stored).segment_bytes == 200


def test_stored_properties_are_not_warned_of_where_they_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    config = topic_config("a", LogConfig(), {"a": {"file.delete.delay.ms": "7", "flush.ms": "5"}})
    with caplog.at_level(logging.WARNING, "sparklog"):
        config.warn_idle(AT_APPEND)
    assert caplog.text == ""
    assert "file.delete.delay.ms" in LogConfig.from_properties({"file.delete.delay.ms": "7"}).idle(AT_APPEND)


def test_contradiction_between_caller_and_store_names_the_topic() -> None:
    with pytest.raises(InvalidOptionError, match="stored properties of topic a"):
        topic_config("a", LogConfig(max_compaction_lag_ms=5), {"a": {"min.compaction.lag.ms": "6"}})


def test_rows_of_each_topic_are_written_by_its_own_properties(tmp_path: Path) -> None:
    stored = {"a": {"max.message.bytes": "300"}}
    target = WriteTarget(directory_at(tmp_path), None, None, {}, 1, stored)
    taking = accumulator(tmp_path, target)
    taking.append(rows(["x" * 400], topic=["b"]))
    taking.append(rows(["x" * 400], topic=["a"]))
    with pytest.raises(Exception, match="a record for a-0 is too large"):
        taking.finish()
