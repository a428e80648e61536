"""Transactions, told from the log alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError, SeglogError
from sparklog.log import transactions
from sparklog.log.damage_rows import OnDamage
from sparklog.log.kept_by_stamp import LastUsed
from sparklog.log.layout import read_layout
from sparklog.log.reader import open_log
from sparklog.log.transactions import EndMarkers, TransactionState
from sparklog.log.transactions import last_stable_offset as stable_offset_of
from tests.build import (
    ProducerEntry,
    Record,
    control_batch,
    offset_checkpoint,
    producer_snapshot,
    v2_batch,
    write_partition,
)
from tests.golden import golden_set
from tests.growth import Work, counted_work
from tests.log.logs import batch, only_log
from tests.oracle import decode_log, last_stable_offset, read_committed
from tests.places import folder_at


def transactional(base_offset: int, producer_id: int, count: int = 5) -> bytes:
    return batch(base_offset, count, transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def marker(kind: str, offset: int, producer_id: int) -> bytes:
    return control_batch(kind, offset, producer_id, 0, 5000)


LOG = [
    transactional(0, 1),
    transactional(5, 2),
    batch(10, 5),
    marker("abort", 15, 1),
    transactional(16, 1),
    marker("commit", 21, 2),
    marker("commit", 22, 1),
    marker("abort", 23, 9),
    transactional(24, 3),
    batch(29, 3),
]


@pytest.mark.parametrize("on_damage", ["fail", "skip"])
@pytest.mark.parametrize("segment_bytes", [None, 300])
def test_committed_reads_drop_aborted_and_undecided_batches(
    tmp_path: Path, segment_bytes: int | None, on_damage: OnDamage
) -> None:
    write_partition(tmp_path, LOG, segment_bytes=segment_bytes)
    batches = decode_log(b"".join(LOG))
    expected = [record.offset for found in read_committed(batches) for record in found.records]
    with open_log(str(tmp_path), on_damage=on_damage) as log:
        assert log.last_stable_offset == last_stable_offset(batches) == 24
        for start in range(24):
            wanted = [offset for offset in expected if offset >= start]
            found = log.read(start, columns=["offset"], isolation_level="read_committed")
            assert found["offset"].to_pylist() == wanted
        assert log.read(0, 7, ["offset"], "read_committed")["offset"].to_pylist() == [5, 6]


def test_every_record_is_told_how_its_transaction_ended(tmp_path: Path) -> None:
    write_partition(tmp_path, LOG, segment_bytes=300)
    with open_log(tmp_path) as log:
        table = log.read(columns=["offset", "producer_id", "is_transactional"])
    markers = EndMarkers(read_layout(folder_at(tmp_path)))
    states = markers.states(*(np.array(table[name]) for name in ("producer_id", "offset", "is_transactional")))
    found = {offset: TransactionState(state) for offset, state in zip(table["offset"].to_pylist(), states, strict=True)}
    ends = {0: "ABORTED", 5: "COMMITTED", 10: "NONE", 16: "COMMITTED", 24: "OPEN", 29: "NONE"}
    assert {offset: state.name for offset, state in found.items() if offset in ends} == ends


def test_damaged_marker_is_not_taken_for_one(tmp_path: Path) -> None:
    write_partition(tmp_path, LOG)
    damaged = bytearray(only_log(tmp_path).read_bytes())
    damaged[sum(map(len, LOG[:4])) - 1] ^= 1
    only_log(tmp_path).write_bytes(damaged)
    with pytest.raises(CorruptBatchError):
        EndMarkers(read_layout(folder_at(tmp_path)))


def test_missing_transaction_index_changes_nothing(tmp_path: Path) -> None:
    golden = golden_set("v2-transactions")
    for topic, partition in golden.partitions:
        folder = tmp_path / f"{topic}-{partition}"
        folder.mkdir()
        for path in golden.partition_dir(topic, partition).iterdir():
            if path.suffix != ".txnindex":
                (folder / path.name).write_bytes(path.read_bytes())
        with open_log(str(folder)) as log:
            found = log.read(columns=["offset"], isolation_level="read_committed")["offset"].to_pylist()
        assert found == [record["offset"] for record in golden.records("read_committed", topic, partition)]


def test_snapshot_stands_for_what_is_before_it(tmp_path: Path) -> None:
    """A transaction whose first batch retention has removed is open all the same."""
    write_partition(tmp_path, [batch(29, 3)], base_offset=29)
    open_since_24 = ProducerEntry(producer_id=3, producer_epoch=0, last_offset=28, current_txn_first_offset=24)
    (tmp_path / "00000000000000000029.snapshot").write_bytes(producer_snapshot([open_since_24]))
    assert open_log(str(tmp_path)).last_stable_offset == 29


def test_damaged_snapshot_is_told_and_the_log_read_instead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_partition(tmp_path, LOG)
    wrong = bytearray(producer_snapshot([]))
    wrong[3] ^= 1
    (tmp_path / "00000000000000000032.snapshot").write_bytes(wrong)
    assert open_log(str(tmp_path)).last_stable_offset == 24
    assert "checksum" in caplog.text


# Damage: what decides which records are returned is under a checksum that is looked at.

UNCHECKED = range(8), range(12, 16)
"""Bytes of a v2 batch that its format leaves out of the checksum: the base offset and the leader epoch."""


def read_all(folder: Path, level: str, columns: list[str], start: int = 0) -> object:
    """Return what a reader is given, or that it is told of an error."""
    try:
        with open_log(str(folder)) as log:
            stable = log.last_stable_offset
            return log.read(start, None, columns, level).to_pylist(), stable  # type: ignore[arg-type]
    except SeglogError:
        return "error"


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("columns", [["offset"], ["offset", "value"], []], ids=str)
def test_no_flipped_bit_is_passed_over(tmp_path: Path, level: str, columns: list[str]) -> None:
    folder = tmp_path / "t-0"
    write_partition(folder, LOG[1:-1], segment_bytes=None, base_offset=5)
    log = only_log(folder)
    content = log.read_bytes()
    sound = read_all(folder, level, columns, 5)
    assert sound != "error"
    position = 0
    for each in LOG[1:-1]:
        for byte in range(len(each)):
            if any(byte in hidden for hidden in UNCHECKED):
                continue
            bit = 1 << (byte * 7 + position) % 8
            damaged = bytearray(content)
            damaged[position + byte] ^= bit
            log.write_bytes(damaged)
            found = read_all(folder, level, columns, 5)
            assert found in (sound, "error"), (position, byte, bit)
        position += len(each)


@pytest.mark.parametrize("bit", range(8))
def test_flipped_attributes_of_any_batch_hide_no_record(tmp_path: Path, bit: int) -> None:
    """Control, transactional, the codec: each of them says how a batch is to be taken."""
    folder = tmp_path / "t-0"
    write_partition(folder, LOG)
    log, position = only_log(folder), 0
    content = log.read_bytes()
    for each in LOG:
        damaged = bytearray(content)
        damaged[position + 22] ^= 1 << bit
        log.write_bytes(damaged)
        for level in ("read_uncommitted", "read_committed"):
            with open_log(str(folder)) as reader, pytest.raises(CorruptBatchError, match="CRC-32C"):
                reader.read(isolation_level=level)
        position += len(each)


def test_damaged_marker_of_an_open_transaction_is_no_open_transaction(tmp_path: Path) -> None:
    """Its records and all that follow would else be held back in silence."""
    folder = tmp_path / "t-0"
    sound = [transactional(0, 1), batch(5, 5), marker("commit", 10, 1), batch(11, 5)]
    write_partition(folder, sound)
    log, at = only_log(folder), sum(map(len, sound[:2]))
    content = bytearray(log.read_bytes())
    content[at + 22] = 0
    log.write_bytes(content)
    with open_log(str(folder)) as reader, pytest.raises(CorruptBatchError, match="offset 10"):
        _ = reader.last_stable_offset


def test_batch_before_the_range_whose_last_offset_is_damaged_hides_no_record(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_partition(folder, [batch(0), batch(10), batch(20)])
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[len(batch(0)) + 26] = 1
    log.write_bytes(content)
    with open_log(str(folder)) as reader:
        assert reader.read(20).num_rows == 10
        with pytest.raises(CorruptBatchError, match="offset 10"):
            reader.read(15)


def test_batch_whose_timestamp_is_damaged_is_not_passed_over_by_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    sound = [batch(n * 10) for n in range(6)]
    write_partition(folder, sound, with_indexes=False)
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[sum(map(len, sound[:3])) + 41] = 0
    log.write_bytes(content)
    with open_log(str(folder)) as reader:
        assert reader.offset_for_time(1012) == 12
        with pytest.raises(CorruptBatchError, match="offset 30"):
            reader.offset_for_time(1035)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_what_stands_before_a_damaged_marker_is_given(tmp_path: Path, level: str) -> None:
    folder = tmp_path / "t-0"
    sound = [batch(0, 5), batch(5, 5), marker("commit", 10, 1), batch(11, 5)]
    write_partition(folder, sound)
    log = only_log(folder)
    content = bytearray(log.read_bytes())
    content[sum(map(len, sound[:2])) + 43 + 7] ^= 1
    log.write_bytes(content)
    given: list[int] = []
    with open_log(str(folder)) as reader, pytest.raises(CorruptBatchError, match="offset 10"):  # noqa: PT012
        for found in reader.batches(columns=["offset"], isolation_level=level):  # type: ignore[arg-type]
            given += found["offset"].to_pylist()
    assert given == (list(range(10)) if level == "read_uncommitted" else given)


# A segment that is not the last, cut at a batch boundary


def cut_segment(folder: Path, lost_batches: int, **options: Any) -> Path:
    """Cut batches off the first of two segments: its log."""
    sound = [batch(n * 10) for n in range(20)]
    write_partition(folder, sound, segment_bytes=2600, **options)
    log = min(folder.glob("*.log"))
    log.write_bytes(b"".join(sound[: 10 - lost_batches]))
    return log


@pytest.mark.parametrize("lost_batches", [1, 5, 9])
@pytest.mark.parametrize("interval_bytes", [300, 4096], ids=["many entries", "one entry"])
def test_sealed_segment_that_lost_its_end_is_damaged(tmp_path: Path, lost_batches: int, interval_bytes: int) -> None:
    folder = tmp_path / "t-0"
    log = cut_segment(folder, lost_batches, index_interval_bytes=interval_bytes)
    end = 100 - 10 * lost_batches
    with open_log(str(folder)) as reader:
        assert reader.read(0, end).num_rows == end
        assert reader.read(100).num_rows == 100
        with pytest.raises(CorruptBatchError, match=rf"ends before offset {end}.*offset 99") as caught:
            reader.read()
        assert (caught.value.path, caught.value.offset) == (str(log), end)


def test_time_index_of_another_segment_is_no_proof_of_lost_batches(tmp_path: Path) -> None:
    """In a compacted log, where offsets are missing between segments, an index is a hint like any other."""
    folder = tmp_path / "t-0"
    write_partition(folder, [batch(n * 10) for n in range(8)], index_interval_bytes=300)
    foreign = tmp_path / "other-0"
    write_partition(foreign, [batch(n * 10 + 3, 5) for n in range(10)], index_interval_bytes=300)
    (folder / f"{100:020d}.log").write_bytes(batch(100))
    (folder / f"{0:020d}.timeindex").write_bytes((foreign / f"{0:020d}.timeindex").read_bytes())
    with open_log(str(folder)) as reader:
        assert reader.read().num_rows == 90


def test_gap_of_offsets_between_segments_is_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_partition(folder, [batch(n * 10) for n in range(8)], index_interval_bytes=300)
    (folder / f"{100:020d}.log").write_bytes(batch(100))
    with open_log(str(folder)) as reader:
        assert reader.read().num_rows == 90


# What is found is kept for the process.

PARTS = st.lists(st.tuples(st.sampled_from(["data", "plain", "commit", "abort"]), st.integers(1, 3)), max_size=8)
CHANGES = st.lists(st.tuples(st.sampled_from(["append", "roll", "cut", "again", "start"]), PARTS), max_size=8)


def made_of(parts: list[tuple[str, int]], end: int) -> list[bytes]:
    found = list[bytes]()
    for kind, producer_id in parts:
        if kind == "data":
            found.append(transactional(end, producer_id, producer_id))
        elif kind == "plain":
            found.append(batch(end, producer_id))
        else:
            found.append(marker(kind, end, producer_id))
        end += producer_id if kind in ("data", "plain") else 1
    return found


def fresh_stable_offset(folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch, open_log(folder) as log:
        patch.setattr(transactions, "_seen", LastUsed[Any, Any](1))
        return log.last_stable_offset


@settings(max_examples=80)
@given(CHANGES, PARTS)
def test_stable_offset_is_the_one_of_a_first_look_whatever_is_kept(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, list[tuple[str, int]]]], parts: Any
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    folder = directory / "t-0"
    write_partition(folder, made_of(parts, 0), with_indexes=False)
    starts = 0
    for change, added in changes:
        with open_log(folder) as log:
            end, start = log.end_offset, log.start_offset
        last = max(folder.glob("*.log"))
        if change == "append":
            with last.open("ab") as file:
                file.write(b"".join(made_of(added, end)))
        elif change == "roll":
            (folder / f"{end:020}.log").write_bytes(b"".join(made_of(added, end)))
        elif change == "cut" and last.stat().st_size:
            # In place, and grown again.
            headers = decode_log(last.read_bytes())
            cut = headers[len(headers) // 2]
            with last.open("r+b") as file:
                file.truncate(cut.position)
                file.seek(0, 2)
                file.write(b"".join(made_of(added, cut.base_offset)))
        elif change == "again":
            shutil.rmtree(folder)
            write_partition(folder, made_of(added, 0), with_indexes=False)
            (directory / "log-start-offset-checkpoint").unlink(missing_ok=True)
            starts = 0
        elif change == "start":
            starts = (start + end) // 2
            (directory / "log-start-offset-checkpoint").write_text(offset_checkpoint({("t", 0): starts}))
        for _ in range(2):
            with open_log(folder) as log:
                assert log.last_stable_offset == fresh_stable_offset(folder)
        if not starts:
            written = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
            assert fresh_stable_offset(folder) == last_stable_offset(decode_log(written))


ENDED = [transactional(0, 1), marker("commit", 5, 1), batch(6, 3)]
NEVER_ENDED = [transactional(0, 1), marker("commit", 5, 2), batch(6, 3)]


def _rewritten(folder: Path) -> None:
    with only_log(folder).open("r+b") as log:
        log.truncate(0)
        log.write(b"".join(NEVER_ENDED))


def _cleaned(folder: Path) -> None:
    (folder / "new").write_bytes(b"".join(NEVER_ENDED))
    (folder / "new").rename(only_log(folder))


def _made_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    write_partition(folder, NEVER_ENDED)


def _restored(folder: Path) -> None:
    modified_ns = only_log(folder).stat().st_mtime_ns - 10**15
    _cleaned(folder)
    os.utime(only_log(folder), ns=(modified_ns, modified_ns))


@pytest.mark.parametrize("change", [_rewritten, _cleaned, _made_anew, _restored], ids=lambda change: change.__name__)
def test_what_is_kept_of_a_file_that_was_replaced_is_dropped(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Although it has the same size, and the same last batch."""
    folder = tmp_path / "t-0"
    write_partition(folder, ENDED)
    for _ in range(2):
        assert open_log(folder).last_stable_offset == 9
    change(folder)
    assert open_log(folder).last_stable_offset == 0


def test_log_without_snapshots_is_read_once(tmp_path: Path) -> None:
    found = list[Work]()
    for count in (100, 300, 900):
        folder = tmp_path / f"t-{count}"
        written = [transactional(0, 1), marker("commit", 5, 1), *(batch(6 + 10 * row) for row in range(count))]
        write_partition(folder, written, segment_bytes=3000)
        assert open_log(folder).last_stable_offset == 6 + 10 * count
        layout = read_layout(folder_at(folder))
        with max(folder.glob("*.log")).open("ab") as log:
            log.write(transactional(layout.end_offset, 2))
        grown = read_layout(folder_at(folder))
        with counted_work() as work:
            assert stable_offset_of(grown) == layout.end_offset
        found.append(work)
    assert [(each.calls, each.names) for each in found] == [(found[0].calls, 0)] * 3
    # A part of the last segment, a few times.
    assert max(each.read_bytes for each in found) < 6 * 3000


def test_only_the_headers_of_long_batches_are_read(tmp_path: Path) -> None:
    value = Record(0, 1000, None, bytes(1 << 19))
    in_transaction: dict[str, Any] = {"transactional": True, "producer_epoch": 0, "base_sequence": 0}
    written = [
        v2_batch([value], base_offset=0, producer_id=1, **in_transaction),
        v2_batch([value], base_offset=1, producer_id=2, **in_transaction),
        *(v2_batch([value], base_offset=2 + row) for row in range(10)),
        marker("abort", 12, 1),
        batch(13, 5),
        marker("commit", 18, 2),
        v2_batch([value], base_offset=19),
    ]
    for segment_bytes in (None, 3 << 19):
        for end, stable in ((12, 0), (13, 1), (19, 19), (20, 20)):
            folder = tmp_path / f"t-{end}" / f"{segment_bytes}"
            until = [each for each in written if int.from_bytes(each[:8], "big") < end]
            write_partition(folder, until, segment_bytes=segment_bytes)
            with counted_work() as work:
                assert open_log(folder).last_stable_offset == stable == last_stable_offset(decode_log(b"".join(until)))
            if stable > 12 and segment_bytes is None:
                # The header of each, one window before the first, and the last batch of the log, which is checked.
                assert work.read_bytes < (1 << 20)
    damaged = bytearray(b"".join(written))
    damaged[sum(map(len, written[:13])) - 1] ^= 1
    write_partition(tmp_path / "d-0", written, with_indexes=False)
    only_log(tmp_path / "d-0").write_bytes(damaged)
    with pytest.raises(CorruptBatchError):
        _ = open_log(tmp_path / "d-0").last_stable_offset
