"""Plans the batches of a stream: a batch lies between two offset maps, and is split and packed as a batch read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.log.filters.pruning import pruned_range
from sparklog.log.log_identity import LOG_ID, TOPIC_ID
from sparklog.log.properties import LONG_MAX
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.plan import (
    check_specified,
    committed_offsets,
    of_group,
    resolved,
    tasks_of_ranges,
    time_of,
)
from sparklog.topic.places.live import LiveLog
from sparklog.topic.places.ranges import OffsetsByGroup, ReadRange
from sparklog.topic.streams.offsets import Identities, Offsets, StreamOffset

_log = logging.getLogger("sparklog")

LogByPartition = Mapping[TopicPartition, LiveLog]


def first_offsets(options: SeglogOptions, logs: LogByPartition) -> dict[TopicPartition, int]:
    """Return the offsets at which a new stream begins.

    Raises
    ------
    InvalidOptionError
        Offsets are not given for every partition, or no record is as late as a time.
    """
    check_specified(options, logs)
    groups = committed_offsets(options, {at: log.layout for at, log in logs.items()})
    return {at: _first_offset(options, at, log, groups) for at, log in logs.items()}


def _first_offset(options: SeglogOptions, at: TopicPartition, log: LiveLog, groups: OffsetsByGroup) -> int:
    starting = of_group(
        options.starting, "startingOffsetsByGroup", log.layout, groups, fail_on_data_loss=options.fail_on_data_loss
    )
    found = resolved(starting, at, log.layout, log.latest, options.policy)
    if found is not None:
        return found
    if options.timestamp_strategy == "error":
        raise InvalidOptionError(
            f"No offset matched from request of topic-partition {at} and timestamp {time_of(options.starting, at)}."
        )
    return log.latest


def begins(start: StreamOffset, logs: LogByPartition, identities: Identities) -> dict[TopicPartition, int]:
    """Return the offsets at which the next batch begins: the log start offset in new or newly made logs."""
    earliest = {at: log.layout.start_offset for at, log in logs.items()}
    return {
        at: earliest[at] if identities.is_other(at, start, log) else start.offsets.get(at, earliest[at])
        for at, log in logs.items()
    }


def plan_between(
    options: SeglogOptions, logs: LogByPartition, start: StreamOffset, end: StreamOffset, identities: Identities
) -> list[tuple[ReadRange, ...]]:
    """Plan the batch between two offsets of a stream.

    Raises
    ------
    DataLossError
        Records that the stream had not read are gone: a partition was deleted, a topic was deleted and made again, the
        start of a log was deleted, or its end was cut. With ``failOnDataLoss=false`` that is a warning.
    """
    losses = _Losses(options)
    for at in sorted(start.offsets.keys() - end.offsets.keys()):
        losses.add(f"{at} is gone, and was read up to offset {start.offsets[at]}")
    ranges = []
    for at in sorted(end.offsets):
        log = logs.get(at)
        if log is None:
            losses.add(f"{at} is gone, and is to be read up to offset {end.offsets[at]}")
            continue
        if identities.is_other(at, end, log):
            # The next batch reads its records, from the earliest on.
            losses.add(_remade(at, end, identities.difference(at, end, log), "when the batch was planned"))
            continue
        if identities.is_other(at, start, log):
            losses.add(_remade(at, start, identities.difference(at, start, log), "when it was read"))
            first = log.layout.start_offset
        else:
            first = _first_of_batch(at, log, start, losses)
        if first == end.offsets[at] and log.layout.has_bytes_after_end and not options.policy.is_fail:
            # Records that were read may be damaged since; the stream waits for the next ones.
            continue
        found = _range(at, log, first, end.offsets[at], losses)
        if found is not None and (options.where is None or options.where.can_pass(*at)):
            ranges.append(_pruned(found, log, options))
    return tasks_of_ranges(ranges, options, {at: log.layout for at, log in logs.items()})


def _remade(at: TopicPartition, taken: StreamOffset, difference: str | None, when: str) -> str:
    if difference == TOPIC_ID:
        return f"the topic of {at} was deleted and made again: it has another id than {when}"
    if difference == LOG_ID:
        return f"the log of {at} was deleted and made again, or is another: it has another id than {when}"
    return (
        f"{at} has another batch before offset {taken.offsets[at]} than {when}: its topic was deleted and made again, "
        f"or its log was cut and written on"
    )


def _first_of_batch(at: TopicPartition, log: LiveLog, start: StreamOffset, losses: _Losses) -> int:
    """Return the offset at which the batch begins in a log that is new, or is still the same log."""
    there, first = log.layout, start.offsets.get(at)
    if first is None:
        if there.start_offset != 0:
            losses.add(f"{at} is new, and begins at offset {there.start_offset} and not at 0")
        return there.start_offset
    if first < there.start_offset:
        losses.add(f"offsets [{first}, {there.start_offset}) of {at} were deleted before they were read")
    return max(first, there.start_offset)


def _range(at: TopicPartition, log: LiveLog, first: int, last: int, losses: _Losses) -> ReadRange | None:
    """Return the range to read of one partition; None if it is empty."""
    there = log.layout
    if last < first:
        losses.add(f"{at} is to be read from offset {first}, and ended at {last} when the batch was planned")
    elif last > there.end_offset:
        losses.add(f"{at} is to be read up to offset {last}, and its log now ends at {there.end_offset}")
        last = there.end_offset
    return ReadRange(there.folder, first, last, max(last, log.latest)) if first < last else None


def _pruned(found: ReadRange, log: LiveLog, options: SeglogOptions) -> ReadRange:
    """Return the part of a range in which a record may pass the filter."""
    if options.where is None:
        return found
    bounds = options.where.of_partition(*found.topic_partition)
    skips_damage = not options.policy.is_fail
    return found.within(
        *pruned_range(log.layout, bounds, found.start_offset, found.end_offset, skips_damage=skips_damage)
    )


class _Losses:
    """Raises data loss, or warns of it."""

    def __init__(self, options: SeglogOptions) -> None:
        self._fails = options.fail_on_data_loss

    def add(self, message: str) -> None:
        message = f"{message}; data may have been lost, because it was aged out by Kafka, or the topic was deleted"
        if self._fails:
            raise DataLossError(f"{message}. Set failOnDataLoss to false to go on with what is there")
        _log.warning("%s; going on with what is there", message)


def within_offsets(begin: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Return the end offsets of a batch of about ``offsets_max`` offsets: each partition gives its share.

    As in the connector, a partition with new offsets gives at least one, so the sum may exceed the limit.

    Parameters
    ----------
    begin, end : mapping of TopicPartition to int
        The offsets at which the batch begins, and the ends of the logs.
    """
    sizes = {at: offset - begin[at] for at, offset in end.items() if offset > begin[at]}
    total = sum(sizes.values())
    return {**end, **{at: _share(begin[at], end[at], offsets_max * (size / total)) for at, size in sizes.items()}}


def within_bytes(
    begin: Offsets, end: Offsets, bytes_max: int, size_bytes: Callable[[TopicPartition], int]
) -> dict[TopicPartition, int]:
    """Return the end offsets of a batch of about ``bytes_max`` bytes of log: each partition gives the same share.

    Parameters
    ----------
    size_bytes : callable
        Returns the bytes of log that a partition has between ``begin`` and ``end``.
    """
    sizes = {at: offset - begin[at] for at, offset in end.items() if offset > begin[at]}
    total_bytes = sum(size_bytes(at) for at in sizes)
    if total_bytes <= bytes_max:
        return dict(end)
    part = bytes_max / total_bytes
    return {**end, **{at: _share(begin[at], end[at], size * part) for at, size in sizes.items()}}


def _share(begin: int, end: int, wanted: float) -> int:
    share = math.ceil(wanted) if wanted < 1 else math.floor(wanted)
    return min(end, begin + min(share, LONG_MAX - begin))


def is_too_little(current: Mapping[TopicPartition, int], latest: Offsets, offsets_min: int) -> bool:
    """Return whether fewer than ``offsets_min`` offsets are new; a new partition counts as its end offset."""
    return sum(offset - current.get(at, 0) for at, offset in latest.items()) < offsets_min
