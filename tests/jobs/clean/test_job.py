"""Logs of a directory are cleaned by the configuration of their topics, and killed anywhere a rerun goes on."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cleaner.editor import Editor
from sparklog.cleaner.opened import OpenedLog
from sparklog.cleaner.partition import PassDone
from sparklog.cleaner.retention import LogDescription, RetainedSegment
from sparklog.cleaner.rewriting import Rewriter
from sparklog.errors import BrokerRunningError, CorruptLogError, InvalidOptionError, LockedError, PathNotFoundError
from sparklog.jobs.clean.arguments import clean
from sparklog.jobs.clean.job import CleanJob
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.write.locking import hold
from sparklog.write.partition import LogWriter
from sparklog.write.running_jobs import new_job
from tests.cleaner.logs import ALL, NOW_MS, findings, logs, names, values, write
from tests.jobs.attempts import TwiceRunner
from tests.places import directory_at, folder_at
from tests.storage.crash import CrashingStorage, crashes

AT_ONCE = {"file.delete.delay.ms": "0"}
# The records have times of 1970.
OLD: dict[str, Any] = {"retention_ms": 3_600_000, "config": AT_ONCE}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("events-0", "events-1", "orders-0", "__consumer_offsets-0"):
        write(tmp_path / name)
    return tmp_path


def stored(directory: Path, *lines: str) -> None:
    (directory / "topics.properties").write_text("\n".join(lines))


def starts(directory: Path) -> dict[str, int]:
    found = {}
    for path in sorted(directory.glob("*-[0-9]")):
        with sparklog.open_log(path) as log:
            found[path.name] = log.start_offset
    return found


def test_topics_are_cleaned_by_what_is_stored_for_them(directory: Path) -> None:
    stored(directory, "events/retention.bytes=1000", "orders/retention.ms=1000", "orders/file.delete.delay.ms=0")
    found = clean(directory)
    assert starts(directory) == {"__consumer_offsets-0": 0, "events-0": 80, "events-1": 80, "orders-0": 120}
    assert {(each.topic, each.dropped_segments) for each in found.partitions} == {("events", 4), ("orders", 6)}
    assert found.freed_bytes > 0
    assert [name for name in names(directory / "orders-0") if name.endswith(".deleted")] == []
    for name in ("events-0", "orders-0"):
        assert findings(directory / name) == []
    assert clean(directory).changed == ()


def test_what_is_said_is_over_what_is_stored(directory: Path) -> None:
    stored(directory, "events/retention.bytes=1000")
    clean(directory, retention_bytes=-1, topics="events")
    assert starts(directory)["events-0"] == 0


def test_topic_of_which_nobody_says_anything_is_left_alone(directory: Path) -> None:
    """By Kafka's default of a week all of it would go."""
    assert clean(directory).changed == ()
    assert values(directory / "events-0") == ALL


def test_records_before_the_log_start_go_in_any_case(directory: Path) -> None:
    (directory / "log-start-offset-checkpoint").write_text("0\n1\nevents 0 65\n")
    (found,) = clean(directory).changed
    assert (found.dropped_segments, found.start_offset) == (3, 65)
    assert logs(directory / "events-0") == [60, 80, 100]


def test_partitions_are_chosen(directory: Path) -> None:
    clean(directory, partitions=[("events", 1)], **OLD)
    clean(directory / "orders", **OLD)
    assert starts(directory) == {"__consumer_offsets-0": 0, "events-0": 0, "events-1": 120, "orders-0": 120}
    clean(directory, topics=["__consumer_offsets"], **OLD)
    assert starts(directory)["__consumer_offsets-0"] == 120
    with pytest.raises(PathNotFoundError, match="no topic 'other'"):
        clean(directory, topics="other")


def test_topics_and_partitions_together_are_refused_by_name_and_nothing_is_cleaned(directory: Path) -> None:
    before = starts(directory)
    with pytest.raises(InvalidOptionError, match="topics and partitions are given: give one of them"):
        clean(directory, topics="orders", partitions=[("events", 1)], **OLD)
    assert starts(directory) == before


def test_dry_run_says_what_would_go_and_changes_nothing(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    planned = clean(directory, dry_run=True, **OLD)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    with hold(directory_at(directory), 1.0):
        assert clean(directory, dry_run=True, **OLD) == planned
    done = clean(directory, **OLD)
    assert replace(planned, is_dry=False) == done
    (events, _, _) = done.changed
    assert (events.dropped_segments, events.dropped_offsets) == (6, 120)
    assert (events.first_timestamp, events.last_timestamp) == (1000, 1119)


def test_directory_of_a_running_broker_is_refused(directory: Path) -> None:
    holding = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True)"
    command = [sys.executable, "-c", f"{holding}; time.sleep(60)", str(directory / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(BrokerRunningError, match=r"a broker runs on .* stop it first\. No log was changed: repeat"):
            clean(directory, **OLD)
        broker.kill()
    assert starts(directory)["events-0"] == 0


class KeepsTheLast:
    """A policy of a user's own."""

    def drop(self, log: LogDescription) -> Iterable[RetainedSegment]:
        return log.segments[:-1]


def test_policy_of_the_users_own_is_asked(directory: Path) -> None:
    clean(directory, retention_policy=f"{__name__}:KeepsTheLast", topics="events")
    assert starts(directory)["events-0"] == 100
    with pytest.raises(InvalidOptionError, match="the retention policy"):
        clean(directory, retention_policy="nothing:Here")


def test_damaged_partition_stays_and_the_others_are_cleaned(directory: Path) -> None:
    log = directory / "events-0" / "00000000000000000100.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptLogError) as caught:
        clean(directory, **OLD)
    assert any("events-0" in note for note in caught.value.__notes__)
    assert starts(directory) | {"events-0": 0} == {
        "__consumer_offsets-0": 0,
        "events-0": 0,
        "events-1": 120,
        "orders-0": 120,
    }


def test_properties_of_tiers_mean_nothing_here(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        clean(directory, config={"local.retention.ms": "1"})
    assert any("mean nothing here: local.retention.ms" in message for message in caplog.messages)


def test_stored_properties_of_tiers_are_warned_of_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored(directory, "events/local.retention.ms=1", "orders/local.retention.ms=1", "orders/min.insync.replicas=2")
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert clean(directory).changed == ()
    assert caplog.messages == [
        "local.retention.ms is stored for events, orders, and means nothing here: no broker is asked"
    ]


def test_empty_policy_keeps_everything_whatever_the_retention(directory: Path) -> None:
    """As in Kafka since 4.2."""
    stored(directory, "events/cleanup.policy=", "events/retention.ms=1", "events/retention.bytes=1")
    assert clean(directory, topics="events").changed == ()
    assert clean(directory, topics="orders", cleanup_policy="", retention_ms=1, retention_bytes=1).changed == ()
    assert values(directory / "events-0") == values(directory / "orders-0") == ALL


def test_processes_share_the_partitions(directory: Path) -> None:
    found = clean(directory, processes=2, task_bytes=1, **OLD)
    assert [each.dropped_segments for each in found.partitions] == [6, 6, 6]
    assert starts(directory) == {"__consumer_offsets-0": 0, "events-0": 120, "events-1": 120, "orders-0": 120}


def test_crash_at_any_call_leaves_logs_that_a_rerun_cleans(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        for name in ("events-0", "events-1"):
            write(folder / name)
        (folder / ".kafka_cleanshutdown").write_text("{}")

    def job(storage: Any, folder: Path) -> CleanJob:
        directory = directory_at(folder, storage)
        return CleanJob(
            directory=directory,
            folders=(directory.folder("events-0"), directory.folder("events-1")),
            config=LogConfig.from_properties({"retention.bytes": "1000", **AT_ONCE}),
            run_id=new_job(NOW_MS),
            now_ms=NOW_MS,
        )

    def run(storage: CrashingStorage, folder: Path) -> None:
        run_job(job(storage, folder), LocalRunner(1))

    outcomes = set()
    for crash in crashes(prepare, run, tmp_path, ("kept", "lost")):
        folder = crash.folder
        seen = tuple(starts(folder).values())
        assert set(seen) <= {0, 80}, str(crash)
        for name in ("events-0", "events-1"):
            assert values(folder / name) in (ALL, ALL[80:]), str(crash)
        clean(folder, retention_bytes=1000, config=AT_ONCE)
        assert tuple(starts(folder).values()) == (80, 80), str(crash)
        for name in ("events-0", "events-1"):
            assert findings(folder / name) == [], str(crash)
            assert logs(folder / name) == [80, 100]
            assert not [each for each in names(folder / name) if each.endswith(".deleted")], str(crash)
        outcomes.add(seen)
    # The starts of all logs are raised at once.
    assert outcomes == {(0, 0), (80, 80)}


def test_log_is_open_to_be_written_again(directory: Path) -> None:
    clean(directory, **OLD)
    with LogWriter.open(directory / "events-0") as log:
        assert log.append({"value": [b"next"]}) == (120, 120)
    assert read_layout(folder_at(directory / "events-0")).start_offset == 120


def test_compacted_topic_keeps_the_last_record_of_each_key_and_its_checkpoint_says_so(directory: Path) -> None:
    """All records of the sealed segments have the key of the last ones, which are in the active segment."""
    stored(directory, "events/cleanup.policy=compact", "events/file.delete.delay.ms=0")
    dry = clean(directory, dry_run=True)
    assert (directory / "cleaner-offset-checkpoint").exists() is False
    found = clean(directory)
    assert [(each.topic, each.removed_records, each.clean_offset) for each in found.changed] == [
        ("events", 99, 100),
        ("events", 99, 100),
    ]
    assert [each.removed_records for each in dry.changed] == [99, 99]
    assert values(directory / "events-0") == ALL[99:]
    assert values(directory / "orders-0") == ALL
    assert (directory / "cleaner-offset-checkpoint").read_text() == "0\n2\nevents 0 100\nevents 1 100\n"
    assert clean(directory).changed == ()
    assert findings(directory / "events-0") == []


def test_what_is_too_old_is_dropped_before_the_rest_is_compacted(directory: Path) -> None:
    found = clean(directory, topics="events", cleanup_policy="compact,delete", retention_bytes=1000, config=AT_ONCE)
    assert [(each.dropped_segments, each.removed_records, each.start_offset) for each in found.changed] == [
        (4, 19, 80),
        (4, 19, 80),
    ]
    assert values(directory / "events-0") == ALL[99:]


def test_map_without_room_for_two_keys_is_refused_before_anything_is_done(directory: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"log\.cleaner\.dedupe\.buffer\.size of 47 bytes"):
        clean(directory, dedupe_buffer_bytes=47, **OLD)
    assert values(directory / "events-0") == ALL


def test_task_of_a_dead_driver_swaps_nothing_once_another_job_has_begun(directory: Path) -> None:
    found = CleanJob(
        directory=directory_at(directory),
        folders=(directory_at(directory).folder("events-0"),),
        config=LogConfig(),
        run_id=new_job(NOW_MS),
        now_ms=NOW_MS,
        passes=(Rewriting(),),
    )
    (task,) = found.plan()
    before = logs(directory / "events-0")
    with pytest.raises(LockedError, match="another job works on"):
        found.run(task, lambda _: None)
    assert logs(directory / "events-0") == before
    with found.held():
        (cleaned,) = found.run(task, lambda _: None)
    assert (cleaned.old_segments, cleaned.new_segments) == (5, 1)
    assert values(directory / "events-0") == ALL


class Rewriting:
    """Puts all sealed segments into one."""

    name = "test"
    needs_active = False

    def run(self, log: OpenedLog, rewriter: Rewriter) -> PassDone:
        return PassDone((rewriter.rewrite(log.sealed, Editor()),))


def test_two_attempts_of_a_task_clean_one_after_the_other(directory: Path) -> None:
    """As where Spark speculates, or does not know that a worker still lives."""
    job = CleanJob(
        directory=directory_at(directory),
        folders=tuple(directory_at(directory).folder(name) for name in ("events-0", "events-1")),
        config=LogConfig.from_properties({"retention.bytes": "2000", **AT_ONCE}),
        run_id=new_job(NOW_MS),
        now_ms=NOW_MS,
        passes=(Rewriting(),),
        options=LogJobOptions(task_bytes=1),
    )
    run_job(job, TwiceRunner())
    for name in ("events-0", "events-1"):
        assert values(directory / name) == ALL[40:]
        assert logs(directory / name) == [40, 100]
        assert findings(directory / name) == []
    assert not [name for name in names(directory) if name.endswith(".staged")]
