"""Small work beside the least that it can cost: an append, a read of one offset, and logs of many segments.

Run it with ``python -m tests.bench.scale_small``. All is processor time, the least of many rounds, and what it is
compared with runs in turn with it in the same process: for an append, a bare ``write`` of the bytes; for a read, one
``pread`` of the batch and its checksum; for many segments, a listing of the folder that asks for the size of each file.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c
from rich.console import Console
from rich.table import Table

from sparklog.log.config import LogConfig
from sparklog.log.layout import read_layout
from sparklog.log.reader import LogReader, open_log
from sparklog.record.format import v2
from sparklog.storage.base import WritableFile
from sparklog.write.partition import LogWriter
from tests.places import folder_at
from tests.storage.wrapping import WrappedFile, WrappedStorage

RECORDS, RECORDS_PER_APPEND = 40_000, 2_000
SEGMENTS = (250, 1_000, 4_000)
ROUNDS, SECONDS_A_ROUND = 20, 0.02

Figures = tuple[float, float]


class UnsyncedFile(WrappedFile):
    def sync(self) -> None:
        pass


class UnsyncedStorage(WrappedStorage):
    """Does not wait for the disk, which making thousands of segments would mostly do."""

    def open_for_append(self, path: str) -> WritableFile:
        return UnsyncedFile(super().open_for_append(path))

    def sync_folder(self, path: str) -> None:
        pass


def main() -> None:
    table = Table("small work", "takes, us", "beside, us", "times as long", title="Small work beside its floor")
    with tempfile.TemporaryDirectory() as scratch:
        rows = [
            ("append of one record: a write", *append_one(Path(scratch) / "append-0")),
            *read_one(Path(scratch) / "read-0"),
            *(row for segments in SEGMENTS for row in many_segments(Path(scratch) / f"many{segments}-0", segments)),
        ]
    for what, ours, floor in rows:
        table.add_row(what, f"{ours:,.1f}", f"{floor:,.1f}", f"{ours / floor:,.1f}")
    Console(width=120).print(table)


def append_one(folder: Path) -> Figures:
    rows = pa.table({"key": pa.array([b"k"]), "value": pa.array([b"hello world" * 9])})
    with LogWriter.open(folder) as log, (folder / "bare").open("wb", buffering=0) as bare:
        log.append(rows)
        data = next(folder.glob("*.log")).read_bytes()
        return in_turn(lambda: log.append(rows), lambda: bare.write(data))


def read_one(folder: Path) -> list[tuple[str, float, float]]:
    values = [b"hello world %d" % n * 9 for n in range(RECORDS_PER_APPEND)]
    rows = pa.table({"key": pa.array([b"k"] * RECORDS_PER_APPEND), "value": pa.array(values)})
    with LogWriter.open(folder) as log:
        for _ in range(RECORDS // RECORDS_PER_APPEND):
            log.append(rows)
    wanted = RECORDS // 2 + 7
    with open_log(folder) as reader:
        (segment,) = read_layout(folder_at(folder)).segments
        with segment.open() as opened:
            header = opened.first_batch_from(wanted)
        if header is None:
            raise AssertionError("the log has the offset")
        position, batch_bytes = int(header.column("position")[0]), int(header.column("batch_bytes")[0])
        descriptor = os.open(segment.path(), os.O_RDONLY)

        def bare() -> None:
            crc32c(os.pread(descriptor, batch_bytes, position)[v2.CRC_COVERS_FROM :])

        read = in_turn(lambda: reader.read(wanted, wanted + 1), bare)
        opened_and_read = in_turn(lambda: open_log(folder).read(wanted, wanted + 1), bare)
        os.close(descriptor)
    return [
        ("read of one offset: a pread and a checksum", *read),
        ("open, and read of one offset: the same", *opened_and_read),
    ]


def many_segments(folder: Path, segments: int) -> list[tuple[str, float, float]]:
    rows = pa.table({"value": pa.array([os.urandom(4000)])})
    config = LogConfig(segment_bytes=4096, compression_type="uncompressed")
    with LogWriter.open(folder, config, storage=UnsyncedStorage()) as log:
        for n in range(segments):
            log.append(rows, producer_id=7, producer_epoch=0, base_sequence=n)

    def ends() -> None:
        log = LogReader(read_layout(folder_at(folder)))
        if not log.end_offset == log.last_stable_offset == segments:
            raise AssertionError(f"a log of {segments} records")

    return [
        (f"end and last stable offset, {segments:,} segments: a listing", *in_turn(ends, lambda: listed(folder))),
        (
            f"open to write, {segments:,} segments: a listing",
            *in_turn(lambda: LogWriter.open(folder, config).close(), lambda: listed(folder)),
        ),
    ]


def listed(folder: Path) -> None:
    with os.scandir(folder) as found:
        sorted((item.name, item.stat().st_size) for item in found)


def in_turn(ours: Callable[[], object], floor: Callable[[], object]) -> Figures:
    """Time two functions in turn: the least processor time of each, us a call."""
    calls = [max(1, int(SECONDS_A_ROUND / seconds(one, 1))) for one in (ours, floor)]
    rounds = [[seconds(one, count) for one, count in zip((ours, floor), calls, strict=True)] for _ in range(ROUNDS)]
    mine, least = (min(column) * 1e6 for column in zip(*rounds, strict=True))
    return mine, least


def seconds(function: Callable[[], object], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        function()
    return max(time.process_time() - started, 1e-9) / calls


if __name__ == "__main__":
    main()
