"""Logs that a mirror follows, the changes that brokers and cleaners make to them, and what the mirror has then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.jobs.mirror.job import Follower, MirrorSummary
from sparklog.jobs.mirror.state import claim_target
from sparklog.jobs.mirror.taken import BESIDE_LOGS
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.log.config import LogConfig
from sparklog.storage.base import Storage
from sparklog.write.locking import hold
from sparklog.write.small_files import make_directory
from tests.places import LOCAL, directory_at

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)
TOPIC_IDS = ("Q2TYVrXaSDWPZ5lUZtm3Jg", "Q2TYVrXaSDWPZ5lUZtm3Jh")


def append(source: Path, count: int, name: str = "events-0", *, word: str = "a") -> None:
    """Append batches of two records, with three keys in turn."""
    with sparklog.PartitionLog.open(str(source / name), CONFIG) as log:
        for number in range(count):
            value = f"{word}{number}".encode() * 20
            keys = [b"k%d" % (number % 3), b"l%d" % (number % 3)]
            log.append(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([value] * 2, pa.binary())}))


def give_topic_id(source: Path, topic_id: str = TOPIC_IDS[0], name: str = "events-0") -> None:
    (source / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


def make_source(source: Path) -> None:
    append(source, 12)
    give_topic_id(source)


def grow(source: Path) -> None:
    append(source, 9, word="b")


def compact(source: Path) -> None:
    append(source, 3, word="c")
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "600"}
    sparklog.clean(source, config=config | {"file.delete.delay.ms": "0"})


def cut_and_write_on(source: Path) -> None:
    """Cut the end in the middle of a segment, and let other records take its offsets, and more."""
    sparklog.truncate_to(source / "events-0", 13)
    append(source, 8, word="d")


def cut_only(source: Path) -> None:
    sparklog.truncate_to(source / "events-0", 9)


def expire(source: Path) -> None:
    sparklog.delete_records(source / "events-0", before_offset=9)
    sparklog.clean(source, config={"file.delete.delay.ms": "0"})
    append(source, 2, word="e")


def make_anew(source: Path) -> None:
    """Delete the topic, and make another one of its name."""
    shutil.rmtree(source / "events-0")
    for checkpoint in source.glob("*-checkpoint"):
        checkpoint.unlink()
    append(source, 7, word="f")
    give_topic_id(source, TOPIC_IDS[1])


def change_topics(source: Path) -> None:
    """Delete a topic, and make another one, and files beside the logs."""
    shutil.rmtree(source / "events-0")
    append(source, 5, "other-3", word="g")
    (source / "topics.properties").write_text("other/retention.ms=86400000\n")


CHANGES = (grow, compact, cut_and_write_on, cut_only, expire, make_anew, change_topics)


def mirror_into(
    source: Path, target: Path, storage: Storage = LOCAL, *, source_storage: Storage = LOCAL
) -> MirrorSummary:
    """Mirror once, with every change to the mirror through a storage, and every look at the source through another."""
    theirs, ours = directory_at(source, source_storage), directory_at(target, storage)
    make_directory(ours)
    with hold(ours, 0):
        claim_target(theirs, ours, "seglog.mirror", "mirror")
        return Follower(theirs, ours, LocalRunner(1), LogJobOptions()).run_until_still()


def batches_in(folder: Path) -> list[bytes]:
    """Return the raw batches of the log in a folder; none if there is no log."""
    if not folder.is_dir():
        return []
    with sparklog.open_log(folder) as log:
        return [each.data for each in log.raw_batches()]


def files_of_logs(directory: Path) -> dict[str, bytes]:
    """Return the files that a mirror has of its source: all of sealed segments, and the log of the last one."""
    found = {}
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        last = max((path.stem for path in folder.glob("*.log")), default="")
        for path in sorted(folder.iterdir()):
            is_open_index = path.stem == last and "index" in path.suffix
            if path.name != "seglog-mirror" and path.suffix != ".deleted" and not is_open_index:
                found[f"{folder.name}/{path.name}"] = path.read_bytes()
    return found | {name: (directory / name).read_bytes() for name in BESIDE_LOGS if (directory / name).exists()}


def assert_equal(source: Path, target: Path) -> None:
    theirs, ours = files_of_logs(source), files_of_logs(target)
    assert sorted(theirs) == sorted(ours)
    assert theirs == ours
    for folder in source.iterdir():
        if folder.is_dir():
            last = max(target.joinpath(folder.name).glob("*.log"))
            assert [path.suffix for path in target.joinpath(folder.name).glob(f"{last.stem}*index")] == []
            with sparklog.open_log(folder) as one, sparklog.open_log(target / folder.name) as other:
                assert (one.start_offset, one.end_offset) == (other.start_offset, other.end_offset)
