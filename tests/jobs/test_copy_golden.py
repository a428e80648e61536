"""Copies of what real brokers wrote: every record, in both isolation levels, and all that a broker keeps of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.reader import open_log
from tests.golden import GoldenSet, IsolationLevel, golden_sets
from tests.jobs.copies import FIELDS, copy, moved, records, refuse_wrong_state, source
from tests.places import folder_at
from tests.topic.staged import findings

LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
SMALL = LogConfig(segment_bytes=20_000)
OF_MAGIC_0 = {"v0-gzip-0", "v0-lz4-0", "v0-snappy-0", "v0-compacted-snappy-0", "mixed-gzip-0"}
"""Logs with compressed batches of magic 0."""


def folders(golden: GoldenSet) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in golden.partitions if not topic.startswith("__")]


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "small segments"])
@pytest.mark.parametrize("golden", golden_sets(), ids=lambda golden: golden.name)
def test_copy_that_keeps_offsets_is_the_same_log(tmp_path: Path, golden: GoldenSet, config: LogConfig) -> None:
    copy(tmp_path, source(golden.log_dir), keeps_offsets=True, config=config)
    for name in folders(golden):
        with open_log(str(tmp_path / name)) as copied, open_log(str(golden.log_dir / name)) as log:
            for attribute in ("start_offset", "end_offset", "last_stable_offset"):
                assert getattr(copied, attribute) == getattr(log, attribute), (name, attribute)
        for level in LEVELS:
            columns = ["offset", *FIELDS]
            wanted = records(golden.log_dir / name, level, columns)
            assert records(tmp_path / name, level, columns) == wanted, (name, level)
        refuse_wrong_state(tmp_path / name)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda golden: golden.name)
def test_copy_that_counts_offsets_on_has_the_same_records(tmp_path: Path, golden: GoldenSet) -> None:
    for name in folders(golden):
        topic = name.rpartition("-")[0]
        if name in OF_MAGIC_0:
            with pytest.raises(InvalidOptionError, match="of magic 0 have offsets of their own"):
                copy(tmp_path, source(golden.log_dir, topics=(topic,)), config=SMALL)
            assert not (tmp_path / name).exists()
            continue
        copy(tmp_path, source(golden.log_dir, topics=(topic,)), config=SMALL)
        for level in LEVELS:
            assert records(tmp_path / name, level) == records(golden.log_dir / name, level), (name, level)
        refuse_wrong_state(tmp_path / name)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("name", ["transactions-0", "crashed-transactions-0"])
def test_repeated_copy_of_decided_transactions_has_their_records_twice(tmp_path: Path, name: str) -> None:
    """The producers of the second time have the ids and the sequence numbers of the first."""
    (golden,) = (each for each in golden_sets() if each.name.startswith("v2") and name in folders(each))
    topic = name.rpartition("-")[0]
    for _ in range(2):
        copy(tmp_path, source(golden.log_dir, "read_committed", topics=(topic,)), config=SMALL, since_last=False)
    assert not is_decided(golden.log_dir / name)
    assert is_decided(tmp_path / name)
    cut = moved(tmp_path)[0].end_offset
    for level in LEVELS:
        wanted = records(golden.log_dir / name, level, ["offset", *FIELDS])
        once = [fields for offset, *fields in wanted if offset < cut]
        assert [list(each) for each in records(tmp_path / name, level)] == once * 2, level
        assert once
    refuse_wrong_state(tmp_path / name)
    assert findings(tmp_path) == []


def is_decided(folder: Path) -> bool:
    with open_log(str(folder)) as log:
        return log.last_stable_offset == log.end_offset


def test_golden_sets_have_what_a_copy_must_get_right() -> None:
    names = [(golden, name) for golden in golden_sets() for name in folders(golden)]
    layouts = [read_layout(folder_at(golden.log_dir / name)) for golden, name in names]
    assert any(layout.start_offset > 0 for layout in layouts)
    assert any(not is_decided(golden.log_dir / name) for golden, name in names)
