"""Starts transactional ids, and ends their transactions by commits; `sparklog.topic.transactions` has the design."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from sparklog.errors import NOTHING_VISIBLE, WILL_BE_VISIBLE, SeglogError, outcome
from sparklog.log.config import LogConfig
from sparklog.log.files import TRANSACTIONAL_IDS
from sparklog.log.group_offsets import GroupOffsets
from sparklog.log.places import LogDirectory
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.record.encode.end_markers import MarkerBatch, encode_end_markers
from sparklog.topic.transactions.coordinator_log import CoordinatorLog, after_coordinator, coordinator_log, stage_state
from sparklog.topic.transactions.coordinators import first_transactional_ids
from sparklog.topic.transactions.ids import (
    TIMEOUT_MS,
    TransactionalIds,
    add_partitions,
    read_transactional_ids,
    replace_ids,
    stored_ids,
)
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.configs import stored_configs
from sparklog.write.journal import only_writer
from sparklog.write.locking import refuse_claimed
from sparklog.write.running_jobs import begin, job_of_stream
from sparklog.write.small_files import make_directory
from sparklog.write.staged_files import StagedRun
from sparklog.write.staging import TaskStage

_log = logging.getLogger("sparklog")

_COORDINATOR_EPOCH: Final = 0
"""The coordinator epoch of sparklog's markers; no coordinator of Kafka knows their transactions."""


def begin_transactional_id(
    directory: LogDirectory, name: str, now_ms: int, *, timeout_ms: int = TIMEOUT_MS, lock_timeout_seconds: float = 60.0
) -> TransactionProducer:
    """Start a transactional id: fence its previous writer, and abort its open transaction.

    Transactions of sparklog's other ids that have been open for longer than their timeouts are aborted as well. A
    missing directory is made.

    Returns
    -------
    TransactionProducer
        The producer of the next transaction.

    Raises
    ------
    LockedError
        A broker runs on the directory, other writers took too long, or a log of the transaction to abort is open in
        this process.
    """
    with outcome(NOTHING_VISIBLE), ExitStack() as held:
        make_directory(directory)
        held.enter_context(only_writer(directory, lock_timeout_seconds))
        begun, log = _begun(directory, name, now_ms, timeout_ms)
        _record(directory, begun, log, name, now_ms)
        return begun.ids[name].producer


def add_to_transaction(
    directory: LogDirectory, name: str, producer: TransactionProducer, folders: Collection[str], now_ms: int
) -> None:
    """Record that a producer's transaction has offsets, or partitions before anything is appended to them.

    The caller holds the lock of the directory.

    Raises
    ------
    InvalidProducerEpochError
        Another writer has started the transactional id since.
    """
    stored, added = stored_ids(directory)
    states = stored or first_transactional_ids(directory)
    found = states.checked(name, producer)
    log = coordinator_log(directory, name, found)
    if log is not None or not found.is_open:
        _record(directory, states.with_added(added).opened(name, now_ms, folders), log, name, now_ms)
    elif folders:
        add_partitions(directory, producer, folders, added)


def commit_transaction(
    job: CommitRequest, staged: Sequence[StagedRun], name: str, producer: TransactionProducer | None, now_ms: int
) -> Mapping[str, Any]:
    """Commit staged runs as one transaction; see also `sparklog.topic.write.commit.commit`.

    Parameters
    ----------
    job : CommitRequest
        The commit; its rows were staged as rows of a transaction.
    producer : TransactionProducer or None
        The producer that `begin_transactional_id` returned when the job began; None to start the transactional id now,
        for a job that cannot be fenced: the batches of a stream have numbers.

    Raises
    ------
    InvalidProducerEpochError
        Another writer has started the transactional id since the job began.
    """
    with ExitStack() as held:
        with outcome(NOTHING_VISIBLE):
            held.enter_context(only_writer(job.directory, job.lock_timeout_seconds))
            if producer is None:
                states, log = _begun(job.directory, name, now_ms, TIMEOUT_MS)
            else:
                states = known_ids(job.directory)
                log = coordinator_log(job.directory, name, states.checked(name, producer))
            folders = sorted({run.folder for run in staged})
            ends = stage_ends(job, _endings(folders, states.ids[name].producer, is_abort=False), now_ms)
            after = states.ended(name, now_ms, is_abort=False)
            ends += stage_state(job, log, name, after.ids[name], now_ms)
            replaced = {**job.replaced, TRANSACTIONAL_IDS: after.encode()}
            whole = replace(job, producer=states.ids[name].producer, replaced=replaced)
        return commit(whole, [*staged, *ends], now_ms, is_held=True)


def known_ids(directory: LogDirectory) -> TransactionalIds:
    """Return the transactional ids of a directory; the caller holds its lock."""
    return read_transactional_ids(directory) or first_transactional_ids(directory)


def _begun(
    directory: LogDirectory, name: str, now_ms: int, timeout_ms: int
) -> tuple[TransactionalIds, CoordinatorLog | None]:
    """Return the ids after a new start of one, whose open transaction is aborted, and the log of the id."""
    states = _without_overdue(directory, known_ids(directory), name, now_ms)
    found = states.ids.get(name)
    log = coordinator_log(directory, name, found)
    if found is not None and found.is_open:
        states, log = _aborted(directory, states, log, name, now_ms)
    if name in states.ids:
        known = after_coordinator(log, states.ids[name])
        states = replace(states, ids={**states.ids, name: known})
    return states.begun(name, timeout_ms, now_ms), log


def _without_overdue(directory: LogDirectory, states: TransactionalIds, but: str, now_ms: int) -> TransactionalIds:
    """Abort the transactions of other ids that have been open for too long, as a coordinator would.

    If a writer of this process still has logs of a transaction open, the writer is left to end it. The caller must not
    fail because another id's transaction cannot be ended.
    """
    for name, found in states.ids.items():
        if name == but or not found.is_overdue(now_ms):
            continue
        try:
            for each in found.partitions:
                refuse_claimed(directory.folder(each))
            states, _ = _aborted(directory, states, coordinator_log(directory, name, found), name, now_ms)
        except SeglogError as error:
            if error.outcome == WILL_BE_VISIBLE:
                raise
            _log.warning("the transaction of %r has been open for too long, and cannot be aborted: %s", name, error)
        else:
            _log.warning("the transaction of %r was open for more than %d ms: aborted", name, found.timeout_ms)
    return states


def _aborted(
    directory: LogDirectory, states: TransactionalIds, log: CoordinatorLog | None, name: str, now_ms: int
) -> tuple[TransactionalIds, CoordinatorLog | None]:
    """Return the ids after the open transaction of one is aborted, by a coordinator or here, and the log of the id."""
    found = states.ids[name]
    if log is not None and log.has_gone_on_with(found):
        return states.ended(name, now_ms, is_abort=True), log
    states = end_transaction(directory, LogConfig(), states, log, name, found.partitions, now_ms, is_abort=True)
    return states, None if log is None else log.after(states.ids[name])


def _job_of_id(
    directory: LogDirectory, config: LogConfig, name: str, states: TransactionalIds, now_ms: int
) -> CommitRequest:
    """Return a job that changes the state of a transactional id."""
    return CommitRequest(
        job_id=job_of_stream(f"transactional id {name}", now_ms),
        directory=directory,
        config=config,
        new_topics={},
        replaced={TRANSACTIONAL_IDS: states.encode()},
        stored=stored_configs(directory),
        has_tasks=False,
    )


def end_transaction(
    directory: LogDirectory,
    config: LogConfig,
    states: TransactionalIds,
    log: CoordinatorLog | None,
    name: str,
    folders: Collection[str],
    now_ms: int,
    *,
    is_abort: bool,
    group_offsets: GroupOffsets | None = None,
) -> TransactionalIds:
    """End the open transaction of a transactional id in all its partitions, by one commit.

    Parameters
    ----------
    log : CoordinatorLog or None
        The log of the id, from `sparklog.topic.transactions.coordinator_log.coordinator_log`.
    group_offsets : mapping of str to mapping of TopicPartition to OffsetCommit, optional
        Offsets of consumer groups that the transaction commits.
    """
    found, after = states.ids[name], states.ended(name, now_ms, is_abort=is_abort)
    job = replace(_job_of_id(directory, config, name, after, now_ms), group_offsets=group_offsets or {})
    with outcome(NOTHING_VISIBLE):
        there = [each for each in folders if directory.storage.is_folder(directory.folder(each).location)]
        ends = stage_ends(job, _endings(there, found.producer, is_abort=is_abort), now_ms)
        ends += stage_state(job, log, name, after.ids[name], now_ms)
    commit(job, ends, now_ms, is_held=True)
    return after


def _endings(folders: Collection[str], producer: TransactionProducer, *, is_abort: bool) -> list[Ending]:
    """Return the ends of a transaction, whose markers have the epoch after the epoch of its batches."""
    marker = MarkerBatch(producer.producer_id, producer.producer_epoch + 1, is_abort, _COORDINATOR_EPOCH)
    return [Ending(folder, marker) for folder in folders]


def _record(
    directory: LogDirectory, states: TransactionalIds, log: CoordinatorLog | None, name: str, now_ms: int
) -> None:
    """Record a changed transactional id in ``seglog.transactions`` and in its log, in one step."""
    if log is not None:
        job = _job_of_id(directory, LogConfig(), name, states, now_ms)
        recorded = stage_state(job, log, name, states.ids[name], now_ms)
        if recorded:
            commit(job, recorded, now_ms, is_held=True)
            return
    replace_ids(directory, states)


_LAST_TASK: Final = (1 << 31) - 1
"""A number greater than all tasks of a job: the runs of a partition are committed in the order of tasks."""


class Ending(NamedTuple):
    """The end of one transaction in one log.

    Attributes
    ----------
    folder : str
        The name of the partition's folder.
    marker : MarkerBatch
        The marker; its base offset does not matter.
    """

    folder: str
    marker: MarkerBatch


def stage_ends(job: CommitRequest, endings: Sequence[Ending], now_ms: int) -> list[StagedRun]:
    """Stage the markers of a job, and return their runs; markers of one log stay in order."""
    if not endings:
        return []
    folders: list[str] = []
    batch_ends: list[int] = []
    markers: list[MarkerBatch] = []
    for folder, of_folder in groupby(sorted(endings, key=lambda each: each.folder), key=lambda each: each.folder):
        folders.append(folder)
        markers += (each.marker._replace(base_offset=number) for number, each in enumerate(of_folder))
        batch_ends.append(len(markers))
    encoded = encode_end_markers(markers, now_ms)
    # Readers get no record of them.
    encoded.headers.table["record_count"] = 0
    begin(job.directory, job.job_id)
    stage = TaskStage(job.directory, job.job_id, _LAST_TASK, 0, job.config)
    stage.append(encoded, folders, batch_ends, now_ms)
    return stage.finish()
