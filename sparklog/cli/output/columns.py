"""The rows of commands: the fields of a row in JSON, and its columns in a table.

`RowShape` declares a row once. A field is a line of its name, its type in JSON and its meaning. A column is
``name/form=TITLE@rank``: the field that it shows, the form of its text, its title, and its rank (see `Column`). By
default the type of the field decides the form, and the name is the title.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sparklog.cli.output.render import Row
from sparklog.cli.output.tables import Column
from sparklog.cli.output.text import bytes_text, data_text, printable, time_text

_BAR_WIDTH: Final = 30
_TIMES: Final = ("FROM (UTC)", "TO")


class Field(NamedTuple):
    """A field of a row."""

    name: str
    kind: str
    meaning: str


@dataclass(frozen=True)
class RowShape:
    """The rows that a command prints.

    Attributes
    ----------
    of : str
        The noun for a row, such as "a batch".
    columns : tuple of Column
        The columns of its table; none if the row is printed only as JSON.
    """

    of: str
    fields: tuple[Field, ...]
    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, text: str, columns: str = "") -> RowShape:
        """Parse the noun and the fields below it, one per line; and columns, separated by commas."""
        of, *lines = text.splitlines()
        declared = tuple(Field(*line.split(maxsplit=2)) for line in lines if line)
        kinds = {field.name: field.kind.removesuffix("?") for field in declared}
        return cls(of, declared, declared_columns(columns, kinds))

    def row(self, source: Any, **others: Any) -> dict[str, Any]:
        """Make a row from the attributes of an object, and from other values by field name."""
        return {
            field.name: others[field.name] if field.name in others else getattr(source, field.name)
            for field in self.fields
        }


def declared_columns(text: str, kinds: dict[str, str] | None = None) -> tuple[Column, ...]:
    """Parse the declarations of columns; ``kinds`` has the types of the fields that are not integers."""
    return tuple(_column(each, kinds or {}) for each in text.split(", ") if each)


def _column(declared: str, kinds: dict[str, str]) -> Column:
    shown, _, rank = declared.partition("@")
    shown, has_title, title = shown.partition("=")
    name, _, form = shown.partition("/")
    text, layout = _FORMS[form or _FORM_OF_KIND[kinds.get(name, "integer")]]
    title = title if has_title else name.upper().replace("_", " ")
    return Column(title, lambda row: text(row, name), rank=int(rank or 0), **layout)


def _text(row: Row, name: str) -> str:
    return "-" if row[name] is None else printable(str(row[name]))


def _known(row: Row, name: str) -> str:
    return "-" if row[name] == -1 else _text(row, name)


def _offsets(row: Row, _: str) -> str:
    return f"{'?' if row['base_offset'] is None else row['base_offset']}-{row['last_offset']}"


def _partition(row: Row, _: str) -> str:
    if row["topic"] is None or row["partition"] is None:
        return _text(row, "topic")
    return printable(f"{row['topic']}-{row['partition']}")


def _producer(row: Row, _: str) -> str:
    is_known = row["producer_id"] is not None and row["producer_id"] >= 0
    return f"{row['producer_id']}:{row['producer_epoch']}" if is_known else "-"


def _flags(row: Row, _: str) -> str:
    flags = (
        "" if row["is_valid"] else "BAD-CRC",
        row["control_type"] or ("control" if row["is_control"] else ""),
        "txn" if row["is_transactional"] else "",
        "append-time" if row["timestamp_type"] == "LogAppendTime" else "",
        "horizon" if row["delete_horizon_ms"] is not None else "",
    )
    return " ".join(flag for flag in flags if flag)


def _value(row: Row, _: str) -> str:
    headers = " ".join(f"{printable(each['key'])}={data_text(each['value'])}" for each in row["headers"])
    return data_text(row["value"]) + (f"  [{headers}]" if headers else "")


def _formats(row: Row, _: str) -> str:
    """Return magics and codecs, and after a full scan each codec's share of the bytes."""
    sizes = row.get("codec_bytes") or {}
    shares = [f"{name} {100 * size / sum(sizes.values()):.0f}%" for name, size in sizes.items()]
    codecs = shares if len(shares) > 1 else row["codecs"]
    return " ".join([*(f"v{magic}" for magic in row["magics"]), *codecs]) or "-"


def _partitions(row: Row, name: str) -> str:
    """Return partitions of topics: ``orders-0,1,2 events-0``."""
    listed = (
        f"{each.get('topic') or each.get('topic_id') or each.get('subtopology_id')}"
        f"-{','.join(map(str, each['partitions']))}"
        for each in row[name] or ()
    )
    return " ".join(map(printable, listed)) or "-"


def _broker_state(row: Row, _: str) -> str:
    state = "fenced" if row["fenced"] else "active"
    return f"{state}, shutting down" if row["in_controlled_shutdown"] else state


def _endpoints(row: Row, name: str) -> str:
    return " ".join(printable(f"{each['name']}://{each['host']}:{each['port']}") for each in row[name])


def _raw(row: Row) -> str:
    """Return the bytes of a record that cannot be decoded."""
    return f"{data_text(row['raw_key'])} {data_text(row['raw_value'])}"


def _or_raw(row: Row, name: str) -> str:
    return _raw(row) if row[name] is None else printable(row[name])


def _or_tombstone(row: Row, name: str) -> str:
    return "tombstone" if row["is_tombstone"] else _text(row, name)


def _fields(row: Row, name: str) -> str:
    """Return the fields of a Kafka record as text."""
    if row["record"] is None:
        return _raw(row)
    return "tombstone" if row[name] is None else printable(row[name])


_RIGHT: Final = {"align": "right"}
_FORM_OF_KIND: Final = {"integer": "number", "string": "name", "array": "list"}
# Forms: how to make a cell's text from the row and the name of its field, and how to lay out its column.
_FORMS: Final[dict[str, tuple[Callable[[Row, str], str], dict[str, Any]]]] = {
    "number": (_text, _RIGHT),
    "known": (_known, _RIGHT),
    "size": (lambda row, name: bytes_text(row[name]), _RIGHT),
    "count": (lambda row, name: "-" if row[name] is None else str(len(row[name])), _RIGHT),
    "ratio": (lambda row, name: "-" if row[name] is None else f"{row[name]:.2f}", _RIGHT),
    "span": (lambda row, name: "-" if row[name] is None else f"{row[name] / 1000:.0f} s", _RIGHT),
    "text": (_text, {}),
    "short": (_text, {"widths": (20,)}),
    "name": (_text, {"folded_width": 24}),
    **{f"name{width}": (_text, {"folded_width": width}) for width in (16, 30, 40)},
    "blank": (lambda row, name: row[name] or "", {}),
    "yes": (lambda row, name: "yes" if row[name] else "no", {}),
    "list": (lambda row, name: ",".join(map(str, row[name])) or "-", {}),
    "data": (lambda row, name: data_text(row[name]), {"widths": (24, 16)}),
    "time": (lambda row, name: time_text(row[name]), {"widths": (19,), "cut_mark": ""}),
    "seconds": (lambda row, name: time_text(row[name])[:19], {"widths": (16, 10), "cut_mark": ""}),
    "minutes": (lambda row, name: time_text(row[name])[:16], {"widths": (10,), "cut_mark": ""}),
    "partition": (_partition, {"folded_width": 30}),
    "partitions": (_partitions, {"folded_width": 24}),
    "producer": (_producer, _RIGHT),
    "offsets": (_offsets, _RIGHT),
    "format": (lambda row, _: f"v{row['magic']} {row['codec']}", {}),
    "formats": (_formats, {"folded_width": 14}),
    "flags": (_flags, {}),
    "value": (_value, {}),
    "resource": (
        lambda row, _: printable(f"{row['resource_type']} {row['resource_name'] or '(all)'}"),
        {"folded_width": 24},
    ),
    "configs": (
        lambda row, name: " ".join(printable(f"{key}={value}") for key, value in row[name].items()) or "-",
        {"folded_width": 30},
    ),
    "broker": (_broker_state, {}),
    "endpoints": (_endpoints, {"folded_width": 30}),
    "id": (_or_raw, {}),
    "state": (_or_tombstone, {}),
    "committed": (_or_tombstone, _RIGHT),
    "fields": (_fields, {}),
    "position": (lambda row, name: "snapshot" if row[name] is None else str(row[name]), _RIGHT),
}
_COUNTS: Final = declared_columns("batches@2, records, control_batches=CONTROL@5, transactional_batches=TXN@5")
_RATIO: Final = declared_columns("compression_ratio/ratio=RATIO")
SPANS: Final = declared_columns("timestamp/seconds=FROM (UTC), records, bytes/size=SIZE, bar/text=")
FIELD_COLUMNS: Final = declared_columns("field/text, type/text, meaning/name30")


def with_counts(columns: Sequence[Column], *, has_ratio: bool) -> list[Column]:
    """Replace the times by the counts of a full scan, and add the compression ratio if it was measured."""
    kept = (column for column in columns[:-1] if column.title not in _TIMES)
    return [*kept, *_COUNTS, *(_RATIO if has_ratio else ()), columns[-1]]


def with_bars(spans: Sequence[Row]) -> list[Row]:
    """Add a bar to each span of time of a histogram, in proportion to its bytes."""
    most = max((span["bytes"] for span in spans), default=0) or 1
    return [{**span, "bar": "█" * -(-span["bytes"] * _BAR_WIDTH // most)} for span in spans]


def entry_columns(row: Row) -> tuple[Column, ...]:
    """Make the columns of rows that have only numbers and names."""
    forms = {name: "known" if isinstance(value, int) else "text" for name, value in row.items()}
    return declared_columns(
        ", ".join(f"{name}/{'time' if name == 'timestamp' else form}" for name, form in forms.items())
    )
