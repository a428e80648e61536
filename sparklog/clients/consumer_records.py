"""Makes a consumer's records from fetched rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sparklog.clients.fetcher import Sizes
from sparklog.clients.settings import ConsumerSettings, converter
from sparklog.log.files import TopicPartition


class ConsumerRecord(NamedTuple):
    """A record as a consumer returns it, with kafka-python's fields.

    Attributes
    ----------
    timestamp : int
        ms since the epoch; ``timestamp_type`` is 0 for CreateTime and 1 for LogAppendTime.
    key, value
        Bytes, or the deserializer's result; None if absent.
    headers : list of (str, bytes)
    checksum : None
    serialized_key_size, serialized_value_size, serialized_header_size : int
        In bytes; -1 if absent.
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class RecordMaker:
    """Deserializes keys and values, and counts records and bytes."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._key = converter(settings.key_deserializer, "deserialize", "key_deserializer")
        self._value = converter(settings.value_deserializer, "deserialize", "value_deserializer")
        self._records = self._key_and_value_bytes = 0

    def metrics(self) -> dict[str, int]:
        """Return how many records, and bytes of keys and values, were made."""
        return {"records-consumed-total": self._records, "bytes-consumed-total": self._key_and_value_bytes}

    def make(self, at: TopicPartition, row: tuple[Any, ...], sizes: Sizes) -> ConsumerRecord:
        """Return the record of a row of `Fetcher.fetch`. Errors of a deserializer are raised unchanged.

        As in kafka-python, deserializers are called for None as well, the key's first.
        """
        offset, timestamp, timestamp_type, key, value, pairs, leader_epoch = row
        headers = [(pair["key"], pair["value"]) for pair in pairs or ()]
        if self._key is not None:
            key = self._key(at.topic, headers, key)
        if self._value is not None:
            value = self._value(at.topic, headers, value)
        self._records += 1
        self._key_and_value_bytes += sum(size for size in sizes[:2] if size > 0)
        return ConsumerRecord(
            at.topic, at.partition, leader_epoch, offset, timestamp, timestamp_type, key, value, headers, None, *sizes,
        )  # fmt: skip

    def make_all(
        self, rows: Iterable[tuple[TopicPartition, tuple[Any, ...], Sizes]]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records of rows by partition; if one cannot be made or fetched, those before it."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            for at, row, sizes in rows:
                record = self.make(at, row, sizes)
                found.setdefault(at, []).append(record)
        except Exception:
            # Records fetched before are not lost; the next poll raises again.
            if not found:
                raise
        return found
