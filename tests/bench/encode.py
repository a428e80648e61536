"""Encoding beside the batch builders of kafka-python and aiokafka: ``python -m tests.bench.encode``.

One core; records of about 100 bytes, batches of 16 KiB before compression, the same rows for all: Arrow columns for us,
Python objects, made beforehand, for the others, whose only form they are. All run in turn in one process; a ratio is
the median over rounds. The codec's share is that of compressing the very same records alone.
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
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from rich.console import Console
from rich.table import Table

from sparklog.record import v2
from sparklog.record.compression import CODEC_IDS, compressor
from sparklog.record.encode import BatchSettings, encode_batches

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
    for title in ("codec", "ns a record", "aiokafka", "target", "range", "kafka-python", "target", "codec's share"):
        table.add_column(title, justify="left" if title == "codec" else "right")
    for codec in CODEC_IDS:
        table.add_row(*measured(codec, given.rounds))
    Console(width=110).print(table)


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
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: encode_batches(columns, settings),
        "aiokafka": lambda: built(AiokafkaBuilder, rows, codec),
        "kafka-python": lambda: built(KafkaPythonBuilder, rows, codec),
        "codec": lambda: [compress(body) for body in bodies],
    }
    for run in runs.values():
        run()
    times = {name: [] for name in runs}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    ratios = {
        name: sorted(peer / own for peer, own in zip(times[name], times["ours"], strict=True)) for name in TARGETS
    }
    ours = statistics.median(times["ours"])
    return [
        codec,
        f"{ours / RECORDS * 1e9:.0f}",
        f"{statistics.median(ratios['aiokafka']):.1f}",
        str(TARGETS["aiokafka"]),
        f"{ratios['aiokafka'][0]:.1f} - {ratios['aiokafka'][-1]:.1f}",
        f"{statistics.median(ratios['kafka-python']):.0f}",
        str(TARGETS["kafka-python"]),
        "-" if codec == "none" else f"{statistics.median(times['codec']) / ours:.0%}",
    ]


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
