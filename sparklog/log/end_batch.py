"""The batch before an offset, by which the log of a topic without an id is told from another of the same name.

A log never changes before its end, but for two things. Retention removes what is at its start, and with it the batch.
The cleaner removes records, whole batches among them, and what it leaves of a batch has the offsets, the leader epoch,
the producer, the sequence and the kind that the batch had, and no later timestamp. Neither its bytes nor its checksum
need be the same. So a batch that differs in one of these is not what became of the other: it is one of another log, or
of the same log after it was cut and written on. So is one with as many records, the same attributes and no fewer
bytes, but another checksum: what the cleaner leaves of a batch has fewer records, another codec or delete horizon, or
values that were removed. Of a batch that is not there nothing can be said.

This holds for magic 2: the cleaner gives what it leaves of a compressed wrapper of magic 0 or 1 other offsets.

Source: apache/kafka, MemoryRecords.java (filterTo, buildRetainedRecordsInto), DefaultRecordBatch.java.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparklog.log.layout import PartitionLayout, batch_holding
from sparklog.record import v2

_MAGIC: Final = 2
NOT_KEPT: Final = -1
_STAYS: Final = 8
"""How many of the numbers stay, with the timestamp."""
_KIND: Final = v2.LOG_APPEND_TIME | v2.TRANSACTIONAL | v2.CONTROL


class EndBatch(NamedTuple):
    """What stays of a batch's header whatever is cleaned, its timestamp, and what tells that nothing was cleaned.

    Attributes
    ----------
    base_offset, last_offset : int
    leader_epoch : int
    producer_id, producer_epoch, base_sequence : int
        -1 without a producer.
    kind : int
        The attributes without the codec and the delete horizon.
    max_timestamp : int
        Milliseconds; what the cleaner leaves may have an earlier one.
    attributes, record_count, batch_bytes, crc : int
        -1 where they are not kept.
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
        """Return what was kept as a list of numbers, without or with those by default; `ValueError` for all else."""
        if not isinstance(found, list) or len(found) not in (_STAYS, len(cls._fields)):
            raise ValueError(f"not what is kept of a batch: {str(found)[:200]}")
        if not all(type(number) is int for number in found):
            raise ValueError(f"not the numbers of a batch: {found}")
        return cls(*found)

    def that_stays(self) -> list[int]:
        """Return the numbers up to the timestamp."""
        return list(self[:_STAYS])

    def may_become(self, found: EndBatch) -> bool:
        """Tell whether a batch may be this one, or what the cleaner has left of it."""
        if self[: _STAYS - 1] != found[: _STAYS - 1] or found.max_timestamp > self.max_timestamp:
            return False
        is_whole = (self.attributes, self.record_count) == (found.attributes, found.record_count)
        is_other = self.crc != found.crc and found.batch_bytes >= self.batch_bytes
        return not (is_whole and is_other and NOT_KEPT not in (self.crc, found.crc))


def end_batch(layout: PartitionLayout, end_offset: int) -> EndBatch | None:
    """Return the batch that holds the offset before one; None where the log has none, or one of magic 0 or 1."""
    header = batch_holding(layout, end_offset - 1)
    if header is None:
        return None
    row = header.table[0]
    if int(row["magic"]) != _MAGIC:
        return None
    names = EndBatch._fields
    values = (row["attributes"] & _KIND if name == "kind" else row[name] for name in names)
    return EndBatch(*map(int, values))
