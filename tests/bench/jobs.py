"""How fast jobs move whole directories, against the least that it can take, and how much memory a task needs.

    python -m tests.bench.jobs [--rows N] [--rounds N] [--memory] [--many]

The floor of an export is what it cannot do without: `LogReader.batches` decodes a log, and pyarrow writes the very
batches in the very shape, to a file that is synced, in one process. The ratio is that of processor seconds, (decoding +
writing) / export, and beside it that of the time that passed; 1 is no slower. ``--memory`` measures how much a process
grows that exports one partition, from 10 MiB to 4 GiB. ``--many`` measures ten thousand partitions of ten records, and
one of twenty thousand segments.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.jobs.export.arguments import export
from sparklog.jobs.files.formats import ParquetFormat, RowGroups
from sparklog.record.decode.columns import DecodeLimits
from sparklog.storage.local_writing import LocalWritableStorage
from tests.bench.spark_read import write_log
from tests.build import Record, v2_batch, write_partition

ROOT = Path(__file__).parents[2]
DECODED = ["key", "value", "offset", "timestamp", "timestampType", "headers"]
LIMITS = DecodeLimits(chunk_bytes=1 << 20, output_bytes_max=1 << 23)
MEMORY_OF_ONE = """
import sys
from pathlib import Path
from sparklog.jobs.export.arguments import export
if sys.argv[3] == "idle":
    import pyarrow.parquet, sparklog.record.decode.columns
else:
    export(sys.argv[1], sys.argv[2], processes=1, partition_by=sys.argv[4].split(","), format=sys.argv[5])
# What getrusage says begins with what the process had that started this one.
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--memory", action="store_true")
    arguments.add_argument("--many", action="store_true")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="jobs-"))
    try:
        if given.memory:
            measure_memory(folder)
        elif given.many:
            measure_many(folder)
        else:
            measure_speed(folder, given.rows, given.rounds)
    finally:
        shutil.rmtree(folder)


def measure_speed(folder: Path, rows: int, rounds: int) -> None:
    """Print the floor's share of an export's time, by what the records are like."""
    print(f"{'records':8} {'export s':>9} {'floor s':>8} {'CPU ratio':>9} {'time ratio':>10}")
    for name, make in {"unique": unique_values, "repeated": repeated_values}.items():
        log = folder / name / "events-0"
        write_records(log, rows, make)
        costs = [(cost_of_export(log, folder / "out"), cost_of_floor(log, folder / "floor")) for _ in range(rounds + 1)]
        ours, floor = (
            tuple(min(column) for column in zip(*each, strict=True)) for each in zip(*costs[1:], strict=True)
        )
        print(
            f"{name:8} {ours[1]:9.3f} {floor[1]:8.3f} {floor[0] / ours[0]:9.2f} {floor[1] / ours[1]:10.2f}", flush=True
        )


def cost_of_export(log: Path, out: Path) -> tuple[float, float]:
    found = cost(lambda: export(log, out, processes=1))
    shutil.rmtree(out)
    return found


def cost_of_floor(log: Path, out: Path) -> tuple[float, float]:
    out.mkdir()
    found = cost(lambda: decode_and_write(log, out / "x.parquet"))
    shutil.rmtree(out)
    return found


def decode_and_write(log: Path, path: Path) -> None:
    with sparklog.open_log(log) as reader, path.open("wb") as sink:
        batches = reader.batches(columns=DECODED, isolation_level="read_committed", limits=LIMITS)
        first = next(batches)
        groups = RowGroups(ParquetFormat().open(sink, first.schema), first.schema)
        groups.append(first)
        for batch in batches:
            groups.append(batch)
        groups.close()
    LocalWritableStorage().sync_files([str(path)])


def cost(run: Callable[[], object]) -> tuple[float, float]:
    """Return the processor's seconds, and those that passed."""
    spent, started = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - spent, time.perf_counter() - started


def measure_memory(folder: Path) -> None:
    """Print the most memory that a process had which exported a partition, above one that did nothing."""
    print(f"{'log':8} {'log MiB':>8} {'format':8} {'folders':16} {'peak MiB above idle':>20}")
    idle = peak_bytes(folder, folder, "idle")
    for name, log_mib in (("100 MB", 600), ("900 KB", 1024), ("lz4", 10), ("lz4", 100), ("lz4", 1024), ("lz4", 4096)):
        log = folder / f"{name}-{log_mib}" / "events-0"
        if name == "lz4":
            write_log(log, "lz4", size_bytes=log_mib << 20)
        else:
            size = 900_000 if name == "900 KB" else 100_000_000
            batches = [v2_batch([Record(value=bytes(size))], base_offset=at) for at in range((log_mib << 20) // size)]
            write_partition(log, batches, segment_bytes=1 << 29)
        for kind, by in (("parquet", "topic,partition"), ("parquet", "hour"), ("arrow", "topic,partition")):
            peak = peak_bytes(log, folder / "out", "export", by, kind)
            print(f"{name:8} {log_mib:8} {kind:8} {by:16} {(peak - idle) / (1 << 20):20.0f}", flush=True)
            shutil.rmtree(folder / "out")
        shutil.rmtree(log.parent)


def peak_bytes(log: Path, out: Path, *options: str) -> int:
    found = subprocess.run(
        [sys.executable, "-c", MEMORY_OF_ONE, str(log), str(out), *options],
        check=True,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    return int(found.stdout) * 1024


def measure_many(folder: Path) -> None:
    """Print how long it takes to export very many logs, and one of very many segments, and to find nothing new."""
    template = v2_batch([Record(at, 1_700_000_000_000, value=b"value") for at in range(10)])
    for number in range(10_000):
        write_partition(folder / "partitions" / f"t{number % 100}-{number // 100}", [template])
    for number in range(20_000):
        batch = v2_batch([Record(0, 1_700_000_000_000, value=bytes(1000))], base_offset=number)
        write_partition(folder / "segments" / "t-0", [batch], base_offset=number)
    print(f"{'logs':12} {'export s':>9} {'again s':>8}")
    for name in ("partitions", "segments"):
        first = cost(lambda source=folder / name: export(source, folder / "out"))  # type: ignore[misc]
        again = cost(lambda source=folder / name: export(source, folder / "out"))  # type: ignore[misc]
        print(f"{name:12} {first[1]:9.1f} {again[1]:8.1f}", flush=True)
        shutil.rmtree(folder / "out")


def write_records(folder: Path, rows: int, make: Callable[[random.Random], bytes]) -> None:
    """Write records with keys of some thousands, and values of a kind."""
    rng = random.Random(1)
    folder.mkdir(parents=True)
    with sparklog.PartitionLog.open(folder, sparklog.LogConfig.from_properties({"compression.type": "lz4"})) as log:
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            times = range(1_700_000_000_000 + start, 1_700_000_000_000 + start + count)
            columns = {
                "key": [b"k%d" % rng.randrange(100_000) for _ in range(count)],
                "value": [make(rng) for _ in range(count)],
                "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
            }
            log.append(pa.table(columns))


WORDS = [random.Random(2).randbytes(30).hex() for _ in range(1000)]


def unique_values(rng: random.Random) -> bytes:
    return b"%s%040d" % (rng.choice(WORDS).encode(), rng.randrange(10**12))


def repeated_values(rng: random.Random) -> bytes:
    return f"{rng.choice(WORDS)}{'x' * 40}".encode()


if __name__ == "__main__":
    main()
