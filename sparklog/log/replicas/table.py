"""Makes the table of the replicas that a log is merged from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sparklog.log.replicas.lineage import Replica

REPLICA_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("directory", pa.string()),
        ("leader_epoch", pa.int32()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("agreed_offset", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""The columns of the table of replicas; the fields of `Replica` have the same names."""


def replica_table(replicas: Sequence[Replica]) -> pa.Table:
    """Return one row of `REPLICA_SCHEMA` for each replica, in the order of preference."""
    rows = [
        {
            "topic": each.log.folder.topic,
            "partition": each.log.folder.partition,
            "directory": each.log.folder.directory.path,
            "leader_epoch": each.log.last_epoch,
            "start_offset": each.log.start_offset,
            "end_offset": each.log.end_offset,
            "high_watermark": each.log.high_watermark,
            "agreed_offset": each.agreed_offset,
            "reason": each.reason,
        }
        for each in replicas
    ]
    return pa.Table.from_pylist(rows, schema=REPLICA_SCHEMA)
