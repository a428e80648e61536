"""What may come of reading a damaged log. Each rule is stated once, here, with its reason; all else is a finding.

1. The answer is the sound log's. (The damage is outside of what was asked for, or in a hint.)
2. The answer is an error of ours, and the rows before it are right: a consumer that has seen them must not be lied to.
3. The answer is that of the log that the damage has made, where the format has no objection to it (`Model.unseen`):
   nobody can tell it from one that a broker wrote. Counted apart, by its reason.
4. But not where something else in the folder knows better: an undamaged index of a sealed segment that speaks of
   batches which are gone must lead to an error, and where a torn tail takes what had been synced, there is a warning.

A range that ends before the first fault need not meet it, nor one that begins behind it. Nothing else is excused.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tests.fuzz.logs import SoundLog, base_of
from tests.fuzz.model import (
    ROW_COLUMNS,
    Fault,
    Model,
    Row,
    directory_proves_loss,
    index_proves_loss,
    model_of,
)
from tests.fuzz.queries import Answer, Query
from tests.fuzz.verdict import EQUAL, REFUSED, Verdict

_BEFORE_END_MAX: Final = 100


def judge(
    log: SoundLog,
    query: Query,
    sound: Answer,
    answer: Answer,
    files: Mapping[str, bytes],
    again: Callable[[Query], Answer],
) -> Verdict:
    """Hold an answer against the rules.

    Parameters
    ----------
    sound : Answer
        The sound log's to the same query.
    files : mapping of str to bytes
        The damaged files.
    again : callable
        Asks the damaged log something else.
    """
    if answer.error is not None and not answer.is_refused:
        return Verdict("untyped", f"untyped error {type(answer.error).__name__}")
    if _is_same(answer, sound):
        return Verdict(EQUAL)
    is_prefix = answer.table is None or _is_prefix(answer.table, sound.table)
    if answer.is_refused and is_prefix:
        return Verdict(f"{REFUSED} ({type(answer.error).__name__})")
    model = model_of(files, log)
    if query.is_read:
        verdict = _judge_rows(log, query, answer, model, files, again, is_prefix=is_prefix)
        start = log.start_offset if query.start is None else query.start
        if verdict.finding is None or not start:
            return verdict
        # Damage may lie before the place to which an index leads.
        behind = model_of(files, log, start)
        again_judged = _judge_rows(log, query, answer, behind, files, again, is_prefix=is_prefix)
        return verdict if again_judged.finding else again_judged
    return _judge_offset(log, query, answer, model, files, again)


def _is_same(answer: Answer, sound: Answer) -> bool:
    if answer.error is not None:
        return False
    if answer.table is not None and sound.table is not None:
        return bool(answer.table.equals(sound.table))
    return answer.offset == sound.offset


def _is_prefix(table: pa.Table, sound: pa.Table | None) -> bool:
    return sound is not None and table.num_rows <= sound.num_rows and table.equals(sound.slice(0, table.num_rows))


def _judge_rows(
    log: SoundLog,
    query: Query,
    answer: Answer,
    model: Model,
    files: Mapping[str, bytes],
    again: Callable[[Query], Answer],
    *,
    is_prefix: bool,
) -> Verdict:
    # All columns, so that the rows can be held against the model whatever was asked for.
    full = again(Query("batches", query.committed, ROW_COLUMNS, query.start, query.end))
    if full.table is None or (answer.table is not None and full.table.num_rows != answer.table.num_rows):
        return Verdict("unsteady", "the same range has another number of rows with other columns")
    rows = table_rows(full.table)
    start = log.start_offset if query.start is None else query.start
    reach = _reach(query, model)
    expected = model.rows(committed=query.committed, start=start, end=query.end)
    met = [fault for fault in model.faults if fault.is_met(start, reach)]
    is_likely = _cannot_tell_transactions(query, model, rows, start)
    if answer.is_refused:
        before = [row for row in expected if not met or int(str(row[0])) < met[0].lowest]
        if rows == before[: len(rows)] or is_likely:
            return Verdict(f"{REFUSED}, unseen before it: {_reasons(model)}")
        return Verdict("wrong rows", f"wrong rows before an error: {_difference(rows, before)}")
    if met and not (is_likely and reach is not None):
        what = "ends early" if is_prefix else "other rows"
        return Verdict("silent", f"silent, {what}: {_kind(met[0])}")
    if rows == expected or is_likely:
        return _unless_known_better(log, answer, model, files, query.end)
    return Verdict("silent", f"silent, other rows than the format has: {_difference(rows, expected)}")


def _reach(query: Query, model: Model) -> int | None:
    """Return the offset at which a reader may stop to look; None where it is the end of the log."""
    is_open = query.committed and model.last_stable_offset < model.end_offset
    ends = [end for end in (query.end, model.last_stable_offset if is_open else None) if end is not None]
    return min(ends, default=None)


def _judge_offset(
    log: SoundLog,
    query: Query,
    answer: Answer,
    model: Model,
    files: Mapping[str, bytes],
    again: Callable[[Query], Answer],
) -> Verdict:
    reach: int | None = 0
    if query.kind == "time":
        expected = model.offset_for_time(query.time, log.start_offset)
        reach = None if answer.offset is None else answer.offset + 1
        # What is found before a fault is found; a log that ends before its start offset is empty, which is warned of.
        is_right = answer.offset == expected and (
            not any(
                fault.is_met(log.start_offset, expected) and not _is_led_past(fault, query.time, files)
                for fault in model.faults
            )
            or (model.end_offset < log.start_offset and bool(answer.warnings))
        )
    elif query.kind == "stable":
        expected = max(model.last_stable_offset, log.start_offset)
        is_right = answer.offset == expected and model.is_end_sound and (not model.faults or bool(model.unseen))
        # A snapshot of the producers knows of transactions whose batches are not there any more.
        is_right |= not model.faults and "other batches" in model.unseen
        is_end_known = model.is_end_sound or any(
            answer.offset == max(each.last_stable_offset, log.start_offset) and each.is_end_sound
            for each in _as_from_the_end(log, model, files)
        )
        if not is_right and is_end_known and _is_refused_when_read(log, answer, again):
            return Verdict("unseen until it is read: what is below the last stable offset")
    else:
        is_right = any(
            answer.offset == max(each.end_offset, log.start_offset) and each.is_end_sound
            for each in _as_from_the_end(log, model, files)
        )
    if is_right:
        return _unless_known_better(log, answer, model, files, reach)
    names = {"stable": "last stable offset", "time": "offset for a time", "end": "end offset"}
    reason = "not the format's" if not model.faults else _kind(model.faults[-1])
    return Verdict("silent", f"silent, wrong {names[query.kind]}: {reason}")


def _is_led_past(fault: Fault, time: int, files: Mapping[str, bytes]) -> bool:
    """Tell whether the time index says that nothing up to a later offset is as late: then the fault is not met."""
    entries = struct.iter_unpack(">qi", files.get(fault.file.replace(".log", ".timeindex"), b""))
    # An entry is for the last offset of a batch, and leads to it.
    return fault.highest is not None and any(
        timestamp < time and base_of(fault.file) + relative >= fault.highest for timestamp, relative in entries
    )


def _is_refused_when_read(log: SoundLog, answer: Answer, again: Callable[[Query], Answer]) -> bool:
    """Tell whether who reads up to a last stable offset meets damage below it, which is not looked for before."""
    read = again(Query("batches", committed=True, start=log.start_offset, end=answer.offset))
    return read.is_refused


def _as_from_the_end(log: SoundLog, model: Model, files: Mapping[str, bytes]) -> Iterator[Model]:
    """Yield what may be found where an index leads to one of the last batches: what is before it is not looked at."""
    yield model
    for batch in reversed(model_of(log.files).placed[-_BEFORE_END_MAX:]):
        behind = model_of(files, log, batch.offsets[0])
        if behind.placed:
            yield behind


def _unless_known_better(
    log: SoundLog, answer: Answer, model: Model, files: Mapping[str, bytes], reach: int | None
) -> Verdict:
    """Rule 4, for who looks no further than the offset `reach`, exclusive."""
    if reach and model.faults and all(fault.lowest >= reach for fault in model.faults):
        return Verdict("unseen before what is damaged")
    if not model.unseen and any(not fault.is_misplaced for fault in model.faults):
        return Verdict("silent", f"silent, what was not checked decides what is stable: {_kind(model.faults[0])}")
    if not model.unseen and not model.faults:
        return Verdict("silent", "silent, another answer although nothing is damaged but hints")
    index = index_proves_loss(files, log, model, reach)
    if index is not None:
        return Verdict("silent", f"silent, a sealed segment is short, which {index} proves")
    known = directory_proves_loss(log, model)
    if known is not None and not answer.warnings:
        return Verdict("unwarned", f"no warning of {known}")
    return Verdict(f"unseen: {_reasons(model)}")


def _cannot_tell_transactions(query: Query, model: Model, rows: Sequence[Row], start: int) -> bool:
    """Tell whether whole batches, markers maybe, are missing or foreign: then what is left must be real and in order.

    Behind a fault there may be markers, too, that decide what is before it.
    """
    if not query.committed or not ("other batches" in model.unseen or model.faults):
        return False
    every = iter(model.rows(committed=False, start=start, end=query.end))
    return bool(model.unseen) and all(row in every for row in rows)


def _reasons(model: Model) -> str:
    return ", ".join(sorted(model.unseen)) or "misplaced behind what was read"


def _kind(fault: Fault) -> str:
    """Return what is wrong without where it is, so that findings of one kind count together."""
    for words, kind in (
        ("a wrapper of offset", "a wrapper contradicts its messages"),
        ("offsets", "offsets do not ascend"),
        ("CRC", "a checksum differs"),
        ("magic", "unknown magic"),
        ("no batch at", "no whole batch there"),
    ):
        if words in fault.what:
            return kind
    return "a batch cannot be decoded"


def _difference(rows: Sequence[Row], expected: Sequence[Row]) -> str:
    """Say how rows differ, in words that do not depend on the log."""
    offsets = [int(str(row[0])) for row in rows]
    if any(after <= before for before, after in itertools.pairwise(offsets)):
        return "offsets twice or out of order"
    for row, right in zip(rows, expected, strict=False):
        if row != right:
            return f"column {next(n for n, a, b in zip(ROW_COLUMNS, row, right, strict=True) if a != b)}"
    return "fewer" if len(rows) < len(expected) else "more"


def table_rows(table: pa.Table) -> list[Row]:
    """Return the rows of a table of `ROW_COLUMNS`, as the model has them."""
    place = ROW_COLUMNS.index("timestamp")
    columns: list[list[Any]] = [
        column.cast(pa.int64()).to_pylist() if row == place else column.to_pylist()
        for row, column in enumerate(table.columns)
    ]
    headers = ROW_COLUMNS.index("headers")
    columns[headers] = [each and [(one["key"], one["value"]) for one in each] for each in columns[headers]]
    return list(zip(*columns, strict=True)) if columns else []
