"""What looks at all logs of a directory asks no more of the storage for a partition in a larger one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.jobs.named_logs import logs_at
from sparklog.log.config import LogConfig
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.plan import plan_batch
from sparklog.topic.recover import RecoverOptions, recover_directory
from tests.growth import assert_grows_with_partitions

NOW_MS = 1_700_000_000_000


def verify(directory: Path) -> None:
    assert {each.severity for each in sparklog.verify(directory, processes=1)} == {"note"}


def describe(directory: Path) -> None:
    assert all(each.error is None for each in sparklog.describe(directory, processes=1))


def recover(directory: Path) -> None:
    found = logs_at(directory)
    options = RecoverOptions(LogConfig(), 1 << 40, dry_run=True)
    assert list(recover_directory(found.directory, found.folders, options, NOW_MS))


def clean(directory: Path) -> None:
    sparklog.clean(directory, retention_ms=1, dry_run=True, processes=1)


def plan(directory: Path) -> None:
    assert plan_batch(SeglogOptions.parse({"path": str(directory)})) == []


@pytest.mark.parametrize("verb", [verify, describe, recover, clean, plan])
def test_work_for_a_partition_does_not_grow_with_the_directory(tmp_path: Path, verb: Callable[[Path], None]) -> None:
    assert_grows_with_partitions(tmp_path, verb)
