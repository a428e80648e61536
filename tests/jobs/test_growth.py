"""What looks at all logs of a directory asks no more of the storage for a partition in a larger one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.plan import plan_batch
from tests.growth import assert_grows_with_partitions


def verify(directory: Path) -> None:
    assert {each.severity for each in sparklog.verify(directory, processes=1)} == {"note"}


def plan(directory: Path) -> None:
    assert plan_batch(SeglogOptions.parse({"path": str(directory)})) == []


@pytest.mark.parametrize("verb", [verify, plan])
def test_work_for_a_partition_does_not_grow_with_the_directory(tmp_path: Path, verb: Callable[[Path], None]) -> None:
    assert_grows_with_partitions(tmp_path, verb)
