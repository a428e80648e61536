"""Decides which copies of a partition's log are right up to which offset, and where the log merged from them ends.

Several brokers keep a copy of a partition, its replicas. They differ after crashes: a leader takes records and dies
before its followers fetch them, another replica becomes the leader and writes other records at the same offsets. Kafka
resolves that by leader epochs. The controller gives each leader a higher epoch. The leader stamps its epoch on the
batches that it takes, and ``leader-epoch-checkpoint`` of each replica has the offset at which each epoch begins, its
lineage.

**KIP-101.** Followers once cut their logs at their high watermarks when a leader changed. That lost committed records,
and left different records at one offset: a follower learns a high watermark only with its next fetch. Since KIP-101, a
follower asks the leader where the follower's last epoch ends in the leader's log, and cuts its own log there. Two logs
that have the same epoch have the same records up to the smaller end of that epoch.

**KIP-279.** After two changes of leaders in quick succession, the leader may not have the follower's last epoch.
It then answers with its own next lower epoch, the follower goes to its own next lower one, and so on until both
have the same epoch. The log is cut at the smaller of its two ends.

From this follows the merge:

1. The replica whose lineage has the highest epoch is the *leader*; among several, the one with the most records, since
   any of them may lead. An epoch without a record counts, at the end of the log too: a leader writes it when it is
   elected, and everybody else must follow that log. This holds after an unclean election as well, which may discard
   committed records. So does Kafka, and the left out records are told.
2. Each other replica *agrees* with the leader up to the smaller end of the highest epoch that both have. Its records
   from there on are left out. An epoch ends where the next one begins, the last one with the log. The leader's lineage
   may reach further than its records, since a crash of the machine loses unsynced records, but not the checkpoint.
3. Logs of record formats 0 and 1 have no epochs; offsets before a log's first epoch count as epoch -1.
4. The log starts where the leader's does: retention and deletion of records raise the start of its lineage
   too, so a segment that was only lost is known, and is read from another replica.
5. The log ends at the highest high watermark of the ``replication-offset-checkpoint`` files, each counted no further
   than its replica agrees: records before it are committed. Brokers write these files every few seconds, so the newest
   committed records may be after it. Or it ends where a given number of replicas agree. If no replica has a high
   watermark, it ends with the last record that agrees.

Any offset is then read from the leader, and from another replica only the offsets that the leader lacks: damaged
batches, missing segments, a lost end. The leader comes first because compaction is each replica's own: it removes
superseded records, tombstones after ``delete.retention.ms``, and markers of transactions, at other times on each.
Every copy has the last record of each key, so a read across copies never loses one. But an older record from one copy
may come with a later range of another that has removed its tombstone. So as little as possible is mixed, and the
result is what the leader would serve. A stretch that is healed in a compacted log may have records that the leader had
removed.

Source: KIP-101, KIP-279; apache/kafka, LeaderEpochFileCache.java, AbstractFetcherThread.java, LogLoader.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.log.places import PartitionFolder

NO_EPOCH: Final = -1


@dataclass(frozen=True)
class ReplicaLog:
    """The facts of one replica that the merge depends on.

    Attributes
    ----------
    epochs : tuple of (int, int)
        Leader epochs and their start offsets, both ascending; epoch -1 stands for records before the first epoch.
    log_start_offset : int
        The log start offset by the replica's lineage and checkpoint, also if the records there are lost.
    start_offset, end_offset : int
        The first offset that its segments have, and the one after the last sound batch.
    high_watermark : int or None
        The high watermark that its broker last wrote; None if there is none.
    topic_id : str or None
        The topic id in ``partition.metadata``.
    is_compacted : bool
        Whether a cleaner has looked at the log.
    """

    folder: PartitionFolder
    epochs: tuple[tuple[int, int], ...]
    log_start_offset: int
    start_offset: int
    end_offset: int
    high_watermark: int | None = None
    topic_id: str | None = None
    is_compacted: bool = False

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else NO_EPOCH

    def epoch_ends(self) -> dict[int, int]:
        """Return the end offset of each epoch of the lineage, exclusive."""
        if not self.epochs:
            return {NO_EPOCH: self.end_offset}
        ends = {epoch: following for (epoch, _), (_, following) in pairwise(self.epochs)}
        epoch, start = self.epochs[-1]
        return ends | {epoch: max(start, self.end_offset)}


@dataclass(frozen=True)
class Replica:
    """A replica in a merged log.

    Attributes
    ----------
    agreed_offset : int
        The records before it are in the merged log; the others are left out. It may be before the log's start.
    reason : str
        Why that is so.
    """

    log: ReplicaLog
    agreed_offset: int
    reason: str


@dataclass(frozen=True)
class Merge:
    """A log merged from its replicas.

    Attributes
    ----------
    replicas : tuple of Replica
        The replicas in the order of preference, the leader first.
    start_offset, end_offset : int
        The bounds of the merged log, the end exclusive.
    told : tuple of str
        The offsets that are left out, and why.
    """

    replicas: tuple[Replica, ...]
    start_offset: int
    end_offset: int
    told: tuple[str, ...]


def merge_logs(logs: Sequence[ReplicaLog], replicas_min: int | None = None) -> Merge:
    """Decide what a log merged from replicas consists of.

    Parameters
    ----------
    logs : sequence of ReplicaLog
        At least one.
    replicas_min : int, optional
        The log ends where fewer replicas agree than this; by default at the high watermark.

    Raises
    ------
    InvalidOptionError
        The logs are of topics with different ids, or there are fewer than ``replicas_min``.
    """
    _refuse_other_topics(logs)
    name = logs[0].folder.name
    if replicas_min is not None and replicas_min > len(logs):
        there = ", ".join(each.folder.location for each in logs)
        raise InvalidOptionError(
            f"the minimum of replicas is {replicas_min}, and {name} is in {len(logs)} of the directories: {there}"
        )
    leader = max(logs, key=lambda log: (log.last_epoch, log.end_offset, -log.log_start_offset))
    replicas = [_replica(log, leader) for log in logs]
    replicas.sort(key=lambda each: (each.log is not leader, -each.agreed_offset))
    reach = max(each.agreed_offset for each in replicas)
    starts = [each.log.start_offset for each in replicas if each.agreed_offset > each.log.start_offset]
    start = max(leader.log_start_offset, min(starts, default=leader.start_offset))
    end, why = _end(replicas, reach, replicas_min)
    end = max(end, start)
    told = [
        f"offsets [{first}, {each.log.end_offset}) of {each.log.folder.location}: {each.reason}"
        for each in replicas
        if (first := max(each.agreed_offset, each.log.start_offset)) < each.log.end_offset
    ]
    if end < reach:
        told.append(f"offsets [{end}, {reach}): {why}")
    return Merge(tuple(replicas), start, end, tuple(told))


def _refuse_other_topics(logs: Sequence[ReplicaLog]) -> None:
    known = [log for log in logs if log.topic_id is not None]
    for log in known[1:]:
        if log.topic_id != known[0].topic_id:
            raise InvalidOptionError(
                f"{known[0].folder.location} is of the topic with id {known[0].topic_id}, and {log.folder.location} of "
                f"the one with id {log.topic_id}: the topic was deleted and made again, and these are no replicas of "
                f"one log. Name the directories of one of them"
            )


def _replica(log: ReplicaLog, leader: ReplicaLog) -> Replica:
    """Return how far a replica agrees with the leader (KIP-279)."""
    if log is leader:
        return Replica(log, log.end_offset, f"its leader epoch {log.last_epoch} is the highest")
    ends, leader_ends = log.epoch_ends(), leader.epoch_ends()
    common = max(ends.keys() & leader_ends.keys(), default=None)
    if common is None:
        reason = f"it has no leader epoch in common with {leader.folder.location}"
        return Replica(log, min(log.start_offset, leader.log_start_offset), reason)
    agreed = min(ends[common], leader_ends[common], log.end_offset)
    if agreed == log.end_offset:
        return Replica(log, log.end_offset, f"all of it agrees with {leader.folder.location}")
    return Replica(
        log,
        agreed,
        f"epoch {common} ends at offset {leader_ends[common]} in {leader.folder.location}, which has the highest "
        f"epoch, {leader.last_epoch}: a follower would cut them off",
    )


def _end(replicas: Sequence[Replica], reach: int, replicas_min: int | None) -> tuple[int, str]:
    """Return where the log ends, and why."""
    if replicas_min is not None:
        agreed = sorted((each.agreed_offset for each in replicas), reverse=True)[replicas_min - 1]
        return agreed, f"fewer than {replicas_min} replicas have them"
    marks = [
        min(each.log.high_watermark, each.agreed_offset) for each in replicas if each.log.high_watermark is not None
    ]
    if not marks:
        return reach, "no replica has a high watermark"
    return max(marks), (
        "they are after the highest high watermark that a broker wrote down, and may not be committed; to read "
        "all that one replica has, set the minimum of replicas to 1"
    )
