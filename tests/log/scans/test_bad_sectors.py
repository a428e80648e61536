"""A disk that cannot read some sectors of a log: they are damage, and all batches elsewhere are read."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog.errors import DiskError
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.reader import IsolationLevel, open_log
from sparklog.storage.registry import locate
from sparklog.topic.quarantine import Quarantine
from tests.build import write_partition
from tests.log.logs import batches, only_log
from tests.log.scans.test_every_block import BLOCK_BYTES, made_log, offsets_of, untouched
from tests.places import LOCAL
from tests.storage.bad_sectors import bad_sectors


@pytest.mark.parametrize(("magic", "codec"), [(2, "none"), (2, "zstd"), (1, "none"), (1, "gzip"), (0, "none")])
def test_only_batches_in_a_bad_sector_are_lost(tmp_path: Path, magic: int, codec: str) -> None:
    folder, made = tmp_path / "events-0", made_log(magic, codec)
    write_partition(folder, made, with_indexes=codec == "none", index_interval_bytes=300)
    held, data, path = offsets_of(folder, made), b"".join(made), only_log(folder)
    for begin in range(0, len(data), BLOCK_BYTES):
        end = min(begin + BLOCK_BYTES, len(data))
        other = data[:begin] + bytes(octet ^ 1 for octet in data[begin:end]) + data[end:]
        sound = untouched(made, other, "bad sector", begin, end)
        expected = [offset for is_sound, offsets in zip(sound, held, strict=True) if is_sound for offset in offsets]
        with bad_sectors({path: [(begin, end)]}):
            with open_log(folder, on_damage="skip") as log:
                assert log.read(columns=["offset"])["offset"].to_pylist() == expected
                rows, log_end = log.damage().to_pylist(), log.end_offset
            with pytest.raises(DiskError), open_log(folder) as log:
                log.read(columns=["offset"])
        assert all(row["reason"].startswith("the disk cannot read the bytes from position") for row in rows)
        lost = {offset for row in rows for offset in range(row["first_offset"], row["end_offset"])}
        missing = {offset for offsets in held for offset in offsets} - set(expected)
        assert rows
        assert lost >= {offset for offset in missing if offset < log_end}
        assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)


@pytest.mark.parametrize("suffix", ["*.log", "*.index", "*.timeindex", "*"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_segment_that_cannot_be_read_at_all_costs_only_itself(
    tmp_path: Path, suffix: str, isolation: IsolationLevel
) -> None:
    folder, made = tmp_path / "events-0", batches(40)
    write_partition(folder, made, index_interval_bytes=300, segment_bytes=2600)
    middle = sorted(folder.glob("*.log"))[2:4]
    bad = {path: [(0, 1 << 40)] for path in folder.glob(suffix) if path.stem == middle[0].stem}
    lost = range(int(middle[0].stem), int(middle[1].stem)) if suffix in ("*.log", "*") else range(0)
    with bad_sectors(bad) as disk, open_log(folder, on_damage="skip") as log:
        found = log.read(columns=["offset"], isolation_level=isolation)["offset"].to_pylist()
        rows = [part for part in log.batches_and_damage() if isinstance(part, DamagedStretch)]
        some = log.read(columns=["offset"], where="timestamp >= 0")["offset"].to_pylist()
    assert found == some == [offset for offset in range(400) if offset not in lost]
    assert [(row.first_offset, row.end_offset) for row in rows] == [(lost.start, lost.stop)] * bool(lost)
    assert disk.failed_reads < 1000


def test_jobs_go_on_behind_a_bad_sector(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    write_partition(root / "events-0", made := batches(40), index_interval_bytes=300)
    data = b"".join(made)
    other = data[:1024] + bytes(512) + data[1536:]
    is_sound = untouched(made, other, "bad sector", 1024, 1536)
    sound = [10 * number + each for number, is_whole in enumerate(is_sound) if is_whole for each in range(10)]
    with bad_sectors({only_log(root / "events-0"): [(1024, 1536)]}):
        sparklog.salvage(root, tmp_path / "clean")
        with open_log(root / "events-0", on_damage="skip") as log:
            rows = [part for part in log.batches_and_damage() if isinstance(part, DamagedStretch)]
        Quarantine(locate(tmp_path / "kept", "kept")).keep(rows, LOCAL)
        sparklog.export(root, tmp_path / "exported", on_damage="skip")
    with open_log(tmp_path / "clean" / "events-0") as log:
        assert log.read(columns=["offset"])["offset"].to_pylist() == sound
    (kept,) = (tmp_path / "kept").glob("*/*.raw")
    begin = rows[0].position
    expected = data[begin:1024] + b"\xff" * 512 + data[1536 : begin + rows[0].length_bytes]
    assert kept.read_bytes() == expected
