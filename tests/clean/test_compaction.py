"""Compaction against the slow cleaner of `tests.oracle_cleaner`, over logs of every kind of batch."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import sparklog
from sparklog.clean.compacting import Compacted, compact
from sparklog.clean.rewriting import Rewriter
from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.producer_state import Producers, encode_aborted, producers_at_end
from sparklog.record import v2
from sparklog.record.kernels_offset_map import SLOT_BYTES
from sparklog.record.offset_map import OffsetMap
from sparklog.storage.base import Storage
from sparklog.write.recovery import recover
from tests.build import write_partition
from tests.clean.logs import findings, names
from tests.oracle_cleaner import Batch, Cleaning, Row, clean
from tests.places import LOCAL, folder_at
from tests.storage.crash import CrashingStorage, crashes

NOW_MS = 1_000_000
RETENTION_MS = 5_000
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=1_500,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0,
)
RECORD_COUNT = 6
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Making:
    """Makes a log at random, batch by batch."""

    def __init__(self, seed: int, *, has_legacy: bool = False) -> None:
        self._random = random.Random(seed)
        self.offset = 0
        self.batches: list[Batch] = []
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._has_legacy = has_legacy

    def make(self, count: int) -> list[Batch]:
        for _ in range(count):
            chance = self._random.random()
            producer = self._random.randrange(4)
            if self._has_legacy and len(self.batches) < count // 2:
                self._add_legacy()
            elif chance < 0.25:
                self._add_data()
            elif chance < 0.4:
                self._add_data(10 + producer)
            elif producer in self._open and chance < 0.65:
                self._end(producer)
            else:
                self._open.setdefault(producer, self.offset)
                self._add_data(producer, is_transactional=True)
        return self.batches

    def _rows(self, count: int) -> tuple[Row, ...]:
        rows: list[Row] = []
        offset = self.offset
        for _ in range(count):
            key = None if self._random.random() < 0.05 else b"key %d" % self._random.randrange(12)
            value = None if self._random.random() < 0.2 else b"value of %d" % offset
            rows.append((offset, 1000 + offset, key, value))
            # Gaps, as an earlier cleaning leaves them.
            offset += 1 + (self._random.random() < 0.2)
        return tuple(rows)

    def _add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.offset = batch.last_offset + 1

    def _add_data(self, producer_id: int = -1, *, is_transactional: bool = False) -> None:
        rows = self._rows(self._random.randrange(1, 5))
        last_offset = rows[-1][0] + self._random.randrange(2)
        base_sequence = -1
        if producer_id >= 0:
            base_sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = base_sequence + last_offset - self.offset + 1
        horizons = [None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1]
        batch = Batch(
            self.offset,
            last_offset,
            rows,
            codec=self._random.choice(CODECS),
            producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            horizon_ms=self._random.choice(horizons),
        )
        # An empty batch, as an earlier cleaning leaves them.
        is_empty = producer_id >= 0 and self._random.random() < 0.1
        self._add(replace(batch, rows=(), horizon_ms=None, codec="none") if is_empty else batch)

    def _end(self, producer_id: int) -> None:
        del self._open[producer_id]
        marker = self._random.choice(("commit", "abort"))
        horizon_ms = self._random.choice([None, None, NOW_MS - 1, NOW_MS + 1])
        row = (self.offset, 1000 + self.offset, b"", b"")
        self._add(
            Batch(
                self.offset,
                self.offset,
                (row,),
                producer_id=producer_id,
                epoch=0,
                is_transactional=True,
                marker=marker,
                horizon_ms=horizon_ms,
            )  # fmt: skip
        )

    def _add_legacy(self) -> None:
        magic = 0 if len(self.batches) < 5 else 1
        codec = self._random.choice(CODECS[:4])
        rows = self._rows(1 if codec == "none" else self._random.randrange(1, 5))
        rows = tuple((offset, at if magic else -1, key, value) for offset, at, key, value in rows)
        self._add(Batch(self.offset, rows[-1][0], rows, magic=magic, codec=codec))


def write(folder: Path, batches: list[Batch], segment_bytes: int = 600) -> None:
    write_partition(folder, [each.encode() for each in batches], segment_bytes=segment_bytes, index_interval_bytes=200)
    producers = Producers()
    for segment in read_layout(folder_at(folder)).segments:
        with segment.open() as log:
            aborted = [each for window in log.windows(log.start) for each in producers.fold(window)]
        if aborted:
            (folder / f"{segment.base_offset:020}.txnindex").write_bytes(encode_aborted(aborted))


def run(
    folder: Path,
    checkpoint: int | None = None,
    config: LogConfig = CONFIG,
    map_bytes: int = 1 << 14,
    storage: Storage = LOCAL,
    now_ms: int = NOW_MS,
    *,
    dry_run: bool = False,
) -> Compacted:
    at = folder_at(folder, storage)
    recover(at, config, now_ms)
    return compact(Rewriter(at, config, now_ms, dry_run=dry_run), OffsetMap(map_bytes), checkpoint)


def told(folder: Path) -> list[tuple[object, ...]]:
    """Return what the headers of a log say, as `Batch.told`."""
    found: list[tuple[object, ...]] = []
    for segment in read_layout(folder_at(folder)).segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                for batch in window.headers.table:
                    has_horizon = batch["magic"] == 2 and batch["attributes"] & v2.DELETE_HORIZON
                    fields = ("magic", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence")
                    numbers = [int(batch[name]) for name in (*fields, "record_count")]
                    found.append((*numbers, int(batch["base_timestamp"]) if has_horizon else None))
    return found


def rows(folder: Path) -> list[tuple[object, ...]]:
    with sparklog.open_log(str(folder)) as log:
        table = log.read(columns=("offset", "key", "value"))
    return list(zip(*(table[name].to_pylist() for name in ("offset", "key", "value")), strict=True))


def rows_of(batches: list[Batch]) -> list[tuple[object, ...]]:
    return [(offset, key, value) for each in batches if not each.marker for offset, _, key, value in each.rows]


def cleaning(folder: Path, result: Compacted, *, keeps_legacy_tombstones: bool = True) -> Cleaning:
    layout = read_layout(folder_at(folder))
    entries = producers_at_end(layout, NOW_MS).entries.items()
    last = {key: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch) for key, entry in entries}
    section = result.section
    return Cleaning(
        section.start_offset, result.clean_offset, layout.end_offset, NOW_MS, RETENTION_MS, last,
        keeps_legacy_tombstones,
    )  # fmt: skip


def assert_batches(folder: Path, expected: list[Batch]) -> None:
    """Compare batches; of a group that ends with nothing, the machine keeps an empty one, which no cleaner does."""
    found, wanted = told(folder), [each.told() for each in expected]
    more = [batch for batch in found if batch not in wanted]
    assert [batch for batch in found if batch not in more] == wanted
    assert {batch[RECORD_COUNT] for batch in more} <= {0}


@pytest.mark.parametrize("seed", range(60))
def test_what_stays_is_what_the_slow_cleaner_leaves(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "events-0"
    batches = Making(seed, has_legacy=seed % 3 == 0).make(60)
    write(folder, batches)
    bases = [segment.base_offset for segment in read_layout(folder_at(folder)).segments]
    checkpoint = None if seed % 2 else bases[len(bases) // 3] + seed % 5
    how = cleaning(folder, run(folder, checkpoint, dry_run=True))
    result = run(folder, checkpoint)
    if not result.is_due:
        assert told(folder) == [each.told() for each in batches]
        return
    expected = clean(batches, replace(how, keeps_legacy_tombstones=True))
    assert rows(folder) == rows_of(expected)
    assert_batches(folder, expected)
    assert findings(folder) == []
