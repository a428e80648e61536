"""Opening a log that was left in the middle of something."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparklog.errors import CorruptBatchError, CorruptLogError
from sparklog.log.checkpoints import encode_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.producer_state import producers_at_end
from sparklog.log.recovery import Recovered, recover
from sparklog.storage.writing import LocalWritableStorage
from tests.build import write_partition
from tests.golden import GoldenSet, golden_sets
from tests.log.logs import batch, batches, only_log, write

STORAGE = LocalWritableStorage()
CONFIG = LogConfig(index_interval_bytes=300)
NOW_MS = 1_700_000_000_000


def recovered(folder: Path, **options: bool) -> Recovered:
    return recover(STORAGE, str(folder), CONFIG, NOW_MS, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of 12 batches of 10 records, as a broker that was killed may have left it."""
    path = tmp_path / "events-0"
    path.mkdir()
    write(path)
    return path


def test_whole_log_needs_little(folder: Path) -> None:
    found = recovered(folder)
    assert (found.tail.end_offset, found.start_offset) == (120, 0)
    assert found.tail.segment.size_bytes == only_log(folder).stat().st_size
    assert [action.path.rpartition("/")[2] for action in found.actions] == ["leader-epoch-checkpoint"]
    assert recovered(folder).actions == ()
    assert recovered(folder).tail == found.tail


def test_producer_of_old_records_is_known_again_after_a_crash(tmp_path: Path) -> None:
    """Else its last batch, sent again, would be appended twice; a broker forgets only what it has from a snapshot."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    write_partition(tmp_path / "t-0", [batch(0, base_sequence=0, **producer)], is_clean=False)
    assert recovered(tmp_path / "t-0").producers.entries.keys() == {7}


def test_torn_end_is_cut_at_every_byte(tmp_path: Path) -> None:
    whole, last = b"".join(batches(3)), batch(30)
    for cut in range(len(last)):
        path = tmp_path / f"t-{cut}"
        path.mkdir()
        (path / "00000000000000000000.log").write_bytes(whole + last[:cut])
        assert recovered(path).tail.end_offset == 30
        assert only_log(path).read_bytes() == whole


def test_zeros_at_the_end_are_cut(folder: Path) -> None:
    log = only_log(folder)
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(5000))
    assert "cut" in recovered(folder).actions[0].what
    assert log.read_bytes() == whole


def test_last_batch_that_never_reached_the_disk_whole_is_cut(folder: Path) -> None:
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)
    assert recovered(folder).tail.end_offset == 110


def test_damage_before_whole_batches_is_cut_only_when_told(folder: Path) -> None:
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[3 * len(content) // 4] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        recovered(folder)
    assert log.read_bytes() == content
    found = recovered(folder, truncate=True)
    assert 0 < found.tail.end_offset < 120
    assert any("loses" in action.what for action in found.actions)
    assert recovered(folder).actions == ()


def test_clean_log_is_not_read_beyond_its_end(folder: Path) -> None:
    """A snapshot of its end says that it was closed."""
    found = recovered(folder)
    (folder / "00000000000000000120.snapshot").write_bytes(found.producers.encode())
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    assert recovered(folder).tail == found.tail


def test_recovery_point_says_from_where_to_check(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    for base in (0, 50):
        data = bytearray(b"".join(batches(5, base)))
        (folder / f"{base:020d}.log").write_bytes(data)
    first = folder / "00000000000000000000.log"
    damaged = bytearray(first.read_bytes())
    damaged[200] ^= 1
    first.write_bytes(damaged)
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    for point, is_refused in ((0, True), (50, False)):
        checkpoint.write_bytes(encode_offset_checkpoint({TopicPartition("events", 0): point}))
        if is_refused:
            with pytest.raises(CorruptBatchError):
                recovered(folder)
        else:
            assert recovered(folder).tail.end_offset == 100


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "disordered", "beyond", "preallocated"])
def test_index_is_made_again(folder: Path, suffix: str, damage: str) -> None:
    recovered(folder)
    path = folder / f"00000000000000000000{suffix}"
    right = path.read_bytes()
    entry = 8 if suffix == ".index" else 12
    wrong = {
        "missing": None,
        "short": right[: entry - 1],
        "disordered": right[entry:] + right[:entry],
        "beyond": right[:-4] + b"\x7f\0\0\0",
        "preallocated": right + bytes(10 * entry),
    }[damage]
    path.unlink()
    if wrong is not None:
        path.write_bytes(wrong)
    expected = recovered(folder)
    assert path.read_bytes() == right if damage != "short" else len(path.read_bytes()) % entry == 0
    assert expected.tail.end_offset == 120


def test_leftovers_of_a_broker_go(folder: Path) -> None:
    for name in (
        "00000000000000000050.log.deleted",
        "00000000000000000050.index.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.log.swap",
        "00000000000000000077.index",
        "00000000000000000500.snapshot",
    ):
        (folder / name).write_bytes(b"")
    found = recovered(folder)
    assert len([action for action in found.actions if action.what.startswith("removed")]) == 6
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".index", ".log", ".timeindex"]


def test_finished_cleaning_takes_the_place_of_what_it_cleaned(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    for base in (0, 50, 100):
        (folder / f"{base:020d}.log").write_bytes(b"".join(batches(5, base)))
        (folder / f"{base:020d}.index").write_bytes(b"")
    (folder / "00000000000000000000.log.swap").write_bytes(b"".join(batches(10)))
    (folder / "00000000000000000000.index.swap").write_bytes(b"")
    assert recovered(folder).tail.end_offset == 150
    assert sorted(path.name for path in folder.glob("*.log*")) == [
        "00000000000000000000.log",
        "00000000000000000100.log",
    ]


def test_dry_run_says_the_same_and_changes_nothing(folder: Path) -> None:
    log = only_log(folder)
    log.write_bytes(log.read_bytes() + b"torn")
    (folder / "00000000000000000000.index").unlink()
    (folder / "00000000000000000050.log.deleted").write_bytes(b"")
    before = contents(folder)
    said = recovered(folder, dry_run=True).actions
    assert contents(folder) == before
    assert recovered(folder).actions == said


def test_log_before_its_start_is_not_thrown_away(folder: Path) -> None:
    checkpoint = folder.parent / "log-start-offset-checkpoint"
    checkpoint.write_bytes(encode_offset_checkpoint({TopicPartition("events", 0): 500}))
    with pytest.raises(CorruptLogError, match="ends before its start offset 500"):
        recovered(folder)
    found = recovered(folder, truncate=True)
    assert (found.start_offset, found.tail.end_offset) == (500, 500)


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda each: each.name)
def test_logs_of_brokers_are_opened_as_they_are(golden: GoldenSet, tmp_path: Path) -> None:
    """What a broker that was stopped left needs no more than trimming, and its records stay."""
    shutil.copytree(golden.log_dir, tmp_path / "logs")
    for topic, partition in golden.partitions:
        folder = tmp_path / "logs" / f"{topic}-{partition}"
        before = read_layout(str(folder))
        found = recovered(folder)
        assert (found.start_offset, found.tail.end_offset) == (before.start_offset, before.end_offset)
        assert (found.start_offset, found.tail.end_offset) == (
            golden.offsets[topic, partition].beginning,
            golden.offsets[topic, partition].end,
        )
        if (golden.log_dir / ".kafka_cleanshutdown").exists():
            # Brokers, too, remove such when they load a log.
            others = [each for each in found.actions if each.what != "removed, since a later one is there"]
            assert others == [], str(folder)
        stable = found.producers.first_unstable_offset
        assert (found.tail.end_offset if stable is None else stable) == golden.offsets[topic, partition].last_stable
        assert producers_at_end(read_layout(str(folder))).entries.keys() >= found.producers.entries.keys()
