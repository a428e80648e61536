"""What is in the way of a file of an export keeps that partition from being moved, and nothing else; nor is it lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sparklog
from sparklog.errors import InvalidOptionError, OutputNameError
from sparklog.jobs.check.ledger import verify_ledger
from sparklog.jobs.targets.targets import TableFolder
from tests.jobs.tables import append, files, read, rows

NAME = f"events-0-{0:020}-{2:020}.parquet"
FOLDER = Path("topic=events") / "partition=0"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("a-0", "events-0", "z-0"):
        append(tmp_path / "logs" / name, f"{name} 0", f"{name} 1")
    return tmp_path / "logs"


def a_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("of others")


def a_folder(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "theirs").write_text("of others")


def contents(path: Path) -> dict[str, str]:
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(each): each.read_text() for each in found if each.is_file()}


def values(out: Path) -> list[bytes]:
    return sorted(row["value"] for name in files(out) if "events" in name for row in rows_of(out / name))


def rows_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return found


@pytest.mark.parametrize(
    ("make", "relative"),
    [(a_folder, FOLDER / NAME), (a_file, FOLDER), (a_file, Path("topic=events"))],
)
def test_what_is_in_the_way_is_told_before_anything_is_decided_and_not_overwritten(
    tmp_path: Path, logs: Path, make: Callable[[Path], None], relative: Path
) -> None:
    out = tmp_path / "out"
    make(out / relative)
    before = contents(out / relative)
    for _ in range(2):
        with pytest.raises(OutputNameError, match=str(out / relative)) as caught:
            sparklog.export(logs, out, processes=1)
        assert caught.value.others == ()
        assert {name.split("/")[0] for name in files(out) if name.endswith("0.parquet") or "partition" in name} >= {
            "topic=a",
            "topic=z",
        }
        assert contents(out / relative) == before
    shutil.move(out / relative, tmp_path / "moved away")
    assert sparklog.export(logs, out, processes=1).rows == 2
    assert values(out) == [b"events-0 0", b"events-0 1"]
    assert list(verify_ledger(out)) == []


def test_a_topic_whose_files_would_have_names_that_are_too_long_keeps_no_other_from_being_moved(
    tmp_path: Path, logs: Path
) -> None:
    name, out = "t" * 249, tmp_path / "out"
    append(logs / f"{name}-0", "long")
    for _ in range(2):
        with pytest.raises(OutputNameError, match="File name too long; copy a topic with a long name to a shorter one"):
            sparklog.export(logs, out, processes=1)
        assert len(rows(out)) == 6
    append(logs / "a-0", "more")
    with pytest.raises(OutputNameError):
        sparklog.export(logs, out, processes=1)
    assert len(rows(out)) == 7
    sparklog.copy(logs, tmp_path / "short", topics=name, renames={name: "long"}, processes=1)
    assert sparklog.export(tmp_path / "short", out, processes=1).rows == 1


def test_a_file_with_the_name_of_one_that_an_export_makes_is_refused_and_not_overwritten(
    tmp_path: Path, logs: Path
) -> None:
    """It may be one of an export whose ledger is gone."""
    out = tmp_path / "out"
    a_file(out / FOLDER / NAME)
    before = contents(out / FOLDER / NAME)
    with pytest.raises(
        InvalidOptionError, match=f"{out / FOLDER / NAME} holds offsets up to 2 of events-0 by its name"
    ):
        sparklog.export(logs, out, processes=1)
    assert contents(out / FOLDER / NAME) == before


@pytest.mark.parametrize("make", [a_file, a_folder])
def test_a_file_that_was_decided_and_cannot_get_its_name_is_kept_until_it_can(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """Somebody takes the name behind the task's look, which the next runs find; meanwhile other topics go on."""
    out, decide = tmp_path / "out", TableFolder._decide

    def decided(target: TableFolder, lines: bytes) -> None:
        decide(target, lines)
        make(out / FOLDER / NAME)

    with monkeypatch.context() as patch:
        patch.setattr(TableFolder, "_decide", decided)
        with pytest.raises(OutputNameError, match=NAME):
            sparklog.export(logs, out, processes=1)
    for more in range(2):
        append(logs / "a-0", "more")
        with pytest.raises(
            OutputNameError, match=r"events-0 that were moved before are in .*staged, which cannot get its name"
        ) as caught:
            sparklog.export(logs, out, processes=1)
        assert caught.value.others == ()
        assert len([name for name in files(out) if name.startswith("topic=a")]) == 2 + more
        assert "of others" in contents(out / FOLDER / NAME).values()
    shutil.move(out / FOLDER / NAME, tmp_path / "moved away")
    assert sparklog.export(logs, out, processes=1).rows == 0
    assert values(out) == [b"events-0 0", b"events-0 1"]
    assert list(verify_ledger(out)) == []


def test_a_file_in_the_way_of_a_log_is_told_when_a_copy_is_planned(tmp_path: Path, logs: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "events-0").write_text("of others")
    with pytest.raises(InvalidOptionError, match="out/events-0 is no folder, and is in the way of a log"):
        sparklog.copy(logs, tmp_path / "out", processes=1)
    assert (tmp_path / "out" / "events-0").read_text() == "of others"
    assert sparklog.copy(logs, tmp_path / "out", renames={"events": "others"}, processes=1).rows == 6
    assert len(read(tmp_path / "out")) == 6
