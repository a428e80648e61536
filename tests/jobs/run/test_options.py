from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cli.commands import clean as clean_command
from sparklog.cli.commands import jobs as job_commands
from sparklog.errors import InvalidOptionError
from sparklog.jobs.run.options import JobArguments, JobOptions, LogJobArguments, LogJobOptions
from sparklog.log.properties import options_of
from sparklog.topic.selection import Selection
from tests.golden import EXAMPLES

LOGS = EXAMPLES
OF_PYTHON_ALONE = {"start_offsets", "end_offsets", "start_time", "end_time", "spark", "watch", "storage_options"}
JOBS: dict[str, tuple[Callable[..., Any], Callable[..., None], tuple[type, ...]]] = {
    "export": (sparklog.export, job_commands.export, (Selection, LogJobOptions)),
    "copy": (sparklog.copy, job_commands.copy, (Selection, LogJobOptions)),
    "load": (sparklog.load, job_commands.load, (JobOptions,)),
    "clean": (sparklog.clean, clean_command.clean, (LogJobOptions,)),
}


def test_what_callers_give_and_what_is_declared_have_the_same_names() -> None:
    assert list(JobArguments.__annotations__) == list(options_of(JobOptions))
    assert set(LogJobArguments.__annotations__) == set(options_of(LogJobOptions))


@pytest.mark.parametrize("name", JOBS)
def test_declared_options_are_in_signature_help_and_terminal(name: str) -> None:
    function, command, declaring = JOBS[name]
    options = {field: option for one in declaring for field, option in options_of(one).items()}
    parameters, at_terminal = inspect.signature(function).parameters, inspect.signature(command).parameters
    assert {field: parameters[field].default for field in options} == {f: o.default for f, o in options.items()}
    parameters_section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2]
    for field, option in options.items():
        assert f"\n{field} : " in parameters_section.partition("\nReturns\n")[0]
        assert field in OF_PYTHON_ALONE or at_terminal[field].default == (option.default or at_terminal[field].default)
    assert OF_PYTHON_ALONE & set(at_terminal) == set()


@pytest.mark.parametrize("name", JOBS)
def test_argument_that_nobody_declares_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'topicz'"):
        JOBS[name][0](LOGS, tmp_path, topicz="shop-orders") if name != "clean" else sparklog.clean(LOGS, topicz="a")  # type: ignore[call-arg]


@pytest.mark.parametrize(("name", "given"), [
    ("export", {"topics": "shop-orders", "partitions": [("shop-events", 0)]}),
    ("export", {"topics": "shop-orders", "topic_pattern": "shop.*"}),
    ("copy", {"topic_pattern": "shop.*", "partitions": [("shop-events", 0)]}),
])  # fmt: skip
def test_two_choices_of_partitions_are_refused_by_name_before_anything_is_made(
    name: str, given: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidOptionError, match=f"{' and '.join(given)} are given: give one of them"):
        JOBS[name][0](LOGS, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_options_reach_tasks_without_what_is_of_the_driver() -> None:
    options = LogJobOptions(spark=lambda: None, watch=None, lock_timeout_seconds=3.0, task_bytes=7)
    assert pickle.loads(pickle.dumps(options)) == LogJobOptions(lock_timeout_seconds=3.0, task_bytes=7)


@pytest.mark.parametrize(("given", "message"), [
    ({"task_bytes": 0}, "task_bytes is 0, and must be at least 1"),
    ({"processes": 0}, "processes is 0, and must be at least 1"),
    ({"lock_timeout_seconds": -1}, "lock_timeout_seconds is -1, and must be at least 0"),
])  # fmt: skip
def test_number_below_its_bound_is_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        sparklog.export(LOGS, tmp_path / "out", **given)
