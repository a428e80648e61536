"""Reads the schemas of values from a text, a file, a folder of files, or a dump of a schema registry.

A schema has an id if its values have Confluent's prefix, which names it. A file has the id in its name, which is
the id and one of these endings:

    ending   content .avsc    an Avro schema .json    a JSON Schema, an Avro schema, or the answer of a registry for one
    schema .proto   a source of protobuf; it may import other .proto files of the same folder .desc    a
    FileDescriptorSet of protobuf (``protoc --include_imports --descriptor_set_out``); its last file is the schema

The answer of a registry is ``{"schema": "...", "schemaType": "AVRO"}`` (``GET /schemas/ids/7``); an absent type
is AVRO. If it has its ``id``, its file may have any name. A file may also hold a list of answers with their
ids (``GET /schemas``). Schemas of other types than the requested one are left out of a list.

A schema that refers to others finds them in the same folder, or in folders within it; `sparklog.values.references`
defines their names. Other files in a folder are ignored. A single file may have any name, and then has no id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sparklog.errors import InvalidOptionError
from sparklog.storage.small_files import read_files
from sparklog.values.references import References, whole_avro

AVRO: Final = "avro"
JSON: Final = "json"
PROTOBUF: Final = "protobuf"

_REGISTRY_TYPES: Final = {AVRO: "AVRO", JSON: "JSON", PROTOBUF: "PROTOBUF"}
_ENDINGS: Final = {AVRO: ("avsc", "json"), JSON: ("json",), PROTOBUF: ("proto", "desc", "json")}
_ID: Final = re.compile(r"([0-9]{1,10})\.([a-z]+)")
_ID_MAX: Final = (1 << 31) - 1


FIELDS_MAX: Final = 10_000
"""The most fields that a schema may have, including nested ones, counted at every use."""


class FieldCount:
    """Counts the fields of a schema: a few lines with types within types can make millions."""

    def __init__(self, name: str) -> None:
        self.name, self._count = name, 0

    def add(self) -> None:
        """Count a field; raise `InvalidOptionError` if there are too many."""
        self._count += 1
        if self._count > FIELDS_MAX:
            raise InvalidOptionError(
                f"{self.name} has more than {FIELDS_MAX} fields, nested ones included: give a smaller schema, or "
                f"decode the values with a function of your own"
            )


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema.

    Attributes
    ----------
    name : str
        Its name in errors.
    content : bytes
        Its source, or the bytes of a ``.desc`` file.
    schema_id : int or None
        Its id; None if it is unknown.
    is_compiled : bool
        Whether it is a FileDescriptorSet.
    others : mapping of str to bytes
        The schemas that it may refer to, by its names for them. An Avro schema already includes them.
    """

    name: str
    content: bytes
    schema_id: int | None = None
    is_compiled: bool = False
    others: Mapping[str, bytes] = field(default_factory=dict, hash=False)


def read_schemas(path: str, kind: str, argument: str) -> tuple[Schema, ...]:
    """Read the schemas of one kind at a path.

    Parameters
    ----------
    path : str
        A file or a folder.
    kind : str
        ``AVRO``, ``JSON`` or ``PROTOBUF``.
    argument : str
        The name of the option or argument that gave the path, for errors.

    Raises
    ------
    PathNotFoundError
        There is nothing at the path.
    InvalidOptionError
        There is no schema of that kind, two have the same id, or one cannot be used.
    """
    files = read_files(path, argument, lambda name: _is_wanted(name, kind) or _may_be_referred_to(name, kind))
    wanted = {name: content for name, content in files.items() if _is_wanted(name, kind)} or files
    is_alone = len(files) == 1 or len(wanted) == 1
    references = References(_answers(files), files)
    schemas = [
        _with_others(schema, answer, references, files, kind, argument)
        for name, content in wanted.items()
        if is_alone or _ID.fullmatch(name)
        for schema, answer in _schemas_of(name, content, kind, argument)
    ]
    if not schemas:
        raise InvalidOptionError(
            f"{argument} has no schema of {kind}: {path}; files are named <id>.{_ENDINGS[kind][0]}"
        )
    ids = [schema.schema_id for schema in schemas if schema.schema_id is not None]
    twice = {each for each in ids if ids.count(each) > 1} if len(set(ids)) < len(ids) else set[int]()
    if twice:
        raise InvalidOptionError(f"{argument} has two schemas with the id {min(twice)}: {path}")
    return tuple(schemas)


def _is_wanted(name: str, kind: str) -> bool:
    found = _ID.fullmatch(name)
    return (found is not None and found[2] in _ENDINGS[kind]) or (kind == PROTOBUF and name.endswith(".proto"))


def _may_be_referred_to(name: str, kind: str) -> bool:
    return name.endswith((".json", *(f".{ending}" for ending in _ENDINGS[kind])))


def _answers(files: Mapping[str, bytes]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the answers of a registry in files that have their subject and version."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for name, content in files.items():
        if not name.endswith(".json"):
            continue
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError):
            # Its use will show whether that matters.
            continue
        for each in parsed if isinstance(parsed, list) else [parsed]:
            if _is_answer(each) and isinstance(each.get("subject"), str) and isinstance(each.get("version"), int):
                found[each["subject"], each["version"]] = each
    return found


def _with_others(
    schema: Schema, answer: dict[str, Any], references: References, files: Mapping[str, bytes], kind: str, argument: str
) -> Schema:
    """Return a schema with the schemas that it refers to; ``answer`` is empty if it is a file itself."""
    referred = references.of(answer, f"{argument}: {schema.name}")
    if kind == AVRO:

        def find(name: str) -> bytes | None:
            return referred.get(name, files.get(f"{name}.avsc"))

        return replace(schema, content=whole_avro(schema.content, find))
    ending = ".proto" if kind == PROTOBUF else ".json"
    beside = {name: content for name, content in files.items() if name.endswith(ending) and name != schema.name}
    return replace(schema, others={**beside, **referred})


def _schemas_of(name: str, content: bytes, kind: str, argument: str) -> list[tuple[Schema, dict[str, Any]]]:
    """Return the schemas in one file, each with its registry's answer, or with an empty one."""
    found = _ID.fullmatch(name)
    schema_id = None if found is None else _checked_id(int(found[1]), name, argument)
    if name.endswith((".proto", ".desc")):
        return [(Schema(name, content, schema_id, is_compiled=name.endswith(".desc")), {})]
    if kind == PROTOBUF and not name.endswith(".json"):
        raise InvalidOptionError(f"{argument} is {name}: a schema of protobuf is a file .proto, .desc or .json")
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(f"{argument}: {name} is not JSON: {error}") from error
    if isinstance(parsed, list) and all(_is_answer(each) for each in parsed) and parsed:
        wanted = [each for each in parsed if _type_of(each) == _REGISTRY_TYPES[kind]]
        # A registry lists a schema once for each of its subjects.
        found_schemas = [(_from_registry(each, name, None, argument), each) for each in wanted]
        return list({schema.schema_id: (schema, each) for schema, each in found_schemas}.values())
    if _is_answer(parsed):
        if _type_of(parsed) != _REGISTRY_TYPES[kind]:
            raise InvalidOptionError(f"{argument}: {name} is a schema of the type {_type_of(parsed)}, not of {kind}")
        return [(_from_registry(parsed, name, schema_id, argument), parsed)]
    if kind == PROTOBUF:
        raise InvalidOptionError(f"{argument}: {name} is not an answer of a schema registry")
    return [(Schema(name, content, schema_id), {})]


def _is_answer(parsed: Any) -> bool:
    return isinstance(parsed, dict) and isinstance(parsed.get("schema"), str)


def _type_of(answer: dict[str, Any]) -> str:
    return str(answer.get("schemaType", "AVRO"))


def _from_registry(answer: dict[str, Any], name: str, schema_id: int | None, argument: str) -> Schema:
    found = answer.get("id", schema_id)
    if not isinstance(found, int):
        raise InvalidOptionError(f"{argument}: a schema in {name} has no id")
    return Schema(f"schema {found} of {name}", answer["schema"].encode(), _checked_id(found, name, argument))


def _checked_id(schema_id: int, name: str, argument: str) -> int:
    if not 0 <= schema_id <= _ID_MAX:
        raise InvalidOptionError(f"{argument}: {name} has the id {schema_id}, and ids are 0 to {_ID_MAX}")
    return schema_id
