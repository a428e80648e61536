"""The sound logs that the harness damages: what real brokers wrote, and small logs of every codec and magic.

Each comes twice: as a broker that was stopped leaves it (the marker of a clean shutdown, a recovery point at the end),
and as one that was killed does (no marker, a recovery point at the beginning of the last segment).
"""

from __future__ import annotations

import functools
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests import build
from tests.build import Record, control_batch, empty_batch, legacy_wrapper, message_set, v2_batch
from tests.golden import golden_sets
from tests.oracle import whole_bytes

LOG_BYTES_MAX = 24 << 10
CLEAN_MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
LOG = ".log"
FIRST_TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Span:
    """Where one batch is."""

    file: str
    start: int
    end: int
    magic: int
    is_control: bool
    is_wrapper: bool


@dataclass(frozen=True)
class SoundLog:
    """A partition's folder and what its log directory says of it.

    Attributes
    ----------
    name : str
        Of the log, by which a saved case finds it again.
    family : str
        Logs in which the same damage has the same effect: ``v2``, ``legacy``, ``wrapped``, ``transactions``,
        ``compacted``.
    folder : str
        The folder's name, ``<topic>-<partition>``.
    files : mapping of str to bytes
        The partition's.
    start_offset, end_offset : int
        Log start and log end offset.
    recovery_point : int
        As the log directory's checkpoint has it.
    is_clean : bool
        Whether the log directory has the marker of a clean shutdown.
    """

    name: str
    family: str
    folder: str
    files: Mapping[str, bytes]
    start_offset: int
    end_offset: int
    recovery_point: int
    is_clean: bool = True

    @functools.cached_property
    def segments(self) -> tuple[str, ...]:
        """The names of the ``.log`` files, ascending."""
        return segments_of(self.files)

    @functools.cached_property
    def spans(self) -> tuple[Span, ...]:
        """Every batch, in order."""
        return tuple(span for name in self.segments for span in spans_of(name, self.files[name]))

    def spans_in(self, file: str) -> list[Span]:
        return [span for span in self.spans if span.file == file]

    def batch(self, span: Span) -> bytes:
        return self.files[span.file][span.start : span.end]

    def write(self, directory: Path, files: Mapping[str, bytes] | None = None) -> Path:
        """Write the log directory; the partition's folder."""
        path = directory / self.folder
        path.mkdir(parents=True, exist_ok=True)
        for name, data in (self.files if files is None else files).items():
            (path / name).write_bytes(data)
        topic, _, partition = self.folder.rpartition("-")
        at = (topic, int(partition))
        (directory / RECOVERY_POINTS).write_text(build.offset_checkpoint({at: self.recovery_point}))
        (directory / LOG_STARTS).write_text(build.offset_checkpoint({at: self.start_offset}))
        if self.is_clean:
            (directory / CLEAN_MARKER).write_text("{}")
        return path


def segments_of(files: Mapping[str, bytes]) -> tuple[str, ...]:
    return tuple(sorted(name for name in files if name.endswith(LOG)))


def base_of(name: str) -> int:
    """Return the base offset that a segment's file is named for."""
    return int(name.partition(".")[0])


def spans_of(name: str, data: bytes) -> Iterator[Span]:
    """Walk the batches of a sound segment by their sizes."""
    start, end = 0, whole_bytes(data)
    while start < end:
        (size,) = struct.unpack_from(">i", data, start + 8)
        magic, attributes = data[start + 16], data[start + 22 if data[start + 16] == 2 else start + 17]
        is_wrapper = magic < 2 and attributes & 7 != 0
        yield Span(name, start, start + 12 + size, magic, magic == 2 and bool(attributes & 0x20), is_wrapper)
        start += 12 + size


@functools.cache
def catalog() -> Mapping[str, SoundLog]:
    """Return every log by its name."""
    found: dict[str, SoundLog] = {}
    for log in [*_built(), *_golden()]:
        last_base = base_of(log.segments[-1])
        found[f"{log.name}+clean"] = replace(log, name=f"{log.name}+clean", is_clean=True)
        found[f"{log.name}+killed"] = replace(
            log, name=f"{log.name}+killed", is_clean=False, recovery_point=min(last_base, log.end_offset)
        )
    return found


def _golden() -> Iterator[SoundLog]:
    """Yield the partitions of ``tests/data`` that hold batches and are not too large to be read so many times."""
    for golden in golden_sets():
        for topic, partition in golden.partitions:
            path, offsets = golden.partition_dir(topic, partition), golden.offsets[topic, partition]
            files = {each.name: each.read_bytes() for each in sorted(path.iterdir()) if each.is_file()}
            size_bytes = sum(len(files[name]) for name in segments_of(files))
            if not 0 < size_bytes <= LOG_BYTES_MAX:
                continue
            log = SoundLog(
                f"{golden.name}/{path.name}", "", path.name, files, offsets.beginning, offsets.end, offsets.end
            )
            yield replace(log, family=_family(log, is_compacted="compacted" in golden.name))


def _family(log: SoundLog, *, is_compacted: bool) -> str:
    if any(span.is_wrapper for span in log.spans):
        return "wrapped"
    if any(span.is_control for span in log.spans):
        return "transactions"
    if is_compacted:
        return "compacted"
    return "legacy" if any(span.magic < 2 for span in log.spans) else "v2"


# Small logs, made here


def _built() -> Iterator[SoundLog]:
    for name, family, batches, end_offset, segment_bytes in _recipes():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "made-0"
            build.write_partition(path, batches, index_interval_bytes=200, segment_bytes=segment_bytes)
            files = {each.name: each.read_bytes() for each in sorted(path.iterdir())}
        files["leader-epoch-checkpoint"] = build.leader_epoch_checkpoint([(0, 0)]).encode()
        yield SoundLog(f"made/{name}", family, "made-0", files, 0, end_offset, end_offset)


Recipe = tuple[str, str, Sequence[bytes], int, int]


def _recipes() -> Iterator[Recipe]:
    for codec in build.CODEC_IDS:
        if codec != "lz4-broken-checksum":
            yield f"v2-{codec}", "v2", _v2(codec), 40, 600
    for magic in (0, 1):
        yield f"v{magic}-plain", "legacy", _messages(magic), 24, 400
        for codec in build.LEGACY_CODECS:
            # Brokers of magic 0 wrote the broken checksum; nobody wrote it with magic 1.
            if codec != "none" and (magic, codec) != (1, "lz4-broken-checksum"):
                yield f"v{magic}-{codec}", "wrapped", _wrappers(magic, codec), 32, 350
    yield "mixed-magics", "wrapped", [*_messages(0)[:6], *_later(_wrappers, 1, "gzip"), *_v2("lz4")[5:]], 40, 700
    yield "transactions", "transactions", _transactions("none"), 33, 900
    yield "transactions-lz4", "transactions", _transactions("lz4"), 33, 900
    yield "transactions-decided", "transactions", _transactions("zstd")[:-2], 29, 500
    yield "control", "transactions", _control(), 16, 300
    yield "compacted", "compacted", _compacted(), 400, 500
    yield "one-record", "v2", [_v2_run(n, 1, "none") for n in range(16)], 16, 500


def _records(base_offset: int, count: int, *, gap: int = 1) -> list[Record]:
    """Records whose values name their offsets; some keys and values are null or empty."""
    return [
        Record(
            n * gap,
            FIRST_TIME_MS + (base_offset + n * gap) * 10,
            (None, b"", b"key")[n % 3],
            None if n == 1 else b"value %d " % (base_offset + n * gap) * 3,
            [("h", b"x"), ("", None)] if n == 2 else (),
        )
        for n in range(count)
    ]


def _v2_run(base_offset: int, count: int, codec: str, gap: int = 1, **fields: object) -> bytes:
    return v2_batch(_records(base_offset, count, gap=gap), base_offset=base_offset, codec=codec, **fields)  # type: ignore[arg-type]


def _v2(codec: str) -> list[bytes]:
    return [_v2_run(base, 5, codec, leader_epoch=0) for base in range(0, 40, 5)]


def _messages(magic: int) -> list[bytes]:
    return [message_set(_records(n, 1), base_offset=n, magic=magic) for n in range(24)]


def _wrappers(magic: int, codec: str) -> list[bytes]:
    return [legacy_wrapper(_records(n, 4), magic=magic, codec=codec, base_offset=n) for n in range(0, 32, 4)]


def _later(made: Callable[[int, str], list[bytes]], magic: int, codec: str) -> list[bytes]:
    """Return the wrappers of offsets 8 to 23."""
    return made(magic, codec)[2:6]


def _transactions(codec: str) -> list[bytes]:
    """Three producers whose transactions overlap: committed, aborted, and at last one that is open."""

    def data(base_offset: int, producer_id: int, sequence: int) -> bytes:
        of_producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        return _v2_run(base_offset, 3, codec, transactional=True, **of_producer)

    def end(kind: str, offset: int, producer_id: int) -> bytes:
        return control_batch(kind, offset, producer_id, timestamp=FIRST_TIME_MS + offset * 10)

    return [
        data(0, 1, 0), data(3, 2, 0), end("commit", 6, 1), _v2_run(7, 3, codec), data(10, 2, 3),
        end("abort", 13, 2), data(14, 1, 3), end("abort", 17, 1), data(18, 3, 0), data(21, 1, 6),
        end("commit", 24, 3), end("commit", 25, 1), _v2_run(26, 3, codec), data(29, 2, 6), end("commit", 32, 9),
    ]  # fmt: skip


def _control() -> list[bytes]:
    """Batches that only a broker writes, between others."""
    return [
        control_batch("leader-change", 0, -1, transactional=False),
        _v2_run(1, 3, "none"),
        control_batch("snapshot-header", 4, -1, transactional=False),
        _v2_run(5, 3, "none", transactional=True, producer_id=4, producer_epoch=0, base_sequence=0),
        control_batch("abort", 8, 4),
        control_batch("snapshot-footer", 9, -1, transactional=False),
        _v2_run(10, 3, "gzip", transactional=True, producer_id=4, producer_epoch=0, base_sequence=3),
        control_batch(17, 13, -1, transactional=False),
        control_batch("commit", 14, 4),
        _v2_run(15, 1, "none"),
    ]


def _compacted() -> list[bytes]:
    """What the cleaner leaves: gaps in and between batches, empty batches, a delete horizon."""
    kept = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 7}
    return [
        _v2_run(3, 2, "none", gap=4, last_offset_delta=20),
        empty_batch(30, 60, **kept),
        _v2_run(61, 3, "lz4", gap=7, last_offset_delta=30),
        _v2_run(150, 1, "none", last_offset_delta=49),
        _v2_run(201, 3, "none", gap=3, delete_horizon_ms=FIRST_TIME_MS + 5),
        empty_batch(260, 261, **kept),
        _v2_run(300, 4, "zstd", gap=2, last_offset_delta=9),
        _v2_run(390, 2, "none", gap=9),
    ]
