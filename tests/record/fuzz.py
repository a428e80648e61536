"""A longer fuzz run: ``NUMBA_BOUNDSCHECK=1 python -m tests.record.fuzz --seconds 300 --seed 1``.

Logs that the oracle's builders made are damaged, and their checksums put right again, so that the damage is met by the
parsers behind them. What sparklog decodes is compared with what the oracle says. Both read the same records, or both
refuse, but for what sparklog refuses and Kafka's own reader, which the oracle follows, does not look at:

- offsets that do not ascend, in a batch or from batch to batch, or are below their batch's base offset;
- a negative offset, a last offset below the base offset.

What is a finding: an exception other than `CorruptBatchError`, one without its place, records that differ, an error of
sparklog where the oracle reads offsets that ascend, and records of sparklog where the oracle reads none.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
import zlib
from typing import Any

import crc32c
import pyarrow as pa

from sparklog.errors import CorruptBatchError
from sparklog.record.batches.framing import BATCH_PREFIX_BYTES, scan_headers
from sparklog.record.decode.columns import DecodeLimits, decode_batches
from sparklog.record.format.schema import RECORD_COLUMNS
from tests import build
from tests.build import Record
from tests.oracle import OracleBatch, OracleError, decode_log

DECOMPRESSED_BYTES_MAX = 1 << 24
V2_CODECS = [codec for codec in build.CODEC_IDS if codec != "lz4-broken-checksum"]


def some_records(rng: random.Random) -> list[Record]:
    """Make up to six records, some with headers, nulls and gaps."""
    records, delta = [], rng.choice([0, 0, 3])
    for _ in range(rng.randint(1, 6)):
        headers = [
            (rng.choice(["h", "", "näme"]), rng.choice([None, b"", b"c" * 70])) for _ in range(rng.randint(0, 2))
        ]
        key, value = (rng.choice([None, b"", b"k", bytes(100), rng.randbytes(20)]) for _ in range(2))
        records.append(Record(delta, rng.choice([-1, 0, 1_700_000_000_000, 2**63 - 1]), key, value, headers))
        delta += rng.choice([1, 1, 2, 1000])
    return records


def some_batch(rng: random.Random, base_offset: int) -> bytes:
    """Make a batch or wrapper whose content, before it is compressed, may be damaged."""
    records = some_records(rng)
    if rng.random() < 0.6:
        raw = b"".join(build.v2_record(record, records[0].timestamp) for record in records)
        return build.v2_batch(
            records,
            base_offset=base_offset,
            codec=rng.choice(V2_CODECS),
            raw_records=damaged(rng, raw) if rng.random() < 0.5 else raw,
            log_append_time=rng.random() < 0.2,
            record_count=len(records) + rng.choice([0] * 20 + [1, -1, 2**31 - 1 - len(records)]),
        )
    magic = rng.choice([0, 1])
    records = [Record(record.offset_delta, record.timestamp, record.key, record.value) for record in records]
    if rng.random() < 0.4:
        return build.legacy_message(base_offset, records[0].key, records[0].value, magic=magic, timestamp=5)
    inner = build.message_set(records, base_offset=base_offset if magic == 0 else 0, magic=magic)
    if rng.random() < 0.5:
        inner = damaged(rng, inner)
        inner = with_right_checksums(inner) if rng.random() < 0.7 else inner
    codec = rng.choice([codec for codec in build.LEGACY_CODECS if codec != "none"])
    return build.legacy_wrapper(records, magic=magic, base_offset=base_offset, codec=codec, inner=inner)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Flip bits, set bytes to extremes, cut, repeat or drop a part."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if not out:
            break
        place = rng.randrange(len(out))
        match rng.randrange(8):
            case 0 | 1 | 2:
                out[place] ^= 1 << rng.randrange(8)
            case 3 | 4:
                out[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 5:
                out[place : place + 4] = rng.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)])
            case 6:
                del out[place : place + rng.randint(1, 8)]
            case _:
                out[place:place] = rng.randbytes(rng.randint(1, 8))
    return bytes(out)


def with_right_checksums(data: bytes) -> bytes:
    """Put the checksum right of every batch or message that the sizes lead to."""
    out, position = bytearray(data), 0
    while len(out) - position > 26:
        (size,) = struct.unpack_from(">i", out, position + 8)
        end = position + 12 + size
        if size < 14 or end > len(out):
            break
        if out[position + 16] == 2:
            if size >= 49:
                struct.pack_into(">I", out, position + 17, crc32c.crc32c(bytes(out[position + 21 : end])))
        else:
            struct.pack_into(">I", out, position + 12, zlib.crc32(bytes(out[position + 16 : end])))
        position = end
    return bytes(out)


Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def told_by_sparklog(data: bytes, limits: DecodeLimits) -> tuple[list[Row], CorruptBatchError | None, bool]:
    """Decode: the rows, the error that ended them, and whether all of the data was walked."""
    headers = scan_headers(data)
    # What is not whole is a torn tail to Kafka's reader, even where it shows that it could not be a batch.
    tail_bytes = len(data) - headers.valid_bytes
    walked = headers.fault is None or tail_bytes < max(headers.next_batch_bytes, BATCH_PREFIX_BYTES)
    rows: list[Row] = []
    try:
        for batch in decode_batches(memoryview(data), headers, columns=RECORD_COLUMNS, limits=limits):
            batch.validate(full=True)
            plain = batch.set_column(3, "timestamp", batch.column("timestamp").cast(pa.int64()))
            rows += [as_row(row) for row in plain.to_pylist()]
    except CorruptBatchError as error:
        if error.position is None or error.offset is None:
            raise AssertionError("an error without its place") from error
        return rows, error, walked
    return rows, None, walked


def as_row(row: dict[str, Any]) -> Row:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    fields = (row["offset"], row["timestamp"], row["timestampType"], row["key"], row["value"])
    return (*fields, headers, row["sequence"])


def told_by_oracle(batches: list[OracleBatch]) -> list[Row]:
    return [
        (row.offset, row.timestamp, row.timestamp_type, row.key, row.value, row.headers, row.sequence)
        for batch in batches
        for row in batch.records
    ]


def is_orderly(batches: list[OracleBatch]) -> bool:
    """Whether the offsets are such as brokers write."""
    everywhere = [row.offset for batch in batches for row in batch.records]
    if everywhere != sorted(set(everywhere)):
        return False
    for batch in batches:
        offsets = [row.offset for row in batch.records]
        if offsets and offsets[0] < 0:
            return False
        if min(batch.base_offset, batch.last_offset) < 0 or (
            batch.magic == 2 and batch.last_offset < batch.base_offset
        ):
            return False
        if batch.magic == 2 and offsets and offsets[0] < batch.base_offset:
            return False
    return True


def check(data: bytes, limits: DecodeLimits) -> str:
    """Compare the two; return what came of it."""
    rows, error, walked = told_by_sparklog(data, limits)
    try:
        batches = decode_log(data)
    except OracleError:
        assert error or not walked, "read what the oracle refuses"
        return "refused by both"
    expected = told_by_oracle(batches)
    if error is None and walked:
        assert rows == expected, f"{rows} is not {expected}"
        return "read by both"
    assert rows == expected[: len(rows)], "the rows before the error differ"
    if is_orderly(batches):
        raise AssertionError(f"refused what the oracle reads: {error}") from error
    return "refused by sparklog"


def run(seconds: float, seed: int) -> dict[str, int]:
    outcomes: dict[str, int] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        rng = random.Random(seed)
        data, offset = b"", rng.choice([0, 5, 2**40])
        for _ in range(rng.randint(1, 4)):
            data += some_batch(rng, offset)
            offset += 10_000
        if rng.random() < 0.5:
            data = damaged(rng, data)
            data = with_right_checksums(data) if rng.random() < 0.9 else data
        limits = DecodeLimits(DECOMPRESSED_BYTES_MAX, rng.choice([1, 200, 1 << 18]), rng.choice([1, 90, 300, 1 << 22]))
        try:
            outcome = check(data, limits)
        except BaseException:
            print(f"seed {seed}, {limits}: {data.hex()}", flush=True)
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        seed += 1
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"from seed {options.seed}", flush=True)
    for outcome, count in sorted(run(options.seconds, options.seed).items()):
        print(f"{count:9,} {outcome}")


if __name__ == "__main__":
    main()
