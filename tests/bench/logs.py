"""Large logs to measure on: batches of about 16 KiB of 100-byte records, made once and stamped with their offsets."""

from __future__ import annotations

import random
from pathlib import Path

from tests.build import Record, offset_index, time_index, v2_batch

RECORDS_PER_BATCH = 140
TEMPLATES = 16
START_MS = 1_700_000_000_000
INDEX_INTERVAL_BYTES = 4096


def templates(codec: str, records_per_batch: int = RECORDS_PER_BATCH) -> list[bytes]:
    """Return batches with base offset 0: values of about 100 bytes that compress about as JSON does."""
    draw = random.Random(7)
    words = [f"{draw.getrandbits(32):08x}" for _ in range(2000)]
    return [
        v2_batch(
            [
                Record(
                    n,
                    timestamp=START_MS + n,
                    key=b"user-%05d" % draw.randrange(5000),
                    value=" ".join(draw.choices(words, k=11)).encode(),
                )
                for n in range(records_per_batch)
            ],
            codec=codec,
        )
        for _ in range(TEMPLATES)
    ]


def stamped(batch: bytes, base_offset: int) -> bytes:
    """Return a v2 batch with another base offset, which its checksum does not cover."""
    return base_offset.to_bytes(8, "big") + batch[8:]


def write_large_partition(folder: Path, log_bytes: int, codec: str = "none", segment_bytes: int = 1 << 30) -> int:
    """Write a partition of at least ``log_bytes``, indexed as a broker would; its log end offset."""
    folder.mkdir(parents=True)
    made, offset, written_bytes, turn = templates(codec), 0, 0, 0
    while written_bytes < log_bytes:
        base_offset, position, since_bytes = offset, 0, 0
        entries: list[tuple[int, int]] = []
        with (folder / f"{base_offset:020d}.log").open("wb") as log:
            while position < segment_bytes - 32_768 and written_bytes < log_bytes:
                batch = made[turn % TEMPLATES]
                turn += 1
                if since_bytes > INDEX_INTERVAL_BYTES:
                    entries.append((offset + RECORDS_PER_BATCH - 1 - base_offset, position))
                    since_bytes = 0
                log.write(stamped(batch, offset))
                position += len(batch)
                since_bytes += len(batch)
                written_bytes += len(batch)
                offset += RECORDS_PER_BATCH
        (folder / f"{base_offset:020d}.index").write_bytes(offset_index(entries))
        last_ms = START_MS + RECORDS_PER_BATCH - 1
        (folder / f"{base_offset:020d}.timeindex").write_bytes(time_index([(last_ms, RECORDS_PER_BATCH - 1)]))
    return offset


def write_sparse_directory(directory: Path, partitions: int, partition_bytes: int) -> int:
    """Write partitions of one segment: a batch at its beginning, a hole, a batch at its end, an index; bytes in all.

    The hole stands for batches that planning has no business to look at.
    """
    first, last = (stamped(batch, offset) for batch, offset in zip(templates("none"), (0, 1_000_000), strict=False))
    for n in range(partitions):
        folder = directory / f"events-{n}"
        folder.mkdir(parents=True)
        position = partition_bytes - len(last)
        with (folder / f"{0:020d}.log").open("wb") as log:
            log.write(first)
            log.seek(position)
            log.write(last)
        (folder / f"{0:020d}.index").write_bytes(offset_index([(1_000_000 + RECORDS_PER_BATCH - 1, position)]))
    return partitions * partition_bytes


def overwrite_batches(folder: Path, every: int, at: int, octets: bytes) -> None:
    """Write bytes at a position of every n-th batch of a log."""
    for path in folder.glob("*.log"):
        with path.open("r+b") as file:
            position, number = 0, 0
            while head := file.read(12):
                if number % every == 1:
                    file.seek(position + at)
                    file.write(octets)
                position, number = position + 12 + int.from_bytes(head[8:], "big"), number + 1
                file.seek(position)
