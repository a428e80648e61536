"""Readers and followers live beside all kinds of cleanings: no error, no gap but what was cleaned, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.log_identity import end_batch
from tests.build import Record, v2_batch, write_partition
from tests.cleaner.logs import findings
from tests.cleaner.test_readers import beside
from tests.cli.work.test_dump import Following, follow
from tests.places import folder_at

__all__ = ["follow"]

CONFIG = LogConfig(segment_bytes=3_000, batch_size=500)
ROUNDS = 10
EACH = 30
AT_ONCE = {"file.delete.delay.ms": "0", "min.cleanable.dirty.ratio": "0"}
WAYS: list[dict[str, Any]] = [
    {"cleanup_policy": "compact"},
    {"erase": ["gone"]},
    {"recompress": "zstd"},
    {"erase": ["gone"], "blank": "null"},
    {"recompress": "lz4"},
]


def key(offset: int) -> str:
    """Return the key of a record: of each ten one is to be erased, three are compacted, and six stay."""
    return "gone" if offset % 10 == 3 else "same" if offset % 10 > 6 else f"key {offset}"


def staying(end_offset: int) -> set[int]:
    return {offset for offset in range(end_offset) if key(offset).startswith("key")}


def append(folder: Path, first: int, count: int = EACH) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(first, first + count)
    with sparklog.PartitionLog.open(folder, CONFIG) as log:
        log.append(pa.table({"key": [key(n) for n in numbers], "value": [f"value of {n}" for n in numbers]}))


def clean(directory: Path, turn: int) -> None:
    config = AT_ONCE if turn % 2 else {**AT_ONCE, "file.delete.delay.ms": "60000"}
    sparklog.clean(directory, config=config, processes=1, **WAYS[turn % len(WAYS)])


def checked(rows: pa.Table, end_offset: int) -> None:
    offsets, values = (rows[name].to_pylist() for name in ("offset", "value"))
    assert offsets == sorted(set(offsets))
    wrong = [n for n, value in zip(offsets, values, strict=True) if value not in (None, b"value of %d" % n)]
    assert not wrong
    assert staying(end_offset) <= set(offsets)


@pytest.mark.parametrize("is_reopened", [True, False])
def test_reader_sees_all_that_stays_beside_every_cleaning(tmp_path: Path, is_reopened: bool) -> None:
    folder = tmp_path / "events-0"
    append(folder, 0, 200)
    whole = sparklog.open_log(folder)

    def read() -> None:
        if not is_reopened:
            checked(whole.read(columns=["offset", "value"]), 200)
            return
        with sparklog.open_log(folder) as log:
            checked(log.read(columns=["offset", "value"]), log.end_offset)

    def change(turn: int) -> None:
        append(folder, 200 + EACH * turn)
        clean(tmp_path, turn)

    assert beside(read, change, ROUNDS, reads=2) > 1
    assert findings(folder) == []


def test_follower_prints_all_that_stays_and_nothing_twice(tmp_path: Path, follow: Callable[..., Following]) -> None:
    folder = tmp_path / "logs" / "events-0"
    append(folder, 0, 200)
    following = follow(folder)
    following.wait(lambda: bool(following.rows()))
    end_offset = 200
    for turn in range(ROUNDS):
        append(folder, end_offset)
        end_offset += EACH
        clean(folder.parent, turn)
    following.wait(lambda: any(offset >= end_offset - 4 for _, offset in following.rows()))
    assert following.interrupt() == 0
    offsets = [offset for _, offset in following.rows()]
    assert following.said() == ""
    assert offsets == sorted(set(offsets))
    assert staying(end_offset) <= set(offsets)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_batch_that_was_cleaned_is_still_known_for_what_it_was(
    tmp_path: Path, way: dict[str, Any], timestamp_type: str
) -> None:
    """Streams of topics without an id would else take the log for another one."""
    folder = tmp_path / "events-0"
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 2, "leader_epoch": 3}
    batches = [
        v2_batch(
            [Record(n, 1000 + first + n, key(first + n).encode(), b"value") for n in range(10)],
            base_offset=first,
            base_sequence=first,
            log_append_time=timestamp_type == "LogAppendTime",
            **fields,
        )
        for first in range(0, 200, 10)
    ]
    write_partition(folder, batches, segment_bytes=1_000, index_interval_bytes=300)
    before = [end_batch(read_layout(folder_at(folder)), n) for n in range(1, 201)]
    assert sparklog.clean(tmp_path, config=AT_ONCE, processes=1, **way).changed
    layout = read_layout(folder_at(folder))
    for end_offset, was in enumerate(before, 1):
        found = end_batch(layout, end_offset)
        assert was is not None
        assert found is not None
        assert was.may_become(found), (end_offset, was, found)
