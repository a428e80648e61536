"""Finds the schemas that others refer to, and completes Avro schemas with them.

An answer of a registry lists the subjects and versions that its schema refers to, and their names:

    {"schema": "...", "references": [{"name": "com.acme.Address", "subject": "address", "version": 3}]}

These are answers too, with their ``subject`` and ``version``, in any file ``.json`` of the same folder (``GET
/schemas``, ``GET /subjects/address/versions/3``). Without them, or if a schema is a file itself, the file of the
reference's name counts, for Avro with ``.avsc`` added: ``com.acme.Address.avsc``, ``common/address.json``,
``common/address.proto``. A name is the text in the schema: in Avro the full name of a type, in JSON Schema the part of
``$ref`` before ``#``, in protobuf the imported path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparklog.errors import InvalidOptionError

_DEPTH_MAX: Final = 64
_PRIMITIVE: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED: Final = ("record", "error", "enum", "fixed")


class References:
    """Finds the schemas that others refer to.

    Parameters
    ----------
    answers : mapping of (str, int) to dict
        Answers of a registry by subject and version.
    files : mapping of str to bytes
        Files by their names.
    """

    def __init__(self, answers: Mapping[tuple[str, int], Mapping[str, Any]], files: Mapping[str, bytes]) -> None:
        self._answers, self._files = answers, files

    def of(self, answer: Mapping[str, Any], where: str) -> dict[str, bytes]:
        """Return the schemas that a schema refers to, directly or through others, by name.

        Raises
        ------
        InvalidOptionError
            A schema is missing.
        """
        found: dict[str, bytes] = {}
        self._collect(answer, where, found, 0)
        return found

    def _collect(self, answer: Mapping[str, Any], where: str, found: dict[str, bytes], depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise InvalidOptionError(f"{where}: references are nested more than {_DEPTH_MAX} deep")
        for each in answer.get("references") or ():
            try:
                name, at = str(each["name"]), (str(each["subject"]), int(each["version"]))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidOptionError(f"{where}: a reference has no name, subject and version: {each}") from error
            if name in found:
                continue
            other = self._answers.get(at)
            if other is not None:
                found[name] = str(other["schema"]).encode()
                self._collect(other, where, found, depth + 1)
            elif (file := self._files.get(name, self._files.get(f"{name}.avsc"))) is not None:
                found[name] = file
            else:
                raise InvalidOptionError(
                    f"{where} refers to {name}, version {at[1]} of the subject {at[0]}, which is not there: save the "
                    f"registry's answer for that version beside it, or the schema as a file {name}"
                )


def whole_avro(content: bytes, find: Callable[[str], bytes | None]) -> bytes:
    """Return an Avro schema that includes the definitions of types from other schemas.

    Parameters
    ----------
    find : callable
        Takes a type's full name and returns the schema that defines it, or None.
    """
    try:
        schema = json.loads(content)
    except (ValueError, RecursionError):
        # The parser reports the fault.
        return content
    return json.dumps(_Whole(find).schema(schema, "", 0)).encode()


class _Whole:
    """Puts the definition of a type at the first use of its name."""

    def __init__(self, find: Callable[[str], bytes | None]) -> None:
        self._find = find
        self._defined: set[str] = set()

    def schema(self, schema: Any, namespace: str, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise InvalidOptionError(f"an Avro schema is nested more than {_DEPTH_MAX} deep")
        if isinstance(schema, list):
            return [self.schema(each, namespace, depth + 1) for each in schema]
        if isinstance(schema, str):
            return self._named(schema, namespace, depth)
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in _NAMED:
            full_name = _full_name(str(schema.get("name", "")), schema.get("namespace", namespace))
            self._defined.add(full_name)
            # Inside another schema it must not inherit that schema's namespace.
            inside, _, name = full_name.rpartition(".")
            schema, namespace = {**schema, "name": name, "namespace": inside}, inside
        changed = {
            key: self.schema(value, namespace, depth + 1) if key in ("type", "items", "values") else value
            for key, value in schema.items()
        }
        fields = schema.get("fields")
        if isinstance(fields, list) and all(isinstance(each, dict) and "type" in each for each in fields):
            changed["fields"] = [{**each, "type": self.schema(each["type"], namespace, depth + 1)} for each in fields]
        return changed

    def _named(self, name: str, namespace: str, depth: int) -> Any:
        full_name = _full_name(name, namespace)
        if name in _PRIMITIVE or name in _NAMED or full_name in self._defined:
            return name
        found = self._find(full_name)
        if found is None:
            return name
        try:
            return self.schema(json.loads(found), "", depth + 1)
        except (ValueError, RecursionError) as error:
            raise InvalidOptionError(f"the Avro schema of {full_name} is not JSON: {error}") from error


def _full_name(name: str, namespace: Any) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
