"""Futures of sent records, which resolve when the records are written.

Records that are written together share one `Delivery`, and the future of a record is only the delivery and the
record's number in it: the metadata of a record is made on demand.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from sparklog.errors import KafkaTimeoutError
from sparklog.log.files import TopicPartition
from sparklog.record.format.streams import Int64s

UNKNOWN_OFFSET: Final = -1
"""The offset of a record if its producer does not wait for the write (``acks=0``)."""

_log = logging.getLogger("sparklog")


class RecordMetadata(NamedTuple):
    """The place of a written record, with kafka-python's fields.

    Attributes
    ----------
    topic : str
    partition : int
    topic_partition : TopicPartition
    offset : int
        -1 with ``acks=0``.
    timestamp : int
        The record's own time, ms since the epoch; with ``message.timestamp.type=LogAppendTime`` the append's.
    checksum : None
        Always None: records of format 2 have no checksum of their own.
    serialized_key_size, serialized_value_size, serialized_header_size : int
        In bytes; -1 if absent.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class TableMetadata(NamedTuple):
    """The places of a table's written rows.

    Attributes
    ----------
    topic : str
    records : int
        The number of rows.
    offsets : mapping of int to (int, int)
        By partition, the offsets of its first and last row. No other records are between them.
    """

    topic: str
    records: int
    offsets: Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Written:
    """The outcomes of a delivery's records, as arrays with one number per record.

    Attributes
    ----------
    partitions, offsets, timestamps : int64 array, shape (n_records,)
    key_bytes, value_bytes, header_bytes : int64 array, shape (n_records,)
        Sizes in bytes; -1 if absent.
    errors : mapping of int to Exception
        The errors of records that were not written, by record number.
    """

    partitions: Int64s
    offsets: Int64s
    timestamps: Int64s
    key_bytes: Int64s
    value_bytes: Int64s
    header_bytes: Int64s
    errors: Mapping[int, Exception]


Resolve = Callable[[int], Any]


class Delivery:
    """Records of one topic that are written together.

    Parameters
    ----------
    topic : str
    hasten : callable
        Lets the records be written now, before ``linger_ms`` is over.
    """

    __slots__ = ("_callbacks", "_caller", "_done", "_errors", "_hasten", "_lock", "_value_of", "topic")

    def __init__(self, topic: str, hasten: Callable[[], None]) -> None:
        self.topic, self._hasten = topic, hasten
        self._done, self._lock = threading.Event(), threading.Lock()
        self._callbacks: list[tuple[int, Callable[[Any], object], bool]] = []
        self._value_of: Resolve | None = None
        self._errors: Mapping[int, Exception] = {}
        self._caller: int | None = None

    @property
    def is_done(self) -> bool:
        return self._value_of is not None

    def resolve(self, value_of: Resolve, errors: Mapping[int, Exception]) -> None:
        """Set the outcomes of the records, run callbacks, then wake waiting threads.

        Parameters
        ----------
        value_of : callable
            Takes a record's number and returns its value.
        errors : mapping of int to Exception
            The errors of records that failed.
        """
        with self._lock:
            self._errors, self._value_of, self._caller = errors, value_of, threading.get_ident()
            callbacks, self._callbacks = self._callbacks, []
        try:
            for number, call, is_errback in callbacks:
                self._call(number, call, is_errback=is_errback)
        finally:
            self._caller = None
            self._done.set()

    def fail(self, error: Exception, records: int) -> None:
        """Fail all records with one error."""
        self.resolve(lambda _: None, dict.fromkeys(range(records), error))

    def error_of(self, number: int) -> Exception | None:
        return self._errors.get(number)

    def value_of(self, number: int) -> Any:
        """Return the value of a record; None if it failed or is not yet written."""
        return None if self._value_of is None or number in self._errors else self._value_of(number)

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until the records are written or have failed, and callbacks have run; return whether they have."""
        if self._caller == threading.get_ident():
            # A callback may ask for its own record.
            return True
        if not self._done.is_set():
            self._hasten()
        return self._done.wait(timeout_seconds)

    def call_back(self, number: int, call: Callable[[Any], object], *, is_errback: bool) -> None:
        """Call a function with the value of a record, or with its error: now, or once it is known."""
        with self._lock:
            if self._value_of is None:
                self._callbacks.append((number, call, is_errback))
                return
        self._call(number, call, is_errback=is_errback)

    def _call(self, number: int, call: Callable[[Any], object], *, is_errback: bool) -> None:
        error = self._errors.get(number)
        if (error is not None) != is_errback:
            return
        try:
            call(error if is_errback else self.value_of(number))
        except Exception:
            _log.exception("a callback of a record for %s has failed", self.topic)


class _Future(tuple[Delivery, int]):
    """The result of one send, with the methods and attributes of kafka-python's futures.

    A tuple of the delivery and the record's number in it: a class with fields would cost a send a tenth
    of its time.
    """

    __slots__ = ()

    @property
    def _delivery(self) -> Delivery:
        return self[0]

    @property
    def _number(self) -> int:
        return self[1]

    def __repr__(self) -> str:
        state = "waits" if not self.is_done else "failed" if self.failed() else "is written"
        return f"{type(self).__name__}({self._delivery.topic}: {state})"

    @property
    def is_done(self) -> bool:
        return self._delivery.is_done

    @property
    def value(self) -> Any:
        return self._delivery.value_of(self._number)

    @property
    def exception(self) -> Exception | None:
        return self._delivery.error_of(self._number)

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        return self.is_done and self.exception is not None

    def get(self, timeout: float | None = None) -> Any:
        """Wait until it is written and callbacks have run, and return its place. This ends the wait for ``linger_ms``.

        Parameters
        ----------
        timeout : float, optional
            How long to wait, in seconds.

        Raises
        ------
        KafkaTimeoutError
            It took longer.
        SeglogError
            The record was not written.
        """
        if not self._delivery.wait(timeout):
            raise KafkaTimeoutError(f"not written to {self._delivery.topic} within {timeout} s; it may be yet")
        error = self.exception
        if error is not None:
            raise error
        return self.value

    def add_callback(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call a function with other arguments and the metadata, in the producer's thread or in this one.

        Its errors are logged only. It must not wait for the producer.
        """
        self._delivery.call_back(self._number, _bound(call, args, kwargs), is_errback=False)
        return self

    def add_errback(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call a function with the error, if there is one; otherwise like `add_callback`."""
        self._delivery.call_back(self._number, _bound(call, args, kwargs), is_errback=True)
        return self

    def add_both(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call a function with the metadata or the error."""
        return self.add_callback(call, *args, **kwargs).add_errback(call, *args, **kwargs)


class FutureRecordMetadata(_Future):
    """The result of `sparklog.Producer.send`: `RecordMetadata`."""

    __slots__ = ()


class FutureTableMetadata(_Future):
    """The result of `sparklog.Producer.send_table`: `TableMetadata`."""

    __slots__ = ()


class FutureCommit(_Future):
    """The result of `sparklog.Consumer.commit_async`: the offsets."""

    __slots__ = ()


def _bound(call: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], object]:
    return functools.partial(call, *args, **kwargs) if args or kwargs else call


def record_metadata(topic: str, written: Written) -> Resolve:
    """Return a function that makes the metadata of a delivery's records, by record number."""

    def value_of(number: int) -> RecordMetadata:
        partition = int(written.partitions[number])
        return RecordMetadata(
            topic,
            partition,
            TopicPartition(topic, partition),
            int(written.offsets[number]),
            int(written.timestamps[number]),
            None,
            int(written.key_bytes[number]),
            int(written.value_bytes[number]),
            int(written.header_bytes[number]),
        )

    return value_of
