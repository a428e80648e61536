"""The memory of `verify` beside batches that decompress to more than is allowed, or to as much."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

from tests import build

LIMIT_BYTES = 32 << 20
# For the rest of a verification: the window, the columns, and what the library of a codec keeps.
REST_BYTES = 16 << 20
ABOVE_LIMIT = f"the batch decompresses to more than {LIMIT_BYTES} bytes"

# The largest resident size since it was last reset, not that of `getrusage`, which begins with that of the parent.
MEASURE = f"""
import json, sys
import sparklog.record.codecs.table as table
table.DECOMPRESSED_BYTES_MAX = {LIMIT_BYTES}
from pathlib import Path
import sparklog

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

def verified(path):
    return [[each.code, each.message] for each in sparklog.verify(path, processes=1)]

first, *paths = sys.argv[1:]
verified(first)
for path in paths:
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    found = verified(path)
    print(json.dumps([path, kib("VmHWM") - before << 10, found]))
"""


def logs_of(content_bytes: int) -> dict[str, list[bytes]]:
    """Return logs of two batches with content of about a size, by the names of format and writer."""
    record = build.Record(value=bytes(content_bytes))
    logs = {}
    for codec in build.CODEC_IDS:
        if codec not in ("none", "lz4-broken-checksum"):
            logs[f"2-{codec}"] = build.v2_batch([record], codec=codec)
    for codec in ("gzip", "snappy", "lz4"):
        logs[f"1-{codec}"] = build.legacy_wrapper([record], codec=codec)
    # No checksum covers the offset.
    return {name: [batch, struct.pack(">q", 1) + batch[8:]] for name, batch in logs.items()}


def test_memory_of_verify_is_that_of_the_largest_allowed_batch(tmp_path: Path) -> None:
    build.write_partition(tmp_path / "first-0", [build.v2_batch([build.Record(value=b"v")], codec="zstd")])
    expected = {}
    for name, content_bytes in (("bomb", LIMIT_BYTES * 2), ("large", LIMIT_BYTES - (1 << 10))):
        for writer, log in logs_of(content_bytes).items():
            folder = tmp_path / f"{name}.{writer}-0"
            build.write_partition(folder, log)
            expected[str(folder)] = [["corrupt-batch", ABOVE_LIMIT]] * 2 if name == "bomb" else []
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "first-0"), *expected]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    measured = {path: (peak_bytes, found) for path, peak_bytes, found in map(json.loads, printed.splitlines())}
    assert {path: found for path, (_, found) in measured.items()} == expected
    # Several members of gzip, which no producer of Kafka writes, are joined.
    most = {path: LIMIT_BYTES * (1 + ("members" in path)) + REST_BYTES for path in measured}
    assert {path: peak >> 20 for path, (peak, _) in measured.items() if peak > most[path]} == {}
