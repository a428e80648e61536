"""Makes messages from Kafka's definitions: random fields, and their bytes; plain and slow, and nothing of the package.

The rules are those of KIP-482 and of `Readable` in Kafka's clients, written down here a second time.
"""

from __future__ import annotations

import base64
import functools
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.build import uvarint

DEFINITIONS = Path(__file__).parent.parent.parent / "sparklog" / "system" / "definitions.json"
INTEGERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q"}


class Made(NamedTuple):
    """A message: its fields as they must be decoded, and its bytes."""

    fields: dict[str, Any]
    data: bytes


@functools.cache
def definitions() -> list[dict[str, Any]]:
    components = json.loads(DEFINITIONS.read_text())
    return [each for name, messages in components.items() if name != "source" for each in messages]


def versions() -> Iterator[tuple[dict[str, Any], int]]:
    """Yield every version of every message."""
    for definition in definitions():
        first, _, last = definition["validVersions"].partition("-")
        for version in range(int(first), int(last or first) + 1):
            yield definition, version


def make(definition: dict[str, Any], version: int, dice: random.Random, *, unknown_tags: bool = False) -> Made:
    maker = _Maker(definition, version, dice, unknown_tags)
    return Made(*maker.struct(definition["fields"]))


def holds(versions: str | None, version: int) -> bool:
    if versions is None or versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


class _Maker:
    def __init__(self, definition: dict[str, Any], version: int, dice: random.Random, unknown_tags: bool) -> None:
        self.version, self.dice, self.unknown_tags = version, dice, unknown_tags
        self.flexible = holds(definition["flexibleVersions"], version)
        self.shared = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}

    def struct(self, fields: list[dict[str, Any]]) -> tuple[dict[str, Any], bytes]:
        values, data, tags = {}, b"", {}
        for field in fields:
            name = field["name"][0].lower() + field["name"][1:]
            if holds(field.get("taggedVersions"), self.version):
                if self.dice.random() < 0.5:
                    values[name], tags[field["tag"]] = self.value(field, tagged=True)
                else:
                    values[name] = self.default(field)
            elif holds(field.get("versions"), self.version):
                values[name], encoded = self.value(field, tagged=False)
                data += encoded
            else:
                values[name] = self.default(field)
        if self.flexible:
            if self.unknown_tags and self.dice.random() < 0.5:
                tags[max(tags, default=9) + 100] = self.dice.randbytes(self.dice.randrange(5))
            data += uvarint(len(tags))
            for tag in sorted(tags):
                data += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]
        return values, data

    def value(self, field: dict[str, Any], *, tagged: bool) -> tuple[Any, bytes]:
        kind = field["type"]
        nullable = holds(field.get("nullableVersions"), self.version)
        is_null = nullable and self.dice.random() < 0.3
        if kind == "bool":
            flag = self.dice.random() < 0.5
            return flag, bytes([flag])
        if kind == "float64":
            number = self.dice.uniform(-1e9, 1e9)
            return number, struct.pack(">d", number)
        if kind in INTEGERS:
            bits, low = 8 * struct.calcsize(INTEGERS[kind]), 0
            if not kind.startswith("u"):
                low = -(1 << bits - 1)
            whole = self.dice.choice([0, 1, low, low + (1 << bits) - 1, self.dice.randrange(low, low + (1 << bits))])
            return whole, struct.pack(INTEGERS[kind], whole)
        if kind == "uuid":
            octets = self.dice.randbytes(16)
            return base64.urlsafe_b64encode(octets).decode().rstrip("="), octets
        if kind == "string":
            if is_null:
                return None, self.length(-1, ">h")
            text = "".join(self.dice.choice("aZ-_.é漢\U0001f600") for _ in range(self.dice.choice([0, 1, 5, 150])))
            return text, self.length(len(text.encode()), ">h") + text.encode()
        if kind == "bytes":
            if is_null:
                return None, self.length(-1, ">i")
            octets = self.dice.randbytes(self.dice.choice([0, 1, 200]))
            return octets, self.length(len(octets), ">i") + octets
        if kind.startswith("[]"):
            if is_null:
                return None, self.length(-1, ">i")
            element = {**field, "type": kind[2:], "nullableVersions": "none"}
            each = [self.value(element, tagged=False) for _ in range(self.dice.choice([0, 1, 3]))]
            return [value for value, _ in each], self.length(len(each), ">i") + b"".join(data for _, data in each)
        if is_null:
            return None, b"\x00" if tagged else b"\xff"
        values, data = self.struct(field.get("fields") or self.shared[kind])
        return values, (b"\x01" if nullable else b"") + data

    def length(self, length: int, form: str) -> bytes:
        return uvarint(length + 1) if self.flexible else struct.pack(form, length)

    def default(self, field: dict[str, Any]) -> Any:
        kind, said = field["type"], field.get("default")
        if "default" in field and said in (None, "null"):
            return None
        if kind.startswith("[]"):
            return []
        plain = {"string": "", "bytes": b"", "uuid": "A" * 22, "bool": False, "float64": 0.0}
        if kind in INTEGERS:
            return int(said or 0)
        if kind == "bool":
            return said in (True, "true")
        return plain[kind]
