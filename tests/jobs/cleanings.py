"""Cleanings that are killed: see `tests.jobs.kills`."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import sparklog
from sparklog.errors import SeglogError
from sparklog.inspect.absent import verify_absent
from sparklog.inspect.verify_segment import Finding
from sparklog.jobs.clean.keys import read_keys
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.topic.recover import RecoverOptions, recover_directory
from tests.cleaner.test_compaction import Making, write
from tests.jobs.victims import PARTITIONS, Victim
from tests.places import directory_at, folder_at
from tests.topic.staged import findings

Row = tuple[str, int, bytes | None, bytes | None, Any]
_COLUMNS: Final = ["offset", "key", "value", "timestamp"]
_SEGMENT_BYTES: Final = 6_000
_DAY_MS: Final = 86_400_000
_TO_BE_FINISHED: Final = (".cleaned", ".swap", ".staged", ".tmp")


class Clean(Victim):
    """A cleaning of one kind. What it is to leave an undisturbed run tells, of a copy of the logs."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._delay_ms = rng.choice([0, 60_000])
        self._before: list[Row] = []
        self._wanted: list[Row] = []

    def grow(self) -> None:
        for partition in self._rng.sample(range(PARTITIONS), 3):
            self._append(self.logs / f"a-{partition}")
        self._decide()
        self._before = rows(self.logs)
        undisturbed = self.folder / "undisturbed"
        shutil.rmtree(undisturbed, ignore_errors=True)
        shutil.copytree(self.logs, undisturbed)
        sparklog.clean(undisturbed, **self.options(), processes=1)
        self._wanted = rows(undisturbed)

    def _append(self, folder: Path) -> None:
        codec = self._rng.choice(["uncompressed", "lz4", "zstd"])
        config = LogConfig(segment_bytes=_SEGMENT_BYTES, batch_size=1_000, compression_type=codec)
        folder.mkdir(parents=True, exist_ok=True)
        with sparklog.PartitionLog.open(folder, config) as log:
            for _ in range(self._rng.randrange(1, 4)):
                values = [None if self._rng.random() < 0.1 else each for each in self._new_rows(150)]
                keys = [f"key {self._rng.randrange(200)}" for _ in values]
                time_ms = wall_clock_ms() - self._rng.choice([0, 0, 0, 5 * _DAY_MS])
                times = pa.array([time_ms] * len(values), pa.timestamp("ms", "UTC"))
                log.append(pa.table({"key": keys, "value": pa.array(values, pa.string()), "timestamp": times}))

    def _decide(self) -> None:
        """Decide how the next run cleans."""

    def options(self) -> dict[str, Any]:
        """Return how to clean."""
        properties = {"file.delete.delay.ms": str(self._delay_ms), "segment.bytes": str(3 * _SEGMENT_BYTES)}
        return {"config": properties, "task_bytes": 1 << 14}

    def order(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "clean", [str(self.logs)], self.options()

    def visible(self) -> list[Any]:
        return rows(self.logs)

    def wanted(self) -> list[Any]:
        return self._wanted

    def check_visible(self, before: int) -> tuple[bool, bool]:
        del before
        there = self.visible()
        seen = set(there)
        assert [row for row in self._before if row in seen] == there, f"{self.name}: rows that never were, or are twice"
        lost = len(set(self._wanted) - seen)
        assert not lost, f"{self.name}: {lost} rows are lost after a kill"
        return there == self._before, there == self._wanted

    def recover(self) -> None:
        if self._rng.random() < 0.5:
            directory = directory_at(self.logs)
            options = RecoverOptions(LogConfig(), orphan_age_ms=0)
            folders = [directory.folder(f"a-{partition}") for partition in partitions(self.logs)]
            for found in recover_directory(directory, folders, options, wall_clock_ms()):
                assert not isinstance(found, SeglogError), found
            self.check_visible(0)

    def differs(self) -> list[str]:
        unfinished = (*_TO_BE_FINISHED, *(() if self._delay_ms else (".deleted",)))
        left = [f"{path} is left" for path in self.logs.rglob("*") if path.name.endswith(unfinished)]
        again = sparklog.clean(self.logs, **self.options(), dry_run=True, processes=1)
        return (
            findings(self.logs) + left + [f"{each} is not done" for each in again.partitions if self._is_undone(each)]
        )

    def _is_undone(self, cleaned: Any) -> bool:
        return bool(cleaned.is_changed)


class Retention(Clean):
    name = "retention"

    def _decide(self) -> None:
        self._limits = self._rng.choice([{"retention_bytes": 4 * _SEGMENT_BYTES}, {"retention_ms": _DAY_MS}])

    def options(self) -> dict[str, Any]:
        return super().options() | self._limits

    def check_visible(self, before: int) -> tuple[bool, bool]:
        found = super().check_visible(before)
        there, old, new = ({name: of(some, name) for name in names(self._before)} for some in self._seen())
        parts = [name for name in there if there[name] not in (old[name], new[name])]
        assert not parts, f"of {parts} some segments are dropped and some not"
        return found

    def _seen(self) -> tuple[list[Row], list[Row], list[Row]]:
        return self.visible(), self._before, self._wanted


class Compaction(Clean):
    name = "compaction"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        for partition in range(2):
            # Of transactions, tombstones, and every codec.
            (self.logs / f"a-{partition}").mkdir(parents=True)
            write(self.logs / f"a-{partition}", Making(rng.randrange(1000)).make(150), segment_bytes=1_000)

    def options(self) -> dict[str, Any]:
        found = super().options()
        found["config"]["min.cleanable.dirty.ratio"] = "0"
        return found | {"cleanup_policy": "compact", "dedupe_buffer_bytes": 1 << 12}

    def _is_undone(self, cleaned: Any) -> bool:
        return bool(cleaned.removed_records)


class Erasure(Clean):
    name = "erasure"

    def _decide(self) -> None:
        self._keys = [f"key {n}" for n in self._rng.sample(range(200), 10)]
        self._blank = self._rng.choice([None, None, "null", "empty"])

    def options(self) -> dict[str, Any]:
        return super().options() | {"erase": self._keys, "blank": self._blank}

    def check_visible(self, before: int) -> tuple[bool, bool]:
        if self._blank is None:
            return super().check_visible(before)
        there = self.visible()
        seen = zip(there, self._before, self._wanted, strict=True)
        assert all(row in (old, new) for row, old, new in seen), f"{self.name}: a row is neither as it was nor blank"
        return there == self._before, there == self._wanted

    def differs(self) -> list[str]:
        found = super().differs()
        if self._blank is None and not self._delay_ms:
            for folder in sorted(self.logs.glob("a-*")):
                events = verify_absent(read_keys(self._keys), folder_at(folder))
                found += [str(each) for each in events if isinstance(each, Finding)]
        return found


class Conversion(Clean):
    name = "conversion"

    def _decide(self) -> None:
        self._format = self._rng.choice([None, 1, 2])
        codecs = ["none", "gzip", "snappy", "lz4"] + ([] if self._format == 1 else ["zstd"])
        self._codec = self._rng.choice(codecs)

    def options(self) -> dict[str, Any]:
        return super().options() | {"recompress": self._codec, "format": self._format}


CLEANING: Final[tuple[type[Victim], ...]] = (Retention, Compaction, Erasure, Conversion)


def rows(directory: Path) -> list[Row]:
    """Return the records of a topic's partitions, in their order."""
    return [row for partition in partitions(directory) for row in _of(directory / f"a-{partition}")]


def _of(folder: Path) -> Iterator[Row]:
    with sparklog.open_log(folder) as log:
        found = log.read(columns=_COLUMNS).to_pydict()
    for offset, key, value, time in zip(*(found[name] for name in _COLUMNS), strict=True):
        yield folder.name, offset, key, value, time


def partitions(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("a-")) for path in directory.glob("a-*"))


def names(found: list[Row]) -> list[str]:
    return sorted({row[0] for row in found})


def of(found: list[Row], name: str) -> list[Row]:
    """Return the records of one partition."""
    return [row for row in found if row[0] == name]
