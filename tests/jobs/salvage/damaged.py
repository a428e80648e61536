"""Damaged logs to salvage, and the batches that must come back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparklog.errors import SeglogError
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.salvage.job import SalvageJob
from sparklog.record.batches.framing import scan_headers
from sparklog.storage.base import Storage
from sparklog.topic.places.discovery import discover
from sparklog.write.running_jobs import new_job
from tests.build import Record, legacy_message, legacy_wrapper, v2_batch
from tests.places import LOCAL, location_of
from tests.topic.staged import NOW_MS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def salvage_job(target: Path, *sources: Path, storage: Storage = LOCAL, **fields: Any) -> SalvageJob:
    paths = tuple(str(each) for each in sources)
    options = LogJobOptions(lock_timeout_seconds=5.0)
    return SalvageJob(
        location_of(target, storage),
        paths,
        discover(paths).partitions,
        None,
        new_job(NOW_MS),
        NOW_MS,
        **{"options": options, **fields},
    )


def run(job: SalvageJob) -> None:
    """Run a salvage in this process, with a commit for each task."""
    run_job(job, LocalRunner(1), commit_interval_ms=0)


def batches_of(folder: Path) -> list[bytes]:
    """Return the batches of a log that has no damage, in order, without empty ones."""
    found: list[bytes] = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        headers = scan_headers(memoryview(data))
        assert headers.valid_bytes == len(data), path
        found += [
            data[int(row["position"]) :][: int(row["batch_bytes"])] for row in headers.table if row["record_count"]
        ]
    return found


def random_batches(rng: random.Random, magic: int, count: int, *, has_gaps: bool = False) -> list[bytes]:
    """Make batches of a magic, of all its codecs."""
    found, offset = list[bytes](), rng.choice([0, 7])
    for _ in range(count):
        offset += rng.choice([0, 0, 0, 3]) if has_gaps else 0
        records = [
            Record(n, timestamp=1000 + offset + n, key=b"k%d" % n, value=_value(rng, magic))
            for n in range(rng.randint(1, 6))
        ]
        codec = rng.choice(CODECS if magic == 2 else CODECS[:4] if magic else CODECS[:2])
        if magic == 2:
            producer: dict[str, Any] = (
                {"producer_id": 5, "producer_epoch": 0, "base_sequence": offset} if rng.random() < 0.3 else {}
            )
            found.append(v2_batch(records, base_offset=offset, codec=codec, **producer))
        elif codec == "none":
            records = records[:1]
            found.append(
                legacy_message(offset, b"k", records[0].value, magic=magic, timestamp=-1 if magic == 0 else 1000)
            )
        else:
            found.append(legacy_wrapper(records, magic=magic, codec=codec, base_offset=offset))
        offset += len(records)
    return found


def _value(rng: random.Random, magic: int) -> bytes:
    size_bytes = rng.choice([5, 40, 300])
    # Random values would not be compressed: a damaged wrapper of magic 0 would then show its messages, with right
    # offsets.
    return rng.randbytes(size_bytes) if magic else b"v" * size_bytes


def damage(rng: random.Random, batches: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Damage the bytes of batches somewhere; return them, and the rows of the batches that were not touched.

    The fields that no checksum covers, base offsets and leader epochs, are not changed alone.
    """
    data, starts = b"".join(batches), [sum(map(len, batches[:row])) for row in range(len(batches) + 1)]
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice([1, 17, 512, 2048]))
    start, end = (_without_lead(position, starts) for position in (start, end))
    kind = rng.choice(["flip", "zeros", "noise", "cut out", "doubled", "torn"])
    if kind == "flip":
        row = rng.randrange(len(batches))
        start = rng.randrange(starts[row] + 20, starts[row + 1])
        end = start + 1
        data = data[:start] + bytes([data[start] ^ 1 << rng.randrange(8)]) + data[end:]
    elif kind == "zeros":
        data = data[:start] + bytes(end - start) + data[end:]
    elif kind == "noise":
        data = data[:start] + rng.randbytes(end - start) + data[end:]
    elif kind == "cut out":
        data = data[:start] + data[end:]
    elif kind == "torn":
        data, end = data[:start], len(data)
    else:
        data = data[:end] + data[start:]
        start = end
    return data, [row for row in range(len(batches)) if starts[row + 1] <= start or starts[row] >= end]


def _without_lead(position: int, starts: Sequence[int]) -> int:
    """Return a position that is not in the fields that no checksum covers."""
    start = max(each for each in starts if each <= position)
    return start if position - start < 20 else position


def refuses(job: SalvageJob) -> str:
    """Return the error of a job."""
    try:
        run(job)
    except SeglogError as error:
        return str(error)
    raise AssertionError("it was not refused")
