"""Reads a cluster's coordinated transactions and producer ids from a log directory.

A directory holds some partitions of ``__transaction_state``, or none, and the cluster's metadata if its broker is a
controller too.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

from sparklog.errors import SeglogError
from sparklog.log import files
from sparklog.log.files import parse_partition_folder
from sparklog.log.layout import read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.producer_snapshots import snapshots_of
from sparklog.log.producer_state import parse_snapshot
from sparklog.system.cluster_metadata import counting_records
from sparklog.system.records import InternalLog, Undecodable
from sparklog.system.transaction_state import TOPIC, current_transactions
from sparklog.topic.transactions.ids import PRODUCER_IDS_FROM, PRODUCER_IDS_UNTIL, TransactionalIds

_log = logging.getLogger("sparklog")

_PRODUCER_IDS: Final = "ProducerIdsRecord"
_DRAWN_BITS: Final = 42
_IDS_OF_A_DRAW: Final = 1 << 9
"""The first id is one of 2**42 numbers that lie this far apart."""


def _drawn() -> int:
    return secrets.randbits(_DRAWN_BITS)


def first_transactional_ids(directory: LogDirectory, draw: Callable[[], int] = _drawn) -> TransactionalIds:
    """Return an empty set of transactional ids, with the first free producer id.

    Draw the first producer id at random from sparklog's range, above every id of the range that this directory's logs
    or its cluster already have, as they do if the file of transactional ids was lost.
    """
    taken = [each for each in taken_producer_ids(directory) if PRODUCER_IDS_FROM <= each < PRODUCER_IDS_UNTIL]
    drawn = PRODUCER_IDS_FROM + draw() * _IDS_OF_A_DRAW
    return TransactionalIds(max([drawn, *(each + 1 for each in taken)]))


def transactions_of_brokers(directory: LogDirectory) -> list[dict[str, Any]]:
    """Return the rows of the view ``transactions`` from the directory's partitions of ``__transaction_state``."""
    unreadable, rows = Undecodable(), list[dict[str, Any]]()
    for folder in _folders(directory):
        if folder.topic == TOPIC:
            rows += current_transactions(InternalLog(read_layout(folder)), unreadable).to_pylist()
    unreadable.warn(is_history=False)
    return rows


def _folders(directory: LogDirectory) -> list[PartitionFolder]:
    names = sorted(entry.name for entry in directory.storage.names(directory.path) if entry.is_folder)
    return [directory.folder(name) for name in names if parse_partition_folder(name) is not None]


def taken_producer_ids(directory: LogDirectory) -> Iterator[int]:
    """Yield producer ids of logs and the cluster, including the largest of each."""
    for found in (_of_cluster, _of_coordinators, _of_snapshots):
        try:
            yield from found(directory)
        except SeglogError as error:
            _log.warning("%s; which producer ids it has given is not known", error)


def _of_cluster(directory: LogDirectory) -> Iterator[int]:
    folder = directory.folder(files.METADATA_FOLDER)
    if directory.storage.is_folder(folder.location):
        for each in counting_records(InternalLog(read_layout(folder)), Undecodable()):
            if each.record.name == _PRODUCER_IDS:
                yield each.record.fields["nextProducerId"] - 1


def _of_coordinators(directory: LogDirectory) -> Iterator[int]:
    for row in transactions_of_brokers(directory):
        yield from (row[name] for name in ("producer_id", "next_producer_id") if row[name] is not None)


def _of_snapshots(directory: LogDirectory) -> Iterator[int]:
    for folder in _folders(directory):
        for _, path in snapshots_of(folder)[:1]:
            data = folder.storage.read_small(path)
            if data is not None:
                yield from parse_snapshot(data, path)["producer_id"].tolist()
