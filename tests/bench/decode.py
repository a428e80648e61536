"""Decoding to Arrow beside the decoders of aiokafka and kafka-python: ``python -m tests.bench.decode``.

One core; records of about 100 bytes, batches of about 16 KiB and of one record; every checksum verified. Each decoder's
best form is what is timed: Arrow columns here, an iteration over record objects there. All are measured in turn within
one run, several times over, and what is printed is the median of the ratios, since the speed of a shared machine
varies by more than what is compared. The floor is told as shares of our time: the checksum, what the codec's library
takes, one copy of the (decompressed) bytes, and the sum of the three. Needs the extra ``bench``. Nothing is asserted
about time.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords
from rich.console import Console
from rich.table import Table

from sparklog.record.batches.framing import scan_headers, scan_pieces
from sparklog.record.codecs.table import DECOMPRESSED_BYTES_MAX, decompressor
from sparklog.record.decode.columns import BatchDecoder, check_crcs
from sparklog.record.format.schema import DEFAULT_COLUMNS
from sparklog.record.format.v2 import HEADER_BYTES
from tests import build
from tests.build import Record

BATCH_BYTES = 16 << 10
LOG_RECORDS = 60_000
EVENTS = ("view", "search", "add_to_cart", "purchase")


@dataclass(frozen=True)
class Case:
    """One log to decode, and what is to be reached with it."""

    name: str
    codec: str = "none"
    records_per_batch: int | None = None
    magic: int = 2
    headers: int = 0
    target: float | None = None


CASES = (
    Case("none", target=5),
    Case("snappy", "snappy", target=5),
    Case("lz4", "lz4", target=5),
    Case("zstd", "zstd", target=3),
    Case("gzip", "gzip", target=2),
    Case("one-record batches", records_per_batch=1, target=2),
    Case("two headers a record", headers=2),
    Case("magic 1", magic=1),
    Case("magic 1, gzip", "gzip", magic=1),
)


def some_record(rng: random.Random, delta: int, headers: int) -> Record:
    user = rng.randrange(10**6)
    event: dict[str, object] = {"event": rng.choice(EVENTS), "user": user, "item": rng.randrange(10**4)}
    event |= {"price": round(rng.random() * 100, 2), "session": f"{rng.getrandbits(64):016x}"}
    value = json.dumps(event, separators=(",", ":")).encode()
    pairs = [("trace", rng.randbytes(16)), ("source", b"web")][:headers]
    return Record(delta, 1_700_000_000_000 + delta, b"user-%06d" % user, value, pairs)


def make_log(case: Case, records: int) -> bytes:
    """Make a few different batches of about 16 KiB in the log, and repeat them with ascending offsets."""
    rng = random.Random(1)
    per_batch = case.records_per_batch or fitting(case)
    variants = [[some_record(rng, i, case.headers) for i in range(per_batch)] for _ in range(20)]
    batches = []
    for base_offset in range(0, records, per_batch):
        rows = variants[base_offset // per_batch % len(variants)]
        batches.append(encoded(case, rows, base_offset))
    return b"".join(batches)


def fitting(case: Case) -> int:
    """Return how many records make a batch of about 16 KiB, as a producer with that ``batch.size`` estimates it."""
    rng = random.Random(2)
    sample = [some_record(rng, i, case.headers) for i in range(400)]
    return len(sample) * BATCH_BYTES // len(encoded(case, sample, 0))


def encoded(case: Case, rows: list[Record], base_offset: int) -> bytes:
    if case.magic == 2:
        return build.v2_batch(rows, base_offset=base_offset, codec=case.codec)
    if case.codec == "none":
        return build.message_set(rows, base_offset=base_offset)
    return build.legacy_wrapper(rows, base_offset=base_offset, codec=case.codec)


def sparklog_decode(data: bytes) -> int:
    """Decode as a reader does: a window of the file at a time, and so many batches of it."""
    decoder = BatchDecoder(DEFAULT_COLUMNS)
    pieces = scan_pieces(memoryview(data), 0)
    return sum(batch.num_rows for piece, headers in pieces for batch in decoder.decode(piece, headers))


def peer_decode(kind: type[AiokafkaRecords] | type[KafkaPythonRecords], data: bytes) -> int:
    records, count = kind(data), 0
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("a checksum differs")
        for _ in batch:
            count += 1
    return count


def decompress(data: bytes) -> bytes:
    """Do what no decoder can do without: have the libraries undo every batch of magic 2."""
    headers = scan_headers(data)
    undo = [decompressor(codec_id, 2) for codec_id in range(5)]
    starts, sizes = headers.column("position").tolist(), headers.column("batch_bytes").tolist()
    view = memoryview(data)
    return b"".join(
        undo[codec_id](view[start + HEADER_BYTES : start + size], DECOMPRESSED_BYTES_MAX)
        for start, size, codec_id in zip(starts, sizes, headers.codec_ids.tolist(), strict=True)
    )


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    start = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - start) / repeat


def measure(case: Case, records: int, rounds: int, slow_rounds: int) -> list[str]:
    """Measure one case: the row of the table."""
    data = make_log(case, records)
    short = make_log(case, records // 20)
    assert sparklog_decode(data) == peer_decode(AiokafkaRecords, data)
    plain = decompress(data) if case.magic == 2 else data
    headers = scan_headers(data)
    ours, ratios, slow_ratios = [], [], []
    shares: dict[str, list[float]] = {"crc": [], "codec": [], "copy": []}
    for turn in range(rounds):
        peer = seconds(lambda: peer_decode(AiokafkaRecords, data))
        own = seconds(lambda: sparklog_decode(data), 2)
        ours.append(own)
        ratios.append(peer / own)
        shares["crc"].append(seconds(lambda: check_crcs(memoryview(data), headers)) / own)
        shares["copy"].append(seconds(lambda: bytearray(plain), 2) / own)
        if case.codec != "none" and case.magic == 2:
            shares["codec"].append(seconds(lambda: decompress(data)) / own)
        if turn < slow_rounds:
            slow_ratios.append(seconds(lambda: peer_decode(KafkaPythonRecords, short)) * len(data) / len(short) / own)
    floors = [sum(parts) for parts in zip(*(values for values in shares.values() if values), strict=True)]
    percent = {name: f"{100 * statistics.median(values):.0f} %" if values else "-" for name, values in shares.items()}
    ratio = statistics.median(ratios)
    return [
        case.name,
        f"{statistics.median(ours) / records * 1e9:.0f}",
        f"{ratio:.1f}",
        "-" if case.target is None else f"{case.target:g}",
        f"{min(ratios):.1f} - {max(ratios):.1f}",
        f"{statistics.median(slow_ratios):.0f}",
        percent["crc"],
        percent["codec"],
        percent["copy"],
        f"{statistics.median(floors):.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=LOG_RECORDS)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    table = Table(title="Decoding to Arrow: how many times as fast as the peers, and where our time goes")
    for heading in (
        "log",
        "ns a record",
        "aiokafka",
        "target",
        "range",
        "kafka-python",
        "CRC",
        "codec",
        "one copy",
        "floor",
    ):
        table.add_column(heading, justify="left" if heading == "log" else "right")
    for case in CASES:
        table.add_row(*measure(case, options.records, options.rounds, slow_rounds=2))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
