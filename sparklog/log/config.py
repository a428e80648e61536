"""What decides how one partition's log is written and kept: Kafka's topic properties, under Kafka's own names.

Each property is declared once: name, default, bound, the broker's spellings of it, and what it does. Text is read
strictly and a wrong value is refused by name, whichever way it came: a mapping, a ``.properties`` file, or an argument.

Defaults are those of Kafka 4, but for ``compression.type``. Source: apache/kafka, LogConfig.java,
ServerTopicConfigSynonyms.java, CompressionType.java.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import javaproperties

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.storage.base import locate

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_UNLIMITED: Final = -1

_log = logging.getLogger("sparklog")

# Topic properties of a cluster's own life: a log that is written with no broker has no use for them.
_BROKER_ONLY: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "min.insync.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "unclean.leader.election.enable",
    }
)


class Spelling(NamedTuple):
    """A broker's name of a property; ``unit`` is what its values are multiplied by."""

    name: str
    unit: int = 1


class Described(NamedTuple):
    """A property, for documentation."""

    name: str
    default: str
    bound: str
    doc: str


@dataclass(frozen=True)
class _Property:
    """What `option` declares. The type of the default is the type of the value."""

    name: str
    default: bool | int | float | str | tuple[str, ...]
    doc: str
    at_least: float
    at_most: float
    choices: tuple[str, ...]
    synonyms: Mapping[str, str]
    spellings: tuple[Spelling, ...]

    @property
    def bound(self) -> str:
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, tuple):
            return f"any of {', '.join(self.choices)}, each once, with commas between"
        if isinstance(self.default, str):
            return f"one of {', '.join(self.choices)}"
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        return f"{kind}, at least {self.at_least} and at most {self.at_most}"

    def parse(self, spelling: Spelling, text: str) -> Any:
        """Read a value as text, given under one of the names; `InvalidOptionError` where it is none."""
        value = self._converted(text.strip())
        if spelling.unit != 1 and value not in (None, _UNLIMITED):
            value *= spelling.unit
        if not self.allows(value):
            raise InvalidOptionError(f"{spelling.name} must be {self._bound_in(spelling.unit)}, got {text!r}")
        return value

    def allows(self, value: Any) -> bool:
        """Tell whether a value is of the right type and within its bound."""
        if isinstance(self.default, tuple):
            return isinstance(value, tuple) and set(value) <= set(self.choices) and len(set(value)) == len(value)
        if isinstance(self.default, (bool, str)):
            return type(value) is type(self.default) and (not self.choices or value in self.choices)
        kinds = (int, float) if isinstance(self.default, float) else (int,)
        return type(value) in kinds and self.at_least <= value <= self.at_most

    def text(self, value: Any) -> str:
        """Write a value as `parse` reads it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _converted(self, text: str) -> Any:
        if isinstance(self.default, bool):
            return {"true": True, "false": False}.get(text.lower())
        if isinstance(self.default, tuple):
            return tuple(item.strip() for item in text.split(",")) if text else ()
        if isinstance(self.default, str):
            return self.synonyms.get(text, text)
        if isinstance(self.default, int):
            return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        return float(text) if re.fullmatch(r"[+-]?[0-9]{0,19}\.?[0-9]{1,19}(e[+-]?[0-9]{1,3})?", text) else None

    def _bound_in(self, unit: int) -> str:
        if unit == 1:
            return self.bound
        at_least = self.at_least if self.at_least == _UNLIMITED else -(-self.at_least // unit)
        return f"a whole number, at least {at_least} and at most {self.at_most // unit}"


def option(
    name: str,
    default: Any,
    *,
    at_least: float = 0,
    at_most: float = _LONG_MAX,
    choices: tuple[str, ...] = (),
    synonyms: Mapping[str, str] = MappingProxyType({}),
    also: Iterable[str | Spelling] = (),
    doc: str,
) -> Any:
    """Declare a property: its name, default and bound, the broker's spellings, strongest first, and what it does."""
    spellings = tuple(each if isinstance(each, Spelling) else Spelling(each) for each in also)
    declared = _Property(name, default, doc, at_least, at_most, choices, synonyms, spellings)
    return field(default=default, metadata={"property": declared})


@dataclass(frozen=True)
class LogConfig:
    """The properties of one partition's log. Made from text by `from_properties` and `from_file`.

    Raises
    ------
    InvalidOptionError
        A value is out of its bound, or contradicts another.
    """

    segment_bytes: int = option(
        "segment.bytes",
        1 << 30,
        at_least=14,
        at_most=_INT_MAX,
        also=("log.segment.bytes",),
        doc="Roll before the segment grows past this. No batch may be larger, whatever max.message.bytes allows.",
    )
    segment_ms: int = option(
        "segment.ms",
        168 * _HOUR_MS,
        at_least=1,
        also=("log.roll.ms", Spelling("log.roll.hours", _HOUR_MS)),
        doc="Roll when the next batch is later than the segment's first by more than this, by their timestamps.",
    )
    segment_jitter_ms: int = option(
        "segment.jitter.ms",
        0,
        also=("log.roll.jitter.ms", Spelling("log.roll.jitter.hours", _HOUR_MS)),
        doc="Roll by segment.ms up to this much earlier, chosen at random, so that partitions do not roll together.",
    )
    segment_index_bytes: int = option(
        "segment.index.bytes",
        10 << 20,
        at_least=4,
        at_most=_INT_MAX,
        also=("log.index.size.max.bytes",),
        doc="The room of an index file; roll when either is full.",
    )
    index_interval_bytes: int = option(
        "index.interval.bytes",
        4096,
        at_most=_INT_MAX,
        also=("log.index.interval.bytes",),
        doc="Add an index entry after more than this many bytes of log.",
    )
    flush_messages: int = option(
        "flush.messages",
        _LONG_MAX,
        at_least=1,
        also=("log.flush.interval.messages",),
        doc="Sync to disk after this many records.",
    )
    flush_ms: int = option(
        "flush.ms",
        _LONG_MAX,
        also=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Sync to disk when the last sync is this long ago.",
    )
    retention_bytes: int = option(
        "retention.bytes",
        _UNLIMITED,
        at_least=_UNLIMITED,
        also=("log.retention.bytes",),
        doc="Under cleanup.policy delete: drop the oldest segments while the log is larger than this; -1 is no limit.",
    )
    retention_ms: int = option(
        "retention.ms",
        168 * _HOUR_MS,
        at_least=_UNLIMITED,
        also=(
            "log.retention.ms",
            Spelling("log.retention.minutes", _MINUTE_MS),
            Spelling("log.retention.hours", _HOUR_MS),
        ),
        doc="Under cleanup.policy delete: drop segments whose records are all older than this; -1 is no limit.",
    )
    max_message_bytes: int = option(
        "max.message.bytes",
        (1 << 20) + 12,
        at_most=_INT_MAX,
        also=("message.max.bytes",),
        doc="The largest batch, compressed and with its header.",
    )
    max_decompressed_message_bytes: int = option(
        "max.decompressed.message.bytes",
        _INT_MAX - 8,
        at_least=1,
        at_most=_INT_MAX - 8,
        doc="Refuse a batch that decompresses to more.",
    )
    delete_retention_ms: int = option(
        "delete.retention.ms",
        24 * _HOUR_MS,
        also=("log.cleaner.delete.retention.ms",),
        doc="Under cleanup.policy compact: keep tombstones for this long after the cleaning that first met them.",
    )
    min_compaction_lag_ms: int = option(
        "min.compaction.lag.ms",
        0,
        also=("log.cleaner.min.compaction.lag.ms",),
        doc="Under cleanup.policy compact: leave records alone for at least this long.",
    )
    max_compaction_lag_ms: int = option(
        "max.compaction.lag.ms",
        _LONG_MAX,
        at_least=1,
        also=("log.cleaner.max.compaction.lag.ms",),
        doc="Under cleanup.policy compact: leave records alone for no longer than this; segments roll in time for it.",
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio",
        0.5,
        at_most=1,
        also=("log.cleaner.min.cleanable.ratio",),
        doc="Under cleanup.policy compact: clean when more than this part of the log is not yet cleaned.",
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms",
        60_000,
        also=("log.segment.delete.delay.ms",),
        doc="Remove the files of a dropped segment this long after renaming them to .deleted.",
    )
    cleanup_policy: tuple[str, ...] = option(
        "cleanup.policy",
        ("delete",),
        choices=("compact", "delete"),
        also=("log.cleanup.policy",),
        doc="compact keeps the last record of each key, delete drops old segments; empty keeps everything.",
    )
    # Kafka's default is producer: batches stay as they were sent, which is mostly uncompressed. Here the writer
    # is the producer too, and lz4 costs it the least for what it saves.
    compression_type: str = option(
        "compression.type",
        "lz4",
        choices=("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"),
        synonyms={"none": "uncompressed"},  # as producers spell it
        doc="How batches are compressed; producer leaves the choice to this writer, which is lz4.",
    )
    compression_gzip_level: int = option(
        "compression.gzip.level", -1, at_least=-1, at_most=9, doc="The level of gzip, 1 to 9; -1 is its own default."
    )
    compression_lz4_level: int = option(
        "compression.lz4.level",
        9,
        at_least=1,
        at_most=17,
        doc="The level of lz4; 9 is the fast compressor, as in Kafka, and every other the slower high compressor.",
    )
    compression_zstd_level: int = option(
        "compression.zstd.level", 3, at_least=-(1 << 17), at_most=22, doc="The level of zstd."
    )
    preallocate: bool = option(
        "preallocate",
        False,
        also=("log.preallocate",),
        doc="Give a new segment its full size at once; it is cut to what was written when it rolls.",
    )
    message_timestamp_type: str = option(
        "message.timestamp.type",
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        also=("log.message.timestamp.type",),
        doc="Whether records keep the timestamps they come with, or get the time of the append.",
    )
    message_timestamp_before_max_ms: int = option(
        "message.timestamp.before.max.ms",
        _LONG_MAX,
        also=("log.message.timestamp.before.max.ms",),
        doc="Refuse a record whose timestamp is earlier than the append by more than this; for CreateTime.",
    )
    message_timestamp_after_max_ms: int = option(
        "message.timestamp.after.max.ms",
        _HOUR_MS,
        also=("log.message.timestamp.after.max.ms",),
        doc="Refuse a record whose timestamp is later than the append by more than this; for CreateTime.",
    )
    batch_size: int = option(
        "batch.size",
        16_384,
        at_most=_INT_MAX,
        doc="Close a batch before it grows past this many bytes, uncompressed; a larger record is a batch of its own.",
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            declared, value = each.metadata["property"], getattr(self, each.name)
            if not declared.allows(value):
                raise InvalidOptionError(f"{declared.name} must be {declared.bound}, got {value!r}")
        if self.compression_gzip_level == 0:
            raise InvalidOptionError("compression.gzip.level must be 1 to 9, or -1 for its own default, got 0")
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidOptionError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) must not be greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    @classmethod
    def from_properties(cls, given: Mapping[str, object]) -> Self:
        """Read properties under Kafka's names, of topics or of brokers.

        Where several names of one property are given, the topic's counts, then the broker's from the finest unit to the
        coarsest: ``log.retention.ms`` before ``log.retention.minutes`` before ``log.retention.hours``.

        Parameters
        ----------
        given : mapping of str to object
            Values as text, or as what ``str`` makes that text of.

        Raises
        ------
        InvalidOptionError
            A name is unknown, a value malformed or out of its bound, or two contradict each other.
        """
        _check_names(given)
        values: dict[str, Any] = {}
        for each in fields(cls):
            declared = each.metadata["property"]
            found = [
                declared.parse(spelling, str(given[spelling.name]))
                for spelling in (Spelling(declared.name), *declared.spellings)
                if spelling.name in given
            ]
            if found:
                values[each.name] = found[0]
        return cls(**values)

    @classmethod
    def from_file(cls, path: str) -> Self:
        """Read a Java ``.properties`` file, as `from_properties` does.

        Raises
        ------
        PathNotFoundError
            There is no such file.
        StorageError
            It cannot be read.
        InvalidOptionError
            As from `from_properties`, or the file is malformed or names a property twice.
        """
        located = locate(path)
        data = located.storage.read_small(located.path)
        if data is None:
            raise PathNotFoundError(f"no such file: {path}")
        try:
            return cls.from_properties(javaproperties.loads(data, object_pairs_hook=_once))
        except javaproperties.InvalidUEscapeError as error:
            raise InvalidOptionError(f"{error} (file {path})") from error
        except InvalidOptionError as error:
            raise InvalidOptionError(f"{error.message} (file {path})") from error

    def to_properties(self) -> dict[str, str]:
        """Return every property as text, in the order in which they are declared."""
        declared = ((each.metadata["property"], getattr(self, each.name)) for each in fields(self))
        return {each.name: each.text(value) for each, value in declared}

    @property
    def codec(self) -> str:
        """The codec of new batches, by the name that `sparklog.record.compression` has for it."""
        return {"uncompressed": "none", "producer": "lz4"}.get(self.compression_type, self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """The level for that codec; None where it has none."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.codec)

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that may be appended: Kafka refuses one above either limit."""
        return min(self.max_message_bytes, self.segment_bytes)


def described() -> list[Described]:
    """Return name, default, bound and meaning of every property, in the order in which they are declared."""
    declared = (each.metadata["property"] for each in fields(LogConfig))
    return [Described(each.name, each.text(each.default), each.bound, each.doc) for each in declared]


def property_names() -> frozenset[str]:
    """Return every name that `LogConfig.from_properties` takes, those of brokers included."""
    declared = [each.metadata["property"] for each in fields(LogConfig)]
    spelled = {spelling.name for each in declared for spelling in each.spellings}
    return _BROKER_ONLY.union(spelled, (each.name for each in declared))


def _check_names(given: Iterable[str]) -> None:
    known = property_names()
    for name in given:
        if name not in known:
            close = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else "see conf/topic.properties for those there are"
            raise InvalidOptionError(f"no topic property {name!r}: {hint}")
    ignored = sorted(_BROKER_ONLY.intersection(given))
    if ignored:
        _log.warning("no broker is asked, so these properties mean nothing here: %s", ", ".join(ignored))


def _once(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in pairs:
        if name in found:
            raise InvalidOptionError(f"{name} is given twice: {found[name]!r} and {text!r}")
        found[name] = text
    return found
