"""Turns unions of several Avro types into records of one field each, so that a datum shows its branch.

A record is encoded as its fields in order, and so a record of one field as that field alone. Schemas are therefore
rewritten: ``["null", "string", "long"]`` becomes null with two records, of the field ``member0`` and of ``member1``,
and `fastavro` decodes a datum to an object of the one field that it has. Schemas of writers are rewritten together with
the reader's, so that a type of the writer, in a union or not, becomes the branch of the reader that Avro resolves it
to: one of the same type and name, or else one that it widens to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_WIDER: Final[tuple[frozenset[str], ...]] = (frozenset(("int", "long")), frozenset(("float", "double")))
_PROMOTED: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_PREFIX: Final = "sparklog.union"
_NAMED: Final = ("record", "error", "enum", "fixed")


def members_of(union: list[Any]) -> list[Any]:
    """Return the branches of a union that become fields of a struct: all but null, if there are several."""
    others = [each for each in union if each != "null"]
    is_of_numbers = all(isinstance(each, str) for each in others) and frozenset(others) in _WIDER
    return [] if len(others) < 2 or is_of_numbers else others


def member_name(number: int) -> str:
    """Return the name of a branch's field, as in Spark's ``from_avro``."""
    return f"member{number}"


class UnionRewriter:
    """Rewrites the schema of a reader, and the schemas of writers to match it.

    Parameters
    ----------
    reader : object
        A schema whose types have their full names, from `fastavro.parse_schema`; no record in it holds itself.
    """

    def __init__(self, reader: Any) -> None:
        self._original, self._named = reader, named_types(reader)
        self._numbers: dict[int, int] = {}
        self.reader = self._rewritten(reader)

    def writer(self, schema: Any) -> Any:
        """Rewrite the parts of a writer's schema that are read as a union of several types."""
        return _Writer(self._numbers, self._named, named_types(schema)).beside(schema, self._original)

    def _rewritten(self, schema: Any) -> Any:
        if isinstance(schema, list):
            members = members_of(schema)
            if not members:
                return [self._rewritten(each) for each in schema]
            number = self._numbers[id(schema)] = len(self._numbers)
            records = [_record(number, place, self._rewritten(each)) for place, each in enumerate(members)]
            left = iter(records)
            return [each if each == "null" else next(left) for each in schema]
        return with_parts(schema, self._rewritten)


class _Writer:
    """Rewrites one schema of a writer."""

    def __init__(self, numbers: Mapping[int, int], readers: Mapping[str, Any], writers: Mapping[str, Any]) -> None:
        self._numbers, self._readers, self._writers = numbers, readers, writers

    def beside(self, writer: Any, reader: Any) -> Any:
        if isinstance(reader, str):
            reader = self._readers.get(reader, reader)
        if isinstance(reader, list):
            number = self._numbers.get(id(reader))
            if number is not None:
                members = members_of(reader)
                if isinstance(writer, list):
                    return [each if each == "null" else self._member(each, members, number) for each in writer]
                return self._member(writer, members, number)
            others = [each for each in reader if each != "null"]
            reader = others[0] if len(others) == 1 else reader
        if isinstance(writer, list):
            return [each if each == "null" else self.beside(each, reader) for each in writer]
        if not isinstance(writer, dict) or not isinstance(reader, dict):
            return writer
        if "fields" in writer and "fields" in reader:
            fields = {name: field["type"] for field in reader["fields"] for name in _names_of(field)}
            # A writer's defaults have no effect, and would not fit a rewritten type.
            rewritten = [
                {"name": field["name"], "type": self.beside(field["type"], fields.get(field["name"]))}
                for field in writer["fields"]
            ]
            return {**writer, "fields": rewritten}
        return {
            key: self.beside(value, reader.get(key)) if key in ("type", "items", "values") else value
            for key, value in writer.items()
        }

    def _member(self, writer: Any, members: list[Any], number: int) -> Any:
        """Turn a writer's type into the branch that it is read as; leave it alone if there is none."""
        place = self._place(writer, members)
        return writer if place is None else _record(number, place, self.beside(writer, members[place]))

    def _place(self, writer: Any, members: list[Any]) -> int | None:
        kind, name = _kind(writer, self._writers)
        found = [_kind(each, self._readers) for each in members]
        same = [place for place, each in enumerate(found) if each == (kind, name)]
        wider = [place for to in _PROMOTED.get(kind, ()) for place, each in enumerate(found) if each == (to, "")]
        return next(iter([*same, *wider]), None)


def _record(number: int, place: int, kind: Any) -> dict[str, Any]:
    field = {"name": member_name(place), "type": kind}
    return {"type": "record", "name": f"{_PREFIX}{number}_{member_name(place)}", "fields": [field]}


def _names_of(field: Mapping[str, Any]) -> list[str]:
    return [field["name"], *field.get("aliases", ())]


def _kind(schema: Any, named: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of a schema's type, and its name without namespace if it has one."""
    if isinstance(schema, str):
        if schema not in named:
            return schema, ""
        schema = named[schema]
    if isinstance(schema, list):
        return "union", ""
    kind = schema["type"]
    if kind in _NAMED:
        return kind, schema["name"].rpartition(".")[2]
    return (kind, "") if isinstance(kind, str) and kind not in named else _kind(kind, named)


def named_types(schema: Any) -> dict[str, Any]:
    """Return the named types that are defined in a schema."""
    found: dict[str, Any] = {}

    def collect(part: Any) -> Any:
        if isinstance(part, list):
            return [collect(each) for each in part]
        if isinstance(part, dict) and part["type"] in _NAMED:
            found[part["name"]] = part
        return with_parts(part, collect)

    collect(schema)
    return found


def with_parts(schema: Any, change: Any) -> Any:
    """Return a type with its parts changed by a function."""
    if not isinstance(schema, dict):
        return schema
    changed = {key: change(value) if key in ("type", "items", "values") else value for key, value in schema.items()}
    if "fields" in schema:
        changed["fields"] = [{**field, "type": change(field["type"])} for field in schema["fields"]]
    return changed
