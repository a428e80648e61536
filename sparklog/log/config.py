"""Declares Kafka's topic properties, which control how one partition's log is written and kept.

Each property is declared once: name, default, bound, the broker's spellings of it, and its effect. Text is read
strictly, and a wrong value is refused by name, from any source: a mapping, a ``.properties`` file, or an argument.

The declaration also says where it acts, and why not elsewhere: in an append, in a commit (a write of Spark), in a read,
or nowhere yet. `LogConfig.warn_idle` tells the user.

Defaults are the same as in Kafka 4, except for ``compression.type`` and ``max.decompressed.message.bytes``, and as in
Kafka 3 for ``message.format.version``, which 4 no longer has.

Source: apache/kafka, LogConfig.java, ServerTopicConfigSynonyms.java, CompressionType.java.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, TypeVar

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.log.properties import (
    AT_APPEND,
    AT_CLEAN,
    AT_COMMIT,
    AT_READ,
    BROKER_ONLY,
    LONG_MAX,
    UNLIMITED,
    Spelling,
    option,
    options_of,
    properties_in,
)
from sparklog.record.codecs.table import CODEC_IDS, CODECS, DECOMPRESSED_BYTES_LIMIT, DECOMPRESSED_BYTES_MAX
from sparklog.storage.small_files import read_file

_INT_MAX: Final = (1 << 31) - 1
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000

_PLACES: Final = {AT_APPEND: "an append", AT_COMMIT: "a write of Spark"}
_CLEANED: Final = "'sparklog clean' drops and compacts old records, or a broker does"

_log = logging.getLogger("sparklog")

# Source: apache/kafka 3, ApiVersion.java (MetadataVersion.java).
_MESSAGE_FORMAT: Final = "3.0-IV1"
_MESSAGE_FORMATS: Final = "a version of Kafka, such as 0.9.0, 0.10.2 or 2.8"
_VERSION: Final = re.compile(
    r"(?:0\.(?:(8)\.[0-2]|(9)\.0|(10)\.[0-2]|11\.0)|[1-9]\d?\.\d{1,2})(?:-IV\d|\.\d{1,2}){0,2}"
)

LEVELS: Final = {f"compression.{codec.name}.level": codec for codec in CODECS.values() if codec.levels}
"""The topic properties for levels of codecs."""

_Declaring = TypeVar("_Declaring")


def _with_levels(declaring: type[_Declaring]) -> type[_Declaring]:
    """Declare the levels of codecs as fields ``compression_<codec>_level`` of a class that becomes a dataclass."""
    for name, codec in LEVELS.items():
        default: int = codec.level_default or 0
        declaring.__annotations__[name.replace(".", "_")] = "int"
        at_least, doc = min(default, codec.levels[0]), f"The level of {codec.name}{codec.level_doc}."
        declared = option(name, default, at_least=at_least, at_most=codec.levels[-1], doc=doc)
        setattr(declaring, name.replace(".", "_"), declared)
    return declaring


@dataclass(frozen=True)
@_with_levels
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
        acts=(AT_APPEND,),
        idle="the segments of a commit roll by segment.ms alone",
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
        LONG_MAX,
        at_least=1,
        also=("log.flush.interval.messages",),
        acts=(AT_APPEND,),
        idle="a commit syncs all that it writes",
        doc="Sync to disk after this many records.",
    )
    flush_ms: int = option(
        "flush.ms",
        LONG_MAX,
        also=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        acts=(AT_APPEND,),
        idle="a commit syncs all that it writes",
        doc="Sync to disk when the last sync is this long ago.",
    )
    retention_bytes: int = option(
        "retention.bytes",
        UNLIMITED,
        at_least=UNLIMITED,
        also=("log.retention.bytes",),
        acts=(AT_CLEAN,),
        idle=_CLEANED,
        doc="Under cleanup.policy delete: drop the oldest segments while the log is larger than this; -1 is no limit.",
    )
    retention_ms: int = option(
        "retention.ms",
        168 * _HOUR_MS,
        at_least=UNLIMITED,
        also=(
            "log.retention.ms",
            Spelling("log.retention.minutes", _MINUTE_MS),
            Spelling("log.retention.hours", _HOUR_MS),
        ),
        acts=(AT_CLEAN,),
        idle=_CLEANED,
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
        DECOMPRESSED_BYTES_MAX,
        at_least=1,
        at_most=DECOMPRESSED_BYTES_LIMIT,
        acts=(AT_APPEND, AT_COMMIT, AT_READ),
        doc="Refuse a batch that decompresses to more, or a record that would make one.",
    )
    delete_retention_ms: int = option(
        "delete.retention.ms",
        24 * _HOUR_MS,
        also=("log.cleaner.delete.retention.ms",),
        acts=(AT_CLEAN,),
        idle=_CLEANED,
        doc="Under cleanup.policy compact: keep tombstones for this long after the cleaning that first met them.",
    )
    min_compaction_lag_ms: int = option(
        "min.compaction.lag.ms",
        0,
        also=("log.cleaner.min.compaction.lag.ms",),
        acts=(AT_CLEAN,),
        idle=_CLEANED,
        doc="Under cleanup.policy compact: leave records alone for at least this long.",
    )
    max_compaction_lag_ms: int = option(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least=1,
        also=("log.cleaner.max.compaction.lag.ms",),
        doc="Under cleanup.policy compact: leave records alone for no longer than this; segments roll in time for it.",
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio",
        0.5,
        at_most=1,
        also=("log.cleaner.min.cleanable.ratio",),
        acts=(AT_CLEAN,),
        idle=_CLEANED,
        doc="Under cleanup.policy compact: clean when more than this part of the log is not yet cleaned.",
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms",
        60_000,
        also=("log.segment.delete.delay.ms",),
        acts=(AT_CLEAN,),
        idle=_CLEANED,
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
        choices=("uncompressed", *(name for name in CODEC_IDS if name != "none"), "producer"),
        synonyms={"none": "uncompressed"},  # as producers spell it
        doc="How batches are compressed; producer leaves the choice to this writer, which is lz4.",
    )
    preallocate: bool = option(
        "preallocate",
        False,
        also=("log.preallocate",),
        acts=(AT_APPEND,),
        idle="a commit leaves no file open to be written to",
        doc="Give a new segment its full size at once; it is cut to what was written when it rolls.",
    )
    message_format_version: str = option(
        "message.format.version",
        _MESSAGE_FORMAT,
        takes=_MESSAGE_FORMATS,
        also=("log.message.format.version",),
        doc="Write the record format of that version: 0.8.0 to 0.9.0 write format 0, 0.10.0 to 0.10.2 format 1, and "
        "0.11.0 and later format 2.",
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
        LONG_MAX,
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

    # The spelling of properties that were given as text.
    _named: ClassVar[Mapping[str, str]] = MappingProxyType({})
    # The properties that are stored for the topic, and not overridden for this use of it.
    _stored: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for field, declared in options_of(self).items():
            value = getattr(self, field)
            if not declared.allows(value):
                raise InvalidOptionError(f"{declared.name} must be {declared.bound}, got {value!r}")
        _magic_of(self.message_format_version)
        for name, codec in LEVELS.items():
            level, default = getattr(self, name.replace(".", "_")), codec.level_default
            if level != default and level not in codec.levels:
                bound = f"{codec.levels[0]} to {codec.levels[-1]}, or {default} for its own default"
                raise InvalidOptionError(f"{name} must be {bound}, got {level}")
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidOptionError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) must not be greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    @classmethod
    def from_properties(cls, given: Mapping[str, object]) -> Self:
        """Read properties under Kafka's names, of topics or of brokers.

        If several names of one property are given, the topic's name wins, then the broker's from the finest unit to the
        coarsest: ``log.retention.ms`` before ``log.retention.minutes`` before ``log.retention.hours``.

        Parameters
        ----------
        given : mapping of str to object
            Values as text, or of a type that ``str`` turns into that text.

        Raises
        ------
        InvalidOptionError
            A name is unknown, a value malformed or out of its bound, or two contradict each other.
        """
        _check(given)
        values: dict[str, Any] = {}
        named: dict[str, str] = {}
        for field, declared in options_of(cls).items():
            found = {
                spelling.name: declared.parse(str(given[spelling.name]), spelling)
                for spelling in (Spelling(declared.name), *declared.spellings)
                if spelling.name in given
            }
            if found:
                named[declared.name], values[field] = next(iter(found.items()))
        config = cls(**values)
        object.__setattr__(config, "_named", named)
        return config

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
            As in `from_properties`, or the file is malformed or names a property twice.
        """
        given = properties_in(read_file(path), path)
        try:
            return cls.from_properties(given)
        except InvalidOptionError as error:
            raise InvalidOptionError(f"{error.message} (file {path})") from error

    def over(self, stored: Mapping[str, str]) -> Self:
        """Return these properties with the rest taken from a topic's stored properties.

        A property is set here if it was given by its name, or differs from its default.

        Raises
        ------
        InvalidOptionError
            A stored property is wrong, as in `from_properties`, or the two sets contradict each other.
        """
        below, values, taken = type(self).from_properties(stored), {}, set()
        for field, declared in options_of(self).items():
            if declared.name not in self.given and declared.name in below._named:
                values[field] = getattr(below, field)
                taken.add(declared.name)
        merged = replace(self, **values)
        object.__setattr__(merged, "_named", self._named)
        object.__setattr__(merged, "_stored", frozenset(taken))
        return merged

    @property
    def given(self) -> frozenset[str]:
        """The properties that were given by their names, or differ from their defaults."""
        differing = (each.name for field, each in options_of(self).items() if getattr(self, field) != each.default)
        return frozenset((*self._named, *differing))

    def idle(self, place: str) -> dict[str, str]:
        """Return the properties that are set but do nothing in a place, as they were spelled, with the reasons."""
        found = {}
        for field, declared in options_of(self).items():
            if declared.name in self._stored:
                continue
            if declared.name not in self._named and getattr(self, field) == declared.default:
                continue
            reason = self._beside(declared.name) if place in declared.acts else declared.idle
            if reason:
                found[self._named.get(declared.name, declared.name)] = reason
        return found

    def warn_idle(self, place: str) -> None:
        """Warn about every property that is set but does nothing in a place, `AT_APPEND` or `AT_COMMIT`, by name."""
        for name, reason in self.idle(place).items():
            _log.warning("%s does nothing in %s: %s", name, _PLACES[place], reason)

    def _beside(self, name: str) -> str:
        """Return why a property has no effect together with the others; empty if it has one."""
        if name in LEVELS and self.codec != LEVELS[name].name:
            return f"compression.type is {self.compression_type}"
        if name == "max.compaction.lag.ms" and "compact" not in self.cleanup_policy:
            return f"cleanup.policy is {','.join(self.cleanup_policy) or 'empty'}"
        if name.startswith("message.timestamp.") and name.endswith(".max.ms") and self._is_append_time:
            return "message.timestamp.type is LogAppendTime"
        return ""

    @property
    def _is_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def magic(self) -> int:
        """The record format of new batches."""
        return _magic_of(self.message_format_version)

    @property
    def codec(self) -> str:
        """The codec of new batches, by the name that `sparklog.record.codecs.table` has for it."""
        return {"uncompressed": "none", "producer": "lz4"}.get(self.compression_type, self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """The level for that codec; None if it has none."""
        level: int | None = getattr(self, f"compression_{self.codec}_level", None)
        return level

    @property
    def batch_bytes_max(self) -> int:
        """The size of the largest batch that may be appended: Kafka refuses batches above either limit."""
        return min(self.max_message_bytes, self.segment_bytes)


def property_names() -> frozenset[str]:
    """Return every name that `LogConfig.from_properties` takes, including brokers' names."""
    declared = options_of(LogConfig).values()
    spelled = {spelling.name for each in declared for spelling in each.spellings}
    return frozenset(BROKER_ONLY).union(spelled, (each.name for each in declared))


def _check(given: Mapping[str, object]) -> None:
    """Refuse unknown names, and values of the cluster's own properties that a broker would refuse."""
    known = property_names()
    for name in given:
        if name not in known:
            hint = did_you_mean(name, sorted(known), "see conf/topic.properties for those there are")
            raise InvalidOptionError(f"no topic property {name!r}: {hint}")
        bound, pattern = BROKER_ONLY.get(name, ("", ""))
        if bound and not re.fullmatch(pattern, text := str(given[name]).strip(), re.ASCII):
            raise InvalidOptionError(f"{name} must be {bound}, got {text!r}")
    ignored = sorted(set(BROKER_ONLY).intersection(given))
    if ignored:
        _log.warning("no broker is asked, so these properties mean nothing here: %s", ", ".join(ignored))


@lru_cache(maxsize=64)
def _magic_of(version: str) -> int:
    """Return the record format (magic) that a version of Kafka writes.

    Raises
    ------
    InvalidOptionError
        There is no such version.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise InvalidOptionError(f"message.format.version must be {_MESSAGE_FORMATS}, got {version!r}")
    is_8, is_9, is_10 = found.groups()
    if is_10:
        return 1
    return 0 if is_8 or is_9 else 2
