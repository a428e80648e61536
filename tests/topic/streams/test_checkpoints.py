"""Where a query is, by files as Spark's own have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.log.files import TopicPartition
from sparklog.topic.streams.checkpoints import committed_offset, lag_of
from sparklog.topic.streams.offsets import StreamOffset

META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def batch(checkpoint: Path, number: int, *sources: str, is_committed: bool = True, version: str = "v1") -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text("\n".join([version, META, *sources]))
    (checkpoint / "offsets" / f".{number}.crc").write_bytes(b"crc")
    if is_committed:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def test_batch_that_is_not_committed_does_not_count(tmp_path: Path) -> None:
    batch(tmp_path, 9, '{"t":{"0":5}}')
    batch(tmp_path, 10, '{"t":{"0":7,"1":2},"u":{"0":1}}')
    batch(tmp_path, 11, '{"t":{"0":9,"1":2},"u":{"0":1}}', is_committed=False)
    assert json.loads(sparklog.offsets_of_checkpoint(tmp_path)) == {"t": {"0": 7, "1": 2}, "u": {"0": 1}}


def test_offsets_are_those_that_starting_offsets_takes(tmp_path: Path) -> None:
    batch(tmp_path, 0, '{"t": {"0": 5}, "@topicIds": {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}, "@from": {"t": {"0": 1}}}')
    assert sparklog.offsets_of_checkpoint(str(tmp_path)) == '{"t": {"0": 5}}'


def test_first_batch_that_failed_began_where_its_offset_says(tmp_path: Path) -> None:
    batch(tmp_path, 0, '{"t": {"0": 5}, "@from": {"t": {"0": 1}}}', is_committed=False)
    assert committed_offset(tmp_path).offsets == {TopicPartition("t", 0): 1}
    (tmp_path / "offsets" / "0").write_text("\n".join(["v1", META, '{"t":{"0":5}}']))
    with pytest.raises(PathNotFoundError, match="no batch of the query is committed"):
        committed_offset(tmp_path)


def test_one_of_several_sources_is_chosen(tmp_path: Path) -> None:
    batch(tmp_path, 0, '{"t":{"0":5}}', "-", '{"u":{"0":6}}', '{"logOffset":3}')
    assert sparklog.offsets_of_checkpoint(tmp_path, 2) == '{"u": {"0": 6}}'
    for source, message in [
        (1, "has no offset"),
        (3, "not the offsets of a stream"),
        (4, "has 4 sources"),
        (-1, "has 4 sources"),
    ]:
        with pytest.raises(InvalidOptionError, match=message):
            sparklog.offsets_of_checkpoint(tmp_path, source)


def test_named_sources_of_version_2_are_chosen_by_name(tmp_path: Path) -> None:
    batch(tmp_path, 0, 'other_1:{"t": {"0": 5}}', "ours:-", '2:{"u": {"0": 6}}', version="v2")
    assert sparklog.offsets_of_checkpoint(tmp_path, "other_1") == '{"t": {"0": 5}}'
    assert sparklog.offsets_of_checkpoint(tmp_path, 2) == '{"u": {"0": 6}}'
    with pytest.raises(InvalidOptionError, match="source ours has no offset"):
        sparklog.offsets_of_checkpoint(tmp_path, "ours")
    with pytest.raises(InvalidOptionError, match=r"has 3 sources \(other_1, ours, 2\), and not one that is '0'"):
        sparklog.offsets_of_checkpoint(tmp_path)


def test_only_source_needs_no_name(tmp_path: Path) -> None:
    batch(tmp_path, 0, 'ours:{"t": {"0": 5}}', version="v2")
    assert sparklog.offsets_of_checkpoint(tmp_path) == '{"t": {"0": 5}}'


def test_version_of_a_later_spark_is_refused_by_name(tmp_path: Path) -> None:
    batch(tmp_path, 0, '{"t":{"0":5}}', version="v3")
    with pytest.raises(InvalidOptionError, match="is of version 'v3', and v1 and v2 are known"):
        sparklog.offsets_of_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "v2\n{}\n{}",
        "v2",
        "v2\n{}\nno colon",
        "v3\n{}\n{}",
        "",
        "v1",
        "v1\n{}\n{not json",
        "v1\n{}\n[]",
        '\x00\xff\n{}\n"x"',
    ],
)
def test_file_that_is_damaged_is_an_error_of_ours(tmp_path: Path, text: str) -> None:
    batch(tmp_path, 0, "{}")
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(SeglogError):
        committed_offset(tmp_path)


def test_path_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="no checkpoint of a query at"):
        committed_offset(tmp_path)


def test_lag_is_what_was_not_read() -> None:
    old, new, gone = (TopicPartition("t", n) for n in range(3))
    offset = StreamOffset({old: 5, gone: 9})
    assert lag_of(offset, {old: 7, new: 3}) == {old: 2, new: 3}
    assert lag_of(offset, {old: 4}) == {old: 0}
