"""A digest of rows that are to be written: the same for the same rows, whatever their order and their tasks."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from sparklog.record.encode.batches import fields_of
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels.digest import sum_of_hashes


def digest_records(topic: str, records: pa.RecordBatch, partitions: Int64s) -> int:
    """Return a number of 64 bits; that of rows in two parts is the sum of those of the parts, cut to 64 bits.

    Parameters
    ----------
    topic : str
        The topic of the rows.
    records : pyarrow.RecordBatch
        From `sparklog.record.encode.intake.take_records`. A time that a row does not say is no part of its digest.
    partitions : int64 array, length n_rows
        The partition that each row names; -1 if it names none.
    """
    fields = fields_of(records)
    seed = np.frombuffer(hashlib.blake2b(topic.encode(), digest_size=8).digest(), np.uint64)
    tables = fields.records, fields.headers, fields.keys, fields.values, fields.names, fields.contents
    return int(sum_of_hashes(*tables, partitions, *seed))
