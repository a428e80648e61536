"""Reads and writes the committed offsets of a consumer's group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from sparklog.clients.futures import Delivery, FutureCommit
from sparklog.clients.settings import ConsumerSettings
from sparklog.errors import IllegalStateError, InvalidOptionError, SeglogError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.places import LogDirectory
from sparklog.topic.internal.given_offsets import ConsumerGroupMetadata, OffsetAndMetadata, committable, named_partition
from sparklog.topic.internal.groups import committed, group_logs
from sparklog.topic.places.live import LiveLog, LiveLogs
from sparklog.write.group_offsets import commit_group_offsets

_log = logging.getLogger("sparklog")

COMMIT_SECONDS: Final = 60.0
"""How long a commit waits for other consumers."""


class Commits:
    """The committed offsets of a group in log directories. New commits go to the first.

    Parameters
    ----------
    directories : sequence of LogDirectory
    settings : ConsumerSettings
        Name the group, and set whether and how often positions are committed automatically.
    """

    def __init__(self, directories: Sequence[LogDirectory], settings: ConsumerSettings) -> None:
        self._directories, self._settings = directories, settings
        self._of_cluster: dict[TopicPartition, OffsetCommit] = {}
        self._logs: dict[TopicPartition, LiveLog] = {}
        self._live = LiveLogs(is_committed=False)
        self._commits_itself = settings.enable_auto_commit and settings.group_id is not None
        self._interval_seconds = settings.auto_commit_interval_ms / 1000
        self.due = time.monotonic() + self._interval_seconds if self._commits_itself else float("inf")
        self._clean: dict[TopicPartition, int] = {}

    @property
    def _group(self) -> str:
        if self._settings.group_id is None:
            raise IllegalStateError("offsets are committed by a group: give a group_id")
        return self._settings.group_id

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        times = [each.timestamp for each in self._of_cluster.values()]
        return ConsumerGroupMetadata(self._group, self._directories[0], max(times, default=0))

    def first_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of these partitions; empty if the consumer has no group."""
        if self._settings.group_id is None:
            return {}
        # A decided transaction cannot be undone: its records are not consumed again.
        return {at: each.offset for at, each in self.committed(partitions, with_decided=True).items()}

    def committed(
        self, partitions: Collection[TopicPartition], *, with_decided: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed for partitions, as `sparklog.topic.internal.groups.committed` does."""
        of_cluster = self._committed_in_cluster()
        found = committed(self._directories, self._group, of_cluster=of_cluster, with_decided=with_decided)
        return {at: OffsetAndMetadata(found[at].offset, found[at].metadata) for at in partitions if at in found}

    def commit(self, offsets: Mapping[Any, Any], lock_timeout_seconds: float = COMMIT_SECONDS) -> None:
        """Commit offsets in one step; see `sparklog.Consumer.commit`."""
        now_ms, of_cluster = wall_clock_ms(), self._of_cluster
        given = {named_partition(at): committable(each) for at, each in offsets.items()}
        # Later than the cluster's known commits, even if a clock there is ahead of this one.
        behind_ms = {at: of_cluster[at].timestamp + 1 for at in given if at in of_cluster}
        commits = {
            at: OffsetCommit(each.offset, each.metadata, max(now_ms, behind_ms.get(at, 0)))
            for at, each in given.items()
        }
        commit_group_offsets(self._directories[0], self._group, commits, lock_timeout_seconds=lock_timeout_seconds)
        # These offsets need not be the positions, which are still committed when due.
        self._clean = {}

    def commit_async(self, offsets: Mapping[Any, Any], callback: Callable[[Any, Any], object] | None) -> FutureCommit:
        """Commit offsets, call a function, and return a finished future."""
        errors: dict[int, Exception] = {}
        try:
            self.commit(offsets)
        except SeglogError as error:
            if isinstance(error, IllegalStateError | InvalidOptionError):
                # The error is the callback's, not the commit's.
                raise
            errors[0] = error
            if callback is None:
                self._warn(error)
        if callback is not None:
            callback(offsets, errors.get(0))
        done = Delivery("a commit", lambda: None)
        done.resolve(lambda _: offsets, errors)
        return FutureCommit((done, 0))

    def commit_if_due(self, positions: Mapping[TopicPartition, int], *, is_last: bool = False) -> None:
        """Commit positions automatically, if they have changed and a commit is due or is the last."""
        if not self._commits_itself or (not is_last and time.monotonic() < self.due):
            return
        self.due = time.monotonic() + self._interval_seconds
        if positions == self._clean:
            return
        try:
            self.commit(positions)
            self._clean = dict(positions)
        except SeglogError as error:
            # Like Kafka's consumers: the next commit may succeed, and includes everything in this one.
            self._warn(error)

    def _warn(self, error: SeglogError) -> None:
        _log.warning("the offsets of group %s could not be committed: %s", self._group, error)

    def _committed_in_cluster(self) -> Mapping[TopicPartition, OffsetCommit]:
        """Return the group's commits in ``__consumer_offsets``, which is read again only if it has changed."""
        logs = group_logs(self._directories)
        found = self._live.look(logs.folders.values())
        if found != self._logs:
            self._of_cluster, self._logs = logs.commits(self._group), found
        return self._of_cluster
