"""Encoding beside the batch builders of kafka-python and aiokafka: ``python -m tests.bench.encode``.

One core; records of about 100 bytes, batches of 16 KiB before compression, the same rows for all: Arrow columns for us,
Python objects, made beforehand, for the others, whose only form they are. All run in turn in one process; a ratio is
the median over rounds. What is measured is processor time, which a busy machine blurs less.

Beside it is the floor: the shares of our time that compressing the very same records takes, and their checksums, and
"at most", how many times as fast as aiokafka we were if we did nothing else. Builders take no level: both peers have
gzip at 9 and aiokafka has lz4 at 9 of HC, where we have Kafka's own defaults, so those ratios are of settings too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from rich.console import Console
from rich.table import Table

from sparklog.record.codecs.table import CODEC_IDS, compressed_bytes_max, compressor
from sparklog.record.encode.batches import BatchSettings, encode_batches
from sparklog.record.format import v2

RECORDS = 20_000
BATCH_BYTES = 16 << 10
START_MS = 1_700_000_000_000
TARGETS = {"aiokafka": 3, "kafka-python": 10}

Row = tuple[int, bytes, bytes]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    table = Table(title="Encoding: how many times as fast as the peers")
    titles = ("codec", "ns a record", "aiokafka", "range", "target", "at most", "kafka-python", "range", "target")
    for title in (*titles, "codec's share", "CRC's"):
        table.add_column(title, justify="left" if title == "codec" else "right")
    for codec in CODEC_IDS:
        table.add_row(*measured(codec, given.rounds))
    Console(width=130).print(table)


def measured(codec: str, rounds: int) -> list[str]:
    """Measure one codec: a row of the table."""
    rows = list(made_rows())
    columns = pa.record_batch(
        {
            "key": pa.array([key for _, key, _ in rows], pa.binary()),
            "value": pa.array([value for _, _, value in rows], pa.binary()),
            "timestamp": pa.array([ms for ms, _, _ in rows], pa.int64()),
        }
    )
    settings = BatchSettings(codec=codec, batch_bytes=BATCH_BYTES)
    plain = encode_batches(columns, BatchSettings(codec="none", batch_bytes=BATCH_BYTES))
    bodies = [
        memoryview(plain.data)[start + v2.HEADER_BYTES : start + size]
        for start, size in zip(
            plain.headers.column("position").tolist(), plain.headers.column("batch_bytes").tolist(), strict=True
        )
    ]
    compress = compressor(codec)
    room = memoryview(bytearray(compressed_bytes_max(BATCH_BYTES)))
    sealed = [memoryview(batch)[v2.CRC_COVERS_FROM :] for batch in built(AiokafkaBuilder, rows, codec)]
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: encode_batches(columns, settings),
        "aiokafka": lambda: built(AiokafkaBuilder, rows, codec),
        "kafka-python": lambda: built(KafkaPythonBuilder, rows, codec),
        "codec": lambda: [compress(body, room) for body in bodies],
        "CRC": lambda: [crc32c(batch) for batch in sealed],
    }
    for run in runs.values():
        run()
    times = {name: [] for name in runs}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    return [codec, *told(times, is_compressed=codec != "none")]


def told(times: dict[str, list[float]], *, is_compressed: bool) -> list[str]:
    """Return what the table says of one codec's times, seconds a round."""
    ours = statistics.median(times["ours"])
    codec = times["codec"] if is_compressed else [0.0] * len(times["ours"])
    floors = [a + b for a, b in zip(codec, times["CRC"], strict=True)]
    told = [f"{ours / RECORDS * 1e9:.0f}"]
    for peer, target in TARGETS.items():
        ratios = sorted(theirs / own for theirs, own in zip(times[peer], times["ours"], strict=True))
        told += [f"{statistics.median(ratios):.1f}", f"{ratios[0]:.1f} - {ratios[-1]:.1f}", str(target)]
        if peer == "aiokafka":
            most = [theirs / floor for theirs, floor in zip(times[peer], floors, strict=True)]
            told.append(f"{statistics.median(most):.1f}" if is_compressed else "-")
    told.append(f"{statistics.median(codec) / ours:.0%}" if is_compressed else "-")
    return [*told, f"{statistics.median(times['CRC']) / ours:.0%}"]


def built(builder_class: Any, rows: list[Row], codec: str) -> list[bytes]:
    """Build batches as a producer does: append until a batch is full, then the next."""
    batches = []
    builder, count = fresh(builder_class, codec), 0
    for ms, key, value in rows:
        if builder.append(count, ms, key, value, []) is None:
            batches.append(bytes(builder.build()))
            builder, count = fresh(builder_class, codec), 0
            builder.append(count, ms, key, value, [])
        count += 1
    batches.append(bytes(builder.build()))
    return batches


def fresh(builder_class: Any, codec: str) -> Any:
    return builder_class(
        magic=2,
        compression_type=CODEC_IDS[codec],
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BATCH_BYTES,
    )


def made_rows() -> Iterator[Row]:
    draw = random.Random(7)
    words = [f"{draw.getrandbits(32):08x}" for _ in range(2000)]
    for n in range(RECORDS):
        yield START_MS + n, b"user-%05d" % draw.randrange(5000), " ".join(draw.choices(words, k=11)).encode()


if __name__ == "__main__":
    main()
