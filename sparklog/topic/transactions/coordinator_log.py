"""Records sparklog's transactional ids in ``__transaction_state``, if a log directory has the partition of the id.

A coordinator that adopts the directory then knows each id with its producer, and fences or continues it as if the
producer were its own. Every state is recorded by the commit that causes it: Empty after a start, Ongoing before the
first batch of a transaction in each of its partitions, CompleteCommit and CompleteAbort after its end.

The partition of an id depends on how many partitions the topic has. `sparklog.topic.transactions` says when nothing is
recorded, and why.

Source: apache/kafka, TransactionLog.scala, TransactionStateManager.scala (partitionFor); KIP-98, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from sparklog.log.config import LogConfig
from sparklog.log.files import parse_partition_folder
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.system.codecs import MessageFields
from sparklog.system.messages import message
from sparklog.system.records import InternalLog, Undecodable, decode_coordinator_records, last_records
from sparklog.system.transaction_state import COMPONENT, TOPIC, TRANSACTION_STATES, UNDECIDED, state_name
from sparklog.topic.internal.groups import partition_of_group
from sparklog.topic.places.discovery import partitions_in
from sparklog.topic.transactions.ids import EMPTY_STATE, EPOCH_MAX, TransactionalId
from sparklog.topic.write.commit import CommitRequest
from sparklog.write.pipeline import encode_records
from sparklog.write.running_jobs import begin
from sparklog.write.staged_files import StagedRun
from sparklog.write.staging import TaskStage

_log = logging.getLogger("sparklog")

_TASK: Final = (1 << 31) - 2
"""A number greater than all tasks of a job that stage rows."""
_CONFIG: Final = LogConfig.from_properties({"compression.type": "uncompressed"})
_VERSION: Final = 1
"""The version of the first value in a log: the one that Kafka 4 writes."""
_TRANSACTION_VERSION: Final = 2
"""Kafka's ``transaction.version`` of sparklog's producers; before an id's first transaction a coordinator has 0."""


@dataclass(frozen=True)
class CoordinatorLog:
    """The log of ``__transaction_state`` that has a transactional id, or will have it.

    Attributes
    ----------
    version : int
        The version for new values: the newest in the log.
    found : dict or None
        The fields of the id's last record.
    is_undecided : bool
        Whether a coordinator has an open transaction of the id that is not sparklog's.
    """

    folder: PartitionFolder
    version: int
    found: MessageFields | None
    is_undecided: bool

    def has_gone_on_with(self, known: TransactionalId) -> bool:
        """Return whether a coordinator has continued an id's producer, and so has ended its transaction or will."""
        if self.found is None:
            return False
        if self.found["producerId"] != known.producer_id:
            return bool(self.found["previousProducerId"] == known.producer_id)
        return bool(self.found["producerEpoch"] > known.producer_epoch)

    def after(self, known: TransactionalId) -> CoordinatorLog:
        """Return the log after a state of the id was recorded."""
        return self if self.is_undecided else replace(self, found=_fields(known, self.found))


def coordinator_log(directory: LogDirectory, name: str, known: TransactionalId | None) -> CoordinatorLog | None:
    """Find the log of a transactional id; None if the directory lacks partitions, or seems to.

    Parameters
    ----------
    known : TransactionalId or None
        The state of the id in the directory.
    """
    folders = {each.partition: each for each in partitions_in(directory, TOPIC)}
    count = len(folders)
    if not count or set(folders) != set(range(count)):
        return None
    number = partition_of_group(name, count)
    folder, unreadable, versions = folders[number], Undecodable(), [0]
    log = InternalLog(read_layout(folder))
    found: MessageFields | None = None
    for _, each in decode_coordinator_records(log, last_records(log), COMPONENT, unreadable, lambda _: True):
        if each.value is None:
            continue
        other = each.key["transactionalId"]
        if partition_of_group(other, count) != number:
            _log.warning("%s has %r, and so not all of its topic is here: nothing is recorded", folder.location, other)
            return None
        versions.append(each.version or 0)
        found = each.value if other == name else found
    version = max(versions) if len(versions) > 1 else _VERSION
    return CoordinatorLog(folder, min(version, _VERSION), found, _is_undecided(found, known))


def _is_undecided(found: MessageFields | None, known: TransactionalId | None) -> bool:
    if found is None or state_name(found["transactionStatus"]) not in UNDECIDED:
        return False
    # A coordinator continues a producer in another epoch.
    is_ours = known is not None and known.is_open and known.producer == (found["producerId"], found["producerEpoch"])
    return not is_ours


def after_coordinator(log: CoordinatorLog | None, known: TransactionalId) -> TransactionalId:
    """Return an id's state with the coordinator's epoch, if a coordinator has continued its producer to a higher one.

    If the coordinator has an open transaction, it is the last epoch, so that the next start takes a new producer.
    """
    if log is None or log.found is None or log.found["producerId"] != known.producer_id:
        return known
    if log.is_undecided:
        return replace(known, producer_epoch=EPOCH_MAX)
    return replace(known, producer_epoch=max(known.producer_epoch, log.found["producerEpoch"]))


def stage_state(
    job: CommitRequest, log: CoordinatorLog | None, name: str, known: TransactionalId, now_ms: int
) -> list[StagedRun]:
    """Stage the record of a transactional id's state; none if the directory has no log for it."""
    if log is None:
        return []
    if log.is_undecided:
        _log.warning(
            "%s has an open transaction of %r: it is left open, and new states of the id are not recorded there",
            log.folder.location, name,
        )  # fmt: skip
        return []
    key = message("TransactionLogKey")
    columns = {
        "key": [(key.api_key or 0).to_bytes(2, "big") + key.encode({"transactionalId": name}, 0)],
        "value": [message("TransactionLogValue").encode_versioned(_fields(known, log.found), log.version)],
        "timestamp": pa.array([now_ms], pa.int64()),
    }
    encoded = encode_records(pa.RecordBatch.from_pydict(columns), _CONFIG, 0, now_ms, name=log.folder.name)
    # Readers get no record of it.
    encoded.headers.table["record_count"] = 0
    begin(job.directory, job.job_id)
    stage = TaskStage(job.directory, job.job_id, _TASK, 0, job.config)
    stage.append(encoded, [log.folder.name], [1], now_ms)
    return stage.finish()


def _fields(known: TransactionalId, before: MessageFields | None) -> MessageFields:
    is_empty = known.state == EMPTY_STATE
    client_version = (before or {}).get("clientTransactionVersion", 0) if is_empty else _TRANSACTION_VERSION
    return {
        "producerId": known.producer_id,
        "previousProducerId": known.producer_id,
        "producerEpoch": known.producer_epoch,
        "transactionTimeoutMs": known.timeout_ms,
        "transactionStatus": TRANSACTION_STATES.index(known.state),
        "transactionPartitions": None if is_empty else _partitions(known.partitions),
        "transactionLastUpdateTimestampMs": known.last_update_ms,
        "transactionStartTimestampMs": known.start_ms,
        "clientTransactionVersion": client_version,
    }


def _partitions(folders: Collection[str]) -> list[MessageFields]:
    by_topic: dict[str, list[int]] = {}
    for at in sorted(filter(None, map(parse_partition_folder, folders))):
        by_topic.setdefault(at.topic, []).append(at.partition)
    return [{"topic": topic, "partitionIds": numbers} for topic, numbers in by_topic.items()]
