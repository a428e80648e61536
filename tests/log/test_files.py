"""Which names are Kafka's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparklog.errors import InvalidOptionError, InvalidTopicError
from sparklog.log.files import (
    TopicPartition,
    checked_partition,
    offset_file_name,
    parse_offset_file,
    parse_partition_folder,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events-0", TopicPartition("events", 0)),
        ("shop.orders-eu-12", TopicPartition("shop.orders-eu", 12)),
        ("_under_score.and-dash-1-2", TopicPartition("_under_score.and-dash-1", 2)),
        ("__consumer_offsets-49", TopicPartition("__consumer_offsets", 49)),
        ("events-2147483647", TopicPartition("events", 2147483647)),
        ("events-2147483648", None),
        ("events-9999999999", None),
        ("events", None),
        ("-0", None),
        ("events-", None),
        ("events-01", None),
        ("events--1", TopicPartition("events-", 1)),
        ("events-0.8e1a2f1f4a7d4f5e9a3b6c7d8e9f0a1b-delete", None),
        ("events-0.8e1a2f1f4a7d4f5e9a3b6c7d8e9f0a1b-future", None),
        ("events-0.8e1a2f1f4a7d4f5e9a3b6c7d8e9f0a1b-stray", None),
        ("__cluster_metadata-0", None),
        ("remote-log-index-cache", None),
        ("lost+found", None),
        ("e v-0", None),
        ("..-0", None),
    ],
)
def test_partition_folder(name: str, expected: TopicPartition | None) -> None:
    assert parse_partition_folder(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000004000.log", (4000, ".log")),
        ("00000000000000004000.log.swap", (4000, ".log.swap")),
        ("00000000000000004000.timeindex.deleted", (4000, ".timeindex.deleted")),
        ("99999999999999999999.log", None),
        ("leader-epoch-checkpoint", None),
        ("x.log", None),
        (".log", None),
    ],
)
def test_offset_file(name: str, expected: tuple[int, str] | None) -> None:
    assert parse_offset_file(name) == expected


def test_offset_file_name_is_read_back() -> None:
    assert parse_offset_file(offset_file_name(2**63 - 1, ".log")) == (2**63 - 1, ".log")


WRONG_PARTITIONS = [
    *(-1, 1_000_000, 10_000_000, 1 << 70, True, False, np.True_, 1.0, np.float64(1), float("nan"), None),
    *("1", b"1", "../../../e-0", (1,), np.array([1, 2]), object()),
]


@pytest.mark.parametrize("partition", WRONG_PARTITIONS, ids=lambda given: type(given).__name__)
def test_number_that_no_partition_has_is_refused(partition: Any) -> None:
    with pytest.raises(InvalidOptionError, match="not a partition of topic events: "):
        checked_partition("events", partition)


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "../e", "a/b", "a b", "a\0", "x" * 250, "__cluster_metadata", None, b"a", 1]
)
def test_name_that_no_topic_has_is_refused(topic: Any) -> None:
    with pytest.raises(InvalidTopicError, match="not a topic's name: "):
        checked_partition(topic, 0)


def test_partition_that_a_caller_names_is_that_of_its_folder() -> None:
    for number in (0, 7, 999_999, np.int64(7), np.uint8(7)):
        at = checked_partition("x" * 240, number)
        assert (type(at.partition), parse_partition_folder(str(at))) == (int, at)
    with pytest.raises(InvalidOptionError, match="no longer than 255 characters"):
        checked_partition("x" * 249, 123_456)
