"""Prints how far every consumer group is behind, from the files of a stopped broker.

python examples/lag.py [LOG_DIRECTORY]

Each line is a partition for which a group has committed an offset, or which was assigned to one of its members.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc

from sparklog import views

source = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "data"

lag = views.lag(source)
for row in lag.to_pylist():
    committed = "nothing" if row["current_offset"] is None else row["current_offset"]
    reader = f", assigned to {row['client_id']}" if row["client_id"] else ""
    print(f"{row['group']:<14}{row['topic']}-{row['partition']:<4}{committed:>9} of {row['log_end_offset']}{reader}")

# If a group has committed nothing for a partition, all of it is left to read: the group begins at its start.
left = lag.append_column("left", pc.coalesce(lag["lag"], lag["log_end_offset"]))
for row in left.group_by("group").aggregate([("left", "sum")]).sort_by("group").to_pylist():
    print(f"{row['group']:<14}{row['left_sum']:>7} left to read")
