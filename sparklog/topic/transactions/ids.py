"""Keeps the transactional ids of a log directory and their producers, as Kafka does in ``__transaction_state``.

``seglog.transactions`` in the log directory is one JSON object. It is changed under the lock of the directory; the
commit that ends a transaction replaces it together with everything else:

    version             2; 1 in a file of earlier versions of sparklog, which refuse 2: no journal follows it
    next_producer_id    the id of the next new producer; no id is given twice
    transactional_ids   by transactional id:
        producer_id
        producer_epoch   the epoch of its transaction, or of the next one
        state            Kafka's: Empty, Ongoing, CompleteCommit or CompleteAbort
        timeout_ms       how long its transaction may stay open; Kafka's ``transaction.timeout.ms``
        partitions       the folder names of the partitions of its transaction
        start_ms         the start of the transaction, ms since the epoch; -1 if none has begun
        last_update_ms   ms since the epoch

``seglog.transactions.journal`` has the partitions that were added to open transactions since then, so that adding one
of many writes one line; see `sparklog.log.checked_lines`:

    producer_id, producer_epoch
                         the producer of the transaction
    partitions           the folder names of the added partitions

A line counts for the open transaction of its producer and epoch, and for no other. The next addition that begins a
transaction removes the journal; what ``seglog.transactions`` has by then includes it.

Producer ids of a directory begin at a random number between 2**52 and 2**53 and count up. A cluster counts from 0, and
gets there after four quadrillion producers. If a log is copied to another directory, the ids of the two hardly collide.
And programs that read JSON numbers as floating-point numbers read them exactly.

`sparklog.topic.transactions` explains how epochs fence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from sparklog.errors import CorruptCheckpointError, InvalidOptionError, InvalidProducerEpochError, StorageError
from sparklog.log.checked_lines import encode_line, line_checksum, line_ending, whole_lines
from sparklog.log.files import ADDED_PARTITIONS, TRANSACTIONAL_IDS
from sparklog.log.kept_by_stamp import StampedFile, StampedLines
from sparklog.log.places import LogDirectory
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.write.small_files import append_line, write_atomically

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
_VERSION: Final = 2
_VERSION_WITHOUT_JOURNAL: Final = 1
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


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

    def with_added(self, added: AddedPartitions) -> TransactionalIds:
        """Return the ids with the partitions that were added to their open transactions."""
        more = {
            name: replace(each, partitions=tuple(dict.fromkeys((*each.partitions, *added.of[each.producer]))))
            for name, each in self.ids.items()
            if each.is_open and each.producer in added.of
        }
        return replace(self, ids={**self.ids, **more}) if more else self

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


@dataclass(frozen=True)
class AddedPartitions:
    """The partitions in the part of the journal that was read.

    Attributes
    ----------
    of : mapping of TransactionProducer to tuple of str
        The folder names of the partitions that a producer has added.
    end_position : int
        The end of the lines.
    checksum : int
        The checksum there.
    """

    of: Mapping[TransactionProducer, tuple[str, ...]] = field(default_factory=dict)
    end_position: int = 0
    checksum: int = 0

    @property
    def ending(self) -> bytes:
        """The last bytes of the lines, which no journal with other lines has there."""
        return line_ending(self.checksum) if self.end_position else b""


def read_transactional_ids(directory: LogDirectory) -> TransactionalIds | None:
    """Read the transactional ids of a log directory; None if it has never had any.

    Raises
    ------
    CorruptCheckpointError
        A file cannot be read. Nothing may be written in a transaction then, because a producer id might be reused.
    """
    found, added = stored_ids(directory)
    return None if found is None else found.with_added(added)


def stored_ids(directory: LogDirectory) -> tuple[TransactionalIds | None, AddedPartitions]:
    """Read the file and its journal, of one moment; for errors see `read_transactional_ids`."""
    found = _files.read(directory, TRANSACTIONAL_IDS)
    while True:
        before, added = found, _journals.read(directory, ADDED_PARTITIONS, _NOTHING_ADDED)
        found = _files.read(directory, TRANSACTIONAL_IDS)
        if found == before:
            return found, added


def add_partitions(
    directory: LogDirectory, producer: TransactionProducer, folders: Collection[str], added: AddedPartitions
) -> None:
    """Add partitions to the open transaction of a producer. The caller holds the lock of the directory.

    Parameters
    ----------
    added : AddedPartitions
        The partitions in the journal now, from `stored_ids`.
    """
    fields = {**producer._asdict(), "partitions": list(folders)}
    line = encode_line(fields, added.checksum)
    append_line(directory, ADDED_PARTITIONS, added.end_position, line, like=TRANSACTIONAL_IDS)


def replace_ids(directory: LogDirectory, ids: TransactionalIds) -> None:
    """Replace the file by ids that include the journal, and remove that. The caller holds the lock of the directory."""
    write_atomically(directory, TRANSACTIONAL_IDS, ids.encode())
    # Lines that stay count for transactions that have their partitions already.
    with suppress(StorageError):
        directory.writable.remove(directory.file(ADDED_PARTITIONS))


def _parsed(data: bytes, path: str) -> TransactionalIds:
    try:
        found = json.loads(data)
        if found["version"] in (_VERSION, _VERSION_WITHOUT_JOURNAL):
            ids = {str(name): _transactional_id(fields) for name, fields in found["transactional_ids"].items()}
            return TransactionalIds(_number(found["next_producer_id"], 0), ids)
    except _UNREADABLE as error:
        raise CorruptCheckpointError(f"not a file of transactional ids: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a file of transactional ids", path=path)


def _with_lines(found: AddedPartitions, data: bytes, path: str) -> AddedPartitions:
    """Return the added partitions after more lines of the journal."""
    of, position, checksum = dict(found.of), found.end_position, found.checksum
    for line in whole_lines(data):
        try:
            checksum = line_checksum(line, checksum)
            fields = json.loads(line)
            producer = _producer(fields)
            of[producer] = (*of.get(producer, ()), *(str(folder) for folder in fields["partitions"]))
        except _UNREADABLE as error:
            raise CorruptCheckpointError(
                f"not a line of added partitions: {error!r}", path=path, position=position, hint=_WAY_OUT
            ) from error
        position += len(line)
    return found if position == found.end_position else AddedPartitions(of, position, checksum)


_WAY_OUT: Final = (
    "Nothing is changed while it cannot be read. Restore this file and the one without .journal together; or remove "
    "this file, and then end the transactions that 'sparklog transactions --hanging' shows"
)
_NOTHING_ADDED: Final = AddedPartitions()
_files: Final = StampedFile(_parsed)
_journals: Final = StampedLines(_with_lines)


def _producer(fields: Mapping[str, Any]) -> TransactionProducer:
    return TransactionProducer(_number(fields["producer_id"], 0), _number(fields["producer_epoch"], 0, EPOCH_MAX))


def _transactional_id(fields: Mapping[str, Any]) -> TransactionalId:
    if fields["state"] not in _STATES:
        raise ValueError(f"unknown state {fields['state']!r}")
    return TransactionalId(
        *_producer(fields),
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
