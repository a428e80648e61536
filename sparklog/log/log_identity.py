"""Distinguishes a log from another of the same name, by its topic's id, its own id, and the batch before an offset.

Each log that sparklog makes has an id of its own, in the file ``seglog-identity`` of the partition's folder:

    version: 0
    log_id: 0q2TYVrXaSDWPZ5lUZtm3J

A broker ignores the file. The id is not in ``partition.metadata``, where an id that the cluster does not know
would keep a broker from adopting the log.

A reader that has reached an offset keeps the log's identity there, and compares it before it reads on. An id is copied
with the folder, and stays when a log is cut and written on. So different ids prove different logs, and equal ids do not
prove equal ones: the batch before the offset decides. A topic's id outranks the log's own: a replica that is made anew
holds the same records. A part that is unknown on either side is not compared.

A log never changes before its end, with two exceptions. Retention removes its start, and perhaps the batch with it. The
cleaner removes records and whole batches, and the remains of a batch have the offsets, the leader epoch, the producer,
the sequence and the kind of the batch, and no later timestamp. The bytes and the checksum may change. So a batch that
differs in one of those fields cannot be the remains of the other: it belongs to another log, or to the same log after
it was cut and written on. So does a batch with as many records, the same attributes and no fewer bytes, but another
checksum: the cleaner's remains of a batch have fewer records, another codec or delete horizon, or removed values. A
missing batch proves nothing.

This holds for magic 2: the cleaner gives the remains of a compressed wrapper of magic 0 or 1 other offsets.

Source: apache/kafka, MemoryRecords.java (filterTo, buildRetainedRecordsInto), DefaultRecordBatch.java.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sparklog.log import files
from sparklog.log.layout import PartitionLayout, batch_holding, topic_id_of
from sparklog.log.places import PartitionFolder
from sparklog.record.format import v2

_MAGIC: Final = 2
NOT_KEPT: Final = -1
_STAYS: Final = 8
"""How many of the numbers survive cleaning, the timestamp included."""
_KIND: Final = v2.LOG_APPEND_TIME | v2.TRANSACTIONAL | v2.CONTROL


class EndBatch(NamedTuple):
    """The header of a batch: fields that survive cleaning, its timestamp, and fields that prove it was not cleaned.

    Attributes
    ----------
    base_offset, last_offset : int
    leader_epoch : int
    producer_id, producer_epoch, base_sequence : int
        -1 without a producer.
    kind : int
        The attributes without the codec and the delete horizon.
    max_timestamp : int
        Milliseconds; cleaning may lower it.
    attributes, record_count, batch_bytes, crc : int
        -1 if they are not kept.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    kind: int
    max_timestamp: int
    attributes: int = NOT_KEPT
    record_count: int = NOT_KEPT
    batch_bytes: int = NOT_KEPT
    crc: int = NOT_KEPT

    @classmethod
    def of_numbers(cls, found: object) -> EndBatch:
        """Restore it from a list of numbers, with or without optional ones; raise `ValueError` for anything else."""
        if not isinstance(found, list) or len(found) not in (_STAYS, len(cls._fields)):
            raise ValueError(f"not the numbers of a batch: {str(found)[:200]}")
        if not all(type(number) is int for number in found):
            raise ValueError(f"not the numbers of a batch: {found}")
        return cls(*found)

    def that_stays(self) -> list[int]:
        """Return the numbers up to the timestamp."""
        return list(self[:_STAYS])

    def may_become(self, found: EndBatch) -> bool:
        """Return whether a batch may be this one, or its remains after cleaning."""
        if self[: _STAYS - 1] != found[: _STAYS - 1] or found.max_timestamp > self.max_timestamp:
            return False
        is_whole = (self.attributes, self.record_count) == (found.attributes, found.record_count)
        is_other = self.crc != found.crc and found.batch_bytes >= self.batch_bytes
        return not (is_whole and is_other and NOT_KEPT not in (self.crc, found.crc))


def end_batch(layout: PartitionLayout, end_offset: int) -> EndBatch | None:
    """Return the batch with the offset before ``end_offset``; None if there is none, or it has magic 0 or 1."""
    header = batch_holding(layout, end_offset - 1)
    if header is None:
        return None
    row = header.table[0]
    if int(row["magic"]) != _MAGIC:
        return None
    names = EndBatch._fields
    values = (row["attributes"] & _KIND if name == "kind" else row[name] for name in names)
    return EndBatch(*map(int, values))


TOPIC_ID: Final = "topic id"
LOG_ID: Final = "log id"
END_BATCH: Final = "batch before the offset"

_CONTENT: Final = re.compile(rb"version: 0\nlog_id: ([A-Za-z0-9_-]{22})\n?")
_ID_BYTES: Final = 16


def new_log_id() -> str:
    """Return a new, unique id for a log."""
    return secrets.token_urlsafe(_ID_BYTES)


def encode_log_id(log_id: str) -> bytes:
    """Return the content of the file."""
    return f"version: 0\nlog_id: {log_id}\n".encode()


def read_log_id(folder: PartitionFolder) -> str | None:
    """Return the id of a log; None if it has none, or it cannot be read."""
    found = _CONTENT.fullmatch(folder.storage.read_small(folder.file(files.LOG_IDENTITY)) or b"")
    return None if found is None else found[1].decode()


class LogIdentity(NamedTuple):
    """The identity of a log at an offset up to which it was read. Unknown parts are None.

    Attributes
    ----------
    topic_id : str or None
        The id in ``partition.metadata``.
    log_id : str or None
        The id from `read_log_id`.
    end_batch : EndBatch or None
        The batch with the offset before.
    """

    topic_id: str | None = None
    log_id: str | None = None
    end_batch: EndBatch | None = None

    @classmethod
    def of_fields(cls, found: Mapping[str, Any]) -> LogIdentity:
        """Restore it from `fields`; missing fields are None. Raise `ValueError` for anything else."""
        topic_id, log_id, batch = (found.get(name) for name in cls._fields)
        if not all(each is None or isinstance(each, str) for each in (topic_id, log_id)):
            raise ValueError(f"not the ids of a log: {topic_id!r}, {log_id!r}")
        return cls(topic_id, log_id, None if batch is None else EndBatch.of_numbers(batch))

    def fields(self) -> dict[str, Any]:
        """Return plain values for JSON. Fields that are None are left out, except the topic's id."""
        batch = None if self.end_batch is None else list(self.end_batch)
        known = {"log_id": self.log_id, "end_batch": batch}
        return {"topic_id": self.topic_id} | {name: value for name, value in known.items() if value is not None}

    def difference(self, found: LogIdentity) -> str | None:
        """Return the part that proves that a log, found at the same offset, is another or was cut; None if there is
        none.

        Returns
        -------
        str or None
            `TOPIC_ID`, `LOG_ID` or `END_BATCH`.
        """
        if self.topic_id is not None and found.topic_id is not None:
            if self.topic_id != found.topic_id:
                return TOPIC_ID
        elif self.log_id is not None and found.log_id is not None and self.log_id != found.log_id:
            return LOG_ID
        if self.end_batch is None or found.end_batch is None or self.end_batch.may_become(found.end_batch):
            return None
        return END_BATCH


def identity_at(layout: PartitionLayout, end_offset: int) -> LogIdentity:
    """Return the identity of a log at an offset up to which it was read."""
    folder = layout.folder
    return LogIdentity(topic_id_of(folder), read_log_id(folder), end_batch(layout, end_offset))
