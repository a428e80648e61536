"""What becomes of a job whose tasks run on Spark: they do well, fail, die, or are cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.errors import CorruptBatchError, InvalidOptionError, SeglogError, StorageError, UnreadableLogError
from sparklog.jobs.export.arguments import export
from sparklog.jobs.ledger import read_ledger
from sparklog.jobs.run.job import Amount, Finished, Tasks, run_job
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.spark.runner import SparkRunner
from sparklog.storage.registry import locate
from sparklog.topic.internal.groups import committed
from sparklog.write.group_offsets import commit_group_offsets
from tests.jobs.attempts import TwiceRunner
from tests.jobs.run.test_job import Seen, lines
from tests.jobs.tables import EXAMPLES, append, files, read, rows
from tests.jobs.toy import ToyJob, ToyTask
from tests.places import directory_at
from tests.spark.conftest import ROOT
from tests.unreadable import make_unreadable


def test_results_come_in_the_order_of_the_plan_and_all_that_was_done_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    tasks = [ToyTask("a", does="wait"), *(ToyTask(str(n)) for n in range(5))]
    seen = Seen()
    found = run_job(ToyJob(tmp_path / "out", tasks), SparkRunner(spark), seen)
    assert found == ["a", *"01234"]
    assert seen.amounts == {name: Amount(10, 1) for name in found}


def test_every_task_of_a_wave_is_done_once_by_a_cluster_of_many_cores(spark: SparkSession, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Wide(SparkRunner):
        workers = 30

    tasks = [ToyTask(str(n)) for n in range(71)]
    assert run_job(ToyJob(tmp_path / "out", tasks), Wide(spark)) == [str(n) for n in range(71)]


def test_damage_in_one_partition_does_not_keep_others_from_being_moved(spark: SparkSession, tmp_path: Path) -> None:
    tasks = [
        ToyTask("a"),
        ToyTask("b", does="damaged"),
        *(ToyTask(f"other-{n}", does="wait") for n in range(4)),
        ToyTask("c", follows=1),
        ToyTask("d"),
    ]
    with pytest.raises(CorruptBatchError, match="a flipped bit") as caught:
        run_job(ToyJob(tmp_path / "out", tasks), SparkRunner(spark))
    assert caught.value.position == 7
    assert "in b" in caught.value.__notes__
    assert lines(tmp_path / "out")[0].split() == ["a", *(f"other-{n}" for n in range(4)), "d"]


def test_a_full_disk_ends_the_job_and_what_was_done_is_committed(spark: SparkSession, tmp_path: Path) -> None:
    tasks = [ToyTask("a"), ToyTask("b", does="full"), *(ToyTask(f"c{n}", does="sleep") for n in range(4))]
    with pytest.raises(StorageError, match="the disk is full"):
        run_job(ToyJob(tmp_path / "out", tasks), SparkRunner(spark))
    assert lines(tmp_path / "out") == ["a", "let go"]


def test_a_lost_worker_is_an_error_that_names_its_task(spark: SparkSession, tmp_path: Path) -> None:
    tasks = [ToyTask("a"), ToyTask("b", does="killed"), ToyTask("c")]
    with pytest.raises(SeglogError, match=r"Spark lost it 1 times.*Python worker exited") as caught:
        run_job(ToyJob(tmp_path / "out", tasks), SparkRunner(spark))
    assert "in b" in caught.value.__notes__


def test_an_error_that_does_not_pickle_still_says_what_and_where(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SeglogError, match="KeyError") as caught:
        run_job(ToyJob(tmp_path / "out", [ToyTask("a", does="wrong")]), SparkRunner(spark))
    assert "toy.py" in str(caught.value)


def test_who_lets_go_of_the_tasks_ends_them(spark: SparkSession, tmp_path: Path) -> None:
    # Spark begins what several threads ask for in any order: one of its two cores is free for the first task.
    tasks = [ToyTask("a"), ToyTask("b", does="sleep")]
    with closing(SparkRunner(spark)(ToyJob(tmp_path / "out", tasks), Tasks(tasks), lambda *_: None)) as events:
        assert next(events) == Finished(0, "a")
        began = time.monotonic()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert time.monotonic() - began < 50


def test_an_export_on_spark_is_that_of_this_machine_and_goes_on_from_it(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    here = sparklog.export(EXAMPLES, out, topics="shop-orders")
    there = sparklog.export(EXAMPLES, out, spark=spark)
    assert here.rows + there.rows == len(read(EXAMPLES))
    assert sparklog.export(EXAMPLES, out, spark=spark).rows == 0
    assert sum(pq.ParquetFile(out / name).metadata.num_rows for name in files(out)) == len(read(EXAMPLES))
    assert sorted(each.name for each in (out / "_seglog").iterdir()) == ["ledger.jsonl", "lock"]


def test_an_export_on_spark_moves_all_but_the_partition_that_cannot_be_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-0", "events-0", "z-0"):
        append(tmp_path / "logs" / name, name)
    make_unreadable(monkeypatch, tmp_path / "logs" / "events-0", "folder")
    with pytest.raises(UnreadableLogError, match="events-0"):
        sparklog.export(tmp_path / "logs", tmp_path / "out", spark=spark)
    assert [Path(name).parts[0] for name in files(tmp_path / "out")] == ["topic=a", "topic=z"]


def test_a_copy_and_a_load_on_spark_write_every_record_once(spark: SparkSession, tmp_path: Path) -> None:
    sparklog.export(EXAMPLES, tmp_path / "table", topics="shop-events", processes=1)
    for _ in range(2):
        sparklog.copy(EXAMPLES, tmp_path / "copied", topics="shop-events", spark=spark)
        sparklog.load(tmp_path / "table", tmp_path / "loaded", num_partitions=3, spark=spark)
    wanted = [row["value"] for row in read(EXAMPLES) if row["topic"] == "shop-events"]
    assert [row["value"] for row in read(tmp_path / "copied")] == wanted
    assert [row["value"] for row in read(tmp_path / "loaded")] == wanted


def test_a_restore_on_spark_is_that_of_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    sparklog.copy(EXAMPLES, tmp_path / "logs", keep_offsets=True, keep_producers=True, processes=1)
    beyond = {TopicPartition("shop-orders", 0): OffsetCommit(1 << 40, "", 5)}
    commit_group_offsets(directory_at(tmp_path / "logs"), "own", beyond)
    sparklog.backup(tmp_path / "logs", tmp_path / "set", processes=1)
    for number, (source, to) in enumerate([(tmp_path / "logs", None), (tmp_path / "set", 1_772_443_800_000)]):
        here, there = tmp_path / f"here{number}", tmp_path / f"there{number}"
        moved = sparklog.restore(source, here, to=to, processes=2, task_bytes=20_000).moved
        done = sparklog.restore(source, there, to=to, spark=spark, task_bytes=20_000)
        assert {each.topic_partition: each.rows for each in done.moved} == {
            each.topic_partition: each.rows for each in moved
        }
        assert read(there) == read(here) != []
        assert files_of_logs(there) == files_of_logs(here)
        assert offsets_of(there) == offsets_of(here)
        assert 0 < max(offsets_of(here).values()) < 1 << 40


def offsets_of(directory: Path) -> dict[TopicPartition, int]:
    return {at: each.offset for at, each in committed(directory_at(directory), "own").items()}


def files_of_logs(directory: Path) -> dict[str, bytes]:
    """Return all logs, without those in which batches have the time of the restore."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.glob("shop-*/*.log")}


def test_a_cleaning_on_spark_drops_what_it_does_here(spark: SparkSession, tmp_path: Path) -> None:
    sparklog.copy(EXAMPLES, tmp_path / "logs", topics=("shop-events", "shop-orders"), processes=1)
    would = sparklog.clean(tmp_path / "logs", retention_ms=1, dry_run=True, processes=1)
    done = sparklog.clean(tmp_path / "logs", retention_ms=1, config={"file.delete.delay.ms": "0"}, spark=spark)
    assert done.partitions == would.partitions
    assert len(done.changed) == len(done.partitions) > 2
    assert read(tmp_path / "logs") == []


def test_two_attempts_of_a_task_write_files_of_their_own(tmp_path: Path) -> None:
    """As where Spark speculates: one attempt counts, and the file of the other one is gone in the end."""
    out = tmp_path / "out"
    export(EXAMPLES, out, spark=TwiceRunner(), partition_by=())
    assert rows(out) == read(EXAMPLES)
    assert sorted(each.name for each in (out / "_seglog").iterdir()) == ["ledger.jsonl", "lock"]
    assert read_ledger(locate(out).storage, str(out / "_seglog" / "ledger.jsonl")).last is not None


def test_a_cluster_and_processes_of_this_machine_are_not_both_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="one of them"):
        sparklog.export(EXAMPLES, tmp_path / "out", spark=spark, processes=2)
    assert not (tmp_path / "out").exists()


INTERRUPTED = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from sparklog.jobs.run.job import run_job
from sparklog.spark.runner import SparkRunner
from tests.jobs.toy import ToyJob, ToyTask

class Watch:
    def planned(self, tasks, size_bytes): pass
    def advanced(self, name, more): print("begun", flush=True)

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
tasks = [ToyTask("a"), ToyTask("b", does="sleep")]
run_job(ToyJob(Path(sys.argv[1]), tasks), SparkRunner(spark), Watch())
"""


def test_ctrl_c_ends_the_tasks_and_lets_go_of_the_target(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    caller = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == "begun\n"
    caller.send_signal(signal.SIGINT)
    _, said = caller.communicate(timeout=50)
    assert "KeyboardInterrupt" in said
    assert lines(tmp_path / "out") in (["let go"], ["a", "let go"])
