"""Plans of loads: the offsets that tasks expect, beside those that the commit gives."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.jobs.load import plan as load_plan
from sparklog.jobs.load.job import LoadJob
from sparklog.jobs.load.row_files import Footer
from sparklog.log.config import LogConfig
from tests.jobs.loads import load_job, run, strings, values, write_parquet
from tests.storage.counting import counting_storage
from tests.topic.staged import findings, rows, write

LARGE = LogConfig(compression_type="uncompressed", batch_size=400, segment_bytes=1 << 12)
"""Of so small segments, what a task has of a partition goes into files of its own, which are stamped in place."""


@pytest.fixture(autouse=True)
def _small_files_are_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_plan, "_TASK_BYTES_MIN", 1)
    monkeypatch.setattr(load_plan, "_FOOTERS_FILE_BYTES_MIN", 0)


def write_rows(folder: Path, name: str, first: int, count: int, row_group_rows: int = 1000) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = strings([f"{n}" for n in range(first, first + count)])
    write_parquet(folder / f"{name}.parquet", table, row_group_size=row_group_rows)


def numbers(folder: Path) -> list[int]:
    return [int(each or b"") for each in values(folder)]


def expected(job: LoadJob) -> list[dict[str, int]]:
    with job.held():
        return [dict(task.base_offsets) for task in job.plan()]


def write_two_partitions(folder: Path) -> None:
    for partition in range(2):
        for number in range(3):
            write_rows(folder / f"partition={partition}", f"{number}", 200 * number, 200, 50)


def stamps(folder: Path, directory: Path) -> Counter[str]:
    """Load a folder on a storage that counts; return the counts."""
    storage, counts = counting_storage()
    run(load_job([folder], directory, storage, config=LARGE, workers=3, again=True))
    return counts


def test_where_offsets_are_as_expected_nothing_is_stamped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_two_partitions(tmp_path / "in")
    assert stamps(tmp_path / "in", tmp_path / "logs")["write_at"] == 0
    # The logs are there now.
    assert stamps(tmp_path / "in", tmp_path / "logs")["write_at"] == 0
    monkeypatch.setattr(load_plan, "_FOOTERS_FILE_BYTES_MIN", 1 << 30)
    assert stamps(tmp_path / "in", tmp_path / "logs")["write_at"] > 0
    for partition in range(2):
        assert numbers(tmp_path / "logs" / f"events-{partition}") == [*range(600)] * 3
    assert findings(tmp_path / "logs") == []


def test_where_another_writer_came_first_offsets_are_right_all_the_same(tmp_path: Path) -> None:
    write_two_partitions(tmp_path / "in")
    storage, counts = counting_storage()
    job = load_job([tmp_path / "in"], tmp_path / "logs", storage, config=LARGE, workers=3)
    with job.held():
        results = [job.run(task, lambda _: None) for task in job.plan()]
        write(tmp_path / "logs", [rows(["-1"], partition=[1])])
        job.commit(results)
    assert counts["write_at"] > 0
    assert numbers(tmp_path / "logs" / "events-0") == [*range(600)]
    assert numbers(tmp_path / "logs" / "events-1") == [-1, *range(600)]
    assert findings(tmp_path / "logs") == []


files_of_loads = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 120), st.integers(1, 60)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=40)
@given(files_of_loads, files_of_loads, st.integers(1, 4))
def test_what_is_expected_is_what_the_commit_gives(
    tmp_path_factory: pytest.TempPathFactory,
    first: Sequence[tuple[str, int, int, int]],
    second: Sequence[tuple[str, int, int, int]],
    workers: int,
) -> None:
    """Of two topics, whose logs are new, and then there."""
    folder, wanted = tmp_path_factory.mktemp("load"), dict[str, list[int]]()
    for load, files in enumerate((first, second)):
        sources = []
        for number, (topic, partition, count, row_group_rows) in enumerate(files):
            at = folder / f"{load}" / f"{number}" / f"topic={topic}" / f"partition={partition}"
            write_rows(at, "rows", 1000 * number, count, row_group_rows)
            sources.append(at / "rows.parquet")
            wanted.setdefault(f"{topic}-{partition}", []).extend(range(1000 * number, 1000 * number + count))
        job = load_job(sources, folder / "logs", topic=None, partitions=3, workers=workers)
        with job.held():
            tasks = pickle.loads(pickle.dumps(job.plan()))
            results = [job.run(task, lambda _: None) for task in tasks]
            ends = dict.fromkeys(wanted, 0)
            ends.update((name, len(numbers(folder / "logs" / name))) for name in wanted if is_there(folder, name))
            for task, result in zip(tasks, results, strict=True):
                for staged in result.staged:
                    assert staged.base_offset == ends[staged.folder]
                    assert task.base_offsets[staged.folder] <= staged.base_offset
                    ends[staged.folder] = staged.end_offset
            job.commit(results)
        for name in wanted:
            assert ends[name] == len(wanted[name])
            assert not wanted[name] or numbers(folder / "logs" / name) == wanted[name]


def is_there(folder: Path, name: str) -> bool:
    return (folder / "logs" / name).is_dir()


def test_nothing_is_expected_unless_the_offsets_of_all_files_are_known(tmp_path: Path) -> None:
    write_two_partitions(tmp_path / "in")
    known = expected(load_job([tmp_path / "in"], tmp_path / "logs", workers=3))
    assert known[0] == {"events-0": 0}
    assert known[-1].keys() == {"events-1"}
    assert known[-1]["events-1"] > 0
    (tmp_path / "a.csv").write_text("value\nx\n")
    write_rows(tmp_path / "partition=x", "a", 0, 5)
    write_rows(tmp_path / "partition=__HIVE_DEFAULT_PARTITION__", "a", 0, 5)
    write_rows(tmp_path, "a", 0, 5)
    (tmp_path / "partition=1").mkdir()
    write_parquet(tmp_path / "partition=1" / "own.parquet", strings(["x"], partition=[0]))
    others = [*tmp_path.glob("*.csv"), *tmp_path.glob("*.parquet"), *tmp_path.glob("partition=*/*.parquet")]
    assert len(others) == 5
    for other in others:
        assert not any(expected(load_job([tmp_path / "in", other], tmp_path / "logs", workers=3))), other


def test_offsets_of_an_only_partition_are_known_whatever_the_files_say(tmp_path: Path) -> None:
    table = strings([f"{n}" for n in range(100)], partition=[None, 0] * 50)
    for name in ("a", "b"):
        write_parquet(tmp_path / f"{name}.parquet", table, row_group_size=25)
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert expected(load_job(sources, tmp_path / "logs", partitions=1)) == [{"events-0": 50 * n} for n in range(4)]
    assert not any(expected(load_job(sources, tmp_path / "logs", partitions=2)))
    run(load_job(sources, tmp_path / "logs", partitions=1))
    again = load_job(sources, tmp_path / "logs", partitions=1, again=True)
    assert expected(again) == [{"events-0": 200 + 50 * n} for n in range(4)]


def test_footers_of_small_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_two_partitions(tmp_path / "in")
    monkeypatch.setattr(load_plan, "_FOOTERS_FILE_BYTES_MIN", 1 << 20)
    monkeypatch.setattr(load_plan, "_TASK_BYTES_MIN", 1 << 20)
    monkeypatch.setattr(load_plan, "read_footer", None)
    assert not any(expected(load_job([tmp_path / "in"], tmp_path / "logs")))


def test_a_file_that_says_it_has_more_rows_than_there_are_offsets_is_expected_nothing_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_two_partitions(tmp_path / "in")
    for group_rows in ((1 << 62, 1 << 62), (-1, 5)):
        monkeypatch.setattr(load_plan, "read_footer", lambda _, rows=group_rows: Footer((), rows, (1, 1)))
        assert not any(expected(load_job([tmp_path / "in"], tmp_path / "logs", workers=1)))


def test_log_that_cannot_be_looked_at_is_left_to_the_commit(tmp_path: Path) -> None:
    write_two_partitions(tmp_path / "in")
    run(load_job([tmp_path / "in"], tmp_path / "logs"))
    job = load_job([tmp_path / "in"], tmp_path / "logs", again=True)
    shutil.rmtree(tmp_path / "logs" / "events-1")
    assert not any(expected(job))
    run(job)
    assert numbers(tmp_path / "logs" / "events-0") == [*range(600)] * 2
    assert numbers(tmp_path / "logs" / "events-1") == [*range(600)]
