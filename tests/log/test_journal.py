"""The journal of a commit: read with suspicion, and finished only on files that it knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CommitError, CorruptCheckpointError
from sparklog.log.files import JOURNAL, LAST_COMMIT
from sparklog.log.journal import (
    Append,
    Journal,
    LogExtent,
    Rename,
    commit_version,
    parse_journal,
    pending,
)
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.write.journal import apply_journal, write_journal
from tests.places import directory_at

STORAGE = LocalWritableStorage()
LOG = "events-0/00000000000000000000.log"
WHOLE = Journal(
    "0123",
    {"events-0": LogExtent(0, 5, 0, 4)},
    (Append("a.staged", 1, 3, LOG, 4), Append("a.staged", 4, 2, LOG, 7), Rename("b.staged", "checkpoint")),
    {"partitions": []},
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "events-0").mkdir()
    (tmp_path / LOG).write_bytes(b"0123")
    (tmp_path / "a.staged").write_bytes(b"-abcde-")
    (tmp_path / "b.staged").write_bytes(b"new")
    (tmp_path / "checkpoint").write_bytes(b"old")
    write_journal(directory_at(tmp_path), WHOLE)
    return tmp_path


def test_journal_is_read_as_it_was_written(directory: Path) -> None:
    assert pending(directory_at(directory)) == WHOLE
    assert commit_version(directory_at(directory)).pending(directory_at(directory)) == WHOLE


def test_journal_of_an_earlier_version_is_carried_out(tmp_path: Path) -> None:
    """Its sources are staged files in the partition's folder; this is what that version wrote."""
    (tmp_path / "events-0").mkdir()
    (tmp_path / LOG).write_bytes(b"0123")
    for name, content in (("0-0-0", b"456"), ("1-0-0", b"789")):
        (tmp_path / "events-0" / f"seglog-018bcfe568001-{name}.log.staged").write_bytes(content)
    (tmp_path / "seglog-018bcfe568001-commit.staged").write_bytes(b"index")
    (tmp_path / JOURNAL).write_text(
        '{"version": 1, "commit_id": "018bcfe568001", "partitions": {"events-0": {"start_offset": 0, "end_offset": 4, '
        '"segment": 0, "position": 4}}, "moves": [["append", "events-0/seglog-018bcfe568001-0-0-0.log.staged", 0, 3, '
        '"events-0/00000000000000000000.log", 4], ["rename", "events-0/seglog-018bcfe568001-1-0-0.log.staged", '
        '"events-0/00000000000000000007.log"], ["append", "seglog-018bcfe568001-commit.staged", 2, 3, '
        '"events-0/00000000000000000007.index", 0]], "summary": {"job_id": "018bcfe568001", "partitions": []}}'
    )
    apply_journal(directory_at(tmp_path))
    found = {path.name: path.read_bytes() for path in (tmp_path / "events-0").iterdir()}
    assert found == {f"{0:020d}.log": b"0123456", f"{7:020d}.log": b"789", f"{7:020d}.index": b"dex"}


def test_finished_journal_has_done_its_moves(directory: Path) -> None:
    before = commit_version(directory_at(directory))
    assert apply_journal(directory_at(directory)) == WHOLE
    assert (directory / LOG).read_bytes() == b"0123abcde"
    assert (directory / "checkpoint").read_bytes() == b"new"
    assert sorted(path.name for path in directory.iterdir()) == ["checkpoint", "events-0", LAST_COMMIT]
    assert commit_version(directory_at(directory)) != before
    assert apply_journal(directory_at(directory)) is None


@pytest.mark.parametrize("there", [b"0123", b"0123a", b"0123abcd", b"0123abcde", b"0123\0\0\0d", b"0123abcde\0\0"])
def test_moves_that_were_made_in_part_are_made_again(directory: Path, there: bytes) -> None:
    (directory / LOG).write_bytes(there)
    (directory / "b.staged").rename(directory / "checkpoint")
    apply_journal(directory_at(directory))
    assert (directory / LOG).read_bytes() == b"0123abcde"


@pytest.mark.parametrize("there", [b"0123x", b"0123abcdex", b"0123abxde", b"012", b"0123abcdeabcde"])
def test_log_that_others_wrote_to_since_is_not_touched(directory: Path, there: bytes) -> None:
    """A broker that was started in between knows of no journal."""
    (directory / LOG).write_bytes(there)
    with pytest.raises(CommitError, match=r"since the commit.*remove seglog\.journal"):
        apply_journal(directory_at(directory))
    assert (directory / LOG).read_bytes() == there
    assert (directory / JOURNAL).exists()


@pytest.mark.parametrize("gone", ["b.staged", LOG])
def test_commit_whose_files_are_gone_is_not_finished(directory: Path, gone: str) -> None:
    (directory / gone).unlink()
    (directory / "checkpoint").unlink()
    with pytest.raises(CommitError, match="is gone"):
        apply_journal(directory_at(directory))


def test_segment_that_a_broker_went_on_with_is_noticed(tmp_path: Path) -> None:
    """Also where the commit begins a new one."""
    (tmp_path / "events-0").mkdir()
    (tmp_path / LOG).write_bytes(b"0123 and more")
    (tmp_path / "events-0" / "a.staged").write_bytes(b"x")
    moves = (Rename("events-0/a.staged", "events-0/00000000000000000005.log"),)
    write_journal(directory_at(tmp_path), Journal("1", {"events-0": LogExtent(0, 5, 0, 4)}, moves))
    with pytest.raises(CommitError, match="written to by others"):
        apply_journal(directory_at(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"moves": [["rename", "../a", "b"]]},
        {"moves": [["rename", "a", "/etc/passwd"]]},
        {"moves": [["rename", "a/b/c", "b"]]},
        {"moves": [["rename", ".", "b"]]},
        {"moves": [["append", "a", 0, -1, "b", 0]]},
        {"moves": [["append", "a", 0, 1, "b", 1 << 63]]},
        {"moves": [["append", "a", 0, True, "b", 0]]},
        {"moves": [["delete", "a"]]},
        {"moves": 5},
        {"partitions": {"../x": {"start_offset": 0, "end_offset": 0, "segment": 0, "position": 0}}},
        {"partitions": {"events-0": {"end_offset": 0, "segment": 0, "position": 0}}},
        {"partitions": []},
        {"summary": 5},
    ],
    ids=str,
)
def test_journal_that_is_none_is_refused(change: dict[str, Any]) -> None:
    wrong = {**json.loads(WHOLE.to_json()), **change}
    with pytest.raises(CorruptCheckpointError, match="journal"):
        parse_journal(json.dumps(wrong).encode(), "seglog.journal")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_journal_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        parse_journal(data, "seglog.journal")


def test_journal_cut_anywhere_is_refused() -> None:
    data = WHOLE.to_json()
    for cut in range(len(data)):
        with pytest.raises(CorruptCheckpointError):
            parse_journal(data[:cut], "seglog.journal")
