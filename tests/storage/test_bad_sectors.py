"""Reads past bad sectors: all other bytes are given, and few reads fail however large the bad range is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DiskError
from sparklog.storage.bad_sectors import PastBadSectors
from sparklog.storage.local import LocalFile
from tests.storage.bad_sectors import SECTOR_BYTES, bad_sectors

SIZE = 40 * SECTOR_BYTES + 100


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("disk") / "f"
    path.write_bytes(random.Random(3).randbytes(SIZE).replace(b"\xff", b"\0"))
    return path


@settings(max_examples=200, deadline=None)
@given(
    sectors=st.sets(st.integers(0, 40), max_size=6),
    reads=st.lists(st.tuples(st.integers(0, SIZE + 600), st.integers(0, SIZE)), min_size=1, max_size=6),
)
def test_only_bad_sectors_are_filler(path: Path, sectors: set[int], reads: list[tuple[int, int]]) -> None:
    data = bytearray(path.read_bytes())
    for each in sectors:
        place = slice(each * SECTOR_BYTES, min((each + 1) * SECTOR_BYTES, SIZE))
        data[place] = b"\xff" * (place.stop - place.start)
    bad = [(each * SECTOR_BYTES, (each + 1) * SECTOR_BYTES) for each in sectors]
    with bad_sectors({path: bad}), LocalFile(str(path)) as inner:
        file = PastBadSectors(inner)
        for position, length_bytes in reads:
            assert bytes(file.read(position, length_bytes)) == data[position : position + length_bytes]
            room = bytearray(length_bytes)
            count = file.read_into(position, memoryview(room))
            assert room[:count] == data[position : position + length_bytes]
        for position, length_bytes in reads:
            end = min(position + length_bytes, SIZE)
            is_bad = position < end and any(first < end and position < stop for first, stop in bad)
            assert (file.fault(position, end) is not None) == is_bad


@pytest.mark.parametrize("first", [0, 512, 5 << 20])
def test_large_bad_range_costs_few_failed_reads(tmp_path: Path, first: int) -> None:
    path, size = tmp_path / "f", 1 << 30
    with path.open("wb") as made:
        made.truncate(size)
    bad = (first, first + (300 << 20))
    with bad_sectors({path: [bad]}) as disk, LocalFile(str(path)) as inner:
        file, room = PastBadSectors(inner), memoryview(bytearray(1 << 22))
        for position in range(0, size, len(room)):
            assert file.read_into(position, room) == len(room)
        assert file.fault(0, size) == f"the disk cannot read the bytes from position {first} on"
        assert file.fault(bad[1], size) is None
    assert disk.failed_reads < 100


def test_disk_that_fails_everywhere_is_given_up(tmp_path: Path) -> None:
    path, size = tmp_path / "f", 64 << 20
    path.write_bytes(bytes(size))
    # Every second sector: no bad range is long.
    bad = [(at, at + 512) for at in range(0, 4096 * 1024, 1024)]
    with bad_sectors({path: bad}) as disk, LocalFile(str(path)) as inner:
        file = PastBadSectors(inner)
        assert len(file.read(0, size)) == size
        assert "no more of the file was tried" in str(file.fault(0, size))
    assert disk.failed_reads < 1100


def test_other_errors_are_no_bad_sectors(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a")
    with bad_sectors({tmp_path / "f": [(0, 1)]}), LocalFile(str(tmp_path / "f")) as file, pytest.raises(DiskError):
        file.read(0, 1)
    with LocalFile(str(tmp_path / "f")) as file:
        past = PastBadSectors(file)
        file.close()
        with pytest.raises(Exception, match="cannot read") as raised:
            past.read(0, 1)
    assert not isinstance(raised.value, DiskError)
