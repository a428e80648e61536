"""Parses the values of a read's options: paths, topics, offsets, times and columns, in the connector's forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sparklog.errors import InvalidOptionError
from sparklog.log.clock import iso_milliseconds
from sparklog.log.files import TopicPartition
from sparklog.log.properties import shown
from sparklog.spark.options.parsing import integer, is_long, location
from sparklog.spark.options.schema import DAMAGED, SPARK_COLUMNS, check_columns
from sparklog.storage.registry import Location

LATEST: Final = -1
"""An offset in JSON that stands for the end of the log."""

EARLIEST: Final = -2
"""An offset in JSON that stands for the start of the log."""

OFFSETS_FORM: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMES_FORM: Final = (
    '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'  # the connector's own
)
_TIME_FORMS: Final = "ms since the epoch, as 1772442000000, or ISO 8601, as 2026-03-02T09:00:00Z"
PARTITIONS_FORM: Final = '{"topicA":[0,1],"topicB":[0,1]}'


@dataclass(frozen=True)
class OffsetSpec:
    """The begin or the end of a read: the first attribute that is not None, or ``word`` if all others are.

    Attributes
    ----------
    time : int, optional
        A time for every partition, ms since the epoch.
    times : mapping, optional
        A time for each partition, ms since the epoch.
    group : str, optional
        The consumer group whose committed offsets are used.
    offsets : mapping, optional
        An offset for each partition, which may be `LATEST` or `EARLIEST`.
    word : str
        "earliest" or "latest".
    """

    time: int | None = None
    times: Mapping[TopicPartition, int] | None = None
    group: str | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    word: str = ""


class ValueForm(NamedTuple):
    """The decoding of keys or values, as the user gives it; `sparklog.values.spec.parse_decoder` interprets it."""

    format: str
    schema: str
    wire: str
    schema_id: int | None
    message: str

    @property
    def is_given(self) -> bool:
        return self != ("", "", "", None, "")


def bound_of(
    time: int | None,
    times: Mapping[TopicPartition, int] | None,
    group: str | None,
    offsets: str | Mapping[TopicPartition, int],
) -> OffsetSpec:
    if time is not None:
        return OffsetSpec(time=time)
    if times is not None:
        return OffsetSpec(times=times)
    if group is not None:
        return OffsetSpec(group=group)
    return OffsetSpec(word=offsets) if isinstance(offsets, str) else OffsetSpec(offsets=offsets)


def parse_paths(name: str, text: str) -> tuple[Location, ...]:
    found = _json(name, text)
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
        raise InvalidOptionError(f"{name} must be a JSON list of paths, got {shown(text)}")
    return tuple(location(name, each) for each in found)


def parse_path_or_paths(name: str, text: str) -> tuple[Location, ...]:
    return parse_paths(name, text) if text.lstrip().startswith("[") else (location(name, text),)


def parse_group(name: str, text: str) -> str:
    if not text:
        raise InvalidOptionError(f"{name} names no group")
    return text


def parse_time(_: str, text: str) -> int:
    number = integer(text)
    time = iso_milliseconds(text) if number is None else number
    if time is None:
        raise InvalidOptionError(f"Expected a single long value, got {shown(text)}: give {_TIME_FORMS}")
    return time


def parse_names(_: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_topics(name: str, text: str) -> tuple[str, ...]:
    found = parse_names(name, text)
    if not found:
        raise InvalidOptionError(f"No topics to subscribe to as specified value for option '{name}' is '{shown(text)}'")
    return found


def parse_pattern(name: str, text: str) -> re.Pattern[str]:
    if not text.strip():
        raise InvalidOptionError(
            f"Pattern to subscribe is empty as specified value for option '{name}' is '{shown(text)}'"
        )
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise InvalidOptionError(f"{name} is not a regular expression: {shown(text)!r}, {error}") from error
    except (OverflowError, RecursionError, MemoryError) as error:
        raise InvalidOptionError(f"{name} is too large a regular expression: {shown(text)!r}, {error}") from error


def parse_assignment(name: str, text: str) -> dict[str, tuple[int, ...]]:
    if not text.strip().startswith("{"):
        raise InvalidOptionError(
            f"No topicpartitions to assign as specified value for option '{name}' is '{shown(text)}'"
        )
    found = _json(name, text)
    if not isinstance(found, dict) or not all(
        isinstance(numbers, list) and all(type(number) is int for number in numbers) for numbers in found.values()
    ):
        raise InvalidOptionError(f"Expected e.g. {PARTITIONS_FORM}, got {shown(text)}")
    if not any(found.values()):
        raise InvalidOptionError(
            f"No topicpartitions to assign as specified value for option '{name}' is '{shown(text)}'"
        )
    return {topic: tuple(numbers) for topic, numbers in found.items()}


def parse_offsets(name: str, text: str) -> str | dict[TopicPartition, int]:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    found = _by_partition(name, text, OFFSETS_FORM)
    for topic_partition, offset in found.items():
        if offset < EARLIEST:
            raise InvalidOptionError(f"{name} for {topic_partition} is {offset}: offsets are not negative")
    return found


def parse_times(name: str, text: str) -> dict[TopicPartition, int]:
    return _by_partition(name, text, TIMES_FORM, f"; a time is {_TIME_FORMS}", iso_milliseconds)


def _by_partition(
    name: str, text: str, form: str, hint: str = "", read_text: Callable[[str], int | None] = lambda _: None
) -> dict[TopicPartition, int]:
    """Read a number for each partition; ``read_text`` reads a value that is a JSON string."""
    found = _json(name, text)
    if not isinstance(found, dict):
        raise InvalidOptionError(f"Expected e.g. {form}, got {shown(text)}{hint}")
    values: dict[TopicPartition, int] = {}
    for topic, numbers in found.items():
        for partition, value in numbers.items() if isinstance(numbers, dict) else [("", None)]:
            number = integer(partition)
            value = read_text(value) if isinstance(value, str) else value
            if number is None or type(value) is not int or not is_long(value):
                raise InvalidOptionError(f"Expected e.g. {form}, got {shown(text)}{hint}")
            values[TopicPartition(topic, number)] = value
    return values


def parse_view(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidOptionError(f"{name} names no view: {text!r}")
    return text.strip()


def parse_duration(name: str, text: str) -> int:
    found = re.fullmatch(r"\s*([0-9]{1,15})\s*(ms|s|m|min|h|d|)\s*", text.lower())
    if found is None:
        raise InvalidOptionError(f"{name} must be a duration, such as 15m, 90s or 500ms, got {shown(text)}")
    return int(found[1]) * _UNIT_MS[found[2]]


_UNIT_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_column_names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(check_columns(parse_names(name, text), (*SPARK_COLUMNS, DAMAGED)))
    if not found:
        raise InvalidOptionError(f"{name} names no column: {text!r}")
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise InvalidOptionError(f"{name} is JSON that is nested too deep: {shown(text)}") from error


def refuse_stream_bounds(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """Refuse bounds that a batch cannot have, and only a stream can."""
    if starting.word == "latest":
        raise InvalidOptionError("starting offset can't be latest for batch queries on Kafka")
    if ending.word == "earliest":
        raise InvalidOptionError("ending offset can't be earliest for batch queries on Kafka")
    for topic_partition, offset in (starting.offsets or {}).items():
        if offset == LATEST:
            raise InvalidOptionError(
                f"startingOffsets for {topic_partition} can't be latest for batch queries on Kafka"
            )
    for topic_partition, offset in (ending.offsets or {}).items():
        if offset == EARLIEST:
            raise InvalidOptionError(
                f"ending offset for {topic_partition} can't be earliest for batch queries on Kafka"
            )
