"""What a folder holds: the files that a broker would load, and where the log starts and ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparklog.errors import DataLossError, OffsetOutOfRangeError, PathNotFoundError, StorageError
from sparklog.log.layout import read_layout
from sparklog.log.reader import open_log
from tests.build import offset_checkpoint, write_partition
from tests.log.logs import batch, batches, offsets, write


def names(folder: Path) -> list[str]:
    return [Path(segment.path()).name for segment in read_layout(str(folder)).segments]


def test_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="events-7"):
        open_log(str(tmp_path / "events-7"))


def test_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "events-0").write_bytes(b"")
    with pytest.raises(PathNotFoundError, match="events-0: it is a file"):
        open_log(str(tmp_path / "events-0"))


def test_folder_in_the_place_of_a_segment_is_named(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").mkdir()
    with pytest.raises(StorageError, match=r"00000000000000000000\.log"):
        open_log(str(tmp_path))


def test_empty_folder_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "events-0").mkdir()
    with open_log(str(tmp_path / "events-0")) as log:
        assert (log.start_offset, log.end_offset, log.read().num_rows) == (0, 0, 0)


def test_empty_segment_keeps_the_offset_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "00000000000000004000.log").write_bytes(b"")
    with open_log(str(tmp_path)) as log:
        assert (log.start_offset, log.end_offset, log.last_stable_offset) == (4000, 4000, 4000)


def test_deleted_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 3)
    for name in ("00000000000000000000.log.deleted", "x.log", "00000000000000000000.txt", "7.log.bak", ".DS_Store"):
        (tmp_path / name).write_bytes(b"not a batch of any kind at all")
    assert names(tmp_path) == ["00000000000000000000.log"]


def test_log_start_checkpoint_hides_what_is_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, batches(12), segment_bytes=600)
    (tmp_path / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 47, ("other", 0): 99}))
    with open_log(str(folder)) as log:
        assert offsets(log) == list(range(47, 120))
        with pytest.raises(OffsetOutOfRangeError, match=r"offsets \[3, 50\).*has \[47, 120\)"):
            log.read(3, 50)


@pytest.mark.parametrize(
    "text", ["0\n2\nevents 0 47\n", "1\n1\nevents 0 47\n", "0\n1\nevents 0\n", "0\nx\n", "\xff\xfe"]
)
def test_damaged_log_start_checkpoint_counts_as_empty_and_is_told(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, batches(2))
    (tmp_path / "log-start-offset-checkpoint").write_text(text, encoding="latin-1")
    assert open_log(str(folder)).start_offset == 0
    assert "log-start-offset-checkpoint" in caplog.text


def test_log_start_beyond_the_end_is_an_empty_log_as_to_a_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, batches(2))
    (tmp_path / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 500}))
    with open_log(str(folder)) as log:
        assert (log.start_offset, log.end_offset, log.read().num_rows) == (500, 500, 0)
    assert "a broker would delete it all" in caplog.text


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


def test_segment_removed_before_it_is_reached_is_data_loss(tmp_path: Path) -> None:
    write_partition(tmp_path, batches(12), segment_bytes=600)
    segments = sorted(tmp_path.glob("*.log"))
    with open_log(str(tmp_path)) as log:
        for path in segments[:2]:
            path.unlink()
        with pytest.raises(DataLossError, match=rf"offsets \[0, {int(segments[2].stem)}\).*are gone"):
            log.read()


def test_segment_removed_is_passed_over_where_loss_is_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_partition(tmp_path, batches(12), segment_bytes=600)
    segments = sorted(tmp_path.glob("*.log"))
    with open_log(str(tmp_path)) as log:
        segments[0].unlink()
        found = [n for b in log.batches(columns=["offset"], fail_on_data_loss=False) for n in b["offset"].to_pylist()]
        assert found == list(range(int(segments[1].stem), 120))
    assert "are gone" in caplog.text


def test_whole_folder_removed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder, 3)
    with open_log(str(folder)) as log:
        shutil.rmtree(folder)
        with pytest.raises(PathNotFoundError, match="events-0"):
            log.read()


def test_segments_compacted_into_one_while_they_are_read_go_on_by_offset(tmp_path: Path) -> None:
    write_partition(tmp_path, batches(12), segment_bytes=600)
    segments = sorted(tmp_path.glob("*.log"))
    with open_log(str(tmp_path)) as log:
        stream = log.batches(columns=["offset"])
        seen = next(stream)["offset"].to_pylist()
        joined = b"".join(path.read_bytes() for path in segments[:3])
        for path in segments[1:3]:
            path.rename(f"{path}.deleted")
        cleaned = tmp_path / f"{segments[0].name}.swap"
        cleaned.write_bytes(joined)
        cleaned.replace(segments[0])
        seen += [n for piece in stream for n in piece["offset"].to_pylist()]
    assert seen == list(range(120))
