"""What a ledger says after a commit that died in it, and after damage."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptCheckpointError
from sparklog.jobs.ledger import LedgerEntry, Loaded, Moved, MovedFile, commits, encode_commit, next_number, read_ledger
from sparklog.log.files import TopicPartition
from sparklog.storage.local import LocalStorage

STORAGE = LocalStorage()

files = st.builds(MovedFile, st.text(min_size=1), st.integers(0), st.integers(0), st.integers(0, 2**32 - 1), st.text())
moved = st.builds(
    Moved,
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0),
    st.integers(0),
    st.none() | st.text(),
    st.none() | st.integers(0),
    st.lists(files, max_size=2).map(tuple),
)
loaded = st.builds(Loaded, st.text(min_size=1), st.none() | st.text(), st.integers(0), st.integers(), st.integers(0))
entries = st.lists(moved | loaded, max_size=4)


def encoded(all_entries: list[list[LedgerEntry]]) -> list[bytes]:
    return [encode_commit(number, "export", "run", 5, each) for number, each in enumerate(all_entries)]


@given(st.lists(entries, max_size=5))
def test_what_was_committed_is_read(tmp_path_factory: pytest.TempPathFactory, written: list[list[LedgerEntry]]) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    path.write_bytes(b"".join(encoded(written)))
    assert [list(each.entries) for each in commits(STORAGE, str(path))] == written
    assert next_number(STORAGE, str(path)) == len(written)
    found = read_ledger(STORAGE, str(path))
    last = {each.topic_partition: each for commit in written for each in commit if isinstance(each, Moved)}
    assert found.moved == last
    assert found.loaded == {
        (each.path, each.into): each for commit in written for each in commit if isinstance(each, Loaded)
    }
    assert found.size_bytes == path.stat().st_size
    assert found.next_number == len(written)


def test_no_ledger_is_an_empty_one(tmp_path: Path) -> None:
    found = read_ledger(STORAGE, str(tmp_path / "none"))
    assert (found.size_bytes, found.next_number, dict(found.moved)) == (0, 0, {})
    assert next_number(STORAGE, str(tmp_path / "none")) == 0


SOME = [
    [Moved("a", 0, 0, 10, 10, 100, "id", 3, (MovedFile("a/x", 5, 10, 7, "s"),)), Moved("b", 1, 0, 3, 3, 30)],
    [Moved("a", 0, 10, 20, 9, 100), Moved("c", 0, 0, 5, 5, 10, source="/other", target_topic="d")],
]


def test_a_commit_cut_off_anywhere_counts_as_if_it_had_never_been(tmp_path: Path) -> None:
    first, second = encoded(SOME)  # type: ignore[arg-type]
    path = tmp_path / "ledger.jsonl"
    for length in range(len(second)):
        path.write_bytes(first + second[:length])
        found = read_ledger(STORAGE, str(path))
        assert (found.size_bytes, found.next_number) == (len(first), 1), length
        path.write_bytes(first + second[:length] + bytes(len(second) - length))
        assert read_ledger(STORAGE, str(path)).size_bytes == len(first), length
    path.write_bytes(first + second)
    assert read_ledger(STORAGE, str(path)).moved[TopicPartition("a", 0)].end_offset == 20


def test_no_flipped_bit_changes_what_a_ledger_says(tmp_path: Path) -> None:
    data = b"".join(encoded(SOME))  # type: ignore[arg-type]
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(data)
    right = read_ledger(STORAGE, str(path))
    silent = []
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with suppress(CorruptCheckpointError):
                found = read_ledger(STORAGE, str(path))
                if (found.moved, found.size_bytes) != (right.moved, right.size_bytes):
                    silent.append(position)
    # The very last byte is the end of the last line: without it, the line is one that was cut off. What tells a commit
    # of a run, such as its time, is for people, and does not say what was moved.
    assert set(silent) <= {len(data) - 1}


def test_lines_are_what_the_documentation_says(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in encoded(SOME)[0].splitlines()]  # type: ignore[arg-type]
    assert [line["kind"] for line in lines] == ["moved", "moved", "commit"]
    assert list(lines[0]) == [
        "kind",
        "topic",
        "partition",
        "from",
        "to",
        "rows",
        "log_bytes",
        "topic_id",
        "leader_epoch",
        "files",
    ]
    assert list(lines[0]["files"][0]) == ["path", "bytes", "rows", "crc32c", "staged"]
    assert list(lines[2]) == ["kind", "version", "number", "job", "run", "time_ms", "lines", "crc32c"]


def test_a_ledger_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(encode_commit(0, "export", "run", 5, []).replace(b'"version":1', b'"version":2'))
    with pytest.raises(CorruptCheckpointError, match="version 2"):
        read_ledger(STORAGE, str(path))
