"""The oracle on golden bytes, on what the builders write, and on every damage that it knows."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import build, oracle_codecs, strategies
from tests.build import Record, control_batch, empty_batch, legacy_message, legacy_wrapper, v2_batch
from tests.oracle import (
    OracleBatch,
    OracleError,
    OracleRecord,
    decode_log,
    increment_sequence,
    java_utf8,
    last_stable_offset,
    read_committed,
    whole_bytes,
)
from tests.oracle_codecs import Reader, xxh32

# Golden bytes

INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
# ByteUtilsTest.testVarintSerde and testVarlongSerde.
VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    -8192: "ff7f",
    8192: "808001",
    -8193: "818001",
    1048575: "feff7f",
    -1048576: "ffff7f",
    1048576: "80808001",
    134217727: "feffff7f",
    134217728: "8080808001",
    INT32_MAX: "feffffff0f",
    INT32_MIN: "ffffffff0f",
}
VARLONGS = {17179869183: "feffffff7f", INT64_MAX: "feffffffffffffffff01", INT64_MIN: "ffffffffffffffffff01"}
UVARINTS = {0xFFFFFFFF: "ffffffff0f", 0x80000000: "8080808008", 8192: "8040"}


@pytest.mark.parametrize(("value", "encoded"), VARINTS.items())
def test_varint_is_the_golden_bytes(value: int, encoded: str) -> None:
    assert build.varint(value).hex() == encoded
    assert Reader(bytes.fromhex(encoded)).varint() == value


@pytest.mark.parametrize(("value", "encoded"), VARLONGS.items())
def test_varlong_is_the_golden_bytes(value: int, encoded: str) -> None:
    assert build.varlong(value).hex() == encoded
    assert Reader(bytes.fromhex(encoded)).varlong() == value


@pytest.mark.parametrize(("value", "encoded"), UVARINTS.items())
def test_uvarint_is_the_golden_bytes(value: int, encoded: str) -> None:
    assert build.uvarint(value).hex() == encoded
    assert Reader(bytes.fromhex(encoded)).uvarint() == value


def test_varint_that_goes_on_too_long_is_refused() -> None:
    with pytest.raises(OracleError, match="too long"):
        Reader(bytes.fromhex("ffffffffff01")).varint()
    with pytest.raises(OracleError, match="too long"):
        Reader(bytes.fromhex("ffffffffffffffffffff01")).varlong()


def test_checksums_are_the_golden_ones() -> None:
    assert crc32c.crc32c(b"Some String") == 608512271
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"abc") == 0x32D153FF
    # The two header checksums of LZ4: over the flags as the format has it, and with the magic as brokers once had it.
    assert xxh32(build.LZ4_HEADER[4:6]) >> 8 & 0xFF == build.LZ4_HEADER[6]
    assert xxh32(build.LZ4_HEADER[:6]) >> 8 & 0xFF == build.LZ4_HEADER_BROKEN[6]


def test_sequence_wraps_to_zero() -> None:
    assert [increment_sequence(5, 5), increment_sequence(INT32_MAX, 1), increment_sequence(INT32_MAX - 5, 10)] == [
        10,
        0,
        4,
    ]


# What Java 17 makes of them, each as code points.
JAVA_STRINGS = {
    "c3a9f09f9880": [0xE9, 0x1F600],
    "ff": [0xFFFD],
    "c080": [0xFFFD, 0xFFFD],
    "e282": [0xFFFD],
    "f09f41": [0xFFFD, 0x41],
    "eda080": [0xFFFD],
    "eda041": [0xFFFD, 0x41],
    "edbf": [0xFFFD],
    "eda080edb080": [0xFFFD, 0xFFFD],
    "eda08080": [0xFFFD, 0xFFFD],
    "f4908080": [0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD],
}


@pytest.mark.parametrize(("encoded", "points"), JAVA_STRINGS.items())
def test_header_key_that_is_no_utf8_decodes_as_in_java(encoded: str, points: list[int]) -> None:
    assert [ord(char) for char in java_utf8(bytes.fromhex(encoded))] == points
    batch = v2_batch([Record(headers=[(bytes.fromhex(encoded), b"")])])
    assert decode_log(batch)[0].records[0].headers == [("".join(map(chr, points)), b"")]


def test_batch_of_magic_2_is_the_golden_bytes() -> None:
    batch = v2_batch([Record(0, 5, b"k", b"v", [("h", None)]), Record(1, 4, None, b"")], base_offset=7, leader_epoch=1)
    overhead = "0000000000000007 00000044 00000001 02"
    header = "0000 00000001 0000000000000005 0000000000000005 ffffffffffffffff ffff ffffffff 00000002"
    records = "16 00 00 00 02 6b 02 76 02 02 68 01" + "0c 00 01 02 01 00 00"
    checked = bytes.fromhex(header + records)
    assert batch == bytes.fromhex(overhead) + crc32c.crc32c(checked).to_bytes(4, "big") + checked
    assert decode_log(batch)[0].records == [
        OracleRecord(7, 5, 0, b"k", b"v", [("h", None)]),
        OracleRecord(8, 4, 0, None, b""),
    ]


# Round trips


@given(strategies.batches())
def test_batch_decodes_to_what_was_built(case: tuple[bytes, OracleBatch]) -> None:
    data, expected = case
    assert decode_log(data) == [expected]


@given(strategies.logs(), st.data())
def test_log_cut_anywhere_decodes_to_its_whole_batches(
    case: tuple[bytes, list[OracleBatch]], data: st.DataObject
) -> None:
    log, expected = case
    assert decode_log(log) == expected
    assert whole_bytes(log) == len(log)
    cut = data.draw(st.integers(0, len(log)))
    whole = [batch for batch in expected if batch.position + batch.size_bytes <= cut]
    assert decode_log(log[:cut]) == whole
    assert whole_bytes(log[:cut]) == sum(batch.size_bytes for batch in whole)


@given(strategies.batches(), st.data())
def test_flipped_bit_is_found_wherever_a_checksum_reaches(case: tuple[bytes, OracleBatch], data: st.DataObject) -> None:
    log, expected = case
    damaged = bytearray(log)
    damaged[data.draw(st.integers(17 if expected.magic == 2 else 12, len(log) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    with pytest.raises(OracleError):
        decode_log(bytes(damaged))


def test_zeros_after_the_last_batch_are_not_whole_and_not_a_torn_tail() -> None:
    batch = v2_batch([Record()])
    assert whole_bytes(batch + bytes(100)) == len(batch)
    with pytest.raises(OracleError, match="smallest"):
        decode_log(batch + bytes(100))
    assert len(decode_log(batch + bytes(16))) == 1


def test_record_timestamp_ignores_what_the_base_timestamp_means() -> None:
    rows = [Record(0, 1000), Record(1, -1), Record(2, INT64_MAX)]
    for horizon in (None, 0, 5000, INT64_MAX):
        (batch,) = decode_log(v2_batch(rows, delete_horizon_ms=horizon))
        assert [record.timestamp for record in batch.records] == [1000, -1, INT64_MAX]


def test_any_negative_length_reads_as_null() -> None:
    body = b"\0\0\0" + build.varint(-7) + build.varint(-2) + build.varint(1) + b"\x02h" + build.varint(-9)
    (batch,) = decode_log(v2_batch([], raw_records=build.varint(len(body)) + body, record_count=1))
    assert batch.records == [OracleRecord(0, -1, 0, None, None, [("h", None)])]


def test_empty_batch_with_a_codec_has_nothing_to_decompress() -> None:
    (batch,) = decode_log(empty_batch(4, 9, attributes=0x14, producer_id=3))
    assert (batch.last_offset, batch.codec, batch.size_bytes, batch.records) == (9, "zstd", 61, [])


def test_relative_offsets_with_gaps_count_back_from_the_wrapper() -> None:
    rows = [Record(2, value=b"a"), Record(5, value=b"b"), Record(9, value=b"c")]
    (batch,) = decode_log(legacy_wrapper(rows, base_offset=100))
    assert ([record.offset for record in batch.records], batch.last_offset) == ([102, 105, 109], 109)


def test_wrapper_offset_zero_leaves_inner_offsets_alone() -> None:
    (batch,) = decode_log(legacy_wrapper([Record(0), Record(1)], offset=0))
    assert ([record.offset for record in batch.records], batch.last_offset) == ([0, 1], 0)


def test_bytes_after_the_value_of_a_message_are_passed_over() -> None:
    assert decode_log(legacy_message(0, b"k", b"v", tail=b"more"))[0].records[0].value == b"v"


def test_concatenated_streams_are_read_to_the_end() -> None:
    for codec in ("gzip", "snappy", "zstd"):
        assert (
            oracle_codecs.decompress(codec, build.compress(codec, b"one") + build.compress(codec, b"two"), 2)
            == b"onetwo"
        )
    assert oracle_codecs.decompress("gzip", build.compress("gzip", b"one") + b"junk", 2) == b"one"
    assert oracle_codecs.decompress("lz4", build.compress("lz4", b"one") + b"junk", 2) == b"one"


# Damage


def message(**fields: object) -> bytes:
    return legacy_message(0, None, b"v", **fields)  # type: ignore[arg-type]


def plain_message(checked: bytes) -> bytes:
    return struct.pack(">qiI", 0, 4 + len(checked), zlib.crc32(checked)) + checked


def record_body(*parts: bytes) -> bytes:
    body = b"".join((b"\0\0\0", *parts))
    return v2_batch([], raw_records=build.varint(len(body)) + body, record_count=1)


def lz4_batch(frame: bytes) -> bytes:
    return v2_batch(ONE, codec="lz4", compressed_records=frame)


ONE = [Record(value=b"v")]
LZ4_CHECKED = bytes.fromhex("04224d187040") + bytes([xxh32(b"\x70\x40") >> 8 & 0xFF])
NULL = build.varint(-1)
BIG_BLOCK = struct.pack("<I", 0x80010001) + bytes(65537) + bytes(4)
DAMAGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "size of zero": (lambda: bytes(30), "smallest"),
    "size is negative": (lambda: bytes(8) + b"\xff" * 20, "smallest"),
    "unknown magic": (lambda: v2_batch(ONE, magic=3), "magic 3"),
    "negative magic": (lambda: v2_batch(ONE, magic=-1), "magic 255"),
    "header cut": (lambda: v2_batch([], length=48)[:60], "smaller than its header"),
    "crc32c": (lambda: v2_batch(ONE, crc=1), "CRC-32C"),
    "count negative": (lambda: v2_batch(ONE, record_count=-1), "count is negative"),
    "count too small": (lambda: v2_batch([Record(0), Record(1)], record_count=1), "left after"),
    "count too large": (lambda: v2_batch(ONE, record_count=2), "ends? early"),
    "count without bytes": (lambda: v2_batch([], record_count=1), "ends? early"),
    "codec unknown": (lambda: v2_batch(ONE, attributes=5), "codec 5"),
    "record length negative": (lambda: v2_batch([], raw_records=NULL, record_count=1), "length is negative"),
    "record length past the end": (lambda: v2_batch([], raw_records=b"\x20\0", record_count=1), "ends? early"),
    "record longer than its fields": (lambda: record_body(NULL, NULL, b"\0", b"x"), "longer than its fields"),
    "record shorter than its fields": (lambda: record_body(NULL), "ends? early"),
    "key past the record": (lambda: record_body(b"\x40", b"k"), "ends? early"),
    "varint too long": (lambda: record_body(b"\xff" * 5 + b"\x01"), "too long"),
    "header count negative": (lambda: record_body(NULL, NULL, NULL), "header count"),
    "header count too large": (lambda: record_body(NULL, NULL, b"\x04", b"h"), "header count"),
    "header key negative": (lambda: record_body(NULL, NULL, b"\x02", NULL, NULL), "header key length"),
    "crc32": (lambda: message(crc=1), "CRC-32 differs"),
    "message too small for magic 1": (lambda: plain_message(b"\x01\0" + bytes(8)), "ends? early"),
    "key past the message": (lambda: plain_message(b"\0\0" + b"\0\0\0\x09key, value"), "ends? early"),
    "zstd before magic 2": (lambda: legacy_wrapper(ONE, codec="zstd"), "zstd needs"),
    "codec of a message unknown": (lambda: message(codec_bits=6), "codec 6"),
    "wrapper without value": (lambda: legacy_message(0, None, None, codec_bits=1), "is null"),
    "wrapper without messages": (lambda: legacy_wrapper([], inner=b""), "holds no message"),
    "wrapper offset too low": (lambda: legacy_wrapper([Record(0), Record(5)], offset=3), "below"),
    "wrapper in a wrapper": (lambda: legacy_wrapper([], inner=message(codec_bits=1)), "is compressed"),
    "inner crc32": (lambda: legacy_wrapper([], inner=message(crc=1)), "CRC-32 differs"),
    "inner magic": (lambda: legacy_wrapper([], inner=message(magic=2)), "inner message has magic 2"),
    "inner message cut short": (lambda: legacy_wrapper([], inner=message()[:-1]), "ends? early"),
    "inner size cut short": (lambda: legacy_wrapper([], inner=message() + bytes(5)), "ends early"),
    "inner size": (lambda: legacy_wrapper([], inner=bytes(30)), "inner message is smaller"),
    "stream is another codec's": (lambda: v2_batch(ONE, codec="gzip", compressed_records=b"nonsense"), "gzip"),
    "gzip cut": (
        lambda: v2_batch(ONE, codec="gzip", compressed_records=build.compress("gzip", b"abc")[:-1]),
        "end early",
    ),
    "zstd cut": (
        lambda: v2_batch(ONE, codec="zstd", compressed_records=build.compress("zstd", b"abc")[:-1]),
        "end early",
    ),
    "zstd damaged": (lambda: v2_batch(ONE, codec="zstd", compressed_records=b"nonsense"), "zstd"),
    "snappy damaged": (lambda: v2_batch(ONE, codec="snappy", compressed_records=b"\xff\xff"), "snappy"),
    "snappy cut": (
        lambda: v2_batch(ONE, codec="snappy", compressed_records=build.compress("snappy", b"a")[:-1]),
        "end early",
    ),
    "snappy version": (
        lambda: v2_batch(ONE, codec="snappy", compressed_records=build.XERIAL_HEADER + build.XERIAL_MAGIC + bytes(8)),
        "version",
    ),
    "lz4 magic": (lambda: lz4_batch(bytes(20)), "not an LZ4 frame"),
    "lz4 linked blocks": (lambda: lz4_batch(bytes.fromhex("04224d18404000")), "feature"),
    "lz4 block size": (lambda: lz4_batch(bytes.fromhex("04224d18603000")), "block size"),
    "lz4 block too large": (lambda: lz4_batch(build.LZ4_HEADER + BIG_BLOCK), "too large"),
    "lz4 block damaged": (lambda: lz4_batch(build.LZ4_HEADER + struct.pack("<I", 2) + b"\xff\xff" + bytes(4)), "lz4"),
    "lz4 block checksum": (
        lambda: lz4_batch(LZ4_CHECKED + struct.pack("<I", 0x80000001) + b"a" + bytes(8)),
        "checksum",
    ),
    "lz4 header checksum": (lambda: lz4_batch(build.compress("lz4-broken-checksum", b"")), "header differs"),
    "lz4 header checksum, magic 1": (lambda: legacy_wrapper(ONE, codec="lz4-broken-checksum"), "header differs"),
    "lz4 without end mark": (lambda: lz4_batch(build.LZ4_HEADER), "end early"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused(name: str) -> None:
    make, reason = DAMAGED[name]
    with pytest.raises(OracleError, match=reason):
        decode_log(make())


# Transactions


def data_batch(offset: int, producer_id: int, **fields: object) -> bytes:
    fields = {"transactional": True, "producer_epoch": 0, "base_sequence": 0, **fields}
    return v2_batch(ONE, base_offset=offset, producer_id=producer_id, **fields)  # type: ignore[arg-type]


def committed_offsets(*log: bytes) -> tuple[list[int], int]:
    """Offsets of the batches that a read_committed consumer is given, and the last stable offset."""
    batches = decode_log(b"".join(log))
    return [batch.base_offset for batch in read_committed(batches)], last_stable_offset(batches)


def test_empty_log_is_stable_at_zero() -> None:
    assert committed_offsets() == ([], 0)


def test_marker_decides_the_batches_of_its_producer_before_it() -> None:
    one_aborts = [data_batch(0, 1), data_batch(1, 2), control_batch("abort", 2, 1), control_batch("commit", 3, 2)]
    again = [data_batch(4, 1), control_batch("commit", 5, 1), v2_batch(ONE, base_offset=6)]
    assert committed_offsets(*one_aborts, *again) == ([1, 4, 6], 7)


def test_data_outside_a_transaction_outlives_the_abort_of_its_producer() -> None:
    assert committed_offsets(data_batch(0, 1, transactional=False), data_batch(1, 1), control_batch("abort", 2, 1)) == (
        [0],
        3,
    )


def test_open_transaction_bounds_the_log() -> None:
    log = [
        v2_batch(ONE),
        data_batch(1, 1),
        v2_batch(ONE, base_offset=2),
        data_batch(3, 2),
        control_batch("commit", 4, 2),
    ]
    assert committed_offsets(*log) == ([0], 1)


def test_marker_of_another_epoch_ends_the_transaction_too() -> None:
    assert committed_offsets(data_batch(0, 1), control_batch("abort", 1, 1, producer_epoch=1)) == ([], 2)


def test_marker_without_a_transaction_changes_nothing() -> None:
    assert committed_offsets(
        control_batch("abort", 0, 1), control_batch("commit", 1, 1), v2_batch(ONE, base_offset=2)
    ) == ([2], 3)


def test_emptied_or_unknown_marker_ends_nothing() -> None:
    emptied = empty_batch(1, 1, transactional=True, control=True, producer_id=1)
    assert committed_offsets(data_batch(0, 1), emptied) == ([], 0)
    assert committed_offsets(data_batch(0, 1), control_batch(99, 1, 1)) == ([], 0)


def test_emptied_batch_of_a_transaction_opens_it() -> None:
    emptied = empty_batch(0, 3, transactional=True, producer_id=1)
    assert committed_offsets(emptied, v2_batch(ONE, base_offset=4)) == ([], 0)
    assert committed_offsets(emptied, control_batch("commit", 4, 1)) == ([0], 5)


@pytest.mark.parametrize("key", [None, b"\0\0\0", b"\xff\xff\0\0"])
def test_control_record_with_a_damaged_key_is_refused(key: bytes | None) -> None:
    batch = v2_batch([Record(key=key)], control=True, transactional=True, producer_id=1)
    with pytest.raises(OracleError):
        committed_offsets(batch)
    assert committed_offsets(control_batch("abort", 0, 1, key_version=7)) == ([], 1)


# The files of a partition


def test_partition_is_indexed_as_kafka_does(tmp_path: Path) -> None:
    log = [
        v2_batch([Record(1, timestamp, value=bytes(25))], base_offset=10 + 2 * i)
        for i, timestamp in enumerate([5, 3, 9, 9, 8])
    ]
    (batch_bytes,) = {len(batch) for batch in log}
    build.write_partition(tmp_path, log, base_offset=8, index_interval_bytes=batch_bytes, segment_bytes=4 * batch_bytes)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{base:020d}.{suffix}" for base in (8, 18) for suffix in ("index", "log", "timeindex")
    ]
    first = tmp_path / f"{8:020d}"
    assert first.with_suffix(".log").read_bytes() == b"".join(log[:4])
    # More than the interval has been added since the last entry for the first time before the third batch.
    assert first.with_suffix(".index").read_bytes() == build.offset_index([(7, 2 * batch_bytes)])
    assert first.with_suffix(".timeindex").read_bytes() == build.time_index([(9, 7)])
    last = tmp_path / f"{18:020d}"
    assert last.with_suffix(".index").read_bytes() == b""
    assert last.with_suffix(".timeindex").read_bytes() == build.time_index([(8, 1)])


def test_partition_of_a_dead_broker_has_zeros_after_its_index(tmp_path: Path) -> None:
    build.write_partition(tmp_path, [message(), message(magic=0)], base_offset=0, is_clean=False)
    assert (tmp_path / f"{0:020d}.index").read_bytes() == bytes(1024)
    assert (tmp_path / f"{0:020d}.timeindex").read_bytes() == bytes(1020)


def test_small_files_are_the_golden_bytes() -> None:
    assert build.txn_index([(7, 1, 2, 3)]).hex() == "0000" + "".join(f"{n:016x}" for n in (7, 1, 2, 3))
    snapshot = build.producer_snapshot([build.ProducerEntry(7, 1, 2, 3, 4, 5, 6)])
    assert len(snapshot) == 10 + 46
    assert struct.unpack_from(">hIi", snapshot) == (1, crc32c.crc32c(snapshot[6:]), 1)
    assert build.offset_checkpoint({("t", 0): 5}) == "0\n1\nt 0 5\n"
    assert build.leader_epoch_checkpoint([(0, 0), (3, 40)]) == "0\n2\n0 0\n3 40\n"
