"""Stored properties of topics: where they are, which count, and who obeys them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.properties import AT_APPEND
from sparklog.topic.log_manager import LogManager
from sparklog.topic.write import configs
from sparklog.topic.write.configs import (
    changed_properties,
    read_properties,
    stored_configs,
    stored_properties,
    topic_config,
    update_configs,
)
from sparklog.topic.write.target import WriteTarget
from tests.golden import golden_set
from tests.growth import assert_does_not_grow, counted_work, settle
from tests.places import directory_at
from tests.storage.crash import CrashingStorage, crashes
from tests.topic.staged import rows
from tests.topic.write.test_accumulator import accumulator
from tests.write.test_sharing import in_child

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


# The file is read once, and written by what changes


def test_question_about_one_topic_does_not_grow_with_the_others(tmp_path: Path) -> None:
    assert_does_not_grow(tmp_path, lambda path: stored_properties(directory_at(path), "topic-00003"))
    manager_of = cache(LogManager)
    assert_does_not_grow(tmp_path / "managed", lambda path: manager_of(path).configs("topic-00003"))


def test_file_edited_by_hand_counts_at_once(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    for value in ("5", "6", "7"):
        (tmp_path / FILE).write_text(f"a/retention.ms={value}\n")
        assert stored_properties(directory, "a") == {"retention.ms": value}
    (tmp_path / FILE).unlink()
    assert stored_properties(directory, "a") == {}


def test_wrong_line_is_an_error_at_each_question_about_any_topic(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("a/retention.ms=5\nb/retention.ms=soon\n")
    settle(tmp_path)
    for _ in range(2):
        with pytest.raises(InvalidOptionError, match=r"topic b: retention\.ms .*topics\.properties"):
            stored_properties(directory_at(tmp_path), "a")


def test_equal_properties_of_many_topics_are_checked_once(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("".join(f"t{n}/retention.ms={n % 3}\n" for n in range(300)))
    with patch.object(LogConfig, "from_properties", wraps=LogConfig.from_properties) as check:
        assert len(stored_configs(directory_at(tmp_path))) == 300
    assert check.call_count == 3


def test_result_of_a_question_is_the_callers_own(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("a/retention.ms=5\n")
    directory = directory_at(tmp_path)
    for _ in range(2):
        for found in (stored_properties(directory, "a"), stored_configs(directory)["a"]):
            assert found == {"retention.ms": "5"}
            found["retention.ms"] = "6"


def test_topics_that_come_change_and_go_one_by_one_do_not_parse_the_file(tmp_path: Path) -> None:
    manager = LogManager(tmp_path)
    (tmp_path / FILE).write_text("# by hand\nold/retention.ms=7")
    manager.create_topic("first", 1, {"retention.ms": "1"})
    with (
        patch.object(configs, "properties_in") as parse,
        patch.object(javaproperties.PropertiesFile, "loads") as change,
    ):
        for number in range(30):
            manager.create_topic(f"t{number}", 1, {"retention.ms": str(number)})
            assert manager.configs(f"t{number}") == {"retention.ms": str(number)}
        for number in range(10):
            manager.alter_configs(f"t{number}", {"retention.ms": str(1000 + number)})
        for number in range(20, 30):
            manager.delete_topic(f"t{number}")
    assert not parse.called
    assert not change.called
    numbers = [1000 + number if number < 10 else number for number in range(20)]
    expected = {"old": "7", "first": "1", **{f"t{n}": str(number) for n, number in enumerate(numbers)}}
    lines = "".join(f"{topic}/retention.ms={value}\n" for topic, value in expected.items())
    assert (tmp_path / FILE).read_text() == "# by hand\n" + lines


def test_value_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("a/retention.ms : 5")
    before = (tmp_path / FILE).stat()
    assert update_configs(directory_at(tmp_path), "a", {"retention.ms": "5", "segment.bytes": None}) == {
        "retention.ms": "5"
    }
    assert (tmp_path / FILE).stat() == before


TOPICS = ("a", "b.c", "d")
VALUES = {"retention.ms": ("5", "+6", " 7 "), "cleanup.policy": ("compact", "compact, delete", "")}
KEYS = [(topic, name) for topic in TOPICS for name in VALUES]
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
OTHER_LINES = st.sampled_from(["# by \xe9", "!", "", " \t", "# not continued \\", "#\\\\"])


@st.composite
def entries(draw: st.DrawFn, key: tuple[str, str]) -> str:
    topic, name = key
    value, end = draw(st.sampled_from(VALUES[name])).strip(), draw(ENDS)
    styles = [
        f"{topic}/{name}={value}",
        f" {topic}/{name} : {value} ",
        f"{topic}\\/{name}\t\\u{ord(value[:1] or ' '):04X}{value[1:]}",
        f"{topic}/\\{end}   {name}=\\{end}\f {value}",
        f"{topic}/{name}={value}\\\n",
    ]
    return draw(st.sampled_from(styles))


@st.composite
def properties_files(draw: st.DrawFn) -> bytes:
    keyed = draw(st.lists(st.sampled_from(KEYS), unique=True))
    lines = list(chain.from_iterable([*draw(st.lists(OTHER_LINES, max_size=2)), draw(entries(key))] for key in keyed))
    text = "".join(line + draw(ENDS) for line in lines) + draw(OTHER_LINES)
    cut = draw(st.sampled_from(["", "\\", "\\\n", "\\\r", "\n", "keep"]))
    # A value that ends with a backslash is wrong.
    return (text if cut == "keep" else text.rstrip("\\\r\n") + cut).encode("latin-1")


def _kept_lines(data: bytes, changed: set[str]) -> list[str]:
    """Return the lines of a file that are about nothing that was changed, without the ends of lines."""
    elements = (each for each in javaproperties.parse(data) if getattr(each, "key", None) not in changed)
    return [line for each in elements if (line := each.source.rstrip("\r\n").removesuffix("\\").strip())]


@given(
    properties_files(),
    st.dictionaries(
        st.sampled_from(TOPICS),
        st.fixed_dictionaries({}, optional={name: st.sampled_from([None, *VALUES[name]]) for name in VALUES}),
    ),
)
def test_changed_file_is_what_java_makes_of_it_with_all_other_lines(
    data: bytes, changes: dict[str, dict[str, str | None]]
) -> None:
    expected = javaproperties.loads(data)
    for topic, of_topic in changes.items():
        for name, value in of_topic.items():
            expected.pop(f"{topic}/{name}", None)
            if value is not None:
                expected[f"{topic}/{name}"] = value
    changed = {f"{topic}/{name}" for topic, of_topic in changes.items() for name in of_topic}
    with tempfile.TemporaryDirectory() as path:
        file, directory = Path(path) / FILE, directory_at(path)
        file.write_bytes(data)
        assert javaproperties.loads(changed_properties(directory, changes)) == expected
        for topic, of_topic in changes.items():
            update_configs(directory, topic, of_topic)
        assert javaproperties.loads(file.read_bytes()) == expected
        found = read_properties(directory)
        assert {f"{topic}/{name}": value for topic in found for name, value in found[topic].items()} == expected
        assert _kept_lines(file.read_bytes(), changed) == _kept_lines(data, changed)


@pytest.mark.parametrize("changes", [{"segment.bytes": "100"}, {"retention.ms": "8"}, {"retention.ms": None}])
def test_update_that_stops_anywhere_is_there_wholly_or_not_at_all(
    tmp_path: Path, changes: dict[str, str | None]
) -> None:
    def prepare(folder: Path) -> None:
        (folder / FILE).write_text("# by hand\na/retention.ms=7\nb/retention.ms=6")

    def run(storage: CrashingStorage, folder: Path) -> None:
        update_configs(directory_at(folder, storage), "a", changes)

    old = {"retention.ms": "7"}
    new = {name: value for name, value in {**old, **changes}.items() if value is not None}
    seen = []
    for crash in crashes(prepare, run, tmp_path):
        directory = directory_at(crash.folder)
        assert stored_properties(directory, "b") == {"retention.ms": "6"}, str(crash)
        seen.append(stored_properties(directory, "a"))
        assert update_configs(directory, "a", changes) == new, str(crash)
        assert stored_properties(directory, "a") == new, str(crash)
    assert [each for each in (old, new) if each in seen] == [old, new]
    assert all(each in (old, new) for each in seen)


def test_processes_see_what_others_have_stored(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    update_configs(directory, "a", {"retention.ms": "1"})
    code = (
        "import sys; from sparklog import LogManager; LogManager(sys.argv[1]).alter_configs('a', {sys.argv[2]: '300'})"
    )
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020d}.log").touch()
    for number, name in enumerate(("segment.bytes", "batch.size")):
        subprocess.run([sys.executable, "-c", code, str(tmp_path), name], check=True)
        expected = {"retention.ms": str(number + 1), "segment.bytes": "300", **({name: "300"} if number else {})}
        assert update_configs(directory, "a", {"retention.ms": str(number + 1)}) == expected

    def of_child() -> None:
        assert stored_properties(directory, "a") == expected
        update_configs(directory, "b", {"retention.ms": "9"})

    assert in_child(of_child) == 0
    assert stored_configs(directory) == {"a": expected, "b": {"retention.ms": "9"}}


def test_metadata_of_the_cluster_are_read_once_and_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(CLUSTER / folder.name, folder)
    for path in (folder, *folder.iterdir()):
        os.utime(path, (0, 0))
    directory = directory_at(tmp_path)
    first = stored_configs(directory)
    with counted_work() as work, caplog.at_level(logging.WARNING, "sparklog"):
        assert stored_configs(directory) == first
    assert (work.calls, work.read_bytes, caplog.text) == (3, 0, "")
    last = max(path for path in folder.iterdir() if path.suffix == ".log")
    last.write_bytes(last.read_bytes()[:70] + bytes(20) + last.read_bytes()[90:])
    os.utime(last, (1, 1))
    with caplog.at_level(logging.WARNING, "sparklog"):
        for _ in range(3):
            stored_properties(directory, "any")
    assert len([each for each in caplog.records if "so defaults count" in each.message]) == 1
