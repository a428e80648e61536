"""`recover` and writers beside a segment that is too long for its indexes: a sparse file of whole batches of zeros."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import CorruptLogError
from sparklog.log.config import LogConfig
from sparklog.log.index import POSITION_MAX
from sparklog.topic.recover import RecoverOptions, recover_directory
from sparklog.write.recovery_actions import Action
from tests import build
from tests.places import directory_at
from tests.topic.staged import NOW_MS

VALUE_BYTES = 64 << 20
COUNT = 33
FIRST = f"{0:020d}"


def write_long(folder: Path, *, has_indexes: bool, count: int = COUNT) -> int:
    """Write a log of one segment with a record of zeros in each batch; return its size."""
    batch = build.v2_batch([build.Record(timestamp=NOW_MS, value=bytes(VALUE_BYTES))])
    folder.mkdir(parents=True)
    with (folder / f"{FIRST}.log").open("wb") as log:
        for offset in range(count):
            log.seek(offset * len(batch))
            # No checksum covers the offset, and the bytes that are not written are zeros.
            log.write(struct.pack(">q", offset) + batch[8:100])
        log.truncate(count * len(batch))
    if has_indexes:
        positions = [(offset, offset * len(batch)) for offset in range(1, count)]
        held = [entry for entry in positions if entry[1] <= POSITION_MAX]
        (folder / f"{FIRST}.index").write_bytes(build.offset_index(held))
        (folder / f"{FIRST}.timeindex").write_bytes(build.time_index([(NOW_MS, 0)]))
    return count * len(batch)


def recovered(directory: Path, *partitions: str, dry_run: bool = False) -> list[Action | CorruptLogError]:
    at = directory_at(directory)
    options = RecoverOptions(LogConfig(), 1 << 40, dry_run=dry_run)
    found = list(recover_directory(at, [at.folder(each) for each in partitions], options, NOW_MS))
    assert all(isinstance(each, Action | CorruptLogError) for each in found)
    return found  # type: ignore[return-value]


def files_of(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in folder.iterdir())


def test_segment_too_long_for_indexes_is_named_and_the_other_logs_are_recovered(tmp_path: Path) -> None:
    long, sound = tmp_path / "long-0", tmp_path / "sound-0"
    size_bytes = write_long(long, has_indexes=False)
    build.write_partition(sound, [build.v2_batch([build.Record(value=b"v")])], with_indexes=False)
    before = files_of(long)
    for dry_run in (True, False):
        refused, *done = recovered(tmp_path, "long-0", "sound-0", dry_run=dry_run)
        assert isinstance(refused, CorruptLogError)
        assert (refused.path, refused.position) == (f"{long}/{FIRST}.log", POSITION_MAX)
        assert f"the segment has {size_bytes} bytes" in str(refused)
        assert "sparklog copy --keep-offsets" in str(refused)
        assert {Path(each.path).name for each in done} >= {f"{FIRST}.index", f"{FIRST}.timeindex"}  # type: ignore[arg-type]
        assert files_of(long) == before
    with pytest.raises(CorruptLogError, match="its indexes are missing or wrong"):
        sparklog.PartitionLog.open(long)
    assert files_of(long) == before
    assert (sound / f"{FIRST}.index").exists()
    with sparklog.open_log(long) as log:
        assert log.read(COUNT - 2, columns="offset")["offset"].to_pylist() == [COUNT - 2, COUNT - 1]


def test_log_with_indexes_as_far_as_they_go_is_recovered_and_rolls(tmp_path: Path) -> None:
    folder = tmp_path / "long-0"
    size_bytes = write_long(folder, has_indexes=True)
    assert all(isinstance(each, Action) for each in recovered(tmp_path, "long-0"))
    with sparklog.PartitionLog.open(folder) as log:
        log.append({"value": [b"more"]})
    assert files_of(folder)[1] == (f"{FIRST}.log", size_bytes)
    assert (folder / f"{COUNT:020d}.log").exists()
    (folder / f"{FIRST}.timeindex").unlink()
    (refused,) = recovered(tmp_path, "long-0")
    assert isinstance(refused, CorruptLogError)
    found = [(each.severity, each.code, each.position) for each in sparklog.verify(folder, processes=1)]
    assert ("warning", "segment-size", POSITION_MAX) in found
    assert {code for _, code, _ in found} <= {"segment-size", "index-missing"}


def test_offsets_too_far_apart_for_an_index_are_damage_of_that_log_only(tmp_path: Path) -> None:
    record = [build.Record(value=b"v")]
    far = [build.v2_batch(record), build.v2_batch(record, base_offset=1 << 31)]
    build.write_partition(tmp_path / "far-0", far, with_indexes=False)
    build.write_partition(tmp_path / "sound-0", [build.v2_batch(record)], with_indexes=False)
    refused, *done = recovered(tmp_path, "far-0", "sound-0")
    assert isinstance(refused, CorruptLogError)
    assert (refused.path, refused.position) == (f"{tmp_path}/far-0/{FIRST}.log", len(far[0]))
    assert f"{FIRST}.index" in {Path(each.path).name for each in done}  # type: ignore[arg-type]
    with pytest.raises(CorruptLogError):
        sparklog.PartitionLog.open(tmp_path / "far-0")
