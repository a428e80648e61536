"""Breaks a copy of a log directory in several ways, gets back what was not damaged, and prints the rest.

python examples/salvage.py [FOLDER]        FOLDER gets the broken and the salvaged directory
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import sparklog

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/sparklog-salvage")
broken, salvaged = folder / "broken", folder / "salvaged"
shutil.rmtree(folder, ignore_errors=True)
shutil.copytree(Path(__file__).parent / "data", broken)


def overwrite(log: Path, position: int, data: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(position)
        file.write(data)


def first_log(partition: str) -> Path:
    return min((broken / partition).glob("*.log"))


def last_log(partition: str) -> Path:
    return max((broken / partition).glob("*.log"))


overwrite(first_log("shop-events-0"), 5000, bytes(2048))  # a sector of zeros in the midst
overwrite(first_log("shop-events-1"), 0, b"noise" * 8)  # the beginning of a log
first_log("shop-events-2").unlink()  # a segment is gone, its indexes are left
last = last_log("shop-orders-0")
last.write_bytes(last.read_bytes()[:-100])  # the end is torn
for index in broken.glob("shop-orders-1/*.*index"):
    index.write_bytes(b"no index" * 3)

done = sparklog.salvage(broken, salvaged)  # spark=session: on its cluster
for log in done.logs:
    print(f"{log.topic}-{log.partition}: {log.records} records kept, {log.lost_offsets} offsets lost")
for row in done.damage.to_pylist():
    where = Path(row["file"]).relative_to(broken)
    print(f"{where}, position {row['position']}, {row['length_bytes']} bytes: {row['reason']}")

wrong = [finding for finding in sparklog.verify(salvaged) if finding.severity == "error"]
print(f"{len(wrong)} errors in the salvaged directory")
sys.exit(len(wrong) > 0)
