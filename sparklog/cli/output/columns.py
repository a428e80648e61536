"""The columns of each table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparklog.cli.output.render import Row
from sparklog.cli.output.tables import Column
from sparklog.cli.output.text import bytes_text, data_text, printable, time_text

_BAR_WIDTH: Final = 30
_TIMES: Final = ("FROM (UTC)", "TO")


def _plain(name: str, title: str | None = None, rank: int = 0) -> Column:
    return Column(title or name.upper().replace("_", " "), lambda row: _text(row[name]), "right", rank=rank)


def _text(value: Any) -> str:
    return "-" if value is None or value == -1 else printable(str(value))


def _time(title: str, name: str, rank: int = 0) -> Column:
    return Column(title, lambda row: time_text(row[name]), widths=(19,), cut_mark="", rank=rank)


def _minutes(title: str, name: str, rank: int) -> Column:
    return Column(title, lambda row: time_text(row[name])[:16], widths=(10,), cut_mark="", rank=rank)


def _seconds(title: str, name: str, rank: int) -> Column:
    return Column(title, lambda row: time_text(row[name])[:19], widths=(16, 10), cut_mark="", rank=rank)


def _offsets(row: Row) -> str:
    return f"{'?' if row['base_offset'] is None else row['base_offset']}-{row['last_offset']}"


def _producer(row: Row) -> str:
    return "-" if row["producer_id"] < 0 else f"{row['producer_id']}:{row['producer_epoch']}"


def _flags(row: Row) -> str:
    flags = (
        "" if row["is_valid"] else "BAD-CRC",
        row["control_type"] or ("control" if row["is_control"] else ""),
        "txn" if row["is_transactional"] else "",
        "append-time" if row["timestamp_type"] == "LogAppendTime" else "",
        "horizon" if row["delete_horizon_ms"] is not None else "",
    )
    return " ".join(flag for flag in flags if flag)


def _value(row: Row) -> str:
    headers = " ".join(f"{printable(each['key'])}={data_text(each['value'])}" for each in row["headers"])
    return data_text(row["value"]) + (f"  [{headers}]" if headers else "")


def _formats(row: Row) -> str:
    """Write magics and codecs, and after a full scan how much of the bytes each codec has."""
    sizes = row.get("codec_bytes") or {}
    shares = [f"{name} {100 * size / sum(sizes.values()):.0f}%" for name, size in sizes.items()]
    codecs = shares if len(shares) > 1 else row["codecs"]
    return " ".join([*(f"v{magic}" for magic in row["magics"]), *codecs]) or "-"


_FORMATS: Final = Column("FORMATS", _formats, folded_width=14, rank=3)


def _partition(row: Row) -> str:
    topic = printable(row["topic"])
    return topic if row["partition"] is None else f"{topic}-{row['partition']}"


def _size(name: str, title: str = "SIZE") -> Column:
    return Column(title, lambda row: bytes_text(row[name]), "right")


RECORDS: Final = (
    _plain("offset"),
    _time("TIME (UTC)", "timestamp"),
    Column("KEY", lambda row: data_text(row["key"]), widths=(24, 16)),
    Column("VALUE  [HEADERS]", _value),
)
BATCHES: Final = (
    _plain("position", rank=2),
    Column("OFFSETS", _offsets, "right"),
    _plain("record_count", "RECORDS"),
    _plain("size_bytes", "BYTES"),
    Column("FORMAT", lambda row: f"v{row['magic']} {row['codec']}"),
    _time("MAX TIME (UTC)", "max_timestamp"),
    _plain("leader_epoch", "EPOCH", rank=3),
    Column("PRODUCER", _producer, "right", rank=1),
    Column("FLAGS", _flags),
)
TOPICS: Final = (
    Column("TOPIC", lambda row: printable(row["topic"]), folded_width=30),
    _plain("partitions", "PARTS"),
    _plain("segments", "SEGS", rank=4),
    _size("total_bytes"),
    _plain("offsets"),
    _minutes(_TIMES[0], "first_timestamp", 1),
    _minutes(_TIMES[1], "max_timestamp", 1),
    _FORMATS,
)
PARTITIONS: Final = (
    Column("PARTITION", _partition, folded_width=30),
    _plain("segments", "SEGS", rank=4),
    _size("total_bytes"),
    _plain("start_offset", "START"),
    _plain("end_offset", "END"),
    _plain("last_stable_offset", "STABLE", rank=2),
    _minutes(_TIMES[0], "first_timestamp", 1),
    _minutes(_TIMES[1], "max_timestamp", 1),
    _FORMATS,
)
SEGMENTS: Final = (
    Column("PARTITION", _partition, folded_width=30),
    _plain("base_offset", "BASE"),
    _plain("end_offset", "END"),
    _size("log_bytes"),
    _seconds(_TIMES[0], "first_timestamp", 1),
    _seconds(_TIMES[1], "max_timestamp", 1),
    _FORMATS,
)
COUNTS: Final = (
    _plain("batches", rank=2),
    _plain("records"),
    _plain("control_batches", "CONTROL", rank=5),
    _plain("transactional_batches", "TXN", rank=5),
)
FINDINGS_OF_FILE: Final = (
    Column("SEVERITY", lambda row: row["severity"]),
    _plain("position"),
    _plain("offset"),
    Column("WHAT", lambda row: printable(row["message"]), folded_width=30),
)
FINDINGS: Final = (Column("FILE", lambda row: printable(row["file"])), *FINDINGS_OF_FILE)

ACTIONS: Final = (
    Column("STATUS", lambda row: row["status"]),
    Column("FILE", lambda row: printable(row["path"]), folded_width=30),
    Column("WHAT", lambda row: printable(row["what"]), folded_width=30),
)

_TOPIC: Final = Column("TOPIC", lambda row: printable(row["topic"]), folded_width=30)
_LOG_SIZE: Final = Column("LOG", lambda row: bytes_text(row["log_bytes"]), "right")
PLANNED: Final = (
    _plain("task"),
    Column("PARTITION", _partition, folded_width=30),
    _plain("from"),
    _plain("to"),
    _LOG_SIZE,
)
PLANNED_FILES: Final = (
    _plain("task"),
    Column("FILE", lambda row: printable(row["path"]), folded_width=30),
    _plain("rows", "RECORDS"),
    _size("size_bytes"),
)
COPIED_TOPICS: Final = (_TOPIC, _plain("partitions", "PARTS"), _plain("rows", "RECORDS"), _LOG_SIZE)
EXPORTED_TOPICS: Final = (*COPIED_TOPICS, _plain("files"), _size("bytes"))
CLEANED: Final = (
    Column("PARTITION", _partition, folded_width=30),
    _plain("start_offset", "START"),
    _plain("end_offset", "END"),
    _plain("dropped_segments", "SEGMENTS"),
    _plain("dropped_offsets", "OFFSETS"),
    _size("dropped_bytes", "DROPPED"),
    _seconds("FROM (UTC)", "first_timestamp", 2),
    _seconds("TO", "last_timestamp", 1),
)
REWRITTEN: Final = (_size("rewritten_bytes", "REWRITTEN"), _size("new_bytes", "INTO"))
LOADED_PARTITIONS: Final = (
    Column("PARTITION", _partition, folded_width=30),
    _plain("first_offset", "FIRST"),
    _plain("last_offset", "LAST"),
    _plain("records"),
    _size("size_bytes"),
)
LEDGER_PARTITIONS: Final = (
    Column("PARTITION", _partition, folded_width=30),
    _plain("from"),
    _plain("to"),
    _plain("rows", "RECORDS"),
    _plain("files", rank=2),
    _size("bytes"),
    _seconds("LAST (UTC)", "time_ms", 1),
)
LEDGER_COPIES: Final = (
    *LEDGER_PARTITIONS[:4],
    _LOG_SIZE,
    Column("TO TOPIC", lambda row: _text(row["target_topic"]), folded_width=24),
    LEDGER_PARTITIONS[-1],
)
LEDGER_FILES: Final = (
    Column("FILE", lambda row: printable(row["path"]), folded_width=30),
    _size("bytes"),
    _plain("rows", "RECORDS"),
    _seconds("LOADED (UTC)", "time_ms", 1),
)
LEDGER_COMMITS: Final = (
    _plain("number"),
    Column("JOB", lambda row: printable(row["job"])),
    _seconds("TIME (UTC)", "time_ms", 0),
    _plain("rows", "RECORDS"),
    _plain("files"),
    Column("RUN", lambda row: printable(row["run"]), rank=1),
)

LEDGER_FINDINGS: Final = (
    Column("KIND", lambda row: row["kind"]),
    Column("FILE", lambda row: printable(row["path"]), folded_width=30),
    Column("WHAT", lambda row: printable(row["reason"]), folded_width=30),
)

LAG: Final = (
    Column("TOPIC", lambda row: printable(row["topic"]), widths=(20,)),
    _plain("partition"),
    _plain("offset"),
    _plain("end_offset", "END"),
    _plain("lag"),
)

FIELDS: Final = (
    Column("FIELD", lambda row: row["field"]),
    Column("TYPE", lambda row: row["type"]),
    Column("MEANING", lambda row: row["meaning"], folded_width=30),
)
SPANS: Final = (
    _seconds("FROM (UTC)", "timestamp", 0),
    _plain("records"),
    _size("bytes"),
    Column("", lambda row: row["bar"]),
)


def counted(columns: Sequence[Column], *, has_ratio: bool) -> list[Column]:
    """Replace the times by the counts that a full scan makes, and what compression saves if it was measured."""
    ratio = [Column("RATIO", _ratio, "right")] if has_ratio else []
    return [*(column for column in columns[:-1] if column.title not in _TIMES), *COUNTS, *ratio, columns[-1]]


def with_bars(spans: Sequence[Row]) -> list[Row]:
    """Add a bar to each span of time of a histogram, as long as the bytes in it."""
    most = max((span["bytes"] for span in spans), default=0) or 1
    return [{**span, "bar": "█" * -(-span["bytes"] * _BAR_WIDTH // most)} for span in spans]


def _ratio(row: Row) -> str:
    return "-" if row["compression_ratio"] is None else f"{row['compression_ratio']:.2f}"


def of_entries(row: Row) -> list[Column]:
    """Make the columns of rows that have nothing but numbers and names."""
    return [_time(name.upper(), name) if name == "timestamp" else _entry(name, row[name]) for name in row]


def _entry(name: str, value: Any) -> Column:
    column = _plain(name)
    return column if isinstance(value, int) else Column(column.title, column.text)
