"""The errors of sparklog. Each says whose fault it is, which file, where in it, and what to do.

`SeglogError` is the base of every error that sparklog raises on purpose. Below it there are two families: errors of the
call (`InvalidOptionError`, `PathNotFoundError`, `OffsetOutOfRangeError`, `DataLossError`, `LockedError` and others),
and errors of the bytes (`CorruptLogError` and its subclasses, with the file, the position and the offset there).
`did_you_mean` makes the hint of an error about an unknown name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, Self

NOTHING_VISIBLE: Final = "Nothing of this write is visible: repeat it once the cause is gone"
ALL_VISIBLE: Final = "All of this write is visible: do not repeat it"
WILL_BE_VISIBLE: Final = (
    "This write was decided, and all of it will be visible once the next write to the directory, or "
    "'sparklog recover', has finished it: do not repeat it"
)
"""An error of a write ends with exactly one of these three sentences about its outcome for readers."""

NOTHING_CLEANED: Final = "No log was changed: repeat the cleaning once the cause is gone"
"""The outcome of a cleaning that fails before it begins with the first log."""

NOT_KNOWN: Final = (
    "It is not known how much of this write is visible: open the log again, and its end offset tells; "
    "the visible part is whole batches from its first on"
)
"""The outcome instead if a disk fails so that an append can be neither finished nor undone."""


class SeglogError(Exception):
    """The base of every error of sparklog. The message begins with a stable code in brackets.

    Attributes
    ----------
    message : str
        The fault, its place, and what to do.
    outcome : str
        The visible result of a failed write: `NOTHING_VISIBLE`, `ALL_VISIBLE`, `WILL_BE_VISIBLE` or, if the disk failed
        twice, `NOT_KNOWN`; for a cleaning that did not begin, `NOTHING_CLEANED`. Otherwise it is empty.
    others : tuple of Exception
        The errors of other tasks of the same job.
    picture : str
        Lines below the message that show the place of the error in a text of the caller's; empty if there are none.
    """

    code = "SEGLOG_ERROR"
    others: tuple[Exception, ...] = ()
    picture: str = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.outcome = ""

    @property
    def sentence(self) -> str:
        """The error in one line."""
        return f"[{self.code}] {self.message}" + (f". {self.outcome}" if self.outcome else "")

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.picture}" if self.picture else self.sentence


KafkaError = SeglogError
"""The base of all errors under its name in kafka-python, for ``except`` clauses."""


class outcome:  # noqa: N801 - it is used like a function, and a generator would cost a small append much of its time
    """Set the outcome of every `SeglogError` that leaves the ``with`` block and has none yet."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SeglogError):
            error.outcome = error.outcome or self._sentence


class InvalidOptionError(SeglogError, ValueError):
    """An option, column or argument of the caller is wrong."""

    code = "SEGLOG_INVALID_OPTION"


class PathNotFoundError(SeglogError):
    """The path, or a requested topic or partition below it, does not exist."""

    code = "SEGLOG_PATH_NOT_FOUND"


class OffsetOutOfRangeError(SeglogError):
    """The requested offsets are not in the log."""

    code = "SEGLOG_OFFSET_OUT_OF_RANGE"


class DataLossError(SeglogError):
    """Records that were there when a read was planned, or were requested, are gone."""

    code = "SEGLOG_DATA_LOSS"


class StorageError(SeglogError):
    """A file or folder cannot be read: no permission, an I/O error, not a file."""

    code = "SEGLOG_STORAGE"


class DiskError(StorageError):
    """The disk cannot read some bytes of a file."""

    code = "SEGLOG_DISK"


class ForeignNameError(StorageError):
    """Something else has the name of a file or folder: a link, a FIFO, a device, a folder or a file."""

    code = "SEGLOG_FOREIGN_NAME"


class InputFileError(SeglogError):
    """A file of rows to load is damaged, not in its format, or has a schema that does not fit."""

    code = "SEGLOG_INPUT_FILE"


class UnreadableLogError(StorageError):
    """A log that a job reads cannot be read, or has gone; other logs can still be moved."""

    code = "SEGLOG_UNREADABLE_LOG"


class OutputNameError(SeglogError):
    """A file of a job's target cannot get its name: the name is taken or too long."""

    code = "SEGLOG_OUTPUT_NAME"


class RecordTooLargeError(SeglogError):
    """A record is too large for a batch of the largest size allowed."""

    code = "SEGLOG_RECORD_TOO_LARGE"


class LockedError(SeglogError):
    """A log directory is in use: by a running broker, or by another writer."""

    code = "SEGLOG_LOCKED"


class BrokerRunningError(LockedError):
    """A broker runs on the log directory to write to."""

    code = "SEGLOG_BROKER_RUNNING"


class OutOfOrderSequenceError(SeglogError):
    """An idempotent producer's batch does not follow its last one."""

    code = "SEGLOG_OUT_OF_ORDER_SEQUENCE"


class InvalidProducerEpochError(SeglogError):
    """A producer's epoch is lower than one that its id has written with."""

    code = "SEGLOG_INVALID_PRODUCER_EPOCH"


class InvalidTransactionStateError(SeglogError):
    """A producer writes outside of its open transaction."""

    code = "SEGLOG_INVALID_TRANSACTION_STATE"


class KafkaTimeoutError(SeglogError, TimeoutError):
    """A producer or consumer has waited for the longest time allowed.

    This error and the next ones, up to `ProducerFencedError`, are raised by producers and consumers, with the names and
    on the occasions of kafka-python's errors, so that its ``except`` clauses only need another import.
    """

    code = "SEGLOG_TIMEOUT"


class MessageSizeTooLargeError(RecordTooLargeError):
    """A record is larger than ``max_request_size`` or its topic's ``max.message.bytes`` allows."""

    code = "SEGLOG_MESSAGE_SIZE_TOO_LARGE"


class SerializationError(SeglogError, TypeError):
    """A key, value or header is not bytes, and no serializer made it bytes."""

    code = "SEGLOG_SERIALIZATION"


class IllegalStateError(SeglogError):
    """A call does not fit the state: the producer or consumer is closed, or a partition is not assigned."""

    code = "SEGLOG_ILLEGAL_STATE"


class KafkaConfigurationError(InvalidOptionError):
    """A configuration of a producer or consumer does not exist, or contradicts another."""

    code = "SEGLOG_CONFIGURATION"


class UnknownTopicOrPartitionError(PathNotFoundError, ValueError):
    """The topic does not exist, or has no such partition."""

    code = "SEGLOG_UNKNOWN_TOPIC_OR_PARTITION"


class TopicAlreadyExistsError(SeglogError):
    """The topic to create exists already."""

    code = "SEGLOG_TOPIC_ALREADY_EXISTS"


class InvalidTopicError(InvalidOptionError):
    """A name is not allowed for topics."""

    code = "SEGLOG_INVALID_TOPIC"


class NoOffsetForPartitionError(SeglogError):
    """A consumer has no position in a partition, and ``auto_offset_reset`` gives it none."""

    code = "SEGLOG_NO_OFFSET_FOR_PARTITION"


class ProducerFencedError(InvalidProducerEpochError):
    """Another producer has started with this producer's transactional id."""

    code = "SEGLOG_PRODUCER_FENCED"


class WorkerPythonError(SeglogError):
    """Spark's workers run a Python without sparklog, or one that Spark cannot use."""

    code = "SEGLOG_WORKER_PYTHON"


class CommitError(SeglogError):
    """A write cannot be made visible or finished; the message says whether anything was changed."""

    code = "SEGLOG_COMMIT"


class ValueDecodeError(SeglogError):
    """A key or value does not fit its format or schema."""

    code = "SEGLOG_VALUE_DECODE"


class MessageDecodeError(SeglogError):
    """A record of an internal topic does not fit its definition, or its version is unknown."""

    code = "SEGLOG_MESSAGE_DECODE"


class CorruptLogError(SeglogError):
    """A log has bytes that Kafka does not write.

    Parameters
    ----------
    reason : str
        The damage, in a few words.
    path : str, optional
        The file.
    position : int, optional
        The byte position in that file.
    offset : int, optional
        The offset of the batch or record there, or the expected one.
    hint : str, optional
        The advice on what to do.
    """

    code = "SEGLOG_CORRUPT_LOG"

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.reason, self.path, self.position, self.offset, self.hint = reason, path, position, offset, hint
        places = (
            f"file {path}" if path is not None else "",
            f"position {position}" if position is not None else "",
            f"offset {offset}" if offset is not None else "",
        )
        where = ", ".join(place for place in places if place)
        message = reason + (f" ({where})" if where else "") + (f". {hint}" if hint else "")
        super().__init__(message)

    def located(self, *, path: str | None = None, position: int | None = None, offset: int | None = None) -> Self:
        """Return the same error with the path, position or offset, where it has none yet."""
        return type(self)(
            self.reason,
            path=self.path if self.path is not None else path,
            position=self.position if self.position is not None else position,
            offset=self.offset if self.offset is not None else offset,
            hint=self.hint,
        )

    def hinted(self, hint: str) -> Self:
        """Return the same error with another hint."""
        return type(self)(self.reason, path=self.path, position=self.position, offset=self.offset, hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        fields = type(self), self.reason, self.path, self.position, self.offset, self.hint
        return _rebuild, fields, self.__dict__.copy()


def _rebuild(
    kind: type[CorruptLogError],
    reason: str,
    path: str | None,
    position: int | None,
    offset: int | None,
    hint: str | None,
) -> CorruptLogError:
    return kind(reason, path=path, position=position, offset=offset, hint=hint)


class CorruptBatchError(CorruptLogError):
    """The length, checksum or content of a record batch is wrong."""

    code = "SEGLOG_CORRUPT_BATCH"


class DecompressedSizeError(CorruptBatchError):
    """A batch decompresses to more than the limit allows."""

    code = "SEGLOG_DECOMPRESSED_SIZE"


class CorruptCheckpointError(CorruptLogError):
    """A checkpoint file, a producer snapshot or ``partition.metadata`` cannot be read."""

    code = "SEGLOG_CORRUPT_CHECKPOINT"


def did_you_mean(name: str, known: Iterable[str], otherwise: str, *, cutoff: float = 0.5) -> str:
    """Return a hint for an unknown name.

    Parameters
    ----------
    known : iterable of str, or mapping of str to str
        The known names. The keys of a mapping are compared, and its values are shown.
    otherwise : str
        The hint if none of them is close to the name.
    cutoff : float
        The least similarity, from 0 to 1.
    """
    close = nearest(name, known, cutoff=cutoff)
    if not close:
        return otherwise
    return f"did you mean {(known[close[0]] if isinstance(known, Mapping) else close[0])!r}?"


def nearest(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.5) -> list[str]:
    """Return the known names most like a name, the nearest first; ``cutoff`` is the least similarity, from 0 to 1."""
    return get_close_matches(name, list(known), n=most, cutoff=cutoff)
