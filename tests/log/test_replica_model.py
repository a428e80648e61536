"""Random histories of leaders, crashes and truncations: the merged log is what Kafka's rules keep.

The model has three replicas. It knows nothing of checkpoints and epochs of others: a follower truncates by comparing
its records with its leader's one by one, which is the result that KIP-101 and KIP-279 reach by epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.log.replicas.lineage import ReplicaLog, merge_logs
from tests.log.replicas import FOLDER, Copy, batch, merged, written
from tests.places import directory_at

REPLICAS = 3
SIZE = 3


@dataclass
class Broker:
    """One replica: the epoch of each record from `start` on, and its checkpoints."""

    records: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def truncate(self, offset: int) -> None:
        del self.records[max(offset - self.start, 0) :]
        self.epochs = [each for each in self.epochs if each[1] < offset]

    def append(self, epoch: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, self.end))
        self.records.append(epoch)

    def raise_start(self, offset: int) -> None:
        """Do what retention does: whole batches, and the lineage with them."""
        offset = min(offset, self.high_watermark, self.end)
        if offset <= self.start:
            return
        del self.records[: offset - self.start]
        self.start = offset
        passed = [each for each in self.epochs if each[1] <= offset]
        if passed:
            self.epochs = [(passed[-1][0], offset), *self.epochs[len(passed) :]]


class Partition:
    """Three replicas of a partition, of which one leads."""

    def __init__(self) -> None:
        self.brokers = [Broker() for _ in range(REPLICAS)]
        self.epoch, self.leader = 0, 0
        self.brokers[0].epochs.append((0, 0))
        self.following = {1, 2}

    def elect(self, number: int) -> None:
        """Make any replica the leader, cleanly or not."""
        self.epoch += 1
        self.leader, self.following = number, set()
        self.brokers[number].epochs.append((self.epoch, self.brokers[number].end))

    def produce(self) -> None:
        for _ in range(SIZE):
            self.brokers[self.leader].append(self.epoch)

    def fetch(self, number: int) -> None:
        """Have a replica follow the leader: truncate once, then copy one batch."""
        leader, broker = self.brokers[self.leader], self.brokers[number]
        if number == self.leader:
            return
        if number not in self.following:
            same = max(broker.start, leader.start)
            while (
                same < min(broker.end, leader.end)
                and broker.records[same - broker.start] == (leader.records[same - leader.start])
            ):
                same += 1
            if broker.end < leader.start or leader.end < broker.start:
                broker.records, broker.epochs, broker.start = [], [], leader.start
                broker.high_watermark = leader.start
            else:
                # Epochs that began at the end of the log go too: a leader of them may have written nothing.
                broker.truncate(same)
            broker.high_watermark = min(broker.high_watermark, broker.end)
            self.following.add(number)
        for epoch in leader.records[broker.end - leader.start :][:SIZE]:
            broker.append(epoch)
        broker.high_watermark = max(broker.high_watermark, min(leader.high_watermark, broker.end))
        ends = [self.brokers[each].end for each in self.following]
        leader.high_watermark = max(leader.high_watermark, min([leader.end, *ends]))
        broker.raise_start(leader.start)

    def retain(self, number: int) -> None:
        broker = self.brokers[number]
        broker.raise_start(broker.start + SIZE)

    def served(self) -> tuple[int, list[int]]:
        """Return what the cluster keeps once everybody follows the leader: the start, and the epoch of each record.

        Files do not tell a leader from a follower that has all that it has: then nothing is given up.
        """
        leader = self.brokers[self.leader]
        alike = [
            each
            for each in self.brokers
            if max(each.epochs, default=(-1, 0))[0] == self.epoch and each.end == leader.end
        ]
        kept = min([leader, *alike], key=lambda each: each.start)
        return kept.start, kept.records


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.just(0)),
        st.tuples(st.sampled_from(["fetch", "fetch", "elect", "retain"]), st.integers(0, REPLICAS - 1)),
        st.tuples(st.just("fetch"), st.integers(0, REPLICAS - 1)),
    ),
    max_size=60,
)


def played(steps: list[tuple[str, int]]) -> Partition:
    partition = Partition()
    for name, number in steps:
        partition.produce() if name == "produce" else getattr(partition, name)(number)
    return partition


EMPTIED = [("produce", 0), ("elect", 0), ("fetch", 1), ("elect", 2), ("retain", 0)]
"""An empty replica is elected, and retention has emptied another one."""
RETAINED = [("elect", 1), ("produce", 0), ("fetch", 0), ("fetch", 0), ("retain", 0)]
"""Retention on a follower is ahead of its leader's."""


@example(EMPTIED)
@example(RETAINED)
@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_merge_keeps_the_records_that_the_last_leader_has(steps: list[tuple[str, int]]) -> None:
    partition = played(steps)
    logs = [
        ReplicaLog(
            directory_at(f"/broker-{number}").folder(FOLDER),
            tuple(each.epochs),
            each.start,
            each.start,
            each.end,
            each.high_watermark,
        )
        for number, each in enumerate(partition.brokers)
    ]
    start, records = partition.served()
    merge = merge_logs(logs, 1)
    assert (merge.start_offset, merge.end_offset) == (start, start + len(records))
    for replica in merge.replicas:
        broker = partition.brokers[logs.index(replica.log)]
        agreed = range(max(broker.start, start), min(replica.agreed_offset, broker.end))
        # All that is used is right, and all that is right is used.
        assert [broker.records[offset - broker.start] for offset in agreed] == [
            records[offset - start] for offset in agreed
        ]
        following = max(replica.agreed_offset, start)
        if broker.start <= following < min(broker.end, start + len(records)):
            assert broker.records[following - broker.start] != records[following - start]
    committed = merge_logs(logs)
    marks = [min(each.log.high_watermark or 0, each.agreed_offset) for each in committed.replicas]
    assert committed.end_offset == max(start, *marks)
    for least in range(1, REPLICAS + 1):
        ends = sorted((each.agreed_offset for each in merge.replicas), reverse=True)
        assert merge_logs(logs, least).end_offset == max(start, ends[least - 1])


@example(EMPTIED)
@example(RETAINED)
@settings(max_examples=15, deadline=None)
@given(STEPS)
def test_merged_files_have_the_records_that_the_last_leader_has(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    partition = played(steps)
    copies = [
        Copy(
            [
                batch(offset, each.records[offset - each.start], SIZE, 10)
                for offset in range(each.start, each.end, SIZE)
            ],
            each.epochs,
            base_offset=each.start,
            segment_bytes=400,
        )
        for each in partition.brokers
    ]
    start, records = partition.served()
    expected = [(start + row, f"{start + row}@{epoch}") for row, epoch in enumerate(records)]
    assert merged(written(tmp_path_factory.mktemp("brokers"), *copies), 1) == expected
