"""A load or a copy goes on only where the logs still hold what it has written to them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.jobs.ledger import Landed, encode_commit, read_ledger
from sparklog.storage.local import LocalStorage
from sparklog.topic.cutting import truncate_to
from tests.jobs.tables import append

LEDGER = "seglog.ledger.jsonl"


def remove(log: Path) -> None:
    shutil.rmtree(log)


def make_anew(log: Path) -> None:
    shutil.rmtree(log)
    append(log, "other", "other", "other", "other")


def cut(log: Path) -> None:
    truncate_to(log, 0)


CHANGES = pytest.mark.parametrize(
    ("change", "said"),
    [(remove, "is gone"), (make_anew, "was emptied, or deleted"), (cut, "was emptied, or deleted")],
)


def values(log: Path) -> list[bytes]:
    with sparklog.open_log(log) as reader:
        found: list[bytes] = reader.read(columns=["value"]).column("value").to_pylist()
        return found


@CHANGES
def test_file_whose_rows_may_be_gone_does_not_count_as_loaded(
    tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    rows, logs = tmp_path / "a.jsonl", tmp_path / "logs"
    rows.write_text('{"value": "1"}\n{"value": "2"}\n')
    other = tmp_path / "b.jsonl"
    other.write_text('{"value": "3"}\n')
    given: dict[str, Any] = {"num_partitions": 1, "processes": 1}
    sparklog.load(rows, logs, topic="t", **given)
    sparklog.load(other, logs, topic="u", **given)
    assert sparklog.load(rows, logs, topic="t", **given).skipped == (str(rows),)
    change(logs / "t-0")
    with pytest.raises(InvalidOptionError, match=f"a.jsonl was loaded before.*t-0 {said}.*again=True"):
        sparklog.load([rows, other], logs, topic="t", **given)
    assert sparklog.load(other, logs, topic="u", **given).records == 0
    assert sparklog.load(rows, logs, topic="t", again=True, **given).records == 2
    assert values(logs / "t-0")[-2:] == [b"1", b"2"]
    assert sparklog.load(rows, logs, topic="t", **given).records == 0


def test_log_that_was_cut_by_hand_does_not_hold_what_was_loaded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"value": "{name}"}}\n')
        sparklog.load(tmp_path / f"{name}.jsonl", tmp_path / "logs", topic="t", num_partitions=1, processes=1)
    truncate_to(tmp_path / "logs" / "t-0", 1)
    with pytest.raises(InvalidOptionError, match=r"b.jsonl was loaded before.*t-0 ends at offset 1, and ended at 2"):
        sparklog.load(tmp_path / "b.jsonl", tmp_path / "logs", topic="t", processes=1)


@CHANGES
def test_copy_does_not_go_on_behind_what_is_gone(tmp_path: Path, change: Callable[[Path], None], said: str) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    append(source / "t-0", "1", "2")
    sparklog.copy(source, target, processes=1)
    assert sparklog.copy(source, target, processes=1).rows == 0
    append(source / "t-0", "3")
    change(target / "t-0")
    with pytest.raises(DataLossError, match=rf"t-0 was copied before.*t-0 {said}.*since_last=False"):
        sparklog.copy(source, target, processes=1)
    assert sparklog.copy(source, target, processes=1, since_last=False).rows == 3
    assert values(target / "t-0")[-3:] == [b"1", b"2", b"3"]
    append(source / "t-0", "4")
    assert sparklog.copy(source, target, processes=1).rows == 1


def test_source_is_known_wherever_it_is(tmp_path: Path) -> None:
    append(tmp_path / "a" / "t-0", "1", "2")
    sparklog.copy(tmp_path / "a", tmp_path / "target", processes=1)
    shutil.move(tmp_path / "a", tmp_path / "b")
    append(tmp_path / "b" / "t-0", "3")
    assert sparklog.copy(tmp_path / "b", tmp_path / "target", processes=1).rows == 1
    # As a broker gives one to the topic.
    (tmp_path / "b" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: Q2TYVrXaSDWPZ5lUZtm3Jg")
    append(tmp_path / "b" / "t-0", "4")
    assert sparklog.copy(tmp_path / "b", tmp_path / "target", processes=1).rows == 1
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    truncate_to(tmp_path / "c" / "t-0", 3)
    append(tmp_path / "c" / "t-0", "x", "y")
    with pytest.raises(DataLossError, match="the batch before offset 4"):
        sparklog.copy(tmp_path / "c", tmp_path / "target", processes=1)
    assert values(tmp_path / "target" / "t-0") == [b"1", b"2", b"3", b"4"]


def test_source_that_was_made_anew_is_another_source(tmp_path: Path) -> None:
    append(tmp_path / "a" / "t-0", "1", "2")
    sparklog.copy(tmp_path / "a", tmp_path / "target", processes=1)
    make_anew(tmp_path / "a" / "t-0")
    assert sparklog.copy(tmp_path / "a", tmp_path / "target", processes=1).rows == 4
    assert len(values(tmp_path / "target" / "t-0")) == 6


def test_what_each_commit_has_written_to_stays_with_its_files(tmp_path: Path) -> None:
    """The log was made anew between two loads: only the files of the second are in it."""
    logs = tmp_path / "logs"
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"value": "1"}\n')
        sparklog.load(tmp_path / f"{name}.jsonl", logs, topic="t", num_partitions=1, processes=1)
        if name == "a":
            make_anew(logs / "t-0")
    landed = read_ledger(LocalStorage(), str(logs / LEDGER)).landed
    assert [each.end_offset for logs_of in landed.values() for each in logs_of] == [1, 5]
    with pytest.raises(InvalidOptionError, match=r"a\.jsonl was loaded before"):
        sparklog.load([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], logs, topic="t", processes=1)
    assert sparklog.load(tmp_path / "b.jsonl", logs, topic="t", processes=1).records == 0


def test_ledger_of_a_load_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    rows, logs = tmp_path / "a.jsonl", tmp_path / "logs"
    rows.write_text('{"value": "1"}\n')
    sparklog.load(rows, logs, topic="t", num_partitions=1, processes=1)
    found = read_ledger(LocalStorage(), str(logs / LEDGER))
    assert found.last is not None
    plain = [each for each in found.last.entries if not isinstance(each, Landed)]
    assert len(plain) == 1
    (logs / LEDGER).write_bytes(encode_commit(0, "load", "run", 0, plain))
    make_anew(logs / "t-0")
    assert sparklog.load(rows, logs, topic="t", processes=1).skipped == (str(rows),)
