"""One rule of damage: where `verify` has an error in a log, the table of damage has a row, and nowhere else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparklog.inspect.verify_segment import Finding, Severity, scan_segment
from sparklog.log.reader import open_log
from sparklog.log.segment_listing import list_segments
from tests.build import Record, v2_batch, write_partition
from tests.log.scans.test_every_block import BLOCK_BYTES, EDITS, FORMATS, made_log
from tests.log.scans.test_many_damages import damaged
from tests.places import folder_at
from tests.storage.bad_sectors import bad_sectors

Places = list[tuple[str, int, int]]


def of_verify(folder: Path) -> Places:
    """Return the file, position and offset of each error of the scan of a log."""
    events = [event for segment in list_segments(folder_at(folder)) for event in scan_segment(segment)]
    errors = [each for each in events if isinstance(each, Finding) and each.severity is Severity.ERROR]
    return sorted((each.path, each.position or 0, -1 if each.offset is None else each.offset) for each in errors)


def of_table(folder: Path) -> Places:
    """Return the same of each row of damage that has bytes."""
    with open_log(folder, on_damage="skip") as log:
        rows = log.damage().to_pylist()
    return sorted((row["file"], row["position"], row["first_offset"]) for row in rows if row["length_bytes"])


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_each_block_of_a_log(tmp_path: Path, magic: int, codec: str) -> None:
    folder, batches = tmp_path / "events-0", made_log(magic, codec)
    write_partition(folder, batches, with_indexes=False)
    (path,), data, told = folder.glob("*.log"), b"".join(batches), 0
    for name, edit in EDITS.items():
        for begin in range(0, len(data), BLOCK_BYTES):
            path.write_bytes(edit(data, begin, min(begin + BLOCK_BYTES, len(data))))
            found = of_verify(folder)
            assert found == of_table(folder), (name, begin)
            told += len(found)
    assert told > len(EDITS)


def test_each_block_that_the_disk_cannot_read(tmp_path: Path) -> None:
    folder, batches = tmp_path / "events-0", made_log(2, "lz4")
    write_partition(folder, batches, with_indexes=False)
    (path,), end = folder.glob("*.log"), sum(map(len, batches))
    for begin in range(0, end, BLOCK_BYTES):
        with bad_sectors({path: [(begin, min(begin + BLOCK_BYTES, end))]}):
            found = of_verify(folder)
            assert found == of_table(folder)
            (segment,) = list_segments(folder_at(folder))
            codes = {each.code for each in scan_segment(segment) if isinstance(each, Finding)}
        assert found
        assert codes == {"unreadable"}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_several_damages_of_several_segments(tmp_path: Path, codec: str) -> None:
    folder, batches, chance = tmp_path / "events-0", made_log(2, codec, 60), random.Random(7)
    write_partition(folder, batches, segment_bytes=sum(map(len, batches)) // 3)
    sound, told = {path: path.read_bytes() for path in folder.glob("*.log")}, 0
    assert len(sound) > 2
    for _ in range(40):
        for path, data in sound.items():
            edited = data
            for _ in range(chance.randrange(4)):
                name, size = chance.choice(["zeroed", "flipped", "noise"]), chance.choice([1, 30, 61, 512, 1500])
                edited = damaged(edited, name, chance.randrange(len(data)), size)
            path.write_bytes(edited)
        found = of_verify(folder)
        assert found == of_table(folder)
        told += len(found)
    assert told > 40


def test_batches_that_are_right_by_their_checksum_alone(tmp_path: Path) -> None:
    folder, one = tmp_path / "events-0", [Record(0, value=b"v"), Record(1, value=b"w")]
    wrong = [
        v2_batch(one, base_offset=2, record_count=3),
        v2_batch(one, base_offset=0),
        v2_batch(one, base_offset=1 << 40),
        v2_batch(one, base_offset=2, codec="zstd", compressed_records=b"\x28\xb5\x2f\xfd nothing"),
    ]
    for each in wrong:
        write_partition(folder, [v2_batch(one), each, v2_batch(one, base_offset=4)], with_indexes=False)
        assert [offset for _, _, offset in of_verify(folder)] == [2]
        assert of_verify(folder) == of_table(folder)
