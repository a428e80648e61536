"""The golden directories are what their makers left, and still hold what they were made for. Runs offline."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.golden import DATA, EXAMPLES, GoldenSet, golden_set, golden_sets
from tests.kafka.generate import RECIPES, SUMS, data_directories, directory_digest

SETS = golden_sets()
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BYTES_MAX = 1_500_000
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 8, 16, 32, 64


@dataclass(frozen=True)
class Batch:
    """Header fields of a batch, or of a message of magic 0 and 1 (whose `count` is unknown, so 1)."""

    offset: int
    magic: int
    attributes: int
    offsets: int
    count: int

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & 7]


def batches(golden: GoldenSet, topic: str, partition: int = 0) -> list[Batch]:
    return _batches_in(golden.partition_dir(topic, partition))


def _batches_in(directory: Path) -> list[Batch]:
    return [batch for log in sorted(directory.glob("*.log")) for batch in _batches(log.read_bytes())]


def _batches(data: bytes) -> Iterator[Batch]:
    position = 0
    while position + 17 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        if size == 0:
            return
        magic = data[position + 16]
        if magic == 2:
            attributes, last_offset_delta = struct.unpack_from(">hi", data, position + 21)
            (count,) = struct.unpack_from(">i", data, position + 57)
            yield Batch(offset, magic, attributes, last_offset_delta + 1, count)
        else:
            yield Batch(offset, magic, data[position + 17], 1, 1)
        position += 12 + size


@pytest.fixture(params=SETS, ids=lambda golden: golden.name)
def golden(request: pytest.FixtureRequest) -> GoldenSet:
    found: GoldenSet = request.param
    return found


def test_there_is_a_directory_for_every_recipe_and_a_line_in_the_page() -> None:
    assert {golden.name for golden in SETS} == set(RECIPES)
    page = (DATA / "README.md").read_text()
    assert [name for name in RECIPES if f"`{name}`" not in page] == []


def test_files_are_what_was_generated() -> None:
    recorded = dict(line.split("  ")[::-1] for line in SUMS.read_text().splitlines())
    root = DATA.parents[1]
    assert {str(path.relative_to(root)): directory_digest(path) for path in data_directories()} == recorded


def test_the_data_stays_small() -> None:
    def total(directory: Path) -> int:
        return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())

    assert total(DATA) <= BYTES_MAX
    assert total(EXAMPLES) <= 150 << 10


def test_nothing_names_the_machine_it_was_made_on(golden: GoldenSet) -> None:
    assert not re.search(r"(?<![\w.-])/(tmp|home|root|work|Users|var)/", golden.dump_text)
    for path in golden.log_dir.rglob("*"):
        if path.is_file():
            assert b"/tmp/" not in path.read_bytes(), path


def test_records_agree_with_offsets(golden: GoldenSet) -> None:
    for topic, partition in golden.partitions:
        offsets = golden.offsets[topic, partition]
        uncommitted = golden.records("read_uncommitted", topic, partition)
        committed = golden.records("read_committed", topic, partition)
        numbers = [record["offset"] for record in uncommitted]
        assert numbers == sorted(set(numbers))
        assert all(offsets.beginning <= number < offsets.end for number in numbers)
        assert all(record["offset"] < offsets.last_stable for record in committed)
        assert {record["offset"] for record in committed} <= set(numbers)
        if batches(golden, topic, partition):
            last = batches(golden, topic, partition)[-1]
            assert offsets.end == last.offset + last.offsets
        assert offsets.for_times


def test_the_dump_found_nothing_wrong(golden: GoldenSet) -> None:
    for log in golden.log_dir.glob("*/*.log"):
        assert f"Dumping {log.relative_to(golden.log_dir)}\n" in golden.dump_text
    assert "isvalid: false" not in golden.dump_text
    assert "mismatch" not in golden.dump_text.lower()


@pytest.mark.parametrize(
    ("name", "magic", "codec"),
    [("v2-codecs", 2, codec) for codec in CODECS] + [("old-codecs", m, codec) for m in (0, 1) for codec in CODECS[:4]],
)
def test_each_magic_has_each_codec_in_several_indexed_segments(name: str, magic: int, codec: str) -> None:
    topic = f"v{magic}-{codec}"
    found = batches(golden_set(name), topic)
    assert {(batch.magic, batch.codec) for batch in found} == {(magic, codec)}
    directory = golden_set(name).partition_dir(topic, 0)
    assert len(list(directory.glob("*.log"))) >= 2
    assert sum(path.stat().st_size for path in directory.glob("*.index")) >= 8
    assert sum(path.stat().st_size for path in directory.glob("*.timeindex")) >= (12 if magic else 0)


def test_lz4_of_magic_0_has_the_old_header_checksum() -> None:
    for magic, header in ((0, "04224d1860401a"), (1, "04224d18604082")):
        (log, *_) = sorted(golden_set("old-codecs").partition_dir(f"v{magic}-lz4", 0).glob("*.log"))
        assert bytes.fromhex(header) in log.read_bytes()


def test_both_timestamp_types_and_a_change_of_type() -> None:
    golden = golden_set("v2-timestamps")
    assert {bool(batch.attributes & APPEND_TIME) for batch in batches(golden, "create-time")} == {False}
    assert {bool(batch.attributes & APPEND_TIME) for batch in batches(golden, "append-time")} == {True}
    kinds = [record["timestampType"] for record in golden.records("read_uncommitted", "changing-time")]
    assert kinds == ["CreateTime"] * 12 + ["LogAppendTime"] * 12 + ["CreateTime"] * 12
    far = [record["timestamp"] for record in golden.records("read_uncommitted", "far-times")]
    assert (min(far), max(far)) == (0, 2**63 - 1)
    for codec in ("none", "gzip"):
        appended = batches(golden_set("old-codecs"), f"v1-append-{codec}")
        assert {(b.magic, b.codec, bool(b.attributes & APPEND_TIME)) for b in appended} == {(1, codec, True)}


def test_headers_nulls_and_empties() -> None:
    golden = golden_set("v2-records")
    headers = [record["headers"] for record in golden.records("read_uncommitted", "headers-none")]
    assert [("h", None)] in headers
    assert [("h", b"")] in headers
    assert [("twice", b"1"), ("other", b"x"), ("twice", b"2"), ("twice", None)] in headers
    assert any(name == "größe-尺寸-📏" for found in headers for name, _ in found)
    expected = Counter((key, value) for key in (None, b"", b"k") for value in (None, b"", b"v"))
    for each, topic in ((golden, "nulls-none"), (golden, "nulls-snappy"), (golden_set("old-codecs"), "v0-gzip")):
        pairs = Counter((record["key"], record["value"]) for record in each.records("read_uncommitted", topic))
        assert set(expected) <= set(pairs)


def test_many_one_record_batches() -> None:
    found = batches(golden_set("v2-records"), "one-record-batches")
    assert Counter(batch.count for batch in found) == {1: 300}


@pytest.mark.parametrize("name", ["v2-transactions", "old-transactions"])
def test_transactions_interleave_abort_and_stay_open(name: str) -> None:
    golden = golden_set(name)
    topic = "transactions"
    offsets = golden.offsets[topic, 0]
    assert offsets.last_stable < offsets.end
    uncommitted = golden.records("read_uncommitted", topic)
    committed = golden.records("read_committed", topic)
    assert any(record["offset"] > offsets.last_stable for record in uncommitted)
    stable = [record for record in uncommitted if record["offset"] < offsets.last_stable]
    assert 0 < len(committed) < len(stable)
    directory = golden.partition_dir(topic, 0)
    aborted = sum(path.stat().st_size for path in directory.glob("*.txnindex")) // 34
    assert aborted >= 4
    assert len(list(directory.glob("*.snapshot"))) >= 3
    assert {batch.codec for batch in batches(golden, topic) if batch.attributes & TRANSACTIONAL} == {
        "none",
        "lz4",
        "gzip",
    }


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_the_cleaner_left_gaps_horizons_tombstones_and_an_empty_batch(codec: str) -> None:
    golden = golden_set("v2-compacted")
    found = batches(golden, f"compacted-{codec}")
    assert any(0 < batch.count < batch.offsets for batch in found)
    assert any(batch.attributes & HORIZON for batch in found)
    assert any(batch.count == 0 for batch in found)
    records = golden.records("read_uncommitted", f"compacted-{codec}")
    assert any(record["value"] is None for record in records)


def test_the_cleaner_left_control_batches_with_and_without_their_marker() -> None:
    found = batches(golden_set("v2-compacted"), "compacted-transactions")
    assert any(batch.attributes & CONTROL and batch.attributes & HORIZON for batch in found)
    purged = batches(golden_set("v2-compacted"), "compacted-transactions-purged")
    assert any(batch.attributes & CONTROL and batch.count == 0 for batch in purged)


def test_the_cleaner_left_gaps_inside_wrappers() -> None:
    golden = golden_set("old-compacted")
    for topic in ("v0-compacted-snappy", "v1-compacted-gzip"):
        offsets = [record["offset"] for record in golden.records("read_uncommitted", topic)]
        found = batches(golden, topic)
        inside = 0
        previous = -1
        for wrapper in found:
            inner = [offset for offset in offsets if previous < offset <= wrapper.offset]
            inside += inner != list(range(inner[0], inner[0] + len(inner)))
            previous = wrapper.offset
        assert inside > 0, topic


def test_the_log_starts_inside_a_batch() -> None:
    golden = golden_set("v2-log-start")
    checkpoint = (golden.log_dir / "log-start-offset-checkpoint").read_text()
    for topic in ("trimmed-none", "trimmed-gzip", "trimmed-segments"):
        assert f"{topic} 0 137\n" in checkpoint
        assert golden.records("read_uncommitted", topic)[0]["offset"] == 137
        assert any(batch.offset < 137 < batch.offset + batch.offsets for batch in batches(golden, topic))
    assert golden.records("read_uncommitted", "trimmed-all") == []


def test_a_kill_left_zero_tails_and_no_marker() -> None:
    golden = golden_set("v2-crash")
    assert not (golden.log_dir / ".kafka_cleanshutdown").exists()
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        assert set((golden.partition_dir("crashed", 1) / name).read_bytes()) == {0}
    preallocated = sorted(golden.partition_dir("crashed-preallocated", 0).glob("*.log"))[-1]
    assert preallocated.read_bytes()[-10_000:] == bytes(10_000)
    offsets = golden.offsets["crashed-transactions", 0]
    assert offsets.last_stable < offsets.end


def test_one_segment_holds_three_magics() -> None:
    for codec in ("none", "gzip"):
        directory = golden_set("old-mixed").partition_dir(f"mixed-{codec}", 0)
        (log,) = directory.glob("*.log")
        assert {batch.magic for batch in _batches(log.read_bytes())} == {0, 1, 2}


def test_a_life_of_restarts_and_deletions() -> None:
    golden = golden_set("v2-lifecycle")
    epochs = (golden.partition_dir("restarted", 0) / "leader-epoch-checkpoint").read_text().splitlines()
    assert int(epochs[1]) >= 3
    assert {record["leaderEpoch"] for record in golden.records("read_uncommitted", "restarted")} >= {0}
    gone = [path.name for path in golden.log_dir.iterdir() if path.name.endswith("-delete")]
    assert sorted(re.sub(r"\.[0-9a-f]{32}-", ".UUID-", name) for name in gone) == [
        "deleted-0.UUID-delete",
        "made-again-0.UUID-delete",
    ]
    assert [record["value"] for record in golden.records("read_uncommitted", "made-again")] == [b"the second life"]


def test_internal_topics_are_kept() -> None:
    golden = golden_set("v2-internal")
    assert golden.records("read_uncommitted", "__consumer_offsets")
    assert golden.records("read_uncommitted", "__transaction_state")
    assert list((golden.log_dir / "__cluster_metadata-0").glob("*.log"))


def test_the_examples_have_a_shop_in_five_codecs_and_an_aborted_transaction() -> None:
    events = [_batches_in(EXAMPLES / f"shop-events-{partition}") for partition in range(3)]
    assert all({batch.codec for batch in found} == set(CODECS) for found in events)
    assert 1900 <= sum(batch.count for found in events for batch in found) <= 2100
    orders = [_batches_in(EXAMPLES / f"shop-orders-{partition}") for partition in range(2)]
    assert all(batch.attributes & TRANSACTIONAL for found in orders for batch in found)
    assert sorted(EXAMPLES.glob("shop-orders-*/*.txnindex"))
    assert {path.name.rpartition("-")[0] for path in EXAMPLES.iterdir() if path.is_dir()} == {
        "__consumer_offsets",
        "shop-events",
        "shop-orders",
    }
