"""A nightly job: moves only the new records of a log directory to Parquet, however the last run ended.

python examples/bulk_load.py [LOG_DIRECTORY [TABLE]]
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.dataset

import sparklog
from sparklog.errors import CorruptLogError, DataLossError

source = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "data"
table = sys.argv[2] if len(sys.argv) > 2 else "/tmp/sparklog-bulk-load"

try:
    tonight = sparklog.export(source, table, partition_by=("topic", "date"))  # spark=session runs it on a cluster
except (CorruptLogError, DataLossError) as error:
    for each in (error, *error.others):
        print(f"to be repaired: {each}")
    sys.exit(1)
print(f"moved tonight: {tonight.rows} records of {len(tonight.moved)} ranges, in {tonight.files} files")
print(f"in the table: {pyarrow.dataset.dataset(table, partitioning='hive').count_rows()} records")
