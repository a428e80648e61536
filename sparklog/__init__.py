"""Read and write Apache Kafka partition logs as files, with no broker.

`open_log` reads a partition without Spark, `open_topic` reads many, and `PartitionLog` writes one; `transaction` writes
to many in one step. `decode` reads raw batches in memory. `export` moves whole directories to files of tables, `load`
moves files of rows to logs, `copy` moves logs to other logs, and `salvage` makes a clean log from a damaged one;
`mirror` and `backup` keep exact copies, and `restore` makes a log directory as it was, also for a new cluster.
`describe`, `diff` and `verify` inspect logs. `views` shows Kafka's internal topics as tables. `register` gives a Spark
session the format ``seglog``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparklog import errors

if TYPE_CHECKING:
    from sparklog import views
    from sparklog.clients.consumer import Consumer
    from sparklog.clients.producer import Producer
    from sparklog.jobs.backup.arguments import backups_in, prune_backups
    from sparklog.log.config import LogConfig
    from sparklog.log.reader import LogReader, open_log
    from sparklog.log.scans.raw_batches import decode
    from sparklog.spark.jobs import (
        backup,
        clean,
        copy,
        describe,
        diff,
        export,
        load,
        mirror,
        restore,
        salvage,
        verify,
        verify_backups,
    )
    from sparklog.spark.read.partitions import with_partition
    from sparklog.spark.source import register
    from sparklog.spark.stream.lag import stream_lag
    from sparklog.storage.given_options import place
    from sparklog.topic.cutting import delete_records, truncate_to
    from sparklog.topic.log_manager import LogManager
    from sparklog.topic.partition_log import PartitionLog
    from sparklog.topic.reader import TopicReader, open_topic
    from sparklog.topic.streams.checkpoints import offsets_of_checkpoint
    from sparklog.topic.transactions.writer import TransactionalWriter, transaction

    __version__: str

__all__ = [
    "Consumer",
    "LogConfig",
    "LogManager",
    "LogReader",
    "PartitionLog",
    "Producer",
    "TopicReader",
    "TransactionalWriter",
    "backup",
    "backups_in",
    "clean",
    "copy",
    "decode",
    "delete_records",
    "describe",
    "diff",
    "errors",
    "export",
    "load",
    "mirror",
    "offsets_of_checkpoint",
    "open_log",
    "open_topic",
    "place",
    "prune_backups",
    "register",
    "restore",
    "salvage",
    "stream_lag",
    "transaction",
    "truncate_to",
    "verify",
    "verify_backups",
    "views",
    "with_partition",
]

# Imported at first use: Spark's planner imports this package, and should not wait for modules that only tasks need.
_HOMES = {
    "Consumer": "sparklog.clients.consumer",
    "LogConfig": "sparklog.log.config",
    "LogManager": "sparklog.topic.log_manager",
    "LogReader": "sparklog.log.reader",
    "PartitionLog": "sparklog.topic.partition_log",
    "Producer": "sparklog.clients.producer",
    "TopicReader": "sparklog.topic.reader",
    "TransactionalWriter": "sparklog.topic.transactions.writer",
    "backup": "sparklog.spark.jobs",
    "backups_in": "sparklog.jobs.backup.arguments",
    "clean": "sparklog.spark.jobs",
    "copy": "sparklog.spark.jobs",
    "decode": "sparklog.log.scans.raw_batches",
    "delete_records": "sparklog.topic.cutting",
    "describe": "sparklog.spark.jobs",
    "diff": "sparklog.spark.jobs",
    "export": "sparklog.spark.jobs",
    "load": "sparklog.spark.jobs",
    "mirror": "sparklog.spark.jobs",
    "offsets_of_checkpoint": "sparklog.topic.streams.checkpoints",
    "open_log": "sparklog.log.reader",
    "open_topic": "sparklog.topic.reader",
    "place": "sparklog.storage.given_options",
    "prune_backups": "sparklog.jobs.backup.arguments",
    "register": "sparklog.spark.source",
    "restore": "sparklog.spark.jobs",
    "salvage": "sparklog.spark.jobs",
    "stream_lag": "sparklog.spark.stream.lag",
    "transaction": "sparklog.topic.transactions.writer",
    "truncate_to": "sparklog.topic.cutting",
    "verify": "sparklog.spark.jobs",
    "verify_backups": "sparklog.spark.jobs",
    "with_partition": "sparklog.spark.read.partitions",
}

_MODULES = {"views": "sparklog.views"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'sparklog' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _version() -> str:
    """Return the installed version, from the metadata of the distribution; the package alone does not know it."""
    from importlib import metadata

    try:
        return metadata.version("sparklog")
    except metadata.PackageNotFoundError:
        return "not installed"
