"""Every topic property, on both ways in: it changes what is written, or one warning says by its name that it does not.

A property is set to a value that must be seen, and what is written with it is compared with what is written without.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import SeglogError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.properties import AT_APPEND, AT_COMMIT, described
from sparklog.spark.options.write import WriteOptions
from sparklog.storage.local_writing import LocalWritableFile, LocalWritableStorage
from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.target import WriteTarget
from sparklog.write.partition import LogWriter
from sparklog.write.running_jobs import begin
from tests.places import directory_at

NOW_MS = 1_700_000_000_000
JOB = "0000000000ff00"
STEP_MS = 60_000


@dataclass(frozen=True)
class Setting:
    """A value that must be seen, beside others that are set both times."""

    value: str
    beside: tuple[tuple[str, str], ...] = ()


COMPACTED = (("cleanup.policy", "compact"),)
SETTINGS = {
    "segment.bytes": Setting("700"),
    "segment.ms": Setting("100000"),
    "segment.jitter.ms": Setting("900000", (("segment.ms", "1000000"),)),
    "segment.index.bytes": Setting("24", (("index.interval.bytes", "0"),)),
    "index.interval.bytes": Setting("0"),
    "flush.messages": Setting("1"),
    "flush.ms": Setting("0"),
    "retention.bytes": Setting("1"),
    "retention.ms": Setting("1"),
    "max.message.bytes": Setting("100"),
    "max.decompressed.message.bytes": Setting("60"),
    "delete.retention.ms": Setting("1", COMPACTED),
    "min.compaction.lag.ms": Setting("1", COMPACTED),
    "max.compaction.lag.ms": Setting("100000", COMPACTED),
    "min.cleanable.dirty.ratio": Setting("0.1", COMPACTED),
    "file.delete.delay.ms": Setting("1"),
    "cleanup.policy": Setting("compact", (("max.compaction.lag.ms", "100000"),)),
    "compression.type": Setting("zstd"),
    "compression.gzip.level": Setting("1", (("compression.type", "gzip"),)),
    "compression.lz4.level": Setting("17", (("compression.type", "lz4"),)),
    "compression.zstd.level": Setting("-100", (("compression.type", "zstd"),)),
    "preallocate": Setting("true", (("segment.bytes", "100000"),)),
    "message.format.version": Setting("0.10.2"),
    "message.timestamp.type": Setting("LogAppendTime"),
    "message.timestamp.before.max.ms": Setting("1"),
    "message.timestamp.after.max.ms": Setting("1"),
    "batch.size": Setting("100"),
}


class WatchedFile(LocalWritableFile):
    """Writes down when it is synced, and to what size it is made."""

    seen: list[str]

    def sync(self) -> None:
        self.seen.append(f"sync {Path(self.path).name}")
        super().sync()

    def preallocate(self, size_bytes: int) -> None:
        self.seen.append(f"preallocate {size_bytes}")
        super().preallocate(size_bytes)


class WatchedStorage(LocalWritableStorage):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def open_for_append(self, path: str) -> LocalWritableFile:
        file = WatchedFile(path, self.root)
        file.seen = self.seen
        return file


def rows() -> pa.Table:
    """Records minutes apart around now, whose values repeat enough for codecs and levels to differ."""
    number = 40
    times = [NOW_MS + (n - number // 2) * STEP_MS for n in range(number)]
    values = [b"%d some words that come again, and again some words " % (n * 7919) * 3 for n in range(number)]
    return pa.table({"key": pa.array([b"k%d" % n for n in range(number)]), "value": values, "timestamp": times})


def written(folder: Path) -> dict[str, bytes]:
    """Return what the files of a folder hold; the id, which no two logs share, tells nothing of a property."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    del found[files.LOG_IDENTITY]
    return found


def appended(directory: Path, properties: dict[str, str]) -> Any:
    storage, table = WatchedStorage(), rows()
    config = LogConfig.from_properties(properties)
    try:
        with LogWriter.open(
            directory / "events-0", config, storage=storage, clock=lambda: NOW_MS, rng=lambda: 800_000
        ) as log:
            for start in range(0, len(table), 10):
                log.append(table.slice(start, 10))
    except SeglogError as error:
        return str(error).replace(str(directory), "")
    return storage.seen, written(directory / "events-0")


def committed(directory: Path, properties: dict[str, str]) -> Any:
    storage = LocalWritableStorage()
    config = WriteOptions.parse({"path": str(directory / "events"), **properties}).config
    begin(directory_at(directory, storage), JOB)
    task = TaskAttempt(
        WriteTarget(directory_at(directory, storage), "events", None, {}, 1), config, "default", JOB, 0, 0, NOW_MS
    )
    try:
        with RecordAccumulator(task, lambda: NOW_MS) as accumulator:
            for batch in rows().to_batches(max_chunksize=10):
                accumulator.append(batch)
            staged = accumulator.finish()
        commit(CommitRequest(JOB, directory_at(directory), config, {"events": 1}), staged, NOW_MS)
    except SeglogError as error:
        return str(error).replace(str(directory), "")
    return written(directory / "events-0")


WAYS = {AT_APPEND: (appended, "an append"), AT_COMMIT: (committed, "a write of Spark")}


@pytest.mark.parametrize("place", WAYS)
@pytest.mark.parametrize("declared", described(LogConfig), ids=lambda each: each.name)
def test_property_has_its_effect_or_one_warning_by_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, declared: Any, place: str
) -> None:
    write, told = WAYS[place]
    setting = SETTINGS[declared.name]
    beside = {"batch.size": "600", **dict(setting.beside)}
    if declared.name.startswith("message.timestamp.after"):
        # Without it the hour that is its default would refuse nothing of what is written here.
        beside["message.timestamp.before.max.ms"] = str(10 * STEP_MS * 10)
    without = write(tmp_path / "without", beside)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "sparklog"):
        with_it = write(tmp_path / "with", {**beside, declared.name: setting.value})
    warnings = [message for message in caplog.messages if message.startswith(f"{declared.name} does nothing")]
    assert len(warnings) == len(caplog.messages)
    if place in declared.acts:
        assert with_it != without
        assert warnings == []
    else:
        assert with_it == without
        (warning,) = warnings
        assert warning.startswith(f"{declared.name} does nothing in {told}: ")


def test_settings_are_of_every_property() -> None:
    assert set(SETTINGS) == {each.name for each in described(LogConfig)}


@pytest.mark.parametrize("place", WAYS)
@pytest.mark.parametrize(
    ("properties", "warning"),
    [
        ({"log.retention.hours": "1"}, "log.retention.hours does nothing in {}: 'sparklog clean' drops"),
        ({"retention.ms": "604800000"}, "retention.ms does nothing in {}: 'sparklog clean' drops"),
        ({"compression.zstd.level": "7"}, "compression.zstd.level does nothing in {}: compression.type is lz4"),
        ({"max.compaction.lag.ms": "7"}, "max.compaction.lag.ms does nothing in {}: cleanup.policy is delete"),
        (
            {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1"},
            "message.timestamp.after.max.ms does nothing in {}: message.timestamp.type is LogAppendTime",
        ),
    ],
    ids=str,
)
def test_warning_is_in_the_users_spelling_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str, properties: dict[str, str], warning: str
) -> None:
    write, told = WAYS[place]
    with caplog.at_level(logging.WARNING, "sparklog"):
        write(tmp_path, properties)
    (message,) = caplog.messages
    assert message.startswith(warning.format(told))


def test_argument_is_warned_of_as_text_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "sparklog"),
        LogWriter.open(tmp_path / "events-0", LogConfig(file_delete_delay_ms=1)),
    ):
        pass
    (message,) = caplog.messages
    assert message.startswith("file.delete.delay.ms does nothing in an append: ")


def test_nothing_is_warned_of_where_nothing_is_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        appended(tmp_path / "a", {})
        committed(tmp_path / "b", {})
        committed(tmp_path / "c", {"compression.type": "zstd", "compression.zstd.level": "3"})
    assert caplog.messages == []


@pytest.mark.parametrize("place", WAYS)
def test_record_that_no_reader_would_decompress_is_refused(tmp_path: Path, place: str) -> None:
    write, _ = WAYS[place]
    refused = write(tmp_path / "a", {"max.decompressed.message.bytes": "60"})
    assert "bytes before it is compressed, and max.decompressed.message.bytes is 60" in refused
    # What is not compressed needs no room but its own.
    plain = {"max.decompressed.message.bytes": "60", "compression.type": "none"}
    assert not isinstance(write(tmp_path / "b", plain), str)
    # Batches are made shorter before a record is refused.
    assert not isinstance(write(tmp_path / "c", {"max.decompressed.message.bytes": "400"}), str)
