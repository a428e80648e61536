"""Turns the defaults of Avro fields from a schema's JSON into the data that decoding gives.

`fastavro` returns a default as its plain JSON. By Avro's rules it stands for a datum of the field's type: bytes
are text of the characters U+0000 to U+00FF, a record has the defaults of the fields that are not named, and in a union
it belongs to the first branch that it fits.

Source: Avro specification 1.12.0; org.apache.avro 1.12.0, ResolvingGrammarGenerator.encode.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from sparklog.values.avro_unions import member_name, members_of, named_types, with_parts

_PENDING: Final = "sparklog.default"
"""The property of a field that holds its default as a datum until `set_defaults`: `fastavro` parses JSON only."""
_JSON: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), (str,)),
    "array": (list,),
    **dict.fromkeys(("map", "record", "error"), (dict,)),
}


def with_pending(schema: Any) -> Any:
    """Return a schema whose defaults are data; its fields get them by `set_defaults`.

    Raises
    ------
    ValueError, LookupError
        A default does not fit its type.
    """
    named = named_types(schema)

    def changed(part: Any) -> Any:
        if isinstance(part, list):
            return [changed(each) for each in part]
        whole = with_parts(part, changed)
        for field in whole.get("fields", ()) if isinstance(whole, dict) else ():
            if "default" in field:
                # The types of `part` still have defaults as JSON, which the defaults of records are made from.
                kind = next(each["type"] for each in part["fields"] if each["name"] == field["name"])
                field[_PENDING] = _datum_of(kind, field.pop("default"), named)
        return whole

    return changed(schema)


def _datum_of(schema: Any, default: Any, named: Mapping[str, Any]) -> Any:
    """Return the datum that the JSON of a default stands for."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        branch = next((each for each in schema if _fits(each, default, named)), schema[0])
        datum, members = _datum_of(branch, default, named), members_of(schema)
        return {member_name(members.index(branch)): datum} if branch in members else datum
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind not in _JSON:
        return _datum_of(kind, default, named)
    if not _fits(schema, default, named):
        raise ValueError(f"the default {default!r} is no {kind}")
    if kind in ("record", "error"):
        fields = {each["name"]: each for each in schema["fields"]}
        given = {name: default[name] if name in default else each["default"] for name, each in fields.items()}
        return {name: _datum_of(each["type"], given[name], named) for name, each in fields.items()}
    if kind == "array":
        return [_datum_of(schema["items"], each, named) for each in default]
    if kind == "map":
        return {name: _datum_of(schema["values"], each, named) for name, each in default.items()}
    if kind in ("bytes", "fixed"):
        return _of_octets(schema, default.encode("latin-1"))
    return float(default) if kind in ("float", "double") else default


def set_defaults(schema: Any) -> None:
    """Give the fields of a parsed schema their pending defaults, in place."""
    for part in schema if isinstance(schema, list) else (schema,):
        if not isinstance(part, dict):
            continue
        for field in part.get("fields", ()):
            if _PENDING in field:
                field["default"] = field.pop(_PENDING)
            set_defaults(field["type"])
        for key in ("type", "items", "values"):
            set_defaults(part.get(key))


def _fits(schema: Any, default: Any, named: Mapping[str, Any]) -> bool:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind not in _JSON:
        return _fits(kind, default, named)
    return isinstance(default, _JSON[kind]) and (kind == "boolean") == isinstance(default, bool)


def _of_octets(schema: Any, octets: bytes) -> Any:
    if not isinstance(schema, dict):
        return octets
    size = schema.get("size", len(octets))
    octets = octets[:size].ljust(size, b"\0")
    if schema.get("logicalType") != "decimal":
        return octets
    return Decimal(int.from_bytes(octets, "big", signed=True)).scaleb(-schema.get("scale", 0))
