"""Hypothesis strategies: batches and logs, each with what the oracle has to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests import build
from tests.build import Record
from tests.oracle import OracleBatch, OracleRecord

NO_TIMESTAMP, INT32_MAX, INT64_MAX = -1, 2**31 - 1, 2**63 - 1
BASE_OFFSET_MAX = 2**62

# -1 is legal and the ends must survive; other negatives are refused by brokers.
TIMESTAMPS = st.sampled_from([NO_TIMESTAMP, 0, INT64_MAX]) | st.integers(0, 2**42) | st.integers(0, INT64_MAX)
BASE_OFFSETS = st.integers(0, 1000) | st.integers(0, BASE_OFFSET_MAX)
PRODUCER_IDS = st.integers(0, 3) | st.integers(0, INT64_MAX)
# The broken checksum is forgiven in magic 0 only.
V2_CODECS = tuple(codec for codec in build.CODEC_IDS if codec != "lz4-broken-checksum")
EPOCHS = st.integers(0, 2**15 - 1)
# The long ones cross the block sizes of the snappy and LZ4 framings.
PAYLOADS = (
    st.none()
    | st.just(b"")
    | st.binary(max_size=16)
    | st.builds(bytes.__mul__, st.binary(min_size=1, max_size=4), st.sampled_from([1, 40, 9_000, 20_000]))
)
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=8)), max_size=3)


@st.composite
def records(
    draw: st.DrawFn,
    *,
    min_size: int = 0,
    max_size: int = 5,
    timestamps: st.SearchStrategy[int] = TIMESTAMPS,
    headers: st.SearchStrategy[list[tuple[str, bytes | None]]] = HEADERS,
    with_gaps: bool = True,
) -> list[Record]:
    """Records of one batch, their offset deltas ascending, with gaps as compaction leaves them."""
    steps = st.integers(1, 3) | st.integers(1, 1 << 20) if with_gaps else st.just(1)
    out: list[Record] = []
    delta = -1
    for _ in range(draw(st.integers(min_size, max_size))):
        delta += draw(steps)
        out.append(Record(delta, draw(timestamps), draw(PAYLOADS), draw(PAYLOADS), draw(headers)))
    return out


@st.composite
def v2_batches(
    draw: st.DrawFn,
    /,
    *,
    base_offset: int | None = None,
    codecs: Sequence[str] = V2_CODECS,
    **record_options: Any,
) -> tuple[bytes, OracleBatch]:
    """A batch of magic 2, perhaps compacted, perhaps emptied, and what it holds."""
    rows = draw(records(**record_options))
    log_append_time = draw(st.booleans())
    fields: dict[str, Any] = {
        "base_offset": draw(BASE_OFFSETS) if base_offset is None else base_offset,
        "codec": draw(st.sampled_from([codec for codec in codecs if codec in V2_CODECS])) if rows else "none",
        "leader_epoch": draw(st.integers(-1, 5) | st.integers(0, INT32_MAX)),
        "log_append_time": log_append_time,
        "max_timestamp": draw(st.integers(0, 2**42)) if log_append_time else _max_timestamp(rows),
        "delete_horizon_ms": draw(st.none() | st.integers(0, 2**42)) if rows else None,
        "last_offset_delta": (rows[-1].offset_delta if rows else 0) + draw(st.sampled_from([0, 0, 1, 1000])),
        "transactional": False,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    if draw(st.booleans()):
        fields["transactional"] = draw(st.booleans())
        fields["producer_id"] = draw(PRODUCER_IDS)
        fields["producer_epoch"] = draw(EPOCHS)
        fields["base_sequence"] = draw(st.integers(0, 100) | st.integers(INT32_MAX - 10, INT32_MAX))
    data = build.v2_batch(rows, **fields)
    return data, _v2_view(len(data), rows, **fields)


def _v2_view(
    size_bytes: int,
    rows: Sequence[Record],
    *,
    base_offset: int,
    codec: str,
    log_append_time: bool,
    max_timestamp: int,
    delete_horizon_ms: int | None,
    last_offset_delta: int,
    transactional: bool,
    base_sequence: int,
    **same: Any,
) -> OracleBatch:
    base_timestamp = rows[0].timestamp if rows else NO_TIMESTAMP
    attributes = build.CODEC_IDS[codec] | log_append_time << 3 | transactional << 4
    return OracleBatch(
        position=0,
        size_bytes=size_bytes,
        magic=2,
        attributes=attributes | (delete_horizon_ms is not None) << 6,
        codec=_family(codec),
        is_transactional=transactional,
        timestamp_type=int(log_append_time),
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        base_timestamp=base_timestamp if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=max_timestamp,
        base_sequence=base_sequence,
        record_count=len(rows),
        records=[
            OracleRecord(
                offset=base_offset + row.offset_delta,
                timestamp=max_timestamp if log_append_time else row.timestamp,
                timestamp_type=int(log_append_time),
                key=row.key,
                value=row.value,
                headers=[(str(key), value) for key, value in row.headers],
                sequence=-1 if base_sequence < 0 else (base_sequence + row.offset_delta) % 2**31,
            )
            for row in rows
        ],
        **same,
    )


def _max_timestamp(rows: Sequence[Record]) -> int:
    return max((row.timestamp for row in rows), default=NO_TIMESTAMP)


def _family(codec: str) -> str:
    return codec.partition("-")[0]


@st.composite
def legacy_batches(
    draw: st.DrawFn,
    /,
    *,
    base_offset: int | None = None,
    magics: Sequence[int] = (0, 1),
    codecs: Sequence[str] = tuple(build.LEGACY_CODECS),
    mixed_magic: bool = True,
    **record_options: Any,
) -> tuple[bytes, OracleBatch]:
    """A plain message or a compressed wrapper of magic 0 or 1, and what it holds.

    Where `base_offset` is not fixed, some wrappers have the offset 0 of old librdkafka.
    """
    magic = draw(st.sampled_from(magics))
    known = build.LEGACY_CODECS if magic == 0 else V2_CODECS
    codec = draw(st.sampled_from([codec for codec in codecs if codec in known and codec in build.LEGACY_CODECS]))
    is_wrapper = codec != "none"
    is_zero = magic == 1 and is_wrapper and base_offset is None and draw(st.booleans())
    if is_zero:
        base_offset = 0
    elif base_offset is None:
        base_offset = draw(BASE_OFFSETS)
    record_options |= {"min_size": 1, "max_size": 5 if is_wrapper else 1, "headers": st.just([])}
    rows = draw(records(**record_options))
    offset = 0 if is_zero else base_offset + rows[-1].offset_delta
    inner_magic = draw(st.sampled_from([0, 1])) if mixed_magic and is_wrapper else magic
    log_append_time = magic == 1 and draw(st.booleans())
    timestamp = _max_timestamp(rows)
    fields: dict[str, Any] = {"magic": magic, "timestamp": timestamp, "log_append_time": log_append_time}
    if is_wrapper:
        wrapping: dict[str, Any] = {
            "codec": codec,
            "base_offset": base_offset,
            "offset": offset,
            "inner_magic": inner_magic,
        }
        data = build.legacy_wrapper(rows, **wrapping, **fields)
    else:
        data = build.legacy_message(offset, rows[0].key, rows[0].value, **fields)

    timestamp_type = int(log_append_time) if magic == 1 else -1
    inner = [
        OracleRecord(base_offset + row.offset_delta, row.timestamp, timestamp_type, row.key, row.value) for row in rows
    ]
    if inner_magic == 0:
        inner = [replace(record, timestamp=NO_TIMESTAMP) for record in inner]
    elif log_append_time:
        inner = [replace(record, timestamp=timestamp) for record in inner]
    expected = OracleBatch(
        position=0,
        size_bytes=len(data),
        magic=magic,
        attributes=build.CODEC_IDS[codec] | log_append_time << 3,
        codec=_family(codec),
        timestamp_type=timestamp_type,
        base_offset=inner[0].offset,
        last_offset=offset,
        base_timestamp=timestamp if magic == 1 else NO_TIMESTAMP,
        max_timestamp=timestamp if magic == 1 else NO_TIMESTAMP,
        record_count=-1 if is_wrapper else 1,
        records=inner,
    )
    return data, expected


@st.composite
def control_batches(draw: st.DrawFn, *, base_offset: int) -> tuple[bytes, OracleBatch]:
    """A commit or abort marker, or one of a type that nobody knows."""
    code = draw(st.sampled_from([0, 1, 0, 1, 99]))
    producer_id, epoch, timestamp = draw(PRODUCER_IDS), draw(EPOCHS), draw(TIMESTAMPS)
    data = build.control_batch(code, base_offset, producer_id, epoch, timestamp)
    key, value = b"\0\0\0" + bytes([code]), bytes(6)
    expected = OracleBatch(
        position=0,
        size_bytes=len(data),
        magic=2,
        attributes=0x30,
        codec="none",
        is_control=True,
        is_transactional=True,
        timestamp_type=0,
        base_offset=base_offset,
        last_offset=base_offset,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=0,
        record_count=1,
        records=[OracleRecord(base_offset, timestamp, 0, key, value)],
    )
    return data, expected


def batches(*, mixed_magic: bool = True, **options: Any) -> st.SearchStrategy[tuple[bytes, OracleBatch]]:
    """One batch of data of any magic and codec: its bytes and what it holds, at position 0."""
    return st.one_of(v2_batches(**options), legacy_batches(mixed_magic=mixed_magic, **options))


@st.composite
def logs(draw: st.DrawFn, /, *, max_size: int = 5, **options: Any) -> tuple[bytes, list[OracleBatch]]:
    """Consecutive batches of mixed magics and markers: offsets ascend, with gaps between batches."""
    data, expected = b"", []
    next_offset = draw(BASE_OFFSETS)
    for _ in range(draw(st.integers(0, max_size))):
        base_offset = next_offset + draw(st.sampled_from([0, 0, 1, 5000]))
        kinds = [batches(base_offset=base_offset, **options), control_batches(base_offset=base_offset)]
        batch, view = draw(kinds[draw(st.sampled_from([0, 0, 0, 1]))])
        expected.append(replace(view, position=len(data)))
        data += batch
        next_offset = view.last_offset + 1
    return data, expected
