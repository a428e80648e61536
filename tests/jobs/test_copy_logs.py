"""What a copy is asked for by a user, and what is refused before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import InvalidOptionError, PathNotFoundError
from tests.jobs.tables import EXAMPLES, append, read


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
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        sparklog.copy(EXAMPLES, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()
