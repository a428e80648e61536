"""Reads and writes the record of a salvage: what it has kept of each log, and the table of damage.

The record is the file ``seglog.salvage.jsonl`` of the log directory that the salvage makes. A broker ignores it. It has
checked lines of JSON, see `sparklog.log.checked_lines`: one that begins it, then for each partition its damage and its
sums, and one that ends it:

    {"kind": "salvage", "version": 1, "sources": ["/logs"]}
    {"kind": "damage", "topic": "events", "partition": 0, "file": "/logs/events-0/00000000000000000000.log",
     "position": 40960, "length_bytes": 1311, "first_offset": 4000, "end_offset": 4128, "reason": "..."}
    {"kind": "partition", "topic": "events", "partition": 0, "batches": 90, "records": 11392, "log_bytes": 117990,
     "start_offset": 0, "end_offset": 11520, "high_watermark": 11520, "open_transactions": 0}
    {"kind": "end"}

    damage               a row of the table of damage, see `sparklog.log.damage_rows`
    partition            the sums of a partition that is in place; the damage before it is the partition's
    end                  the salvage is finished

A salvage that stopped has no last line: a rerun keeps the partitions in the record, and makes all others again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from sparklog.errors import CorruptCheckpointError
from sparklog.jobs.salvage.log_copy import SalvagedLog
from sparklog.log import files
from sparklog.log.checked_lines import encode_line, line_checksum, whole_lines
from sparklog.log.damage_rows import DamagedStretch
from sparklog.log.files import TopicPartition
from sparklog.log.places import LogDirectory
from sparklog.log.reads.damage_table import DAMAGE_SCHEMA
from sparklog.write.small_files import append_line

_VERSION: Final = 1
_BEGIN, _DAMAGE, _PARTITION, _END = "salvage", "damage", "partition", "end"
_SUMS: Final = tuple(each.name for each in fields(SalvagedLog) if each.name not in ("damage", "staged"))
_TEXTS: Final = frozenset({"topic", "file", "reason"})


@dataclass(frozen=True)
class SalvageRecord:
    """The record of a salvage: the paths that are salvaged, and the partitions that are in place.

    Attributes
    ----------
    end_position, checksum : int
        The end of the lines that count, and their checksum.
    """

    sources: tuple[str, ...]
    logs: Mapping[TopicPartition, SalvagedLog]
    is_finished: bool
    end_position: int
    checksum: int


def read_record(directory: LogDirectory) -> SalvageRecord | None:
    """Read the record of a directory; None if it has none.

    Raises
    ------
    CorruptCheckpointError
        A line is wrong.
    """
    path = directory.file(files.SALVAGE_RECORD)
    data = directory.storage.read_small(path)
    lines = whole_lines(data or b"")
    if not lines:
        return None
    sources, logs, damage, is_finished = tuple[str, ...](), dict[TopicPartition, SalvagedLog](), [], False
    position = end_position = checksum = at_end = 0
    for number, line in enumerate(lines, 1):
        try:
            at_end = line_checksum(line, at_end)
            found = json.loads(line)
            kind = found["kind"]
            if (kind == _BEGIN) != (number == 1) or is_finished:
                raise ValueError(f"a line of kind {kind} in a wrong place")
            if kind == _BEGIN:
                if found["version"] != _VERSION:
                    raise ValueError(f"unknown version {found['version']}")
                sources = tuple(map(str, found["sources"]))
            elif kind == _DAMAGE:
                damage.append(DamagedStretch(**_checked(found, DAMAGE_SCHEMA.names)))
            elif kind == _PARTITION:
                log = SalvagedLog(**_checked(found, _SUMS), damage=tuple(damage))
                logs[log.topic_partition], damage = log, []
            elif kind == _END:
                is_finished = True
            else:
                raise ValueError(f"unknown kind {kind}")
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpointError(
                f"line {number} of the record of a salvage is wrong: {error}", path=path
            ) from error
        position += len(line)
        if kind != _DAMAGE:
            end_position, checksum = position, at_end
    return SalvageRecord(sources, logs, is_finished, end_position, checksum)


def _checked(found: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return some fields of a line; raise `ValueError` for one of another type."""
    for name in names:
        if type(found[name]) is not (str if name in _TEXTS else int):
            raise ValueError(f"{name} is {found[name]!r}")
    return {name: found[name] for name in names}


def begin_record(directory: LogDirectory, sources: Iterable[str]) -> None:
    """Begin the record of a directory."""
    line = encode_line({"kind": _BEGIN, "version": _VERSION, "sources": list(sources)})
    append_line(directory, files.SALVAGE_RECORD, 0, line, like=files.JOBS_LOCK)


def add_logs(directory: LogDirectory, logs: Iterable[SalvagedLog]) -> None:
    """Add partitions that are in place to the record."""
    rows: list[dict[str, Any]] = []
    for log in logs:
        rows += [{"kind": _DAMAGE, **asdict(each)} for each in log.damage]
        rows.append({"kind": _PARTITION, **{name: getattr(log, name) for name in _SUMS}})
    _append(directory, rows)


def end_record(directory: LogDirectory) -> None:
    """Record that the salvage is finished."""
    _append(directory, [{"kind": _END}])


def _append(directory: LogDirectory, rows: Iterable[Mapping[str, Any]]) -> None:
    record = read_record(directory)
    if record is None:
        raise CorruptCheckpointError("the record of the salvage has gone", path=directory.file(files.SALVAGE_RECORD))
    lines, checksum = bytearray(), record.checksum
    for row in rows:
        line = encode_line(row, checksum)
        checksum = line_checksum(line, checksum)
        lines += line
    append_line(directory, files.SALVAGE_RECORD, record.end_position, bytes(lines), like=files.JOBS_LOCK)
