"""Opening a log that was left in the middle of something."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import CorruptBatchError, CorruptLogError
from sparklog.log.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.reader import open_log
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.write.partition import LogWriter
from sparklog.write.recovery import Recovered, recover_log
from tests.build import write_partition
from tests.golden import GoldenSet, golden_sets
from tests.log.logs import CountingFile, batch, batches, offsets, only_log, write
from tests.places import folder_at
from tests.storage.crash import CrashingStorage, crashes

STORAGE = LocalWritableStorage()
CONFIG = LogConfig(index_interval_bytes=300)
NOW_MS = 1_700_000_000_000


def recovered(folder: Path, **options: Any) -> Recovered:
    return recover_log(folder_at(folder), CONFIG, NOW_MS, **options)


class CountingWritableStorage(LocalWritableStorage):
    """Storage of this machine that counts the bytes read, by file suffix."""

    def __init__(self) -> None:
        self.read_bytes: dict[str, int] = {}

    def open(self, path: str) -> CountingFile:
        return CountingFile(path, self)


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
    assert (found.state.end_offset, found.start_offset) == (120, 0)
    assert found.state.segment.size_bytes == only_log(folder).stat().st_size
    assert [action.path.rpartition("/")[2] for action in found.actions] == ["leader-epoch-checkpoint"]
    assert recovered(folder).actions == ()
    assert recovered(folder).state == found.state


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
        assert recovered(path).state.end_offset == 30
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
    assert recovered(folder).state.end_offset == 110


NONSENSE = {
    "a hole": bytes(4096) + batch(120)[100:],
    "a hole, preallocated": bytes(4096) + batch(120)[100:] + bytes(9000),
    "noise": random.Random(1).randbytes(9000),
    "old text": b"Nov 23 06:32:12 host kernel: something else\n" * 90,
    "a stale block": batch(7)[30:] + batch(3)[:90],
    "no magic": batch(120)[:16] + b"\x09" + batch(120)[17:-9],
}


@pytest.mark.parametrize("tail", NONSENSE)
@pytest.mark.parametrize("recovery_point", [None, 0, 120])
def test_nonsense_that_a_crash_left_behind_the_last_flush_is_cut_kept_and_said(
    folder: Path, tail: str, recovery_point: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    log = only_log(folder)
    whole = log.read_bytes()
    log.write_bytes(whole + NONSENSE[tail])
    if recovery_point is not None:
        line = encode_offset_checkpoint({TopicPartition("events", 0): recovery_point})
        (folder.parent / "recovery-point-offset-checkpoint").write_bytes(line)
    with pytest.raises(CorruptBatchError, match=r"sparklog recover --truncate"):
        open_log(folder)
    said = recovered(folder, dry_run=True).actions
    assert log.read_bytes() == whole + NONSENSE[tail]
    with LogWriter.open(folder) as writer:
        assert writer.append({"value": [b"next"]}) == (120, 120)
    assert f"was cut at position {len(whole)}, offset 120" in caplog.text
    assert [each.what for each in said if each.path == str(log) and each.what.startswith("cut")] != []
    (kept,) = folder.glob("*.cut")
    assert kept.name == f"{0:020d}.{len(whole)}.cut"
    assert kept.read_bytes() == NONSENSE[tail].rstrip(b"\0")
    with open_log(folder) as reader:
        assert offsets(reader) == list(range(121))


@pytest.mark.parametrize("why", ["flushed", "clean", "a batch behind", "magic"])
def test_nonsense_that_no_crash_left_is_damage(folder: Path, why: str) -> None:
    log = only_log(folder)
    tail = {"a batch behind": NONSENSE["noise"] + batch(130), "magic": batch(120)[:16] + b"\x09" + batch(120)[17:]}
    log.write_bytes(damaged := log.read_bytes() + tail.get(why, NONSENSE["noise"]))
    if why == "flushed":
        line = encode_offset_checkpoint({TopicPartition("events", 0): 121})
        (folder.parent / "recovery-point-offset-checkpoint").write_bytes(line)
    elif why == "clean":
        (folder.parent / ".kafka_cleanshutdown").write_text("{}")
    with pytest.raises(CorruptLogError, match=r"offset 120.*recover --truncate"):
        LogWriter.open(folder)
    assert log.read_bytes() == damaged
    assert recovered(folder, truncate=True).state.end_offset == 120


def test_damage_before_whole_batches_is_cut_only_when_told(folder: Path) -> None:
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[3 * len(content) // 4] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        recovered(folder)
    assert log.read_bytes() == content
    found = recovered(folder, truncate=True)
    assert 0 < found.state.end_offset < 120
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
    assert recovered(folder).state == found.state


@pytest.mark.parametrize("count", [1, 2, 3, 40, 400])
def test_state_is_the_same_whichever_batches_the_check_has_seen(tmp_path: Path, count: int) -> None:
    """Those behind the last index entry, or all of them, of which it has the last window at hand."""
    folder = tmp_path / "events-0"
    with LogWriter.open(folder, CONFIG, clock=lambda: NOW_MS) as log:
        for n in range(count):
            # The latest timestamp is in the midst, so that what is behind it must not count.
            at = NOW_MS - abs(n - count // 2)
            log.append(pa.table({"value": [b"v" * 700], "timestamp": pa.array([at], pa.timestamp("ms"))}))
    closed = recovered(folder)
    assert closed.actions == ()
    assert (closed.state.max_timestamp, closed.state.max_timestamp_offset) == (NOW_MS, count // 2)
    assert closed.state.segment.first_timestamp == NOW_MS - count // 2
    assert recovered(folder, is_thorough=True).state == closed.state
    for path in folder.glob("*.snapshot"):
        path.unlink()
    assert recovered(folder).state == closed.state
    for path in folder.glob("*index"):
        path.unlink()
    assert recovered(folder).state == closed.state


def test_recovery_point_says_from_where_to_check(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    for base in (0, 50):
        data = bytearray(b"".join(batches(5, base)))
        (folder / f"{base:020d}.log").write_bytes(data)
    # With indexes, and the producers as of the second segment, nothing asks for the first one but the recovery point.
    (folder / "00000000000000000050.snapshot").write_bytes(recovered(folder).producers.encode())
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
            assert recovered(folder).state.end_offset == 100


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
    assert expected.state.end_offset == 120


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
    assert recovered(folder).state.end_offset == 150
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
    assert (found.start_offset, found.state.end_offset) == (500, 500)


def test_cut_at_damage_that_is_killed_and_run_again_leaves_nothing_behind_the_damage(tmp_path: Path) -> None:
    written = batches(12)

    def prepare(folder: Path) -> None:
        write_partition(folder / "t-0", written, segment_bytes=3 * len(written[-1]), index_interval_bytes=300)
        with (folder / "t-0" / "00000000000000000030.log").open("r+b") as log:
            log.seek(len(written[3]) + 70)
            log.write(b"\xff")

    def run(storage: CrashingStorage, folder: Path) -> None:
        recover_log(folder_at(folder / "t-0", storage), CONFIG, NOW_MS, truncate=True, is_thorough=True)

    for crash in crashes(prepare, run, tmp_path):
        folder = crash.folder / "t-0"
        recovered(folder, truncate=True, is_thorough=True)
        with open_log(folder) as log:
            assert offsets(log) == list(range(40)), str(crash)
        kept = {path.name: path.read_bytes() for path in folder.glob("*.cut") if path.stat().st_size}
        lost = [b"".join(written[start : start + 3]) for start in (6, 9)]
        assert [kept[f"{base:020d}.0.cut"] for base in (60, 90)] == lost, str(crash)
        behind = {path.suffix for path in folder.iterdir() if path.name[0] == "0" and int(path.stem[:20]) > 40}
        assert behind == {".cut"}, str(crash)


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda each: each.name)
def test_logs_of_brokers_are_opened_as_they_are(golden: GoldenSet, tmp_path: Path) -> None:
    """What a broker that was stopped left needs no more than trimming, and its records stay."""
    shutil.copytree(golden.log_dir, tmp_path / "logs")
    for topic, partition in golden.partitions:
        folder = tmp_path / "logs" / f"{topic}-{partition}"
        before = read_layout(folder_at(folder))
        found = recovered(folder)
        assert (found.start_offset, found.state.end_offset) == (before.start_offset, before.end_offset)
        assert (found.start_offset, found.state.end_offset) == (
            golden.offsets[topic, partition].beginning,
            golden.offsets[topic, partition].end,
        )
        if (golden.log_dir / ".kafka_cleanshutdown").exists():
            # Brokers, too, remove such when they load a log.
            others = [each for each in found.actions if each.what != "removed, since a later one is there"]
            assert others == [], str(folder)
        stable = found.producers.first_unstable_offset
        assert (found.state.end_offset if stable is None else stable) == golden.offsets[topic, partition].last_stable
        assert producers_at_end(read_layout(folder_at(folder))).entries.keys() >= found.producers.entries.keys()


# What may be cut


def torn(folder: Path, lost_bytes: int = 5) -> tuple[Path, bytes, bytes]:
    """Tear the last batch: the log, what is whole of it, and what is left of the torn batch."""
    log = only_log(folder)
    content = log.read_bytes()
    whole = b"".join(batches(11))
    log.write_bytes(content[:-lost_bytes])
    return log, whole, content[len(whole) : -lost_bytes]


def test_torn_end_is_cut_with_a_warning_and_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, whole, rest = torn(folder)
    assert recovered(folder).state.end_offset == 110
    kept = folder / f"{0:020d}.{len(whole)}.cut"
    assert (log.read_bytes(), kept.read_bytes()) == (whole, rest)
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "sparklog"]
    for said in (str(log), f"position {len(whole)}", "offset 110", f"{len(rest)} bytes", kept.name, "--drop-cut"):
        assert said in warning
    assert recovered(folder).actions == ()


def test_bytes_that_are_cut_again_at_the_same_place_are_kept_beside_the_first(folder: Path) -> None:
    log, whole, first = torn(folder)
    recovered(folder)
    second = batch(110, leader_epoch=7)[:-9]
    log.write_bytes(whole + second)
    recovered(folder)
    names = [f"{0:020d}.{len(whole)}.cut", f"{0:020d}.{len(whole)}.1.cut"]
    assert [(folder / name).read_bytes() for name in names] == [first, second]


@pytest.mark.parametrize("damage", ["torn", "checksum", "zeros"])
@pytest.mark.parametrize("proof", ["clean shutdown", "recovery point"])
def test_end_that_was_on_the_disk_is_not_cut_unless_told(
    folder: Path, damage: str, proof: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = only_log(folder)
    content = log.read_bytes()
    if damage == "torn":
        log.write_bytes(content[:-5])
    elif damage == "checksum":
        log.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    else:
        log.write_bytes(content[: len(b"".join(batches(11)))] + bytes(200))
    if proof == "clean shutdown":
        (folder.parent / ".kafka_cleanshutdown").write_text("{}")
    else:
        lines = encode_offset_checkpoint({TopicPartition("events", 0): 111})
        (folder.parent / "recovery-point-offset-checkpoint").write_bytes(lines)
    before = contents(folder)
    with pytest.raises(CorruptLogError, match=r"offset 110.*recover --truncate"):
        recovered(folder)
    with pytest.raises(CorruptLogError, match=r"offset 110.*recover --truncate"):
        LogWriter.open(folder, CONFIG)
    assert contents(folder) == before
    found = recovered(folder, truncate=True)
    assert found.state.end_offset == 110
    (kept,) = folder.glob("*.cut")
    assert kept.read_bytes() == before[log.name][len(b"".join(batches(11))) :]
    if proof == "recovery point":
        checkpoint = parse_offset_checkpoint((folder.parent / "recovery-point-offset-checkpoint").read_bytes(), "")
        assert checkpoint == {TopicPartition("events", 0): 110}
    assert recovered(folder).actions == ()


@pytest.mark.parametrize("proof", ["clean shutdown", "recovery point"])
def test_reader_ends_at_a_tail_that_no_crash_tears_and_says_it_once(
    folder: Path, proof: str, caplog: pytest.LogCaptureFixture
) -> None:
    torn(folder)
    for _ in range(2):
        with open_log(str(folder)) as log:
            assert log.end_offset == 110
    assert caplog.text == ""
    if proof == "clean shutdown":
        (folder.parent / ".kafka_cleanshutdown").write_text("{}")
    else:
        lines = encode_offset_checkpoint({TopicPartition("events", 0): 120})
        (folder.parent / "recovery-point-offset-checkpoint").write_bytes(lines)
    for _ in range(2):
        with open_log(str(folder)) as log:
            assert log.read().num_rows == 110
    assert caplog.text.count("records may be lost") == 1


def test_last_batch_whose_size_is_wrong_is_damage_and_not_torn(folder: Path) -> None:
    log = only_log(folder)
    content, start = log.read_bytes(), len(b"".join(batches(11)))
    for size, zeros in ((len(content) - start + 100, 0), (0x7FFFFFFF, 0), (len(content) - start + 3000, 2000)):
        log.write_bytes(content[: start + 8] + size.to_bytes(4, "big") + content[start + 12 :] + bytes(zeros))
        before = contents(folder)
        with pytest.raises(CorruptBatchError, match="the size or magic of the last batch is wrong"):
            open_log(str(folder))
        with pytest.raises(CorruptBatchError, match="the size or magic of the last batch is wrong"):
            recovered(folder)
        assert contents(folder) == before


def test_nothing_is_cut_of_a_log_whose_epochs_cannot_be_read_from_its_batches(tmp_path: Path) -> None:
    """The last segment is torn, and an earlier one, which is not checked, has a batch of offsets that cannot be."""
    folder = tmp_path / "events-0"
    write_partition(folder, batches(6), segment_bytes=3 * len(batch(0)), is_clean=False)
    first, *_, last = sorted(folder.glob("*.log"))
    with first.open("r+b") as log:
        log.seek(len(batch(0)))
        log.write((1 << 40).to_bytes(8, "big"))
    os.truncate(last, last.stat().st_size - 3)
    before = contents(folder)
    with pytest.raises(CorruptBatchError, match="out of order"):
        recovered(folder)
    assert contents(folder) == before


def test_log_that_ends_below_its_recovery_point_is_opened_with_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole batches that were flushed are gone; there is nothing to cut, and nothing that could be done."""
    path = folder.parent / "recovery-point-offset-checkpoint"
    path.write_bytes(encode_offset_checkpoint({TopicPartition("events", 0): 130, TopicPartition("other", 1): 7}))
    assert recovered(folder).state.end_offset == 120
    assert "lowered from 130 to 120" in caplog.text
    lines = parse_offset_checkpoint(path.read_bytes(), "")
    assert lines == {TopicPartition("events", 0): 120, TopicPartition("other", 1): 7}


def test_truncation_keeps_later_segments_beside(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, batches(12), segment_bytes=700)
    logs, first_bytes = sorted(folder.glob("*.log")), len(batch(20))
    old = {path.stem: path.read_bytes() for path in logs}
    damaged = bytearray(logs[1].read_bytes())
    damaged[first_bytes + 70] ^= 1
    logs[1].write_bytes(damaged)
    found = recovered(folder, truncate=True, is_thorough=True)
    assert found.state.end_offset == 30
    kept = {path.name: path.read_bytes() for path in folder.glob("*.cut")}
    assert kept[f"{logs[1].stem}.{first_bytes}.cut"] == bytes(damaged[first_bytes:])
    assert {name: data for name, data in kept.items() if name.endswith(".0.cut")} == {
        f"{path.stem}.0.cut": old[path.stem] for path in logs[2:]
    }
    assert open_log(str(folder)).read().num_rows == 30


def test_damage_before_the_recovery_point_is_found_when_all_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, batches(12), segment_bytes=700)
    (folder / f"{120:020d}.snapshot").write_bytes(recovered(folder).producers.encode())
    first = min(folder.glob("*.log"))
    damaged = bytearray(first.read_bytes())
    damaged[300] ^= 1
    first.write_bytes(damaged)
    recovered(folder)
    with pytest.raises(CorruptBatchError, match=r"CRC-32C.*offset 10\)"):
        recovered(folder, is_thorough=True, dry_run=True)


def test_snapshot_that_cannot_be_read_is_removed(folder: Path) -> None:
    (folder / f"{120:020d}.snapshot").write_bytes(b"no snapshot")
    assert any("since it cannot be read" in action.what for action in recovered(folder).actions)


def test_gibibyte_of_zeros_is_read_once(tmp_path: Path) -> None:
    """By the bytes that are read, not by a clock."""
    folder = tmp_path / "events-0"
    folder.mkdir()
    zeros = 64 << 20
    (folder / f"{0:020d}.log").write_bytes(batch(0) + bytes(zeros))
    storage = CountingWritableStorage()
    found = recover_log(folder_at(folder, storage), CONFIG, NOW_MS)
    assert found.state.end_offset == 10
    assert storage.read_bytes[".log"] < 1.2 * zeros


def test_offset_of_the_last_batch_that_is_too_low_is_noticed_behind_a_clean_shutdown(tmp_path: Path) -> None:
    """No checksum covers it, and appends would go on at offsets that are taken."""
    folder = tmp_path / "events-0"
    write_partition(folder, batches(12), index_interval_bytes=0)
    (folder.parent / ".kafka_cleanshutdown").write_text("{}")
    log, start = only_log(folder), len(b"".join(batches(11)))
    content = bytearray(log.read_bytes())
    content[start + 7] = 30
    log.write_bytes(content)
    with pytest.raises(CorruptBatchError, match="out of order"):
        recovered(folder)
    with pytest.raises(CorruptBatchError, match="out of order"):
        open_log(str(folder))
    assert log.read_bytes() == content
