"""Reads and writes the types of Kafka's message definitions.

All integers are big-endian.

    type                 not flexible              flexible version
    int8 ... int64       as they are               the same
    uint16, uint32
    float64, bool
    uuid                 16 bytes                  the same
    string               int16 length, UTF-8       uvarint length + 1, UTF-8
    bytes                int32 length              uvarint length + 1
    [] (array)           int32 count               uvarint count + 1
    null                 length or count -1        0
    struct that may be   int8: -1 null, 1 not      the same; as a tagged field uvarint: 0 null, 1 not
    null

Each struct of a flexible version ends with its tagged fields: uvarint count, then for each uvarint tag, uvarint size
and that many bytes. Tags ascend. A missing tagged field has its default. An unknown tag is skipped,
as Kafka does: new releases add them within a version.

Every length is checked against the end of the bytes before it is used. Bytes that end too early raise `struct.error` or
`IndexError`; bytes that no message can have raise `Malformed`. `sparklog.system.messages` catches these.

Source: apache/kafka, generator/, clients/.../protocol/ByteBufferAccessor.java, ByteUtils.java; KIP-482, KIP-893.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

MessageFields = dict[str, Any]
Read = Callable[[bytes, int], tuple[Any, int]]
"""Decodes the value at a position, and returns it with the position after it."""
Write = Callable[[Any, bytearray], None]
_UVARINT_BYTES_MAX: Final = 5
_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}
_INT16, _INT32 = _NUMBERS["int16"], _NUMBERS["int32"]
NO_UUID: Final = "A" * 22
"""The uuid of zeros, which Kafka writes for no uuid."""


class Malformed(Exception):  # noqa: N818 - it is caught here, and becomes an error that says which message it is
    """Bytes that no message can have; the text says why."""


@dataclass(frozen=True)
class TypeCodec:
    """Reads and writes one type of a definition."""

    read: Read
    write: Write


def versions_of(text: str) -> range:
    """Parse versions as a definition writes them: ``none``, ``3``, ``0-4`` or ``2+``."""
    if text == "none":
        return range(0)
    first, _, last = text.removesuffix("+").partition("-")
    return range(int(first), 1 << 15 if text.endswith("+") else int(last or first) + 1)


@dataclass(frozen=True)
class Compiler:
    """Makes the codecs of one version of a message.

    Attributes
    ----------
    structs : mapping of str to list
        The fields of the structs that several fields share.
    """

    version: int
    is_flexible: bool
    structs: Mapping[str, Sequence[Mapping[str, Any]]]

    def struct(self, fields: Sequence[Mapping[str, Any]]) -> TypeCodec:
        defaults, plain, tagged = {}, [], []
        for field in fields:
            name = _first_to_lower(field["name"])
            default = defaults[name] = self._default(field)
            if self._has(field, "taggedVersions"):
                tagged.append((field["tag"], name, self._field(field, is_tagged=True), default, field))
            elif self._has(field, "versions"):
                plain.append((name, self._field(field, is_tagged=False), default))
        readers = [(name, codec.read) for name, codec, _ in plain]
        writers = [(name, codec.write, default) for name, codec, default in plain]
        read_tags = {tag: (name, codec.read) for tag, name, codec, _, _ in tagged}
        write_tags = [
            (tag, name, codec.write, default, self._is_always_written(field))
            for tag, name, codec, default, field in sorted(tagged, key=lambda each: each[0])
        ]
        is_flexible = self.is_flexible

        def read(data: bytes, position: int) -> tuple[MessageFields, int]:
            values = defaults.copy()
            for name, read_field in readers:
                values[name], position = read_field(data, position)
            if is_flexible:
                position = _read_tags(data, position, read_tags, values)
            return values, position

        def write(values: Mapping[str, Any], out: bytearray) -> None:
            for name, write_field, default in writers:
                write_field(values.get(name, default), out)
            if is_flexible:
                _write_tags(values, out, write_tags)

        return TypeCodec(read, write)

    def _field(self, field: Mapping[str, Any], *, is_tagged: bool) -> TypeCodec:
        kind, is_nullable = field["type"], self._has(field, "nullableVersions")
        if kind in _NUMBERS:
            return _number(_NUMBERS[kind])
        if kind == "uuid":
            return TypeCodec(_read_uuid, _write_uuid)
        if kind in ("string", "bytes"):
            prefix = _COMPACT if self.is_flexible else _Length(_INT16 if kind == "string" else _INT32)
            return _text(prefix, is_nullable) if kind == "string" else _octets(prefix, is_nullable)
        if kind.startswith("[]"):
            prefix = _COMPACT if self.is_flexible else _Length(_INT32)
            element = {"type": kind[2:], "fields": field.get("fields")}
            return _array(prefix, self._field(element, is_tagged=False), is_nullable)
        whole = self.struct(field.get("fields") or self.structs[kind])
        return _nullable(whole, is_tagged) if is_nullable else whole

    def _has(self, field: Mapping[str, Any], which: str) -> bool:
        return self.version in versions_of(field.get(which, "none"))

    def _is_always_written(self, field: Mapping[str, Any]) -> bool:
        """Return whether Kafka writes a tagged field even if it has its default, as it does with nullable structs."""
        return "fields" in field and not field["type"].startswith("[]")

    def _default(self, field: Mapping[str, Any]) -> Any:
        kind, text = field["type"], field.get("default", "")
        if text is None or text == "null":
            return None
        if kind == "bool":
            return str(text).lower() == "true"
        if kind == "float64":
            return float(text or 0)
        if kind in _NUMBERS:
            return int(text or 0)
        if kind == "uuid":
            return NO_UUID
        if kind in ("string", "bytes"):
            return text if kind == "string" else b""
        if kind.startswith("[]"):
            return []
        return self.struct(field.get("fields") or self.structs[kind]).read(*_empty_struct(self, field))[0]


def _empty_struct(compiler: Compiler, field: Mapping[str, Any]) -> tuple[bytes, int]:
    """Return the bytes of a struct whose fields all have their defaults."""
    out = bytearray()
    compiler.struct(field.get("fields") or compiler.structs[field["type"]]).write({}, out)
    return bytes(out), 0


def _first_to_lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _number(form: struct.Struct) -> TypeCodec:
    unpack, size = form.unpack_from, form.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    def write(value: Any, out: bytearray) -> None:
        out += form.pack(value)

    return TypeCodec(read, write)


@dataclass(frozen=True)
class _Length:
    """A length or a count as an integer; -1 means null."""

    form: struct.Struct

    def read(self, data: bytes, position: int) -> tuple[int, int]:
        length: int = self.form.unpack_from(data, position)[0]
        if length < -1:
            raise Malformed(f"length {length} at byte {position}")
        return length, position + self.form.size

    def write(self, length: int, out: bytearray) -> None:
        out += self.form.pack(length)


class _CompactLength:
    """A length or a count in a flexible version: one more as a uvarint, so that null is 0."""

    def read(self, data: bytes, position: int) -> tuple[int, int]:
        length, position = read_uvarint(data, position)
        return length - 1, position

    def write(self, length: int, out: bytearray) -> None:
        write_uvarint(length + 1, out)


_COMPACT: Final = _CompactLength()
_Prefix = _Length | _CompactLength


def _octets(prefix: _Prefix, is_nullable: bool) -> TypeCodec:
    read_length = prefix.read

    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        length, start = read_length(data, position)
        end = start + length
        if length < 0:
            _check_null(is_nullable, position)
            return None, start
        if end > len(data):
            raise Malformed(f"{length} bytes from byte {start} of {len(data)}")
        return data[start:end], end

    def write(value: bytes | None, out: bytearray) -> None:
        prefix.write(-1 if value is None else len(value), out)
        out += value or b""

    return TypeCodec(read, write)


def _text(prefix: _Prefix, is_nullable: bool) -> TypeCodec:
    octets = _octets(prefix, is_nullable)
    read_octets = octets.read

    def read(data: bytes, position: int) -> tuple[str | None, int]:
        octets, end = read_octets(data, position)
        try:
            return None if octets is None else octets.decode(), end
        except UnicodeDecodeError as error:
            raise Malformed(f"text at byte {position} is no UTF-8") from error

    def write(value: str | None, out: bytearray) -> None:
        octets.write(None if value is None else value.encode(), out)

    return TypeCodec(read, write)


def _array(prefix: _Prefix, element: TypeCodec, is_nullable: bool) -> TypeCodec:
    read_element, write_element = element.read, element.write

    def read(data: bytes, position: int) -> tuple[list[Any] | None, int]:
        count, start = prefix.read(data, position)
        if count < 0:
            _check_null(is_nullable, position)
            return None, start
        # No element takes less than a byte.
        if count > len(data) - start:
            raise Malformed(f"{count} elements from byte {start} of {len(data)}")
        values = []
        for _ in range(count):
            value, start = read_element(data, start)
            values.append(value)
        return values, start

    def write(values: Sequence[Any] | None, out: bytearray) -> None:
        prefix.write(-1 if values is None else len(values), out)
        for value in values or ():
            write_element(value, out)

    return TypeCodec(read, write)


def _nullable(whole: TypeCodec, is_tagged: bool) -> TypeCodec:
    """Return the codec of a nullable struct. The byte before it differs for tagged fields."""
    null, present = (b"\x00", b"\x01") if is_tagged else (b"\xff", b"\x01")

    def read(data: bytes, position: int) -> tuple[MessageFields | None, int]:
        mark = data[position : position + 1]
        if mark == null:
            return None, position + 1
        if mark != present:
            raise Malformed(f"a struct at byte {position} is neither present nor null")
        return whole.read(data, position + 1)

    def write(value: Mapping[str, Any] | None, out: bytearray) -> None:
        out += null if value is None else present
        if value is not None:
            whole.write(value, out)

    return TypeCodec(read, write)


def _check_null(is_nullable: bool, position: int) -> None:
    if not is_nullable:
        raise Malformed(f"null at byte {position}, where there must be a value")


def _read_tags(data: bytes, position: int, known: Mapping[int, tuple[str, Read]], values: MessageFields) -> int:
    """Decode the tagged fields of a struct into its values; return the position after them."""
    count = data[position]
    if not count:
        return position + 1
    count, position = read_uvarint(data, position)
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if tag <= last or end > len(data):
            raise Malformed(f"tag {tag} of {size} bytes at byte {position} of {len(data)}")
        if tag in known:
            name, read = known[tag]
            part = data[position:end]
            values[name], used = read(part, 0)
            if used != size:
                raise Malformed(f"tag {tag} ends at byte {used} of {size}")
        last, position = tag, end
    return position


def _write_tags(values: Mapping[str, Any], out: bytearray, known: Sequence[tuple[int, str, Write, Any, bool]]) -> None:
    written = []
    for tag, name, write, default, is_always in known:
        value = values.get(name, default)
        if is_always or value != default:
            part = bytearray()
            write(value, part)
            written.append((tag, part))
    write_uvarint(len(written), out)
    for tag, part in written:
        write_uvarint(tag, out)
        write_uvarint(len(part), out)
        out += part


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for place in range(1, _UVARINT_BYTES_MAX):
        octet = data[position + place]
        value |= (octet & 0x7F) << (7 * place)
        if octet < 0x80:
            return value, position + place + 1
    raise Malformed(f"a number at byte {position} is longer than {_UVARINT_BYTES_MAX} bytes")


def write_uvarint(value: int, out: bytearray) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@lru_cache(maxsize=1 << 12)
def _uuid_text(data: bytes) -> str:
    return uuid_text(data)


def _read_uuid(data: bytes, position: int) -> tuple[str, int]:
    end = position + 16
    if end > len(data):
        raise Malformed(f"16 bytes from byte {position} of {len(data)}")
    return _uuid_text(data[position:end]), end


def _write_uuid(value: str, out: bytearray) -> None:
    out += binascii.a2b_base64(value.translate(_URL_SAFE) + "==")


_URL_SAFE: Final = str.maketrans("-_", "+/")


def uuid_text(data: bytes) -> str:
    """Return a uuid in Kafka's form."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
