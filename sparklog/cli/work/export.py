"""``export``, ``copy`` and ``restore``: parses their options, runs the jobs, and makes rows of the ranges."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import COPIED_TOPICS, DAMAGE, EXPORTED_TOPICS, PLANNED_RANGE
from sparklog.cli.output.progress import job_progress
from sparklog.cli.output.text import bytes_text, counted
from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.jobs.copy.arguments import CopySummary
from sparklog.jobs.copy.arguments import copy as run_copy
from sparklog.jobs.export.arguments import ExportSummary
from sparklog.jobs.export.arguments import export as run_export
from sparklog.jobs.restore.arguments import RestoreSummary
from sparklog.jobs.restore.arguments import restore as run_restore
from sparklog.jobs.run.job import OF_ONE_PARTITION
from sparklog.jobs.source import LogSource, source_of
from sparklog.log.clock import iso_milliseconds
from sparklog.log.files import TopicPartition
from sparklog.log.properties import taken
from sparklog.topic.places.discovery import named
from sparklog.topic.places.ranges import ReadRange
from sparklog.topic.selection import Selection

Summary = ExportSummary | CopySummary | RestoreSummary

_DAMAGE_SHOWN_MAX: Final = 100
_NOT_SHOWN: Final = ("kind", "log_id", "end_batch")
"""Fields of a ledger that only the next run needs."""


def export(sources: Sequence[str], target: str, options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Export logs, print the moved ranges, and return whether all were moved; damage is reported on stderr.

    Parameters
    ----------
    options : mapping
        The options of `sparklog.jobs.export.arguments.export`.
    """
    run = partial(run_export, sources, target, **options)
    if options["dry_run"]:
        planned = run().planned
        pieces = [(task.number, piece.range, piece.log_bytes) for task in planned for piece in task.pieces]
        return _print_plan(pieces, [task.damage for task in planned if task.damage is not None], as_json=as_json)
    return _run(run, "exporting", target, EXPORTED_TOPICS, as_json=as_json)


def copy(sources: Sequence[str], target: str, options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Copy logs; otherwise like `export`, with the options of `sparklog.jobs.copy.arguments.copy`."""
    return _run_copy(partial(run_copy, sources, target, **options), "copying", target, options, as_json=as_json)


def restore(source: str, target: str, options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Restore logs; otherwise like `copy`, with the options of `sparklog.jobs.restore.arguments.restore`."""
    return _run_copy(partial(run_restore, source, target, **options), "restoring", target, options, as_json=as_json)


def _run_copy(
    run: Callable[..., CopySummary | RestoreSummary],
    verb: str,
    target: str,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> bool:
    if options["dry_run"]:
        pieces = [(task.number, each.range, each.moved.log_bytes) for task in run().planned for each in task.pieces]
        return _print_plan(pieces, [], as_json=as_json)
    return _run(run, verb, target, COPIED_TOPICS, as_json=as_json)


def _run(
    run: Callable[..., Summary], verb: str, target: str, columns: Sequence[tables.Column], *, as_json: bool
) -> bool:
    began = time.monotonic()
    try:
        with job_progress(verb) as watch:
            summary = run(watch=watch)
    except OF_ONE_PARTITION as error:
        for each in (error, *error.others):
            render.complain("error", str(each))
        render.complain("note", f"'sparklog ledger show {target}' says how far each partition was moved")
        return False
    if summary.lost:
        lost_bytes = sum(each.length_bytes for each in summary.lost)
        stretches = counted(len(summary.lost), "damaged place")
        render.complain("warning", f"{stretches} could not be read, {bytes_text(lost_bytes)}; the ledger has them all")
    if as_json:
        render.put_rows(_moved_rows(summary))
        return True
    if summary.lost:
        tables.table(DAMAGE.columns, [asdict(each) for each in summary.lost[:_DAMAGE_SHOWN_MAX]])
        if len(summary.lost) > _DAMAGE_SHOWN_MAX:
            render.say(f"... and {len(summary.lost) - _DAMAGE_SHOWN_MAX} more: 'sparklog ledger verify {target}'")
        render.say()
    rows = _topic_rows(summary)
    if rows:
        tables.table(columns, rows)
    render.say(_sentence(summary, time.monotonic() - began))
    if isinstance(summary, RestoreSummary) and summary.cluster_id is not None:
        render.say(f"the directories are formatted for a node of cluster {summary.cluster_id}")
    if isinstance(summary, CopySummary) and summary.replaced_batches:
        render.say(
            f"batches that got a producer id which no cluster reaches: {summary.replaced_batches:,}. New producers of "
            f"the target's cluster may have their ids; to restore the same cluster, use --keep-producers"
        )
    return True


def selection_of(
    sources: Sequence[str], given: Mapping[str, Any], start: Sequence[str], end: Sequence[str]
) -> dict[str, Any]:
    """Return a command's options as arguments of its job: partitions and both bounds are parsed.

    Parameters
    ----------
    start, end : sequence of str
        Bounds, each ``earliest`` or ``latest``, an offset, ``topic:partition:offset`` or a time.
    """
    options = {**given, "partitions": [partition_of(text) for text in given.get("partitions", ())]}
    source = source_of(sources, taken(Selection, options))
    return options | _bound(start, "start", "earliest", source) | _bound(end, "end", "latest", source)


def renames_of(texts: Iterable[str]) -> dict[str, str]:
    """Parse topics and their new names, ``old:new`` each."""
    renames: dict[str, str] = {}
    for text in texts:
        old, _, new = text.partition(":")
        if not old or not new or ":" in new:
            raise InvalidOptionError(f"--renames {text!r} is not old:new, such as events:events-2024")
        renames[old] = new
    return renames


def partition_of(text: str) -> TopicPartition:
    """Parse a partition, ``topic:partition``."""
    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise InvalidOptionError(f"--partitions {text!r} is not topic:partition, such as events:0")
    return TopicPartition(topic, int(number))


def _bound(texts: Iterable[str], which: str, nowhere: str, source: LogSource) -> dict[str, Any]:
    offsets: dict[tuple[str, int], int] = {}
    times: list[int] = []
    for text in texts:
        topic_partition, _, offset = text.rpartition(":")
        time_ms = None if text.isdecimal() else iso_milliseconds(text)
        if text == nowhere:
            continue
        if time_ms is not None:
            times.append(time_ms)
        elif text.isdecimal():
            offsets |= {named(folder): int(text) for folder in source.folders()}
        elif topic_partition and offset.isdecimal():
            offsets[partition_of(topic_partition)] = int(offset)
        else:
            option = "--from" if which == "start" else "--to"
            raise InvalidOptionError(
                f"{option} {text!r} is none of {nowhere}, an offset, topic:partition:offset and a time of ISO 8601"
            )
    if len(times) > 1:
        raise InvalidOptionError(f"{'--from' if which == 'start' else '--to'} is given two times: give one")
    return {f"{which}_offsets": offsets or None, f"{which}_time": times[0] if times else None}


def _print_plan(pieces: Sequence[tuple[int, ReadRange, int]], damage: Sequence[SeglogError], *, as_json: bool) -> bool:
    """Print the pieces of tasks: the task's number, the range, and its approximate bytes of log."""
    rows = [
        {
            "task": task,
            "topic": of_log.topic_partition.topic,
            "partition": of_log.topic_partition.partition,
            "from": of_log.start_offset,
            "to": of_log.end_offset,
            "log_bytes": log_bytes,
        }
        for task, of_log, log_bytes in pieces
    ]
    tables.show_rows(PLANNED_RANGE.columns, rows, as_json=as_json)
    for error in damage:
        render.complain("error", str(error))
    if not as_json:
        tasks = len({row["task"] for row in rows})
        size = bytes_text(sum(log_bytes for _, _, log_bytes in pieces))
        render.say(f"{counted(tasks, 'task')} to do, about {size} of logs")
    return not damage


def _moved_rows(summary: Summary) -> Iterator[dict[str, Any]]:
    for each in summary.moved:
        row = each.to_json()
        files = [{name: value for name, value in file.items() if name != "staged"} for file in row["files"]]
        yield {name: value for name, value in row.items() if name not in _NOT_SHOWN} | {
            "files": files,
            "lost": row.get("lost", []),
        }


def _topic_rows(summary: Summary) -> list[dict[str, Any]]:
    by_topic: dict[str, dict[str, Any]] = {}
    seen: set[TopicPartition] = set()
    for each in summary.moved:
        row = by_topic.setdefault(
            each.topic, {"topic": each.topic, "partitions": 0, "rows": 0, "log_bytes": 0, "files": 0, "bytes": 0}
        )
        row["partitions"] += each.topic_partition not in seen
        seen.add(each.topic_partition)
        row["rows"] += each.rows
        row["log_bytes"] += each.log_bytes
        row["files"] += len(each.files)
        row["bytes"] += sum(file.size_bytes for file in each.files)
    return list(by_topic.values())


def _sentence(summary: Summary, seconds: float) -> str:
    if isinstance(summary, RestoreSummary):
        if not summary.moved:
            return "no records were left to restore; every log of the source is there"
        records = counted(summary.rows, "record")
        return f"{records} of {counted(summary.partitions, 'partition')} restored in {seconds:.1f} s"
    if not summary.moved:
        return "nothing new to move"
    files = f" to {counted(summary.files, 'file')}" if isinstance(summary, ExportSummary) else ""
    rate = f"{summary.rows / seconds:,.0f} records/s, {bytes_text(int(summary.log_bytes / seconds))}/s of logs"
    return f"{counted(summary.rows, 'record')} moved{files} in {seconds:.1f} s: {rate}"
