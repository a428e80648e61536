"""Describing logs: what the broker told of them, from little of what they hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.inspect.describe import PartitionDescription, describe_step_by_step
from tests import build
from tests.build import Record, v2_batch, write_partition
from tests.golden import GoldenSet, golden_sets
from tests.oracle import decode_log, whole_bytes
from tests.places import folder_at

PARTITIONS = [
    pytest.param(golden, topic, partition, id=f"{golden.name}/{topic}-{partition}")
    for golden in golden_sets()
    for topic, partition in golden.partitions
]
START_MS = 1_700_000_000_000


def described(folder: Path, **depth: bool) -> PartitionDescription:
    *_, found = describe_step_by_step(folder_at(folder), **depth)
    assert isinstance(found, PartitionDescription)
    return found


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_offsets_are_those_that_the_broker_told(golden: GoldenSet, topic: str, partition: int, is_full: bool) -> None:
    told = golden.offsets[topic, partition]
    summary = described(golden.partition_dir(topic, partition), is_full=is_full)
    assert (summary.start_offset, summary.end_offset) == (told.beginning, told.end)
    assert summary.last_stable_offset == told.last_stable
    assert summary.error is None


@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_full_walk_counts_what_is_there(golden: GoldenSet, topic: str, partition: int) -> None:
    folder = golden.partition_dir(topic, partition)
    quick, full = described(folder), described(folder, is_full=True)
    logs = [(folder / f"{segment.base_offset:020d}.log").read_bytes() for segment in full.segments]
    batches = [batch for data in logs for batch in decode_log(data[: whole_bytes(data)])]
    assert full.stats.batches == len(batches)
    assert full.stats.magic_batches.total() == len(batches)
    if full.stats.records is not None:
        assert full.stats.records == sum(len(batch.records) for batch in batches if not batch.is_control)
    assert full.stats.max_timestamp == quick.stats.max_timestamp
    if batches and batches[0].magic > 0:
        assert full.stats.first_timestamp == quick.stats.first_timestamp
    assert set(quick.stats.codec_batches) <= set(full.stats.codec_batches)
    assert quick.topic_id == full.topic_id


def log_of(folder: Path, count: int) -> list[bytes]:
    batches = [v2_batch([Record(0, START_MS + n, b"k", b"v" * 500)], base_offset=n) for n in range(count)]
    write_partition(folder, batches, index_interval_bytes=4096, segment_bytes=100_000)
    return batches


def test_damage_in_the_middle_is_not_looked_at_and_at_the_end_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    log_of(folder, 100)
    path = folder / f"{0:020d}.log"
    sound = path.read_bytes()
    path.write_bytes(sound[:20_000] + bytes(100) + sound[20_100:])
    assert described(folder).end_offset == 100
    path.write_bytes(sound + b"\xff" * 100)
    summary = described(folder)
    assert summary.error is not None
    assert f"position {len(sound)}" in summary.error
    assert (summary.end_offset, summary.segments[0].log_bytes) == (None, len(sound) + 100)
    assert summary.stats.max_timestamp == START_MS + 99


def test_partition_without_a_segment_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    summary = described(folder)
    assert (summary.start_offset, summary.end_offset, summary.last_stable_offset) == (0, 0, 0)
    assert (summary.segments, summary.topic_id) == ((), None)


def test_stable_offset_that_would_cost_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "events-0"
    log_of(folder, 100)
    monkeypatch.setattr("sparklog.inspect.describe.STABLE_OFFSET_BYTES_MAX", 1000)
    assert described(folder).last_stable_offset is None
    assert described(folder, is_full=True).last_stable_offset == 100
    # A snapshot at the end, as a broker that was stopped leaves, says it for nothing.
    snapshot = build.producer_snapshot([build.ProducerEntry(7, 0, -1, -1)])
    (folder / build.producer_snapshot_name(100)).write_bytes(snapshot)
    assert described(folder).last_stable_offset == 100


def test_sparse_segments_are_not_read_through(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    batch_bytes, count = 1 << 20, 512
    header = v2_batch([Record(0, START_MS)], length=batch_bytes - 12)[:61]
    with (folder / f"{0:020d}.log").open("wb") as file:
        for n in range(count):
            file.seek(n * batch_bytes)
            file.write(n.to_bytes(8, "big") + header[8:])
        file.truncate(count * batch_bytes)
    entries = [(n, n * batch_bytes) for n in range(1, count)]
    (folder / f"{0:020d}.index").write_bytes(build.offset_index(entries))
    script = "import sys; from sparklog.inspect.describe import describe_partition as d; "
    script += "from tests.places import folder_at; s = d(folder_at(sys.argv[1])); "
    script += "print(s.end_offset, s.last_stable_offset, 'numba' in sys.modules)"
    # Its batches have no right checksum, so the index is not believed, and every header is hopped over.
    ran = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    assert ran.stdout.split()[:2] == [str(count), "None"]


@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_decompression_is_of_every_batch_that_is_no_marker(golden: GoldenSet, topic: str, partition: int) -> None:
    folder = golden.partition_dir(topic, partition)
    stats = described(folder, is_decompressed=True).stats
    scanned = described(folder, is_full=True).stats
    assert scanned.uncompressed_bytes is None
    assert stats.codec_bytes == scanned.codec_bytes
    packed = stats.codec_bytes.total()
    if not packed:
        return
    assert stats.uncompressed_bytes is not None
    assert stats.uncompressed_bytes[0] == stats.codec_bytes[0]
    assert set(stats.uncompressed_bytes) == set(stats.codec_bytes)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_uncompressed_bytes_are_those_of_the_same_batch_without_a_codec(tmp_path: Path, codec: str) -> None:
    records = [Record(n, n, b"key", b"value" * 100) for n in range(20)]
    plain, packed = v2_batch(records), v2_batch(records, codec=codec)
    write_partition(tmp_path / "events-0", [packed])
    stats = described(tmp_path / "events-0", is_decompressed=True).stats
    assert stats.codec_bytes.total() == len(packed)
    assert stats.uncompressed_bytes is not None
    assert stats.uncompressed_bytes.total() == len(plain)


def test_batch_that_cannot_be_decompressed_counts_as_it_is(tmp_path: Path) -> None:
    batch = bytearray(v2_batch([Record(0, 1, b"k", b"v" * 500)], codec="zstd"))
    batch[61:] = b"\xff" * (len(batch) - 61)
    write_partition(tmp_path / "events-0", [bytes(batch)])
    stats = described(tmp_path / "events-0", is_decompressed=True).stats
    assert stats.uncompressed_bytes is not None
    assert stats.uncompressed_bytes.total() == stats.codec_bytes.total() == len(batch)
