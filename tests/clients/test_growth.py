"""Clients of large log directories: the work of a call does not grow with the other partitions of the directory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from sparklog.clients.consumer import Consumer
from sparklog.clients.fetcher import Fetcher
from sparklog.clients.producer import Producer
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.files import TopicPartition
from sparklog.topic.log_manager import LogManager
from tests.growth import Work, assert_does_not_grow, counted_work, make_partitions, settle, work_at_sizes

TOPIC = "topic-00000"


def names_listed(tmp_path: Path, act: Callable[[Path], object]) -> set[int]:
    """Return how many names a call lists in directories of three sizes, once its files are known."""
    return {work.names for work in work_at_sizes(tmp_path, act)}


@pytest.mark.parametrize("topics", [{"topics": [TOPIC]}, {"pattern": "topic-00000"}])
def test_poll_finds_partitions_again_without_a_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: dict[str, str]
) -> None:
    monkeypatch.setattr("sparklog.clients.subscription._TOPICS_SECONDS", 0.0)

    @functools.cache
    def subscribed(directory: Path) -> Consumer:
        consumer = Consumer(directory)
        consumer.subscribe(**topics)
        return consumer

    def poll(directory: Path) -> None:
        assert subscribed(directory).poll(0) == {}
        assert len(subscribed(directory).assignment()) == 10

    assert names_listed(tmp_path, poll) == {0}
    (tmp_path / "logs100" / f"{TOPIC}-10").mkdir()
    subscribed(tmp_path / "logs100").poll(0)
    assert TopicPartition(TOPIC, 10) in subscribed(tmp_path / "logs100").assignment()


def test_assignment_does_not_grow_with_the_directory(tmp_path: Path) -> None:
    consumer_of = functools.cache(Consumer)
    assert_does_not_grow(tmp_path, lambda directory: consumer_of(directory).assign([(TOPIC, 0)]))


def test_offsets_of_a_partition_list_its_folder_only(tmp_path: Path) -> None:
    consumer_of = functools.cache(lambda directory: Consumer(directory, group_id="g"))

    def ask(directory: Path) -> None:
        consumer = consumer_of(directory)
        assert consumer.end_offsets([(TOPIC, 3)]) == consumer.beginning_offsets([(TOPIC, 3)]) == {(TOPIC, 3): 0}
        assert consumer.offsets_for_times({(TOPIC, 3): 0}) == {(TOPIC, 3): None}
        assert consumer.partitions_for_topic(TOPIC) == set(range(10))
        assert consumer.committed((TOPIC, 3)) is None

    assert len(names_listed(tmp_path, ask)) == 1


def test_partitions_of_a_call_are_looked_at_together(tmp_path: Path) -> None:
    make_partitions(tmp_path, 900)
    settle(tmp_path)
    consumer = Consumer(tmp_path)
    partitions = [(f"topic-{number // 10:05d}", number % 10) for number in range(900)]
    consumer.end_offsets(partitions)
    found: list[Work] = []
    for size in (1, 100, 900):
        with counted_work() as work:
            assert len(consumer.end_offsets(partitions[:size])) == size
            consumer.assign(partitions[:size])
        found.append(work)
    one, some, many = found
    assert many.read_bytes == some.read_bytes == one.read_bytes
    assert (many.calls - one.calls) / 899 <= (some.calls - one.calls) / 99 * 1.1


def test_poll_gives_all_partitions_their_positions_at_once(tmp_path: Path) -> None:
    make_partitions(tmp_path, 100)
    consumer = Consumer(tmp_path)
    consumer.subscribe(pattern="topic-")
    with patch.object(Fetcher, "_locate_all", autospec=True, side_effect=Fetcher._locate_all) as located:
        consumer.poll(0)
        assert located.call_count == 1
    assert {consumer.position(at) for at in consumer.assignment()} == {0}


def test_first_send_to_a_topic_lists_nothing(tmp_path: Path) -> None:
    with ExitStack() as opened:

        @functools.cache
        def topics_of(directory: Path) -> tuple[Producer, Iterator[int]]:
            # The thread does not write before the end.
            return opened.enter_context(Producer(directory, linger_ms=600_000)), count()

        def send(directory: Path) -> None:
            producer, topics = topics_of(directory)
            producer.send(f"topic-{next(topics):05d}", b"value")

        assert names_listed(tmp_path, send) == {0}


def test_first_sends_list_a_directory_that_changes_all_the_time_once_a_second(tmp_path: Path) -> None:
    make_partitions(tmp_path, 300)
    with Producer(tmp_path, linger_ms=600_000) as producer, counted_work() as work:
        for number in range(30):
            (tmp_path / f"other-{number}").mkdir()
            assert len(producer.partitions_for(f"topic-{number:05d}")) == 10
    assert work.names < 3 * 340


def test_producer_sees_what_others_did_to_topics_a_moment_ago(tmp_path: Path) -> None:
    LogManager(tmp_path).create_topic("known", 2)
    with Producer(tmp_path) as producer:
        assert producer.partitions_for("known") == {0, 1}
        LogManager(tmp_path).create_topic("new", 3)
        assert producer.partitions_for("new") == {0, 1, 2}
        LogManager(tmp_path).add_partitions("known", 4)
        producer.send("known", b"x", partition=3).get(timeout=60)
        for number in (0, 2):
            (tmp_path / f"incomplete-{number}").mkdir()
        with pytest.raises(UnknownTopicOrPartitionError, match="and so not all of them"):
            producer.partitions_for("incomplete")


def test_topic_that_others_make_a_moment_before_a_send_does_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = LogManager.create_topic

    def create_after_others(manager: LogManager, name: str) -> object:
        create(LogManager(tmp_path), name, 3)
        return create(manager, name)

    with Producer(tmp_path) as producer:
        monkeypatch.setattr(LogManager, "create_topic", create_after_others)
        assert producer.partitions_for("events") == {0, 1, 2}
