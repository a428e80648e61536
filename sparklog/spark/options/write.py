"""Declares, parses and checks the options of a write; no other module does.

Besides the options declared here, a write takes the topic properties of `sparklog.log.config`, under Kafka's own names.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from sparklog.errors import InvalidOptionError
from sparklog.log import config
from sparklog.log.config import LogConfig
from sparklog.log.files import checked_topic
from sparklog.log.properties import AT_COMMIT, option
from sparklog.spark.options.limits import NEW_PARTITIONS_MAX
from sparklog.spark.options.parsing import (
    NO_PATH_TO_WRITE,
    declared_names,
    in_lower_case,
    location,
    location_or_none,
    read_declared,
    refuse_unknown,
)
from sparklog.storage.given_options import parse_storage_options, split_options
from sparklog.storage.registry import Location
from sparklog.topic.write.txn_versions import TxnVersion

_log = logging.getLogger("sparklog")

_KAFKA_PREFIX: Final = "kafka."
# Producer options of Spark's Kafka sink that mean the same here.
_ALIASES: Final = {
    "kafka.batch.size": "batch.size",
    "kafka.compression.type": "compression.type",
    **{f"{_KAFKA_PREFIX}{name}": name for name in config.LEVELS},
    "kafka.partitioner.class": "partitioner",
}
_PARTITIONER_CLASSES: Final = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "roundRobin",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "default",
}


def _topic(name: str, given: str) -> str:
    try:
        return checked_topic(given.strip())
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{name} is {error.message}") from error


def _topic_id(name: str, given: str) -> str:
    try:
        is_uuid = len(given) == 22 and len(base64.urlsafe_b64decode(given + "==")) == 16 and set(given) != {"A"}
    except (ValueError, binascii.Error):
        is_uuid = False
    if not is_uuid:
        raise InvalidOptionError(
            f"{name} must be as kafka-topics --describe prints it, 22 characters such as Q2TYVrXaSDWPZ5lUZtm3Jg, "
            f"got {given!r}"
        )
    return given


def _partitioner(_: str, given: str) -> str:
    return _PARTITIONER_CLASSES.get(given.strip(), given.strip())


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, made by `parse`."""

    path: Location = option(  # noqa: RUF009 - a field, like the others
        "path",
        None,
        parser=location_or_none,
        is_required=True,
        doc="A log directory, a topic's path, or a partition's folder.",
    )
    topic: str | None = option("topic", None, parser=_topic, doc="The topic of all rows; overrides the column topic.")
    num_partitions: int | None = option(
        "numPartitions",
        None,
        kind=int,
        at_least=1,
        at_most=NEW_PARTITIONS_MAX,
        too_low="numPartitions must be positive",
        doc="How many partitions a new topic gets; without it a topic that does not exist is an error.",
    )
    partitioner: str = option(
        "partitioner",
        "default",
        parser=_partitioner,
        doc="How a row that names no partition gets one: default (the key's hash, as in Kafka's producer), roundRobin, "
        "or package.module:Name.",
    )
    topic_id: str | None = option(
        "topicId", None, parser=_topic_id, doc="The topic's id in its cluster, for partition.metadata; 22 characters."
    )
    application: str | None = option(
        "txnAppId",
        None,
        parser=lambda _, given: given,
        doc="With txnVersion: a name for the writer, by which a rerun of a batch writes nothing. With transactional: "
        "the transactional id.",
    )
    version: int | None = option(
        "txnVersion",
        None,
        kind=int,
        takes="a whole number, 0 or more",
        doc="The number of the batch; it grows from batch to batch.",
    )
    on_replay: str = option(
        "onReplay",
        "fail",
        choices=("fail", "skip"),
        ignores_case=True,
        doc="How to treat a batch whose number was written with other rows: as an error (fail), or as already written "
        "(skip), for queries that give other rows when they are repeated.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        doc="Of a stream: whether it is an error, or only a warning, that the log directory lacks earlier batches.",
    )
    is_transactional: bool = option(
        "transactional",
        False,
        doc="Write the rows as one Kafka transaction, with commit markers: readers of committed records see all of "
        "them at once, also in a broker. Needs txnAppId.",
    )
    lock_timeout_ms: int = option(
        "lockTimeoutMs",
        600_000,
        at_least=1,
        too_low="lockTimeoutMs must be positive",
        doc="How long to wait for other writers of the directory. A running broker is not waited for.",
    )
    report_path: Location | None = option(  # noqa: RUF009 - a field, like the others
        "reportPath",
        None,
        parser=location,
        doc="A file for a report of the written offsets, with a JSON line for each partition.",
    )
    include_headers: bool = option(
        "includeHeaders",
        False,
        doc="Accepted for the connector's sake, without effect: a column headers is always written.",
    )
    config: LogConfig = field(default_factory=LogConfig)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them, and warn about options without effect.

        Parameters
        ----------
        given : mapping of str to str
            The given options, names in any case.

        Raises
        ------
        InvalidOptionError
            An option is unknown, malformed or contradicts another, or the path is missing.
        """
        of_storages, given = split_options(_without_aliases(in_lower_case(given, _ALIASES)))
        names, topic_names = declared_names(cls), config.property_names()
        known = {name.lower(): name for name in names} | {name: name for name in topic_names}
        refuse_unknown(given, known, " of a write", names)
        properties = {name: value for name, value in given.items() if name in topic_names}
        storage_options = parse_storage_options(of_storages)
        with storage_options.in_force():
            options = cls(**read_declared(cls, given), config=LogConfig.from_properties(properties))
        if not options.path:
            raise InvalidOptionError(NO_PATH_TO_WRITE)
        options._check_transaction()
        options.config.warn_idle(AT_COMMIT)
        storage_options.warn_idle()
        if "includeheaders" in given:
            _log.warning("includeHeaders does nothing in a write of Spark: a column headers is always written")
        return options

    def _check_transaction(self) -> None:
        if self.is_transactional:
            if not self.application:
                raise InvalidOptionError("transactional needs txnAppId, which is the transactional id: it is not given")
        elif (self.application is None) != (self.version is None):
            raise InvalidOptionError("txnAppId and txnVersion go together: one of them is not given")

    def idle_in_batches(self) -> list[str]:
        """Return the names of the given options that do nothing in a batch write."""
        acts = {
            "onReplay": self.on_replay == "fail" or self.version is not None,
            "failOnDataLoss": self.fail_on_data_loss,
        }
        return [name for name, has_effect in acts.items() if not has_effect]

    @property
    def transactional_id(self) -> str | None:
        """The transactional id of the rows; None if the write is not transactional."""
        return self.application if self.is_transactional else None

    @property
    def transaction(self) -> TxnVersion | None:
        if self.application is None or self.version is None:
            return None
        return self.numbered(self.application, self.version)

    def numbered(self, application: str, version: int) -> TxnVersion:
        """Return the number of a batch of an application, not yet with the digest of its rows."""
        return TxnVersion(
            application, version, skips_replays=self.on_replay == "skip", fails_on_loss=self.fail_on_data_loss
        )


def _without_aliases(given: Mapping[str, str]) -> dict[str, str]:
    """Return options without the connector's names; warn once about names without effect here."""
    ignored = sorted(name for name in given if name.startswith(_KAFKA_PREFIX) and name not in _ALIASES)
    if ignored:
        _log.warning("no broker is asked, so these options mean nothing here: %s", ", ".join(ignored))
    return {name: value for name, value in given.items() if not name.startswith(_KAFKA_PREFIX)}
