"""A process that exports a folder's logs over and over, and says so: to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from sparklog.jobs.export import export


def main(folder: Path) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        print("begun", flush=True)
        export(
            folder / "logs",
            folder / "out",
            processes=2,
            partition_by=line.split(),
            commit_interval_ms=0,
            task_bytes=1 << 13,
            lock_timeout_seconds=60,
        )
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
