"""Plans a read: resolves the options to a range of offsets for each partition, splits large ranges, packs small ones.

No records are decoded. Planning reads names, indexes and the headers at the end of each log; for a log with
transactions also the headers after its last snapshot; and for a filter by time the headers where the log first reaches
that time. Offsets are fixed here, so a plan reads the same however often it is run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Final

from sparklog.errors import DataLossError, InvalidOptionError, did_you_mean
from sparklog.log.damage_rows import DamagePolicy
from sparklog.log.files import TopicPartition
from sparklog.log.filters.pruning import floor_boundary, pruned_range
from sparklog.log.folders import listed
from sparklog.log.layout import PartitionLayout
from sparklog.log.places import PartitionFolder
from sparklog.log.producer_snapshots import snapshots_of
from sparklog.log.reads.fates import stable_offset_past_damage
from sparklog.log.transactions import last_stable_offset
from sparklog.spark.options.limits import TASKS_MAX, match_time
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.values import EARLIEST, LATEST, OffsetSpec
from sparklog.storage.looks import map_at_once, one_look
from sparklog.storage.process import usable_cores
from sparklog.topic.places.discovery import discover, log_directories, named, read_found
from sparklog.topic.places.packing import pack
from sparklog.topic.places.ranges import OffsetsByGroup, ReadRange, log_bytes

_log = logging.getLogger("sparklog")

_FOUND_BY_TASKS_BYTES_MIN: Final = 1 << 20


def plan_batch(options: SeglogOptions) -> list[tuple[ReadRange, ...]]:
    """Plan a batch read.

    Returns
    -------
    list of tuple of ReadRange
        The ranges of each task. Over all tasks they are ordered by topic, partition and offset; none is empty, and none
        overlaps another. If there is a filter, no record outside them passes it. If damage is skipped, each log that
        has bytes and no sound batch has a task with an empty range, after all others: it reports the damage.

    Raises
    ------
    SeglogError
        The path, a topic or a partition does not exist; offsets are not in the log, or begin after they end.
    """
    options.check_batch()
    with one_look():
        return _planned(options)


def _planned(options: SeglogOptions) -> list[tuple[ReadRange, ...]]:
    logs = read_found(lambda: _wanted(options), options.on_damage)
    check_quarantine(options, logs)
    groups = committed_offsets(options, logs)
    ranges = map_at_once(
        lambda log: _whole_range(options, *log, groups), logs.items(), (each.storage for each in logs.values())
    )
    tasks = tasks_of_ranges(ranges, options, logs)
    lost = [(each,) for each in ranges if _has_only_bytes(logs[each.topic_partition])]
    return tasks if options.policy.is_fail else [*tasks, *lost]


def _has_only_bytes(layout: PartitionLayout) -> bool:
    return layout.start_offset == layout.end_offset and any(each.size_bytes for each in layout.segments)


def check_quarantine(options: SeglogOptions, logs: Mapping[TopicPartition, PartitionLayout]) -> None:
    """Refuse a quarantine in a log directory that is read."""
    if options.quarantine is not None:
        options.quarantine.check({layout.folder.directory for layout in logs.values()})


def _wanted(options: SeglogOptions) -> list[PartitionFolder]:
    """Find the selected partitions that may have a record that passes the filter."""
    folders, where = select(options), options.where
    check_specified(options, [named(folder) for folder in folders])
    return [each for each in folders if where is None or where.can_pass(each.topic, each.partition)]


def tasks_of_ranges(
    ranges: Iterable[ReadRange], options: SeglogOptions, logs: Mapping[TopicPartition, PartitionLayout]
) -> list[tuple[ReadRange, ...]]:
    """Split large ranges and pack small ones, for the tasks of a batch."""
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition, logs)
    tasks = pack(
        [log_bytes(piece, logs[piece.topic_partition]) for piece in pieces],
        [piece.size for piece in pieces],
        bytes_max=options.pack_bytes,
        offsets_max=options.max_records_per_partition,
        # Spark tells a Python data source nothing about its cluster, which may have more cores than the machine that
        # plans. On such a cluster `pack_bytes` makes enough tasks.
        tasks_min=max(options.min_partitions or 1, usable_cores()),
    )
    return [tuple(pieces[rows]) for rows in tasks]


def select(options: SeglogOptions, *, may_come_later: bool = False) -> list[PartitionFolder]:
    """Find the partitions that the options select; in a stream some may be created later."""
    found = discover(options.all_paths, options.selection)
    pattern, excluded = options.subscribe_pattern, options.exclude_pattern
    with nullcontext() if pattern is None else match_time("subscribePattern", pattern.pattern):
        folders = found.select(options.selection, may_come_later=may_come_later)
    if excluded is None or options.assign is not None or options.subscribe:
        return folders
    with match_time("excludePattern", excluded.pattern):
        return [folder for folder in folders if not excluded.fullmatch(folder.topic)]


def check_specified(options: SeglogOptions, assigned: Collection[TopicPartition]) -> None:
    """Check that offsets or times per partition are given for exactly the partitions that are read."""
    for bound, side in ((options.starting, "starting"), (options.ending, "ending")):
        specified = bound.offsets if bound.offsets is not None else bound.times
        if specified is None or set(specified) == set(assigned):
            continue
        what = (
            f"{side} offsets don't match what are assigned. Use -1 for latest, -2 for earliest"
            if bound.offsets is not None
            else f"timestamp based {side} offsets don't match what are assigned; every partition must be there"
        )
        raise InvalidOptionError(
            f"Partitions specified for Kafka {what}. Specified: {_listed(specified)} Assigned: {_listed(assigned)}"
            f"{_topic_hint(specified, assigned)}"
        )


def _topic_hint(specified: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> str:
    """Return a hint for the error: the topic that was probably meant, if a specified topic is not read."""
    there = sorted({each.topic for each in assigned})
    wrong = next((each.topic for each in sorted(specified) if each.topic not in there), None)
    return f". {wrong!r} is not read: {did_you_mean(wrong, there, f'topics are {listed(there)}')}" if wrong else ""


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return "{" + ", ".join(str(each) for each in sorted(partitions)) + "}"


def committed_offsets(options: SeglogOptions, logs: Mapping[TopicPartition, PartitionLayout]) -> OffsetsByGroup:
    """Look up the committed offsets of the groups that the bounds of the read name."""
    names = {bound.group for bound in (options.starting, options.ending) if bound.group is not None}
    if not names or not logs:
        return {}
    # The decoder of committed offsets takes long to import, and most plans do not need it.
    from sparklog.topic.internal.groups import committed_by_groups

    # The committed offsets may also be in a log directory that has none of the partitions.
    directories = [*log_directories(options.all_paths), *(layout.folder.directory for layout in logs.values())]
    return committed_by_groups(names, directories, options.offsets_path)


def _whole_range(
    options: SeglogOptions, at: TopicPartition, layout: PartitionLayout, groups: OffsetsByGroup
) -> ReadRange:
    """Resolve the range of one partition."""
    committed = options.isolation_level == "read_committed"
    stable_offset = last_stable_offset if options.policy.is_fail else stable_offset_past_damage
    is_found_later = committed and _is_far_to_stable_offset(layout)
    latest = stable_offset(layout) if committed and not is_found_later else layout.end_offset
    loss = options.fail_on_data_loss
    starting = of_group(options.starting, "startingOffsetsByGroup", layout, groups, loss)
    ending = of_group(options.ending, "endingOffsetsByGroup", layout, groups, loss)
    end = resolved(ending, at, layout, latest, options.policy)
    end = latest if end is None else end
    start = resolved(starting, at, layout, latest, options.policy)
    if start is None:
        if options.timestamp_strategy == "error":
            time = time_of(starting, at)
            raise InvalidOptionError(f"No offset matched from request of topic-partition {at} and timestamp {time}.")
        start = end
    is_by_group = (starting.group, ending.group) != (None, None)
    start = _ordered(start, end, at, layout, is_by_group)
    end = _inside("endingOffsets", end, at, layout, loss)
    if end > latest:
        _log.warning("%s is read up to the last stable offset %d, not %d: transactions are open", at, latest, end)
        end = latest
    start = _ordered(_inside("startingOffsets", start, at, layout, loss), end, at, layout, is_by_group)
    if options.where is not None:
        where, skips_damage = options.where.of_partition(*at), not options.policy.is_fail
        start, end = pruned_range(layout, where, start, end, skips_damage=skips_damage)
    return ReadRange(layout.folder, start, end, None if is_found_later else latest)


def _is_far_to_stable_offset(layout: PartitionLayout) -> bool:
    """Return whether tasks find the last stable offset of a remote log, since much has to be read for that.

    Every task of the log finds the same offset, since it reads the same version of the files.
    """
    if not layout.storage.capabilities.is_remote or not layout.segments:
        return False
    known = max((each for each, _ in snapshots_of(layout.folder) if each <= layout.end_offset), default=0)
    after = layout.segments[layout.segment_of(known) :]
    return known < layout.end_offset and sum(each.size_bytes for each in after) > _FOUND_BY_TASKS_BYTES_MIN


def of_group(
    bound: OffsetSpec, name: str, layout: PartitionLayout, groups: OffsetsByGroup, fail_on_data_loss: bool
) -> OffsetSpec:
    """Replace a group by its committed offset in a partition, or by the log start offset if it has committed none."""
    if bound.group is None:
        return bound
    at = named(layout.folder)
    offset = groups[bound.group].get(at, layout.start_offset)
    return replace(bound, offsets={at: _inside(f"{name} {bound.group}", offset, at, layout, fail_on_data_loss)})


def _ordered(start: int, end: int, at: TopicPartition, layout: PartitionLayout, is_by_group: bool) -> int:
    """Return the start offset of a range; a start beyond the end is an error, unless a group sets one of them."""
    if start > end and not is_by_group:
        raise InvalidOptionError(
            f"The resolved start offset {start} is greater than the resolved end offset {end} for topic {at.topic} "
            f"partition {at.partition}, whose log has offsets [{layout.start_offset}, {layout.end_offset})."
        )
    return min(start, end)


def resolved(
    bound: OffsetSpec, at: TopicPartition, layout: PartitionLayout, latest: int, policy: DamagePolicy
) -> int | None:
    """Return the offset that a bound means in one partition; None if no record is as late as its time."""
    time = time_of(bound, at)
    if time is not None:
        found = _offset_for_time(layout, time, policy)
        return found if found is not None and found < latest else None
    if bound.offsets is not None:
        given = bound.offsets[at]
        return {EARLIEST: layout.start_offset, LATEST: latest}.get(given, given)
    return layout.start_offset if bound.word == "earliest" else latest


def time_of(bound: OffsetSpec, at: TopicPartition) -> int | None:
    return bound.time if bound.times is None else bound.times[at]


def _offset_for_time(layout: PartitionLayout, time: int, policy: DamagePolicy) -> int | None:
    # This decodes records; the decoder takes long to import, and most plans do not need it.
    from sparklog.log.reader import LogReader

    return LogReader(layout, policy=policy).offset_for_time(time)


def _inside(name: str, offset: int, at: TopicPartition, layout: PartitionLayout, fail_on_data_loss: bool) -> int:
    """Return an offset if the log has it; else the nearest that it has, or an error."""
    inside = min(max(offset, layout.start_offset), layout.end_offset)
    if inside != offset:
        message = (
            f"{name} for {at} is {offset}, and the log has offsets [{layout.start_offset}, {layout.end_offset}): "
            f"data may have been lost, because it was aged out by Kafka or the log was truncated"
        )
        if fail_on_data_loss:
            raise DataLossError(f"{message}. Set failOnDataLoss to false to read what is there")
        _log.warning("%s; reading from or to %d instead", message, inside)
    return inside


def split(
    ranges: Iterable[ReadRange],
    min_partitions: int | None,
    records_max: int | None,
    layouts: Mapping[TopicPartition, PartitionLayout],
) -> list[ReadRange]:
    """Split ranges as the connector does: first to a maximum of offsets each, then to about a minimum of ranges.

    The connector's arithmetic gives the number of pieces and the approximate cuts. Each cut is then moved back to the
    beginning of a batch, by the offset index, unless that would make a range too large, or empty. A range is cut into
    no more pieces than it has offsets.

    Raises
    ------
    InvalidOptionError
        There would be more pieces than `TASKS_MAX`.
    """
    kept = [each for each in ranges if each.size > 0]
    pieces: list[ReadRange] = []
    if records_max is not None:
        counts = [-(-each.size // records_max) for each in kept]
        if sum(counts) > max(TASKS_MAX, len(kept)):
            raise InvalidOptionError(
                f"maxRecordsPerPartition is {records_max}, which makes {sum(counts)} tasks of "
                f"{sum(each.size for each in kept)} offsets, and there may be no more than {TASKS_MAX}: set it higher"
            )
        pieces = [piece for each, count in zip(kept, counts, strict=True) for piece in _divided(each, count)]
    pieces = pieces or kept
    if min_partitions is not None and len(pieces) < min_partitions:
        counts = _part_counts([piece.size for piece in pieces], min_partitions)
        pieces = [part for piece, count in zip(pieces, counts, strict=True) for part in _divided(piece, count)]
    of_one: dict[TopicPartition, list[ReadRange]] = {}
    for piece in pieces:
        of_one.setdefault(piece.topic_partition, []).append(piece)
    return [piece for at, found in of_one.items() for piece in _aligned(found, records_max, layouts[at])]


def _divided(whole: ReadRange, parts: int) -> list[ReadRange]:
    """Cut a range into parts of equal size, none empty; the last part takes the rounding."""
    start, pieces = whole.start_offset, []
    parts = min(parts, whole.size)
    for part in range(parts):
        size = (whole.end_offset - start) // (parts - part)
        pieces.append(whole.within(start, start + size))
        start += size
    return pieces


def _part_counts(sizes: list[int], parts_min: int) -> list[int]:
    """Return the number of parts of each range, about ``parts_min`` in all; only large ranges are cut, by size."""
    total = sum(sizes)
    is_whole = [_part_count(size, total, parts_min) == 1 for size in sizes]
    large_total = sum(size for size, whole in zip(sizes, is_whole, strict=True) if not whole)
    large_parts_min = max(parts_min - sum(is_whole), 1)
    return [
        1 if whole else _part_count(size, large_total, large_parts_min)
        for size, whole in zip(sizes, is_whole, strict=True)
    ]


def _part_count(size: int, total: int, parts_min: int) -> int:
    # This rounds halves up, as Java does; Python's round() rounds them to the even number.
    return max(math.floor(size / total * parts_min + 0.5), 1)


def _aligned(pieces: list[ReadRange], records_max: int | None, layout: PartitionLayout) -> list[ReadRange]:
    """Move the cuts between the pieces of one partition back to batch boundaries, if the limits allow it."""
    cuts = [pieces[0].start_offset, *(piece.end_offset for piece in pieces)]
    for row in range(len(cuts) - 2, 0, -1):
        boundary = floor_boundary(layout.segments[layout.segment_of(cuts[row])], cuts[row])
        fits = records_max is None or cuts[row + 1] - boundary <= records_max
        if cuts[row - 1] < boundary < cuts[row] and fits:
            cuts[row] = boundary
    return [pieces[0].within(start, end) for start, end in pairwise(cuts)]
