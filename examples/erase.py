"""Erases all records of some customers from a log directory, and proves that no file has them any more.

python examples/erase.py [LOG_DIRECTORY KEYS]        KEYS is a Parquet or CSV file with a column key
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import sparklog

if len(sys.argv) > 2:
    directory, keys = Path(sys.argv[1]), Path(sys.argv[2])
else:
    directory, keys = Path("/tmp/sparklog-erase/logs"), Path("/tmp/sparklog-erase/gone.csv")
    shutil.rmtree(directory, ignore_errors=True)
    sparklog.copy(Path(__file__).parent / "data", directory, topics="shop-events")
    keys.write_text("key\nuser-002\nuser-007\n")

# With a delay, the old files would stay under names with .deleted, and the proof below would find the keys there.
done = sparklog.clean(directory, erase=keys, config={"file.delete.delay.ms": "0"})  # spark=session: on its cluster
for each in (one for one in done.changed if one.erased):
    print(f"{each.topic}-{each.partition}: {each.erased_records} records erased, the first at {each.erased[0][0]}")

verify = [Path(sys.executable).with_name("sparklog"), "verify", directory, "--absent", keys]
proof = subprocess.run([str(each) for each in verify], check=False)
sys.exit(proof.returncode)
