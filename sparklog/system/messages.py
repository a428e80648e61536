"""Decodes and encodes the messages of Kafka's internal topics, by Kafka's own definitions.

``definitions.json`` is made from the definitions in Kafka's jars (``make definitions``). A message is the fields of its
version in the order of its definition; `sparklog.system.codecs` defines their bytes.

Fields are named as in Kafka's JSON: ``groupInstanceId``. A uuid is text in Kafka's form, 22 characters of base64.
"""

from __future__ import annotations

import base64
import json
import pkgutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from sparklog.errors import MessageDecodeError
from sparklog.system.codecs import Compiler, Malformed, MessageFields, TypeCodec, read_uvarint, versions_of

_INT16: Final = struct.Struct(">h")
_USUAL_KEY_BYTES_MAX: Final = 1 << 10


@dataclass(frozen=True)
class Message:
    """A message as Kafka defines it.

    Attributes
    ----------
    name : str
        Its name in Kafka, such as ``OffsetCommitValue``.
    api_key : int or None
        Its number among the messages of its topic; None for a message that no key names.
    versions : range
        The known versions.
    """

    name: str
    api_key: int | None
    versions: range
    _definition: Mapping[str, Any]

    def decode(self, data: bytes, version: int) -> MessageFields:
        """Decode bytes that are one whole message.

        Raises
        ------
        MessageDecodeError
            The version is unknown, or the bytes are not such a message, cut short, or too long.
        """
        read = _codec(self, version).read
        try:
            fields, end = read(data, 0)
        except (struct.error, IndexError) as error:
            raise MessageDecodeError(f"{self.name} version {version} is cut short: {len(data)} bytes") from error
        except Malformed as error:
            raise MessageDecodeError(f"{self.name} version {version}: {error}") from error
        if end != len(data):
            raise MessageDecodeError(f"{self.name} version {version} ends at byte {end} of {len(data)}")
        return fields  # type: ignore[no-any-return]

    def decode_versioned(self, data: bytes) -> MessageFields:
        """Decode bytes that begin with the version as an int16: values of coordinators, messages of consumers."""
        if len(data) < _INT16.size:
            raise MessageDecodeError(f"{self.name} has no version: {len(data)} bytes")
        return self.decode(data[_INT16.size :], _INT16.unpack_from(data)[0])

    def encode(self, fields: Mapping[str, Any], version: int) -> bytes:
        """Encode fields. Missing fields have their defaults; fields that the version lacks are left out.

        Raises
        ------
        MessageDecodeError
            The version is not known.
        """
        out = bytearray()
        _codec(self, version).write(fields, out)
        return bytes(out)

    def encode_versioned(self, fields: Mapping[str, Any], version: int) -> bytes:
        """Encode fields behind their version as an int16."""
        return _INT16.pack(version) + self.encode(fields, version)


def message(name: str) -> Message:
    """Return a message by its name, such as ``OffsetCommitValue``."""
    return _messages()[name]


@cache
def messages_of(component: str, kind: str) -> Mapping[int, Message]:
    """Return the messages of a component of Kafka by their api keys.

    Parameters
    ----------
    component : {"group-coordinator", "transaction-coordinator", "share-coordinator", "metadata", "storage"}
        The jar that defines them.
    kind : {"coordinator-key", "coordinator-value", "metadata"}
    """
    found = (message(each["name"]) for each in _definitions()[component] if each["type"] == kind)
    return {each.api_key: each for each in found if each.api_key is not None}


def decode_key(component: str, key: bytes | None) -> MessageFields:
    """Decode a key of a coordinator's topic, which begins with its type as an int16.

    Most keys occur many times, so the returned fields are shared: do not change them.

    Raises
    ------
    MessageDecodeError
        There is no key, its type is unknown, or see `Message.decode`.
    """
    if key is None or len(key) < _INT16.size:
        raise MessageDecodeError("a record has no key that says what it is")
    return (_usual_key if len(key) <= _USUAL_KEY_BYTES_MAX else _decoded_key)(component, key)


def _decoded_key(component: str, key: bytes) -> MessageFields:
    kind: int = _INT16.unpack_from(key)[0]
    return _of_coordinator(component, "coordinator-key", kind).decode(key[_INT16.size :], 0)


_usual_key: Final = lru_cache(maxsize=1 << 14)(_decoded_key)


def decode_value(component: str, kind: int, value: bytes | None) -> tuple[Message, int | None, MessageFields | None]:
    """Decode a value of a coordinator's topic, which begins with its version as an int16.

    Returns
    -------
    (Message, int or None, dict or None)
        The message, its version and its fields; None for a tombstone.

    Raises
    ------
    MessageDecodeError
        The type of its key is unknown, or see `Message.decode`.
    """
    found = _of_coordinator(component, "coordinator-value", kind)
    if value is None:
        return found, None, None
    return found, int.from_bytes(value[: _INT16.size], "big"), found.decode_versioned(value)


def _of_coordinator(component: str, which: str, kind: int) -> Message:
    found = messages_of(component, which).get(kind)
    if found is None:
        raise MessageDecodeError(f"a key has the type {kind}, which is not known")
    return found


def decode_framed(data: bytes, component: str) -> tuple[Message, int, MessageFields]:
    """Decode a value with a frame: uvarint frame 1, uvarint api key, uvarint version, the message.

    Returns
    -------
    (Message, int, dict)
        The message, its version and its fields.

    Raises
    ------
    MessageDecodeError
        It is none of the component's messages, or see `Message.decode`.
    """
    api_key, version, position = _frame(data)
    found = messages_of(component, "metadata").get(api_key)
    if found is None:
        raise MessageDecodeError(f"a record has the type {api_key}, which is not known")
    return found, version, found.decode(data[position:], version)


def is_known_frame(data: bytes | None, component: str) -> bool:
    """Return whether the frame of a value names one of the component's messages, in any version."""
    try:
        api_key, _, _ = _frame(data or b"")
    except MessageDecodeError:
        return False
    return api_key in messages_of(component, "metadata")


def _frame(data: bytes) -> tuple[int, int, int]:
    """Return the api key and the version in the frame of a value, and the position after it."""
    try:
        frame, position = read_uvarint(data, 0)
        api_key, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except (IndexError, Malformed) as error:
        raise MessageDecodeError(f"the frame of a record is cut short: {data[:8].hex()}") from error
    if frame != 1:
        raise MessageDecodeError(f"a record has the frame {frame}, and only 1 is known")
    return api_key, version, position


def json_of(fields: Mapping[str, Any]) -> str:
    """Return fields as JSON, with bytes as base64, as in Kafka's own tools."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, default=_base64)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@cache
def _definitions() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pkgutil.get_data("sparklog.system", "definitions.json") or b"{}")
    del found["source"]
    return found


@cache
def _messages() -> dict[str, Message]:
    return {
        each["name"]: Message(each["name"], each.get("apiKey"), versions_of(each["validVersions"]), each)
        for messages in _definitions().values()
        for each in messages
    }


@cache
def _codec_of(name: str, version: int) -> TypeCodec:
    definition = _messages()[name]._definition
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    return Compiler(version, version in versions_of(definition["flexibleVersions"]), structs).struct(
        definition["fields"]
    )


def _codec(found: Message, version: int) -> TypeCodec:
    if version not in found.versions:
        last = found.versions[-1]
        raise MessageDecodeError(f"{found.name} has version {version}, and those from 0 to {last} are known")
    return _codec_of(found.name, version)
