"""Computes a digest of the rows to write, which does not depend on their order or on the tasks that write them."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from sparklog.record.encode.batches import fields_of
from sparklog.record.format.streams import Int64s
from sparklog.record.kernels.digest import sum_of_hashes


def digest_records(topic: str, records: pa.RecordBatch, partitions: Int64s) -> int:
    """Return a number of 64 bits; the digests of two parts add up, modulo 2**64, to the digest of all rows.

    Parameters
    ----------
    topic : str
        The topic of the rows.
    records : pyarrow.RecordBatch
        The rows, from `sparklog.record.encode.intake.take_records`. A missing time is no part of a row's digest.
    partitions : int64 array, length n_rows
        The partition of each row; -1 if it names none.
    """
    fields = fields_of(records)
    seed = np.frombuffer(hashlib.blake2b(topic.encode(), digest_size=8).digest(), np.uint64)
    tables = fields.records, fields.headers, fields.keys, fields.values, fields.names, fields.contents
    return int(sum_of_hashes(*tables, partitions, *seed))
