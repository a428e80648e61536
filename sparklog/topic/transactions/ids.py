"""Keeps the transactional ids of a log directory and their producers, as Kafka does in ``__transaction_state``.

``seglog.transactions`` in the log directory is one JSON object. It is changed under the lock of the directory; the
commit that ends a transaction replaces it together with everything else:

    version             1
    next_producer_id    the id of the next new producer; no id is given twice
    transactional_ids   by transactional id:
        producer_id
        producer_epoch   the epoch of its transaction, or of the next one
        state            Kafka's: Empty, Ongoing, CompleteCommit or CompleteAbort
        timeout_ms       how long its transaction may stay open; Kafka's ``transaction.timeout.ms``
        partitions       the folder names of the partitions of its transaction
        start_ms         the start of the transaction, ms since the epoch; -1 if none has begun
        last_update_ms   ms since the epoch

Producer ids of a directory begin at a random number between 2**52 and 2**53 and count up. A cluster counts from 0, and
gets there after four quadrillion producers. If a log is copied to another directory, the ids of the two hardly collide.
And programs that read JSON numbers as floating-point numbers read them exactly.

`sparklog.topic.transactions` explains how epochs fence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from sparklog.errors import CorruptCheckpointError, InvalidOptionError, InvalidProducerEpochError
from sparklog.log.files import TRANSACTIONAL_IDS
from sparklog.log.places import LogDirectory
from sparklog.record.batches.producer_stamps import TransactionProducer

TIMEOUT_MS: Final = 60_000
"""Kafka's default of ``transaction.timeout.ms``."""
PRODUCER_IDS_FROM: Final = 1 << 52
PRODUCER_IDS_UNTIL: Final = 1 << 53
EPOCH_MAX: Final = (1 << 15) - 3
"""The last epoch of a transaction. Its marker has the next epoch, which is Kafka's last."""
EXPIRATION_MS: Final = 7 * 24 * 3600 * 1000
"""Kafka's ``transactional.id.expiration.ms``: an idle transactional id is forgotten after this time."""

EMPTY_STATE: Final = "Empty"
ONGOING: Final = "Ongoing"
COMMITTED: Final = "CompleteCommit"
ABORTED: Final = "CompleteAbort"
_STATES: Final = frozenset({EMPTY_STATE, ONGOING, COMMITTED, ABORTED})
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """The state of one transactional id; see the module for the fields."""

    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    partitions: tuple[str, ...]
    start_ms: int
    last_update_ms: int

    @property
    def producer(self) -> TransactionProducer:
        return TransactionProducer(self.producer_id, self.producer_epoch)

    @property
    def is_open(self) -> bool:
        """Whether it has an open transaction."""
        return self.state == ONGOING

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether its transaction has been open for longer than its timeout."""
        return self.is_open and now_ms - self.start_ms > self.timeout_ms


@dataclass(frozen=True)
class TransactionalIds:
    """All transactional ids of a log directory. Each change makes a new value."""

    next_producer_id: int
    ids: Mapping[str, TransactionalId] = field(default_factory=dict)

    def begun(self, name: str, timeout_ms: int, now_ms: int) -> TransactionalIds:
        """Return the ids after a new start of a transactional id, which has no open transaction."""
        found = self.ids.get(name)
        if found is None:
            after, producer = self._with_new_producer()
        else:
            after, producer = self._after_epoch(found.producer)
        begun = TransactionalId(*producer, EMPTY_STATE, timeout_ms, (), -1, now_ms)
        return after._with(name, begun)

    def opened(self, name: str, now_ms: int, folders: Collection[str] = ()) -> TransactionalIds:
        """Return the ids after partitions or offsets were added to a transaction; the first addition begins it."""
        found = self.ids[name]
        before = found.partitions if found.is_open else ()
        start_ms = found.start_ms if found.is_open else now_ms
        partitions = tuple(dict.fromkeys((*before, *folders)))
        return self._with(
            name, replace(found, state=ONGOING, partitions=partitions, start_ms=start_ms, last_update_ms=now_ms)
        )

    def ended(self, name: str, now_ms: int, *, is_abort: bool) -> TransactionalIds:
        """Return the ids after the markers of a transaction were written, in the next epoch."""
        found = self.ids[name]
        after, producer = self._after_epoch(found.producer)
        state = ABORTED if is_abort else COMMITTED
        ended = TransactionalId(*producer, state, found.timeout_ms, (), found.start_ms, now_ms)
        return after._with(name, ended)

    def checked(self, name: str, producer: TransactionProducer) -> TransactionalId:
        """Return the state of a transactional id, checking that it still belongs to a producer.

        Raises
        ------
        InvalidProducerEpochError
            Another writer has started the id since.
        """
        found = self.ids.get(name)
        if found is None or found.producer != producer:
            now = "it is not known any more" if found is None else f"it has {_named(found.producer)} now"
            raise InvalidProducerEpochError(
                f"the transactional id {name!r} was started with {_named(producer)}, and {now}: it is fenced, since a "
                f"newer writer has started it"
            )
        return found

    def _with(self, name: str, changed: TransactionalId) -> TransactionalIds:
        earliest_ms = changed.last_update_ms - EXPIRATION_MS
        kept = {key: each for key, each in self.ids.items() if each.is_open or each.last_update_ms > earliest_ms}
        return replace(self, ids={**kept, name: changed})

    def _after_epoch(self, producer: TransactionProducer) -> tuple[TransactionalIds, TransactionProducer]:
        """Return the same producer in its next epoch, or a new producer after the last epoch."""
        if producer.producer_epoch >= EPOCH_MAX:
            return self._with_new_producer()
        return self, TransactionProducer(producer.producer_id, producer.producer_epoch + 1)

    def _with_new_producer(self) -> tuple[TransactionalIds, TransactionProducer]:
        found = self.next_producer_id
        return replace(self, next_producer_id=found + 1), TransactionProducer(found, 0)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return json.dumps(
            {
                "version": _VERSION,
                "next_producer_id": self.next_producer_id,
                "transactional_ids": {name: asdict(each) for name, each in self.ids.items()},
            }
        ).encode()


def check_transactional_id(name: str) -> str:
    """Return a transactional id; raise `InvalidOptionError` if it is not valid."""
    if not isinstance(name, str) or not name:
        raise InvalidOptionError(f"a transactional id is a text that is not empty, got {name!r}")
    return name


def read_transactional_ids(directory: LogDirectory) -> TransactionalIds | None:
    """Read the transactional ids of a log directory; None if it has never had any.

    Raises
    ------
    CorruptCheckpointError
        The file cannot be read. Nothing may be written in a transaction then, because a producer id might be reused.
    """
    path = directory.file(TRANSACTIONAL_IDS)
    data = directory.storage.read_small(path)
    return None if data is None else _parsed(data, path)


def _parsed(data: bytes, path: str) -> TransactionalIds:
    try:
        found = json.loads(data)
        if found["version"] == _VERSION:
            ids = {str(name): _transactional_id(fields) for name, fields in found["transactional_ids"].items()}
            return TransactionalIds(_number(found["next_producer_id"], 0), ids)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(f"not a file of transactional ids: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a file of transactional ids", path=path)


def _transactional_id(fields: Mapping[str, Any]) -> TransactionalId:
    if fields["state"] not in _STATES:
        raise ValueError(f"unknown state {fields['state']!r}")
    return TransactionalId(
        producer_id=_number(fields["producer_id"], 0),
        producer_epoch=_number(fields["producer_epoch"], 0, EPOCH_MAX),
        state=fields["state"],
        timeout_ms=_number(fields["timeout_ms"], 0),
        partitions=tuple(str(folder) for folder in fields["partitions"]),
        start_ms=_number(fields["start_ms"], -1),
        last_update_ms=_number(fields["last_update_ms"], -1),
    )


def _number(found: object, at_least: int, at_most: int = (1 << 63) - 1) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not at_least <= found <= at_most:
        raise ValueError(f"not a number from {at_least} to {at_most}: {found!r}")
    return found


def _named(producer: TransactionProducer) -> str:
    return f"producer {producer.producer_id} in epoch {producer.producer_epoch}"
