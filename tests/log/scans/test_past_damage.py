"""A scan that goes on behind damage: what is sound, what cannot be read, and where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.log.scans.past_damage import CheckedBatches, scan_past_damage
from sparklog.log.segment_listing import list_segments
from sparklog.log.sound_batches import Unreadable
from tests.build import write_partition
from tests.log.logs import batches
from tests.places import folder_at

FIRST = f"{0:020d}.log"


@pytest.fixture
def data(tmp_path: Path) -> list[bytes]:
    """Make a log of five batches of ten records each."""
    made = batches(5)
    write_partition(tmp_path / "events-0", made)
    return made


def scanned(folder: Path) -> tuple[list[int], list[Unreadable]]:
    """Return the base offsets of sound batches, and what cannot be read; both in order."""
    (segment,) = list_segments(folder_at(folder))
    sound, unreadable = list[int](), list[Unreadable]()
    for found in scan_past_damage(segment):
        if isinstance(found, CheckedBatches):
            sound += found.headers.column("base_offset").tolist()
        else:
            unreadable.append(found)
    return sound, unreadable


def damage(folder: Path, position: int, octets: bytes) -> None:
    with (folder / FIRST).open("r+b") as file:
        file.seek(position)
        file.write(octets)


def test_sound_log_has_nothing_unreadable(tmp_path: Path, data: list[bytes]) -> None:
    assert len(data) == 5
    assert scanned(tmp_path / "events-0") == ([0, 10, 20, 30, 40], [])


def test_batch_with_a_wrong_checksum_is_left_out_with_its_offsets(tmp_path: Path, data: list[bytes]) -> None:
    position = len(data[0]) + len(data[1])
    damage(tmp_path / "events-0", position + 70, b"\xff\xff\xff")
    sound, (found,) = scanned(tmp_path / "events-0")
    assert sound == [0, 10, 30, 40]
    assert (found.position, found.length_bytes) == (position, len(data[2]))
    assert (found.first_offset, found.end_offset, found.is_log_end) == (20, 30, False)
    assert found.path == str(tmp_path / "events-0" / FIRST)


def test_bytes_that_are_no_batch_reach_to_the_next_sound_one(tmp_path: Path, data: list[bytes]) -> None:
    position = len(data[0])
    damage(tmp_path / "events-0", position, b"\xff" * (len(data[1]) + 10))
    sound, (found,) = scanned(tmp_path / "events-0")
    assert sound == [0, 30, 40]
    assert (found.position, found.length_bytes) == (position, len(data[1]) + len(data[2]))
    assert (found.first_offset, found.end_offset) == (10, 30)


def test_torn_end_is_the_end_of_the_log_and_no_damage(tmp_path: Path, data: list[bytes]) -> None:
    path = tmp_path / "events-0" / FIRST
    path.write_bytes(path.read_bytes()[:-5])
    sound, (found,) = scanned(tmp_path / "events-0")
    assert sound == [0, 10, 20, 30]
    assert (found.first_offset, found.length_bytes, found.is_log_end) == (40, len(data[4]) - 5, True)
