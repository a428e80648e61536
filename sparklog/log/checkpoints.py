"""Reads and writes the small text files beside and inside partition folders.

Offset checkpoints of a log directory (log start, high watermark, recovery point, cleaner):

    0                            version
    2                            lines that follow
    events 0 4000                topic, partition, offset

``leader-epoch-checkpoint`` of a partition is the same with lines of epoch and start offset. ``partition.metadata`` is

    version: 0
    topic_id: Q2TYVrXaSDWPZ5lUZtm3Jg

A later version is read as well, as long as it has these fields.

An empty file, or one with only the version, holds no line.
Source: apache/kafka, CheckpointFile.java, OffsetCheckpointFile.java, LeaderEpochCheckpointFile.java,
PartitionMetadataFile.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparklog.errors import CorruptCheckpointError
from sparklog.log.files import TopicPartition

_VERSION = "0"
_FIELD_SEPARATOR = re.compile(r":\s+")
_VERSION_NUMBER = re.compile(r"[0-9]{1,10}")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_ZERO_TOPIC_ID = "A" * 22


def parse_offset_checkpoint(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Read the offsets of a checkpoint of a log directory.

    Raises
    ------
    CorruptCheckpointError
        The version is not 0, a line is malformed, or the number of lines differs from the file's count.
    """
    offsets: dict[TopicPartition, int] = {}
    for fields in _lines(data, path):
        if len(fields) != 3:
            raise CorruptCheckpointError(f"expected 'topic partition offset', got {' '.join(fields)!r}", path=path)
        offsets[TopicPartition(fields[0], _number(fields[1], path))] = _number(fields[2], path)
    return offsets


def parse_leader_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Read (epoch, start offset) of each leader epoch of a partition; for errors see `parse_offset_checkpoint`."""
    epochs: list[tuple[int, int]] = []
    for fields in _lines(data, path):
        if len(fields) != 2:
            raise CorruptCheckpointError(f"expected 'epoch offset', got {' '.join(fields)!r}", path=path)
        epochs.append((_number(fields[0], path), _number(fields[1], path)))
    return epochs


def parse_topic_id(data: bytes, path: str) -> str:
    """Read the topic id of ``partition.metadata``, 22 characters of base64url.

    Raises
    ------
    CorruptCheckpointError
        The version is no number from 0 on, or the topic id is missing or invalid.
    """
    pairs = (_FIELD_SEPARATOR.split(line) for line in _text(data, path).splitlines())
    fields = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    version, topic_id = fields.get("version", ""), fields.get("topic_id", "").removesuffix("==")
    if not _VERSION_NUMBER.fullmatch(version) or not topic_id:
        raise CorruptCheckpointError("expected 'version: ' with a number from 0 on, and 'topic_id: '", path=path)
    if not _TOPIC_ID.fullmatch(topic_id) or topic_id == _ZERO_TOPIC_ID:
        raise CorruptCheckpointError(f"{topic_id!r} is not a topic id", path=path)
    return topic_id


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of a checkpoint of a log directory."""
    return _encoded([f"{at.topic} {at.partition} {offset}" for at, offset in offsets.items()])


def encode_leader_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """Return the bytes of ``leader-epoch-checkpoint``: (epoch, start offset) of each epoch."""
    return _encoded([f"{epoch} {offset}" for epoch, offset in epochs])


def encode_topic_id(topic_id: str) -> bytes:
    """Return the bytes of ``partition.metadata``."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, len(lines), *lines)).encode()


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("not a text file", path=path) from error


def _lines(data: bytes, path: str) -> list[list[str]]:
    lines = [line for line in _text(data, path).splitlines() if line.strip()]
    if len(lines) < 2 and not (lines and lines[0].strip() != _VERSION):
        return []
    if lines[0].strip() != _VERSION:
        raise CorruptCheckpointError(f"unknown version {lines[0]!r}", path=path)
    count, rows = _number(lines[1], path), [line.split() for line in lines[2:]]
    if count != len(rows):
        raise CorruptCheckpointError(f"says {count} lines and has {len(rows)}", path=path)
    return rows


def _number(text: str, path: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CorruptCheckpointError(f"expected a number, got {text!r}", path=path) from error
