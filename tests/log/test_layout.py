"""What a folder holds: the files that a broker would load, and where the log starts and ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import CorruptBatchError, DataLossError, OffsetOutOfRangeError, PathNotFoundError
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding
from sparklog.log.config import LogConfig
from sparklog.log.layout import PartitionLayout
from sparklog.log.reader import open_log
from sparklog.log.segment import OffsetPosition, Segment
from sparklog.record.format.v2 import OFFSET_MAX
from sparklog.storage.local import LocalFile, LocalStorage
from sparklog.write.partition import LogWriter
from sparklog.write.recovery import recover_log
from tests.build import Record, offset_checkpoint, v2_batch, write_partition
from tests.log.logs import batch, batches, offsets, write
from tests.places import folder_at


def verified(folder: Path) -> list[Finding]:
    return [each for each in verify_partition(folder_at(folder)) if isinstance(each, Finding)]


def test_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="events-7"):
        open_log(str(tmp_path / "events-7"))


def test_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "events-0").write_bytes(b"")
    with pytest.raises(PathNotFoundError, match="events-0: it is a file"):
        open_log(str(tmp_path / "events-0"))


@pytest.mark.parametrize("bases", [(0, 1 << 33), (0,)])
@pytest.mark.parametrize("far", [(1 << 31) - 9, (1 << 31) + 7, 1 << 39, 1 << 62])
def test_batch_that_no_index_of_its_segment_could_reach_is_damage(
    tmp_path: Path, far: int, bases: tuple[int, ...]
) -> None:
    """No checksum covers a base offset: a flipped high bit of it would else be the end of the log for ever."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = batch(0) + v2_batch([Record(n) for n in range(10)], base_offset=far)
    if far > 1 << 33:
        bases = (0,)
    for base in bases:
        (folder / f"{base:020d}.log").write_bytes(batch(base) if base else data)
    assert [each.code for each in verified(folder) if each.severity == "error"] == ["offset-range"]
    with pytest.raises(CorruptBatchError, match=rf"offsets {far} to .* expected offsets from 10 to 2147483647"):
        open_log(folder).read()
    with pytest.raises(CorruptBatchError, match="is out of order") as refused, LogWriter.open(folder):
        pass
    assert "recover --truncate" in str(refused.value) or len(bases) == 1
    recover_log(folder_at(folder), LogConfig(), 0, truncate=True, is_thorough=True)
    with open_log(folder) as log:
        assert offsets(log) == list(range(10))


def test_last_batch_that_an_index_can_reach_is_sound(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    far = (1 << 31) - 10
    (folder / f"{0:020d}.log").write_bytes(batch(0) + batch(far))
    with LogWriter.open(folder) as log:
        assert log.append({"value": [b"new"]}) == (far + 10, far + 10)
    with open_log(folder) as log:
        assert offsets(log) == [*range(10), *range(far, far + 11)]
    assert [each for each in verified(folder) if each.severity != "note"] == []


@pytest.mark.parametrize("room", [0, 1, 4, 5])
def test_append_stops_at_the_last_offset_that_there_can_be(tmp_path: Path, room: int) -> None:
    base = OFFSET_MAX - room
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{base:020d}.log").touch()
    values = pa.table({"value": [b"v"] * 5})
    with LogWriter.open(tmp_path / "t-0") as log:
        if room < 5:
            with pytest.raises(OffsetOutOfRangeError, match=f"t-0 cannot have 5 more offsets from {base} on"):
                log.append(values)
        if room:
            assert log.append(values[:room]) == (base, OFFSET_MAX - 1)
        with pytest.raises(OffsetOutOfRangeError, match="cannot have 1 more"):
            log.append(values[:1])
    with open_log(tmp_path / "t-0") as log:
        assert (log.end_offset, log.read().num_rows) == (base + room, room)
    assert [each for each in verified(tmp_path / "t-0") if each.severity != "note"] == []


def test_bases_further_apart_than_relative_offsets_reach_do_not_hang(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base in (0, 1 << 32, 1 << 40):
        (folder / f"{base:020d}.log").write_bytes(batch(base))
    with open_log(str(folder)) as log:
        assert log.read().num_rows == log.read(isolation_level="read_committed").num_rows == 30
        assert offsets(log, 5, (1 << 40) + 2) == [
            *range(5, 10),
            *range(1 << 32, (1 << 32) + 10),
            1 << 40,
            (1 << 40) + 1,
        ]


def test_segment_of_an_offset_is_found_among_many(tmp_path: Path) -> None:
    segments = tuple(Segment(folder_at(tmp_path), base, base + 10, 0, is_last=False) for base in range(0, 100_000, 10))
    layout = PartitionLayout(folder_at(tmp_path), segments, 0, OffsetPosition(0, 100_000))
    assert [layout.segment_of(offset) for offset in (0, 9, 10, 55_555, 99_999, 200_000)] == [0, 0, 1, 5555, 9999, 9999]


def test_name_that_is_listed_and_never_there_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    write(folder)
    with open_log(str(folder)) as log:

        def gone(_: LocalStorage, path: str) -> LocalFile:
            raise PathNotFoundError(f"no such file: {path}")

        monkeypatch.setattr(LocalStorage, "open", gone)
        monkeypatch.setattr("sparklog.log.scans.of_range.read_layout", lambda *_: log._layout)
        with pytest.raises(PathNotFoundError, match="no such file"):
            log.read()


def test_batch_that_says_it_is_as_long_as_can_be_is_damage(tmp_path: Path) -> None:
    for number, size in enumerate([0x7FFFFFF4, 0x7FFFFFFF, 0x7FFFFFF3]):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        damaged = bytearray(batch(10))
        damaged[8:12] = size.to_bytes(4, "big")
        (folder / f"{0:020d}.log").write_bytes(batch(0) + damaged + batch(20))
        with pytest.raises(CorruptBatchError, match="another batch follows it"):
            open_log(str(folder))


def test_empty_folder_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "events-0").mkdir()
    with open_log(str(tmp_path / "events-0")) as log:
        assert (log.start_offset, log.end_offset, log.read().num_rows) == (0, 0, 0)


def test_empty_segment_keeps_the_offset_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "00000000000000004000.log").write_bytes(b"")
    with open_log(str(tmp_path)) as log:
        assert (log.start_offset, log.end_offset, log.last_stable_offset) == (4000, 4000, 4000)


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
