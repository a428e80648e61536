"""Transactions, told from the log alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.log.reader import open_log
from tests.build import ProducerEntry, control_batch, producer_snapshot, write_partition
from tests.golden import golden_set
from tests.log.logs import batch
from tests.oracle import decode_log, last_stable_offset, read_committed


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


@pytest.mark.parametrize("segment_bytes", [None, 300])
def test_committed_reads_drop_aborted_and_undecided_batches(tmp_path: Path, segment_bytes: int | None) -> None:
    write_partition(tmp_path, LOG, segment_bytes=segment_bytes)
    batches = decode_log(b"".join(LOG))
    expected = [record.offset for found in read_committed(batches) for record in found.records]
    with open_log(str(tmp_path)) as log:
        assert log.last_stable_offset == last_stable_offset(batches) == 24
        for start in range(24):
            wanted = [offset for offset in expected if offset >= start]
            found = log.read(start, columns=["offset"], isolation_level="read_committed")
            assert found["offset"].to_pylist() == wanted
        assert log.read(0, 7, ["offset"], "read_committed")["offset"].to_pylist() == [5, 6]


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
