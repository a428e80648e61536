"""Finds the open transactions in logs, and aborts those that hang, as ``kafka-transactions`` does.

An abort marker lets readers of committed records continue past a transaction that hangs; `sparklog.topic.transactions`
says when one does. The marker has the epoch of the producer, and the coordinator epoch of the producer's last marker,
or 0, like the marker that ``kafka-transactions abort`` requests from a broker.

Source: apache/kafka, TransactionsCommand.java; KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.errors import NOTHING_VISIBLE, InvalidOptionError, PathNotFoundError, outcome
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.producer_snapshots import producers_at_end
from sparklog.log.producer_state import ProducerEntry
from sparklog.record.encode.end_markers import MarkerBatch
from sparklog.storage.registry import PathText
from sparklog.system.transaction_state import UNDECIDED
from sparklog.topic.places.discovery import discover
from sparklog.topic.transactions.commit import Ending, stage_ends
from sparklog.topic.transactions.coordinators import transactions_of_brokers
from sparklog.topic.transactions.ids import read_transactional_ids
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.configs import stored_configs
from sparklog.write.journal import only_writer
from sparklog.write.running_jobs import new_job


@dataclass(frozen=True)
class Coordinated:
    """A transactional id as a coordinator knows it, of a broker or of sparklog.

    Attributes
    ----------
    partitions : frozenset of str
        The partitions of its open transaction, by folder name; empty if none is open.
    """

    transactional_id: str
    timeout_ms: int
    partitions: frozenset[str]


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction in one log.

    Attributes
    ----------
    coordinator_epoch : int
        The coordinator epoch of the producer's last marker; -1 if there is none.
    first_offset : int
        The first offset of the transaction. Readers of committed records stop at the lowest one of the log.
    last_timestamp, start_timestamp : int
        The timestamps of the producer's last batch and of the transaction's first, ms since the epoch; -1 if unknown.
    last_stable_offset, end_offset : int
        The last stable offset and the end offset of the log.
    transactional_id, timeout_ms : str, int or None
        The transactional id and timeout that a coordinator has; None if none knows the producer.
    is_coordinated : bool
        Whether a coordinator knows that the transaction is open.
    """

    folder: PartitionFolder
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    start_timestamp: int
    last_timestamp: int
    last_stable_offset: int
    end_offset: int
    transactional_id: str | None
    timeout_ms: int | None
    is_coordinated: bool

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.folder.topic, self.folder.partition or 0)

    def age_ms(self, now_ms: int) -> int | None:
        """Return how long it has been open; None if unknown."""
        since = self.start_timestamp if self.start_timestamp >= 0 else self.last_timestamp
        return max(now_ms - since, 0) if since >= 0 else None

    def is_hanging(self, now_ms: int) -> bool:
        """Return whether no coordinator will end it, or one should have ended it by now."""
        age_ms = self.age_ms(now_ms)
        is_over = self.timeout_ms is not None and age_ms is not None and age_ms > self.timeout_ms
        return is_over or not self.is_coordinated


@dataclass(frozen=True)
class AbortRequest:
    """The choice of the open transactions to abort.

    Attributes
    ----------
    topic_partition : TopicPartition or None
        Abort only transactions in this partition.
    producer_id : int or None
        Abort only transactions of this producer.
    is_all : bool
        Abort all transactions, of the paths or of the partition; not given together with a producer id.
    lock_timeout_seconds : float
        How long to wait for other writers.
    """

    topic_partition: TopicPartition | None = None
    producer_id: int | None = None
    is_all: bool = False
    lock_timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        is_one = self.topic_partition is not None and self.producer_id is not None
        if is_one == self.is_all or (self.is_all and self.producer_id is not None):
            raise InvalidOptionError(
                "say which transactions to abort: one by its partition and its producer id; or all, of the path or of "
                "a partition"
            )

    def chosen(self, found: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        return [
            each
            for each in found
            if self.topic_partition in (None, each.topic_partition) and self.producer_id in (None, each.producer_id)
        ]


def open_transactions(paths: Sequence[PathText]) -> list[OpenTransaction]:
    """Find the open transactions in logs, also of internal topics.

    Raises
    ------
    PathNotFoundError
        A path does not exist.
    CorruptLogError
        A log is damaged.
    """
    by_directory: dict[LogDirectory, list[PartitionFolder]] = {}
    for folder in discover(paths).partitions:
        by_directory.setdefault(folder.directory, []).append(folder)
    return [each for directory, folders in by_directory.items() for each in _open_in(directory, folders)]


def abort_transactions(
    paths: Sequence[PathText], request: AbortRequest, now_ms: int, *, executes: bool
) -> list[OpenTransaction]:
    """Abort open transactions in the log directories of stopped brokers, with one commit per directory.

    Parameters
    ----------
    executes : bool
        Whether to write the markers; if not, nothing is changed.

    Returns
    -------
    list of OpenTransaction
        The transactions that were aborted, or would be, in their state before.

    Raises
    ------
    PathNotFoundError
        A path does not exist, or no such transaction is open.
    LockedError
        A broker runs on a directory, or another writer is at work.
    CorruptLogError
        A log is damaged.
    """
    chosen = request.chosen(open_transactions(paths))
    if not chosen and not request.is_all:
        raise PathNotFoundError(
            f"producer {request.producer_id} has no transaction open in {request.topic_partition}; "
            f"'sparklog transactions --hanging' lists those that are open"
        )
    if not executes:
        return chosen
    done: list[OpenTransaction] = []
    for directory in dict.fromkeys(each.folder.directory for each in chosen):
        folders = list(dict.fromkeys(each.folder for each in chosen if each.folder.directory == directory))
        with outcome(NOTHING_VISIBLE), only_writer(directory, request.lock_timeout_seconds):
            # Looked for again, now that nobody else can end them.
            found = request.chosen(_open_in(directory, folders))
            _abort(directory, found, now_ms)
        done += found
    return done


def _abort(directory: LogDirectory, chosen: Sequence[OpenTransaction], now_ms: int) -> None:
    job = CommitRequest(new_job(now_ms), directory, LogConfig(), {}, stored=stored_configs(directory))
    endings = [
        Ending(
            each.folder.name,
            MarkerBatch(each.producer_id, each.producer_epoch, True, max(each.coordinator_epoch, 0)),
        )
        for each in chosen
    ]
    commit(job, stage_ends(job, endings, now_ms), now_ms, is_held=True)


def _open_in(directory: LogDirectory, folders: Iterable[PartitionFolder]) -> list[OpenTransaction]:
    coordinated: Mapping[int, Coordinated] | None = None
    found: list[OpenTransaction] = []
    for folder in folders:
        layout = read_layout(folder)
        producers = producers_at_end(layout)
        for producer_id, first_offset in sorted(producers.open_transactions.items(), key=lambda each: each[1]):
            if coordinated is None:
                coordinated = _coordinated(directory)
            entry, known = producers.entries[producer_id], coordinated.get(producer_id)
            stable_offset = producers.first_unstable_offset or 0
            found.append(_described(layout, producer_id, entry, first_offset, stable_offset, known))
    return found


def _described(
    layout: PartitionLayout,
    producer_id: int,
    entry: ProducerEntry,
    first_offset: int,
    stable_offset: int,
    known: Coordinated | None,
) -> OpenTransaction:
    return OpenTransaction(
        folder=layout.folder,
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        coordinator_epoch=entry.coordinator_epoch,
        first_offset=first_offset,
        start_timestamp=_timestamp_at(layout, first_offset),
        last_timestamp=entry.timestamp,
        last_stable_offset=max(stable_offset, layout.start_offset),
        end_offset=layout.end_offset,
        transactional_id=None if known is None else known.transactional_id,
        timeout_ms=None if known is None else known.timeout_ms,
        is_coordinated=known is not None and layout.folder.name in known.partitions,
    )


def _timestamp_at(layout: PartitionLayout, offset: int) -> int:
    """Return the timestamp of the batch at an offset; -1 if that is before the log start."""
    if offset < layout.start_offset:
        return -1
    with layout.segments[layout.segment_of(offset)].open() as log:
        header = log.first_batch_from(offset)
    return -1 if header is None else int(header.column("max_timestamp")[0])


def _coordinated(directory: LogDirectory) -> dict[int, Coordinated]:
    """Return the transactional ids that coordinators know, by producer id."""
    found = {row["producer_id"]: _of_broker(row) for row in transactions_of_brokers(directory)}
    states = read_transactional_ids(directory)
    for name, each in states.ids.items() if states is not None else ():
        partitions = frozenset(each.partitions if each.is_open else ())
        found[each.producer_id] = Coordinated(name, each.timeout_ms, partitions)
    return found


def _of_broker(row: Mapping[str, Any]) -> Coordinated:
    partitions: frozenset[str] = frozenset()
    if row["state"] in UNDECIDED:
        listed = ((each["topic"], number) for each in row["partitions"] for number in each["partitions"])
        partitions = frozenset(str(TopicPartition(*each)) for each in listed)
    return Coordinated(row["transactional_id"], row["timeout_ms"], partitions)
