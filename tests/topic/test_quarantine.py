"""The folder that keeps damaged stretches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from sparklog.errors import ForeignNameError, InvalidOptionError, OutputNameError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.reads.damage_table import DAMAGE_SCHEMA
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.storage.registry import Location
from sparklog.topic.quarantine import DAMAGE_FILE, Quarantine
from tests.places import directory_at
from tests.storage.crash import CrashingStorage, crashes

BYTES = bytes(range(256)) * 5_000  # longer than a window
LOCAL = LocalWritableStorage()


def log_of(folder: Path) -> DamagedStretch:
    log = folder / "logs" / "events-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(BYTES)
    return DamagedStretch("events", 0, str(log), 1000, 1_200_000, 7, 12, "noise")


def quarantine_at(folder: Path) -> Quarantine:
    return Quarantine(Location(LOCAL, str(folder)))


def lines_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / DAMAGE_FILE).read_bytes().splitlines()]


def test_stretch_is_kept_with_its_row_and_not_doubled(tmp_path: Path) -> None:
    stretch, kept = log_of(tmp_path), tmp_path / "q"
    lost = replace(stretch, position=0, length_bytes=0, reason="the segment is missing")
    for _ in range(2):
        quarantine_at(kept).keep([stretch, lost], LOCAL)
    piece = BYTES[1000:1_201_000]
    name = f"events-0/{0:020d}.log.1000-1200000-{crc32c(piece):08x}.raw"
    assert (kept / name).read_bytes() == piece
    rows = lines_of(kept)
    assert [row["kept"] for row in rows] == [name, None]
    assert {column: rows[0][column] for column in DAMAGE_SCHEMA.names} == {
        "topic": "events", "partition": 0, "file": stretch.file, "position": 1000, "length_bytes": 1_200_000,
        "first_offset": 7, "end_offset": 12, "reason": "noise",
    }  # fmt: skip
    assert sorted(path.name for path in kept.iterdir()) == [DAMAGE_FILE, "events-0", "lock"]


def test_other_bytes_at_the_same_place_are_kept_beside_the_first(tmp_path: Path) -> None:
    stretch, kept = log_of(tmp_path), tmp_path / "q"
    quarantine_at(kept).keep([stretch], LOCAL)
    Path(stretch.file).write_bytes(BYTES[::-1])
    quarantine_at(kept).keep([stretch], LOCAL)
    assert len(list((kept / "events-0").iterdir())) == len(lines_of(kept)) == 2


def test_stretch_of_a_file_that_is_gone_has_a_row_without_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stretch, kept = log_of(tmp_path), tmp_path / "q"
    Path(stretch.file).unlink()
    quarantine_at(kept).keep([stretch], LOCAL)
    assert lines_of(kept)[0]["kept"] is None
    assert "is gone" in caplog.text


def test_file_with_the_name_of_a_stretch_is_not_overwritten(tmp_path: Path) -> None:
    stretch, kept = log_of(tmp_path), tmp_path / "q"
    quarantine_at(kept).keep([stretch], LOCAL)
    (file,) = (kept / "events-0").iterdir()
    file.write_bytes(b"mine")
    with pytest.raises(OutputNameError, match="other bytes"):
        quarantine_at(kept).keep([stretch], LOCAL)
    assert file.read_bytes() == b"mine"


def test_planted_links_lead_nowhere(tmp_path: Path) -> None:
    stretch, kept, outside = log_of(tmp_path), tmp_path / "q", tmp_path / "outside"
    kept.mkdir()
    outside.mkdir()
    (kept / "events-0").symlink_to(outside)
    with pytest.raises(ForeignNameError):
        quarantine_at(kept).keep([stretch], LOCAL)
    (kept / "events-0").unlink()
    (kept / DAMAGE_FILE).symlink_to(outside / "table")
    with pytest.raises(ForeignNameError):
        quarantine_at(kept).keep([stretch], LOCAL)
    assert not list(outside.iterdir())


@pytest.mark.parametrize("name", ["logs", "logs/q", "logs/events-0/deep/q", "link/q", "file"])
def test_quarantine_in_a_log_directory_or_at_a_file_is_refused(tmp_path: Path, name: str) -> None:
    log_of(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidOptionError, match="quarantine is"):
        quarantine_at(tmp_path / name).check([directory_at(tmp_path / "logs")])
    quarantine_at(tmp_path / "q").check([directory_at(tmp_path / "logs")])


def test_crash_at_every_call_loses_no_kept_stretch_and_the_next_run_keeps_all(tmp_path: Path) -> None:
    first = replace(log_of(tmp_path), length_bytes=100)
    second = replace(first, position=300)

    def run(storage: CrashingStorage, folder: Path) -> None:
        Quarantine(Location(storage, str(folder / "q"))).keep([second], LOCAL)

    for crash in crashes(lambda folder: quarantine_at(folder / "q").keep([first], LOCAL), run, tmp_path):
        kept = crash.folder / "q"
        quarantine_at(kept).keep([second], LOCAL)
        rows = lines_of(kept)
        assert [row["position"] for row in rows] == [1000, 300]
        for row in rows:
            assert (kept / str(row["kept"])).read_bytes() == BYTES[row["position"] :][:100]  # type: ignore[index]
        assert not list(kept.rglob("*.staged"))
