"""Records of a key go, from every batch that holds one, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.cleaner.erasure import ErasedOffsets, Erasure
from sparklog.errors import CorruptBatchError
from sparklog.inspect.absent import verify_absent
from sparklog.inspect.verify_segment import Finding
from sparklog.log.config import LogConfig
from sparklog.record.rewrite.changes import EMPTY, NULL
from sparklog.record.rewrite.matching import key_set
from tests import build
from tests.build import Record, v2_batch, write_partition
from tests.cleaner.logs import CONFIG, clean, findings
from tests.oracle import OracleBatch, OracleRecord, decode_log
from tests.places import folder_at
from tests.strategies import logs

ONE_BY_ONE = LogConfig(segment_bytes=600, file_delete_delay_ms=0)


def keys(*wanted: bytes) -> Any:
    return key_set(pa.array(wanted, pa.binary()))


def write(folder: Path, codec: str = "lz4") -> None:
    """Write segments of two batches of five records; every seventh record is of key ``gone``."""
    batches = [
        v2_batch(
            [
                Record(
                    n, 1000 + n, b"gone" if (first + n) % 7 == 0 else b"k%d" % (first + n), b"value of %d" % (first + n)
                )
                for n in range(5)
            ],
            base_offset=first,
            codec=codec,
            producer_id=9,
            producer_epoch=1,
            base_sequence=first,
        )
        for first in range(0, 100, 5)
    ]
    write_partition(folder, batches, segment_bytes=2 * max(map(len, batches)), index_interval_bytes=100)


def records(folder: Path) -> list[OracleRecord]:
    return [record for batch in batches_of(folder) for record in batch.records]


def batches_of(folder: Path) -> list[OracleBatch]:
    return [batch for path in sorted(folder.glob("*.log")) for batch in decode_log(path.read_bytes())]


def remnants(folder: Path, *wanted: bytes) -> list[tuple[str, str]]:
    events = verify_absent(keys(*wanted), folder_at(folder))
    return [(Path(each.path).name, each.code) for each in events if isinstance(each, Finding)]


def sealed_end(folder: Path) -> int:
    return int(sorted(folder.glob("*.log"))[-1].stem)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_records_of_a_key_go_and_the_others_stay_as_they_are(tmp_path: Path, codec: str) -> None:
    folder = tmp_path / "events-0"
    write(folder, codec)
    before, end = records(folder), sealed_end(folder)
    erasure = Erasure(keys(b"gone", b"nobody"))
    clean(folder, erasure, ONE_BY_ONE)
    wanted = [record for record in before if record.key != b"gone" or record.offset >= end]
    assert records(folder) == wanted
    assert erasure.erased.ranges() == [(offset, offset) for offset in range(0, end, 7)]
    assert len(erasure.erased) == len(range(0, end, 7))
    assert findings(folder) == []


def test_segments_without_the_key_are_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("*.log")}
    found = clean(folder, Erasure(keys(b"k33")), ONE_BY_ONE)
    changed = {path.name for path in folder.glob("*.log") if path.stat().st_ino != inodes.get(path.name)}
    assert len(changed) == 1 == sum(each.is_changed for each in found)
    assert [record.offset for record in records(folder)] == [n for n in range(100) if n != 33]


def test_batches_without_the_key_are_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder, "gzip-members")
    before = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    clean(folder, Erasure(keys(b"k33")), CONFIG)
    after = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    (changed,) = [batch for batch in decode_log(before) if batch.base_offset == 30]
    assert after.startswith(before[: changed.position])
    assert after.endswith(before[changed.position + changed.size_bytes :])


def test_values_are_blanked_once_and_records_stay(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    before, end = records(folder), sealed_end(folder)
    for blank_bytes, value in ((EMPTY, b""), (NULL, None)):
        erasure = Erasure(keys(b"gone"), is_blanked=True, blank_bytes=blank_bytes)
        clean(folder, erasure, ONE_BY_ONE)
        assert records(folder) == [
            replace(record, value=value) if record.key == b"gone" and record.offset < end else record
            for record in before
        ]
        assert len(erasure.erased) == len(range(0, end, 7))
        again = Erasure(keys(b"gone"), is_blanked=True, blank_bytes=blank_bytes)
        clean(folder, again, ONE_BY_ONE)
        assert not len(again.erased)


def test_batch_of_which_nothing_stays_keeps_its_offsets_and_producer(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    clean(folder, Erasure(keys(b"gone", *(b"k%d" % n for n in range(20)))), CONFIG)
    batches = batches_of(folder)
    assert [batch.base_offset for batch in batches] == list(range(0, 100, 5))
    assert [batch.last_offset for batch in batches] == list(range(4, 100, 5))
    assert [batch.base_sequence for batch in batches] == list(range(0, 100, 5))
    assert [batch.record_count for batch in batches[:4]] == [0] * 4


def test_markers_with_the_bytes_of_a_key_stay(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    marker = build.control_batch("abort", 2, 7)
    data = v2_batch([Record(0, 0, b"k"), Record(1, 0, b"l")], transactional=True, producer_id=7, base_sequence=0)
    write_partition(folder, [data, marker, v2_batch([Record()], base_offset=3)], segment_bytes=len(data) + len(marker))
    clean(folder, Erasure(keys(b"\0\0\0\0", b"k")), ONE_BY_ONE)
    assert [record.offset for record in records(folder)] == [1, 2, 3]


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(logs(max_size=8), st.data())
def test_any_log_loses_the_records_of_the_keys_alone(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[bytes, list[OracleBatch]], data: st.DataObject
) -> None:
    bytes_of_log, batches = drawn
    folder = tmp_path_factory.mktemp("log") / "events-0"
    pieces = [bytes_of_log[batch.position : batch.position + batch.size_bytes] for batch in batches]
    end = v2_batch([Record(0, 0, b"end")], base_offset=batches[-1].last_offset + 1 if batches else 0)
    base_offset = batches[0].base_offset if batches else 0
    write_partition(
        folder, [*pieces, end], base_offset=base_offset, segment_bytes=max(map(len, [b"", *pieces])) or None
    )
    there = [record.key for batch in batches for record in batch.records if record.key is not None]
    wanted = data.draw(st.lists(st.sampled_from(there), max_size=4) if there else st.just([]))
    before, sealed = batches_of(folder), sealed_end(folder)
    clean(folder, Erasure(keys(*wanted)), CONFIG)
    assert records(folder) == [
        record
        for batch in before
        for record in batch.records
        if batch.is_control or record.key not in wanted or record.offset >= sealed
    ]


def test_damage_is_named_with_its_file_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    bad = v2_batch([Record(0), Record(1)], base_offset=0, record_count=1)
    write_partition(folder, [bad, v2_batch([Record()], base_offset=5)], segment_bytes=len(bad))
    before = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    with pytest.raises(CorruptBatchError, match="left over") as caught:
        clean(folder, Erasure(keys(b"gone")), ONE_BY_ONE)
    assert caught.value.path == str(folder / f"{0:020d}.log")
    assert {path.name: path.read_bytes() for path in folder.glob("*.log*")} == before


def test_offsets_side_by_side_are_one_range() -> None:
    erased = ErasedOffsets()
    assert erased.ranges() == []
    erased.add(pa.array([3, 4, 5, 9]).to_numpy())
    erased.add(pa.array([10, 12]).to_numpy())
    assert erased.ranges() == [(3, 5), (9, 10), (12, 12)]


# Proof that they are gone


def test_proof_finds_every_file_that_still_holds_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    clean(folder, Erasure(keys(b"gone", b"k40")), replace(ONE_BY_ONE, file_delete_delay_ms=60_000))
    left = remnants(folder, b"k40")
    deleted = [name for name, _ in left]
    assert len(left) == 1
    assert deleted[0].endswith(".log.deleted")
    assert remnants(folder, b"nobody") == []
    held = (folder / deleted[0]).read_bytes()
    for path in folder.glob("*.deleted"):
        path.unlink()
    assert remnants(folder, b"k40") == []
    for name in (
        f"{40:020d}.log.cleaned",
        f"{40:020d}.log.swap",
        f"{40:020d}.819200.cut",
        "seglog-00000190f3b6c2d1a-0-0-1.log.staged",
        f"{40:020d}.index.deleted",
    ):
        (folder / name).write_bytes(held)
    assert sorted(name.rpartition(".")[2] for name, code in remnants(folder, b"k40") if code == "present") == [
        "cleaned",
        "cut",
        "staged",
        "swap",
    ]


def test_bytes_that_are_no_batch_prove_nothing_and_what_follows_is_searched(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    batches = [v2_batch([Record(n, 0, b"k%d" % n, b"x" * 50)], base_offset=n, codec="gzip") for n in range(4)]
    damaged = bytearray(batches[1])
    damaged[-5] ^= 1
    write_partition(folder, batches)
    (log,) = folder.glob("*.log")
    log.write_bytes(batches[0] + damaged + b"noise" * 20 + batches[2] + batches[3] + bytes(300))
    assert remnants(folder, b"nobody") == [(log.name, "not-proven")] * 2
    assert remnants(folder, b"k3")[-1] == (log.name, "present")
    log.write_bytes(batches[0] + batches[1][:-4])
    assert remnants(folder, b"nobody") == [(log.name, "not-proven")]
    log.write_bytes(batches[0] + bytes(300))
    assert remnants(folder, b"nobody") == []


def test_folder_that_kafka_has_set_aside_is_no_proof(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder)
    aside = tmp_path / "events-0.0123456789abcdef-delete"
    aside.mkdir()
    (tmp_path / "events-01.0123456789abcdef-delete").mkdir()
    assert remnants(folder, b"nobody") == [(aside.name, "not-proven")]
