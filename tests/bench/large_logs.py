"""The log directories that `tests.bench.large` measures: their bytes are written directly, which is fast."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.logs import START_MS, templates
from tests.build import (
    ProducerEntry,
    Record,
    leader_epoch_checkpoint,
    offset_checkpoint,
    producer_snapshot,
    producer_snapshot_name,
    v2_batch,
    write_partition,
)
from tests.growth import make_partitions, settle

PER_TOPIC: Final = 50
RECORDS: Final = 30
SEGMENT_MS: Final = 1000
"""The time between two segments of one log."""


def topics_of(partitions: int) -> list[str]:
    """Return the topics of a directory with some partitions."""
    return [f"topic-{number:05d}" for number in range(-(-partitions // PER_TOPIC))]


def partitions_of(partitions: int) -> list[tuple[str, int]]:
    """Return the topic and the number of each partition of a directory."""
    return [(f"topic-{number // PER_TOPIC:05d}", number % PER_TOPIC) for number in range(partitions)]


def shared_logs(scratch: Path, partitions: int) -> Path:
    """Return a directory with logs of some records each, which nobody changes; it is made if it is not there."""
    return _made_once(scratch / f"logs-{partitions}", lambda path: _make_logs(path, partitions))


@contextmanager
def new_folder(scratch: Path) -> Iterator[Path]:
    """Make an empty folder for a block, and remove it."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        yield Path(folder)


@contextmanager
def new_logs(scratch: Path, partitions: int) -> Iterator[Path]:
    """Make the same directory for a block that changes it, and remove it."""
    with new_folder(scratch) as folder:
        path = folder / "logs"
        _make_logs(path, partitions)
        yield path


@contextmanager
def new_segments(scratch: Path, segments: int) -> Iterator[Path]:
    """Make a directory with one log for a block; each segment has one record, and a snapshot of its producer."""
    with new_folder(scratch) as folder:
        path, partition = folder / "logs", folder / "logs" / "events-0"
        write_partition(partition, [batch_at(offset) for offset in range(segments)], segment_bytes=1)
        for offset in range(1, segments):
            state = ProducerEntry(7, last_sequence=offset - 1, last_offset=offset - 1, timestamp=time_of(offset - 1))
            (partition / producer_snapshot_name(offset)).write_bytes(producer_snapshot([state]))
        (partition / "leader-epoch-checkpoint").write_text(leader_epoch_checkpoint([(0, 0)]))
        (path / "recovery-point-offset-checkpoint").write_text(offset_checkpoint({("events", 0): segments}))
        _settle_all(path)
        yield path


def batch_at(offset: int) -> bytes:
    """Return the batch of one segment in a log of many."""
    record = Record(timestamp=time_of(offset), key=b"key", value=b"x" * 100)
    return v2_batch([record], base_offset=offset, producer_id=7, producer_epoch=0, base_sequence=offset)


def time_of(offset: int) -> int:
    """Return the timestamp of a record in a log of many segments."""
    return START_MS + offset * SEGMENT_MS


def _make_logs(path: Path, partitions: int) -> None:
    make_partitions(path, partitions, per_topic=PER_TOPIC)
    (batch, *_) = templates("lz4", RECORDS)
    for topic, partition in partitions_of(partitions):
        base = path / f"{topic}-{partition}" / f"{0:020d}"
        base.with_suffix(".log").write_bytes(batch)
        for suffix in (".index", ".timeindex"):
            base.with_suffix(suffix).touch()
    _settle_all(path)


def _settle_all(path: Path) -> None:
    for folder in path.iterdir():
        if folder.is_dir():
            settle(folder)
    settle(path)


def _made_once(path: Path, make: Callable[[Path], None]) -> Path:
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make(unfinished)
        unfinished.rename(path)
    return path
