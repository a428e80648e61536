"""What becomes of records that were sent: futures that resolve when the records are written.

Records that are written together have one `Delivery`, and the future of a record is no more than the delivery and the
record's number in it: the metadata of a record is made when somebody asks for it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from sparklog.errors import KafkaTimeoutError
from sparklog.log.files import TopicPartition

Int64s = npt.NDArray[np.int64]

NO_OFFSET: Final = -1
"""The offset of a record whose producer does not wait for it to be written (``acks=0``)."""

_log = logging.getLogger("sparklog")


class RecordMetadata(NamedTuple):
    """Where a record was written; the fields are those of kafka-python.

    Attributes
    ----------
    topic : str
    partition : int
    topic_partition : TopicPartition
    offset : int
        -1 with ``acks=0``.
    timestamp : int
        The record's own, ms since the epoch; under ``message.timestamp.type=LogAppendTime`` that of the append.
    checksum : None
        Records of today's format have none of their own.
    serialized_key_size, serialized_value_size, serialized_header_size : int
        In bytes; -1 where there is none.
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
    """Where the rows of a table were written.

    Attributes
    ----------
    topic : str
    records : int
        How many rows.
    offsets : mapping of int to (int, int)
        The offsets of the first and the last row that went to each partition; rows of others are not between them.
    """

    topic: str
    records: int
    offsets: Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Written:
    """What became of the records of a delivery, each an array with a number for each record.

    Attributes
    ----------
    partitions, offsets, timestamps : int64 array, shape (n_records,)
    key_bytes, value_bytes, header_bytes : int64 array, shape (n_records,)
        Sizes; -1 where there is none.
    errors : mapping of int to Exception
        Of the records that were not written, by their numbers.
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
        Has the records written now, and not when ``linger_ms`` is over.
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
        """Say what became of the records, call back who asked for it, and then wake who waits for them.

        Parameters
        ----------
        value_of : callable
            Returns the value of a record by its number.
        errors : mapping of int to Exception
            Of those that failed.
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
        """Return the value of a record; None of one that failed, or is not written yet."""
        return None if self._value_of is None or number in self._errors else self._value_of(number)

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until the records are written, or have failed, and callbacks were called; tell whether that is so."""
        if self._caller == threading.get_ident():
            # A callback asks for what it is called with.
            return True
        if not self._done.is_set():
            self._hasten()
        return self._done.wait(timeout_seconds)

    def call_back(self, number: int, call: Callable[[Any], object], *, is_errback: bool) -> None:
        """Call a function with the value of a record, or with its error: now, or when there is one."""
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
    """The result of one send. Methods and attributes are those of kafka-python's futures.

    It is made of the delivery and the record's number in it: a tuple, since a class of fields would cost a send a tenth
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
        """Wait until it is written and callbacks were called, and return where; ``linger_ms`` is not waited for.

        Parameters
        ----------
        timeout : float, optional
            How long to wait, in seconds.

        Raises
        ------
        KafkaTimeoutError
            It took longer.
        SeglogError
            It was not written.
        """
        if not self._delivery.wait(timeout):
            raise KafkaTimeoutError(f"not written to {self._delivery.topic} within {timeout} s; it may be yet")
        error = self.exception
        if error is not None:
            raise error
        return self.value

    def add_callback(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Have a function called with the metadata, behind other arguments, in the producer's thread or in this one.

        What it raises is logged, and goes no further. It must not wait for the producer.
        """
        self._delivery.call_back(self._number, _bound(call, args, kwargs), is_errback=False)
        return self

    def add_errback(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Have a function called with the error, if there is one; otherwise as `add_callback`."""
        self._delivery.call_back(self._number, _bound(call, args, kwargs), is_errback=True)
        return self

    def add_both(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Have a function called with either."""
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
    """Return what makes the metadata of the records of a delivery, by their numbers."""

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
