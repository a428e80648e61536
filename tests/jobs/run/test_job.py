"""What becomes of a job whose tasks do well, fail, or die; with one process and with several."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparklog.errors import CorruptBatchError, SeglogError, StorageError
from sparklog.jobs.run.job import Amount, run_job
from sparklog.jobs.run.local import LocalRunner
from tests.jobs.toy import ToyJob, ToyTask

ROOT = Path(__file__).parents[3]
both = pytest.mark.parametrize("processes", [1, 2])


class Seen:
    def __init__(self) -> None:
        self.amounts: dict[str, Amount] = {}
        self.total = (0, 0)

    def planned(self, tasks: int, size_bytes: int) -> None:
        self.total = (tasks, size_bytes)

    def advanced(self, name: str, more: Amount) -> None:
        before = self.amounts.get(name, Amount())
        self.amounts[name] = Amount(before.size_bytes + more.size_bytes, before.records + more.records)


class TwoCores(LocalRunner):
    """A machine of two cores, of which nobody has said how many processes are to work."""

    @property
    def workers(self) -> int:
        return 2


class SixCores(LocalRunner):
    """A machine of six cores, more than threads can use."""

    @property
    def workers(self) -> int:
        return 6


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@both
def test_results_come_in_the_order_of_the_plan_and_all_that_was_done_is_told(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a", does="wait"), ToyTask("b"), ToyTask("c")]
    seen = Seen()
    found = run_job(ToyJob(tmp_path / "out", tasks), LocalRunner(processes), seen, commit_interval_ms=0)
    assert found == ["a", "b", "c"]
    assert seen.total == (3, 30)
    assert seen.amounts == {name: Amount(10, 1) for name in "abc"}
    committed = lines(tmp_path / "out")
    assert sorted(" ".join(committed[:-1]).split()) == ["a", "b", "c"]
    assert committed[-1] == "let go"


@both
def test_a_task_is_not_committed_before_the_one_that_it_follows(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a", does="wait"), ToyTask("b", follows=0), ToyTask("c", follows=1), ToyTask("d")]
    run_job(ToyJob(tmp_path / "out", tasks), LocalRunner(processes), commit_interval_ms=0)
    order = " ".join(lines(tmp_path / "out")).split()
    assert order.index("a") < order.index("b") < order.index("c")


@both
def test_damage_in_one_partition_does_not_keep_others_from_being_moved(tmp_path: Path, processes: int) -> None:
    tasks = [
        ToyTask("a"),
        ToyTask("b", does="damaged"),
        ToyTask("c", follows=1),
        ToyTask("d"),
        ToyTask("e", does="damaged"),
    ]
    with pytest.raises(CorruptBatchError, match="a flipped bit") as caught:
        run_job(ToyJob(tmp_path / "out", tasks), LocalRunner(processes), commit_interval_ms=0)
    assert sorted(" ".join(lines(tmp_path / "out")[:-1]).split()) == ["a", "d"]
    assert "in b" in caught.value.__notes__
    assert caught.value.position == 7
    (other,) = caught.value.others
    assert isinstance(other, CorruptBatchError)
    assert other.path == "/logs/e"
    assert caught.value.__notes__[-1].endswith("in e")


@both
def test_what_a_task_could_do_in_part_is_committed_and_nothing_that_follows_it(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a", does="partly"), ToyTask("b", follows=0, does="wait"), ToyTask("c", does="partly")]
    with pytest.raises(CorruptBatchError, match="a flipped bit") as caught:
        run_job(ToyJob(tmp_path / "out", tasks), LocalRunner(processes), commit_interval_ms=0)
    assert sorted(" ".join(lines(tmp_path / "out")[:-1]).split()) == ["a-in-part", "c-in-part"]
    assert "in a part of a" in caught.value.__notes__
    assert [str(other.path) for other in caught.value.others if isinstance(other, CorruptBatchError)] == ["/logs/c"]


@both
def test_what_was_done_in_part_is_nothing_where_all_is_committed_or_nothing(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a", does="partly"), ToyTask("b")]
    with pytest.raises(CorruptBatchError, match="a flipped bit"):
        run_job(ToyJob(tmp_path / "out", tasks, commits_as_it_goes=False), LocalRunner(processes))
    assert lines(tmp_path / "out") == ["let go"]


@both
def test_a_full_disk_ends_the_job_and_what_was_done_is_committed(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a"), ToyTask("b", does="full"), *(ToyTask(f"c{n}", does="wait") for n in range(4))]
    with pytest.raises(StorageError, match="the disk is full"):
        run_job(ToyJob(tmp_path / "out", tasks), LocalRunner(processes))
    assert lines(tmp_path / "out")[0].split()[0] == "a"
    assert "c3" not in (tmp_path / "out").read_text()


@both
def test_all_or_nothing_is_nothing_after_an_error(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a"), ToyTask("b", does="damaged"), ToyTask("c")]
    with pytest.raises(CorruptBatchError):
        run_job(ToyJob(tmp_path / "out", tasks, commits_as_it_goes=False), LocalRunner(processes), commit_interval_ms=0)
    assert lines(tmp_path / "out") == ["let go"]


@both
def test_all_or_nothing_is_one_commit(tmp_path: Path, processes: int) -> None:
    tasks = [ToyTask("a"), ToyTask("b"), ToyTask("c")]
    run_job(ToyJob(tmp_path / "out", tasks, commits_as_it_goes=False), LocalRunner(processes), commit_interval_ms=0)
    assert lines(tmp_path / "out") == ["a b c", "let go"]


@both
def test_an_error_that_does_not_pickle_still_says_what_and_where(tmp_path: Path, processes: int) -> None:
    with pytest.raises(Exception, match=r"KeyError|lambda") as caught:
        run_job(ToyJob(tmp_path / "out", [ToyTask("a", does="wrong"), ToyTask("b")]), LocalRunner(processes))
    assert "in a" in caught.value.__notes__
    assert "toy.py" in "".join([str(caught.value), *caught.value.__notes__])


def test_a_killed_worker_is_an_error_that_names_its_task(tmp_path: Path) -> None:
    tasks = [ToyTask("a", does="killed"), ToyTask("b")]
    with pytest.raises(SeglogError, match=r"status -9.*fewer processes") as caught:
        run_job(ToyJob(tmp_path / "out", tasks), LocalRunner(2))
    assert "in a" in caught.value.__notes__


def test_little_work_is_shared_by_threads_of_this_process(tmp_path: Path) -> None:
    tasks = [ToyTask(name, does="meet") for name in "ab"]
    run_job(ToyJob(tmp_path / "out", tasks, threads_bytes_max=21), TwoCores())
    assert lines(tmp_path / "out")[-1] == "let go"


def test_much_work_is_shared_by_threads_where_cores_are_few(tmp_path: Path) -> None:
    tasks = [ToyTask(name, does="meet", size_bytes=1 << 40) for name in "ab"]
    run_job(ToyJob(tmp_path / "out", tasks, threads_bytes_max=1), TwoCores())
    assert lines(tmp_path / "out")[-1] == "let go"


def test_work_that_is_worth_processes_is_not_done_by_threads_alone_where_cores_are_many(tmp_path: Path) -> None:
    tasks = [ToyTask("a", does="killed", size_bytes=1 << 26), *(ToyTask(name) for name in "bcdef")]
    with pytest.raises(SeglogError, match="status -9"):
        run_job(ToyJob(tmp_path / "out", tasks, threads_bytes_max=1 << 26), SixCores())


def test_work_of_python_itself_is_shared_by_processes(tmp_path: Path) -> None:
    tasks = [ToyTask("a", does="killed", size_bytes=1 << 26), ToyTask("b", size_bytes=1 << 26)]
    with pytest.raises(SeglogError, match="status -9"):
        run_job(ToyJob(tmp_path / "out", tasks), TwoCores())


def test_processes_that_are_asked_for_are_processes(tmp_path: Path) -> None:
    with pytest.raises(SeglogError, match="status -9"):
        run_job(
            ToyJob(tmp_path / "out", [ToyTask("a", does="killed"), ToyTask("b")], threads_bytes_max=1 << 30),
            LocalRunner(2),
        )


SCRIPT = """
import sys
from pathlib import Path
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from tests.jobs.toy import ToyJob, ToyTask
print("begun", flush=True)
run_job(ToyJob(Path(sys.argv[1]), [ToyTask(name, does="sleep") for name in "abc"]), LocalRunner(3))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_began_them(tmp_path: Path, number: signal.Signals) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert caller.stdout is not None
    caller.stdout.readline()
    process = psutil.Process(caller.pid)
    while len(workers := process.children()) < 2:
        time.sleep(0.01)
    time.sleep(0.5)
    caller.send_signal(number)
    caller.wait()
    caller.stdout.close()
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    assert len(gone) == 2
    if number == signal.SIGINT:
        assert lines(tmp_path / "out") == ["let go"]
