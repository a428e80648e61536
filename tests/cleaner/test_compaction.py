"""Compaction against the slow cleaner of `tests.oracle_cleaner`, over logs of every kind of batch."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

import sparklog
from sparklog.cleaner.compaction_pass import Compacted, CompactionPass, compact
from sparklog.cleaner.opened import open_to_clean, open_to_look
from sparklog.cleaner.rewriting import Rewriter
from sparklog.errors import CorruptLogError, InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.producer_state import Producers, encode_aborted
from sparklog.record.format import v2
from sparklog.record.kernels.offset_map import SLOT_BYTES
from sparklog.record.rewrite.offset_map import OffsetMap
from sparklog.storage.base import Storage
from tests.build import write_partition
from tests.cleaner.logs import findings, names
from tests.oracle_cleaner import Batch, Cleaning, Row, clean
from tests.places import LOCAL, folder_at
from tests.storage.crash import EVERY_LOSS, CrashingStorage, crashes

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
CONFIG_OF_GROUPS = replace(CONFIG, segment_bytes=900)
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
            )
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
    log = open_to_look(at, config, now_ms) if dry_run else open_to_clean(at, config, now_ms)
    return compact(log, Rewriter(at, config, now_ms, dry_run=dry_run), OffsetMap(map_bytes), checkpoint)


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


@pytest.mark.parametrize("age_ms", [0, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1])
def test_old_tombstones_go_when_their_file_is_old_enough(tmp_path: Path, age_ms: int) -> None:
    """By the time of the last file that was cleaned, and not by the clock."""
    folder = tmp_path / "events-0"
    made = [Batch(n, n, ((n, -1, b"key %d" % n, None if n % 3 else b"value"),), magic=0) for n in range(30)]
    write(folder, made, segment_bytes=200)
    bases = [segment.base_offset for segment in read_layout(folder_at(folder)).segments]
    for base in bases:
        at_ns = (NOW_MS - (age_ms if base < bases[2] else 0)) * 1_000_000
        os.utime(folder / f"{base:020}.log", ns=(at_ns, at_ns))
    # Two files of the cleaned part are old, and the third, the last of it, is new.
    result = run(folder, checkpoint=bases[3])
    keeps = age_ms < RETENTION_MS
    expected = [each for each in made if each.rows[0][3] is not None or keeps or each.base_offset >= bases[2]]
    assert rows(folder) == rows_of(expected)
    assert result.removed_records == len(made) - len(expected)


@pytest.mark.parametrize("keys_max", [5, 8, 10])
def test_full_map_takes_several_rounds_to_the_same_end(tmp_path: Path, keys_max: int) -> None:
    batches = Making(1).make(60)
    for name in ("whole-0", "in-rounds-0"):
        write(tmp_path / name, batches)
    once = run(tmp_path / "whole-0")
    result = run(tmp_path / "in-rounds-0", map_bytes=(keys_max + 1) * SLOT_BYTES)
    assert once.rounds == 1
    assert result.rounds > 1
    assert result.clean_offset == once.clean_offset
    assert rows(tmp_path / "in-rounds-0") == rows(tmp_path / "whole-0")
    assert findings(tmp_path / "in-rounds-0") == []


def test_map_that_has_not_room_for_one_batch_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    batches = [
        Batch(at, at + 9, tuple((at + n, 0, b"key %d" % n, b"value") for n in range(10))) for at in range(0, 100, 10)
    ]
    write(folder, batches)
    with pytest.raises(InvalidOptionError, match=r"offset 0 has more keys .* larger log\.cleaner\.dedupe\.buffer"):
        run(folder, map_bytes=8 * SLOT_BYTES)
    assert rows(folder) == rows_of(batches)


@pytest.mark.parametrize("seed", range(4))
def test_second_cleaning_changes_nothing_but_what_horizons_allow(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "events-0"
    write(folder, Making(seed).make(60))
    result = run(folder)
    after = rows(folder)
    assert not run(folder, result.clean_offset).is_due
    # As if the checkpoint had been lost; segments that have become small are put together.
    for _ in range(4):
        assert run(folder).removed_records == 0
    assert rows(folder) == after
    logs = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    assert not any(each.is_changed for each in run(folder).groups)
    assert {path.name: path.read_bytes() for path in folder.glob("*.log")} == logs
    # Each cleaning lets go of what the one before has given a horizon, or of what that one was the last to need.
    late = NOW_MS + 2 * RETENTION_MS
    for turn in range(1, 4):
        run(folder, now_ms=late * turn)
    left = [value for offset, _, value in rows(folder) if isinstance(offset, int) and offset < result.clean_offset]
    assert None not in left
    assert findings(folder) == []


def test_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder, Making(5).make(60))
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    dry = run(folder, dry_run=True)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before
    done = run(folder)
    assert dry.removed_records == done.removed_records > 0
    assert [each.new_bytes for each in dry.groups] == [each.new_bytes for each in done.groups]


@pytest.mark.parametrize("policy", [("delete",), ()])
def test_log_of_another_policy_is_not_compacted(tmp_path: Path, policy: tuple[str, ...]) -> None:
    folder = tmp_path / "events-0"
    write(folder, Making(5).make(60))
    at, config = folder_at(folder), replace(CONFIG, cleanup_policy=policy)
    done = CompactionPass().run(open_to_clean(at, config, NOW_MS), Rewriter(at, config, NOW_MS))
    assert (done.rewritten, done.removed_records, done.clean_offset) == ((), 0, None)


def test_log_that_is_clean_enough_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder, Making(5).make(60))
    bases = [segment.base_offset for segment in read_layout(folder_at(folder)).segments]
    result = run(folder, bases[-3], replace(CONFIG, min_cleanable_dirty_ratio=0.9))
    assert (result.is_due, result.groups, result.clean_offset) == (False, (), bases[-3])


def test_damaged_batch_is_an_error_and_nothing_of_its_group_changes(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder, Making(5).make(60))
    first = sorted(folder.glob("*.log"))[1]
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1
    first.write_bytes(damaged)
    before = names(folder)
    with pytest.raises(CorruptLogError, match=first.name):
        run(folder)
    assert names(folder) == before


def test_missing_transaction_index_costs_no_record(tmp_path: Path) -> None:
    """A record that was aborted must not take the place of one that was not, whatever the indexes say."""
    for name in ("with-0", "without-0"):
        write(tmp_path / name, Making(7).make(60))
    for index in (tmp_path / "without-0").glob("*.txnindex"):
        index.unlink()
    for name in ("with-0", "without-0"):
        run(tmp_path / name)
    assert rows(tmp_path / "with-0") == rows(tmp_path / "without-0")
    assert told(tmp_path / "with-0") == told(tmp_path / "without-0")


def test_crash_at_any_call_costs_no_key_its_last_value(tmp_path: Path) -> None:
    batches = Making(3).make(16)

    def prepare(folder: Path) -> None:
        write(folder / "events-0", batches)

    def clean_up(storage: CrashingStorage, folder: Path) -> None:
        run(folder / "events-0", config=CONFIG_OF_GROUPS, storage=storage)

    prepare(tmp_path / "sound")
    run(tmp_path / "sound" / "events-0", config=CONFIG_OF_GROUPS)
    expected = rows(tmp_path / "sound" / "events-0")
    was_old = was_new = False
    for crash in crashes(prepare, clean_up, tmp_path, EVERY_LOSS):
        folder = crash.folder / "events-0"
        seen = rows(folder)
        was_old, was_new = was_old or seen == rows_of(batches), was_new or seen == expected
        assert [row for row in rows_of(batches) if row in seen] == seen, str(crash)
        assert set(seen) >= set(expected), str(crash)
        # The next cleaning finishes it.
        run(folder, config=CONFIG_OF_GROUPS)
        assert rows(folder) == expected, str(crash)
        assert findings(folder) == [], str(crash)
        assert not [name for name in names(folder) if name.endswith((".cleaned", ".swap", ".deleted"))], str(crash)
    assert was_old
    assert was_new


def test_transactions_of_the_clean_section_are_found_after_segments_were_swapped(tmp_path: Path) -> None:
    """Nothing that is dirty is of a transaction, so that the first batch of one is met behind a group that is done."""
    folder = tmp_path / "events-0"
    rows = [Batch(at, at, ((at, 1000 + at, key, bytes(200)),)) for at, key in enumerate((b"a", b"b", b"key"))]
    of_transaction = [
        Batch(3, 3, ((3, 1003, b"a", bytes(200)),), producer_id=7, epoch=0, base_sequence=0, is_transactional=True),
        Batch(4, 4, ((4, 1004, b"", b""),), producer_id=7, epoch=0, is_transactional=True, marker="abort"),
    ]
    dirty = [Batch(at, at, ((at, 1000 + at, b"key", bytes(200)),)) for at in range(5, 8)]
    write(folder, [*rows, *of_transaction, *dirty], segment_bytes=300)
    run(folder, 5, CONFIG_OF_GROUPS)
    with sparklog.open_log(folder) as log:
        assert log.read(columns=["offset"])["offset"].to_pylist() == [0, 1, 6, 7]
    assert findings(folder) == []
