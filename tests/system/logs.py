"""Logs of internal topics for the tests of this folder, record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.log.layout import read_layout
from sparklog.system.messages import Message, message
from sparklog.system.records import InternalLog
from tests.build import Record, control_batch, uvarint, v2_batch, write_partition
from tests.places import folder_at


@dataclass(frozen=True)
class Put:
    """A record, of the transaction that a producer has open where one is named."""

    key: bytes | None
    value: bytes | None
    producer_id: int | None = None


@dataclass(frozen=True)
class End:
    """The end of a producer's transaction."""

    producer_id: int
    is_commit: bool


def write_log(folder: Path, steps: Sequence[Put | End]) -> InternalLog:
    """Write a log with a batch a step, so that offsets are the numbers of the steps."""
    batches = []
    for offset, step in enumerate(steps):
        if isinstance(step, End):
            batches.append(control_batch("commit" if step.is_commit else "abort", offset, step.producer_id))
            continue
        fields: dict[str, Any] = {}
        if step.producer_id is not None:
            fields = {"transactional": True, "producer_id": step.producer_id, "producer_epoch": 0, "base_sequence": 0}
        batches.append(v2_batch([Record(0, 1000 + offset, step.key, step.value)], base_offset=offset, **fields))
    write_partition(folder, batches)
    return InternalLog(read_layout(folder_at(folder)))


def keyed(name: str, fields: Mapping[str, Any]) -> bytes:
    """Encode a key of a coordinator's topic: its type, and its fields."""
    found = message(f"{name}Key")
    assert found.api_key is not None
    return found.api_key.to_bytes(2, "big") + found.encode(fields, 0)


def put(name: str, key: Mapping[str, Any], value: Mapping[str, Any] | None, version: int = 0, **step: Any) -> Put:
    """Make a record of a coordinator's topic; a tombstone where there is no value."""
    encoded = None if value is None else message(f"{name}Value").encode_versioned(value, version)
    return Put(keyed(name, key), encoded, **step)


def encode_framed(found: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode a message behind its frame, as the logs of metadata have it."""
    frame = (uvarint(number) for number in (1, found.api_key or 0, version))
    return b"".join(frame) + found.encode(fields, version)
