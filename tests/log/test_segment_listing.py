"""The segments that a folder is listed to have: by names, of files that are there, and after a cleaner that died."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.errors import PathNotFoundError, StorageError
from sparklog.log.layout import read_layout
from sparklog.log.reader import open_log
from sparklog.storage.base import Entry
from sparklog.storage.local import LocalStorage
from tests.build import write_partition
from tests.log.logs import batch, batches, offsets, write
from tests.places import folder_at


def names(folder: Path) -> list[str]:
    return [Path(segment.path()).name for segment in read_layout(folder_at(folder)).segments]


def test_folder_in_the_place_of_a_segment_is_passed_over_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "00000000000000000000.log").mkdir()
    with open_log(str(tmp_path)) as log:
        assert log.end_offset == 0
    assert "00000000000000000000.log is not a regular file" in caplog.text


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_pipe_named_like_a_file_of_the_log_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    write(folder, with_indexes=False)
    os.mkfifo(folder / f"{10 if suffix == '.log' else 0:020d}{suffix}")
    with open_log(str(folder)) as log:
        assert offsets(log) == list(range(120))
        assert log.offset_for_time(1050) == 50
        assert log.read(isolation_level="read_committed").num_rows == 120


def test_short_name_in_a_gap_of_offsets_is_no_segment(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches(2)))
    (folder / f"{50:020d}.log").write_bytes(b"".join(batches(2, 50)))
    (folder / "30.log").write_bytes(b"".join(batches(1, 30)))
    with open_log(str(folder)) as log:
        assert offsets(log) == [*range(20), *range(50, 70)]


def test_loop_of_links_does_not_hide_the_folder_that_it_is_in(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    write(folder)
    (folder / "loop").symlink_to(folder / "loop")
    with open_log(str(folder)) as log:
        assert offsets(log) == list(range(120))
    with pytest.raises(PathNotFoundError, match="loop: its links lead round in a circle"):
        LocalStorage().open(str(folder / "loop"))
    with pytest.raises(StorageError, match="loop: its links lead round in a circle"):
        LocalStorage().entries(str(folder / "loop"))


def test_deleted_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 3)
    for name in ("00000000000000000000.log.deleted", "x.log", "00000000000000000000.txt", "7.log.bak", ".DS_Store"):
        (tmp_path / name).write_bytes(b"not a batch of any kind at all")
    assert names(tmp_path) == ["00000000000000000000.log"]


def test_swap_left_by_a_dead_cleaner_takes_the_place_of_what_it_was_made_from(tmp_path: Path) -> None:
    write_partition(tmp_path, batches(12), segment_bytes=600)
    first, second, third = sorted(tmp_path.glob("*.log"))[:3]
    swap = tmp_path / f"{first.name}.swap"
    swap.write_bytes(batch(0, 4) + batch(int(third.stem) - 10, 10))
    assert names(tmp_path)[:2] == [swap.name, third.name]
    with open_log(str(tmp_path)) as log:
        expected = [*range(4), *range(int(third.stem) - 10, 120)]
        assert offsets(log) == expected
    # A file that is still being cleaned, at or before it, says that the replacement was not done.
    (tmp_path / f"{first.name}.cleaned").write_bytes(b"")
    assert names(tmp_path)[:2] == [first.name, second.name]


def test_folder_whose_files_are_renamed_again_and_again_is_listed_until_it_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing beside a rename may miss a segment, and the log would begin behind it."""
    write(tmp_path / "events-0", segment_bytes=1000)
    assert len(list((tmp_path / "events-0").glob("*.log"))) > 1
    plain, listings = LocalStorage.entries, list[str]()

    def entries(self: LocalStorage, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        listings.append(path)
        if len(listings) > 12:
            return plain(self, path, wanted)
        (tmp_path / "events-0" / f"{len(listings)}.tmp").touch()
        return plain(self, path, wanted)[len(listings) % 2 :]

    monkeypatch.setattr(LocalStorage, "entries", entries)
    assert names(tmp_path / "events-0")[0] == f"{0:020d}.log"
    assert len(listings) > 12
