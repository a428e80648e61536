"""Captures what a broker wrote, and what its consumer read of it, into a golden directory."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.kafka.broker import Broker
from tests.kafka.dump import dump_log
from tests.kafka.jars import NEWEST
from tests.kafka.tool import Json

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
INTERNAL = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state")


@dataclass(frozen=True)
class Recipe:
    """How a golden set is made.

    Attributes
    ----------
    name : str
        Of the set and its directory.
    build : callable
        Creates the topics and writes to them.
    topics : sequence of str
        What is consumed and compared; may hold internal topics, which are then kept.
    version : str
        Kafka release of the broker.
    properties : mapping
        Broker properties over the harness's.
    transactional : bool
        Consume at both isolation levels.
    end : {"stop", "kill"}
        A clean stop, or kill -9, before the files are taken.
    keep : sequence of str
        Internal topics to keep beyond `topics`.
    """

    name: str
    build: Callable[[Broker], None]
    topics: Sequence[str]
    version: str = NEWEST
    properties: Mapping[str, object] = field(default_factory=dict)
    transactional: bool = False
    end: Literal["stop", "kill"] = "stop"
    keep: Sequence[str] = ()


def capture(recipe: Recipe, target: Path) -> None:
    """Run a recipe and write the golden directory; what was there is replaced."""
    with tempfile.TemporaryDirectory(prefix="sparklog-golden-") as scratch:
        with Broker.start(Path(scratch) / "broker", version=recipe.version, properties=recipe.properties) as broker:
            recipe.build(broker)
            records = {"read_uncommitted": broker.consume(*recipe.topics)}
            if recipe.transactional:
                records["read_committed"] = broker.consume(*recipe.topics, isolation="read_committed")
            offsets = _offsets(broker, recipe.topics, records["read_uncommitted"])
            if recipe.end == "kill":
                broker.kill()
            else:
                broker.stop()
            copied = Path(scratch) / "copied"
            copy_log_dir(broker.log_dir, copied, keep=(*recipe.topics, *recipe.keep))
        dump = dump_all(broker.log_dir, copied)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        shutil.copytree(copied, target / "logs")
        for isolation, rows in records.items():
            lines = (json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)
            write_gzip(target / f"{isolation}.jsonl.gz", "".join(lines).encode())
        write_gzip(target / "dump.txt.gz", dump.encode())
        (target / "offsets.json").write_text(_json_rows(offsets))


def copy_log_dir(log_dir: Path, target: Path, keep: Sequence[str] = ()) -> None:
    """Copy a log directory without the lock, and without internal topics other than those in `keep`."""

    def ignored(directory: str, names: list[str]) -> list[str]:
        if Path(directory) != log_dir:
            return []
        unwanted = tuple(f"{topic}-" for topic in INTERNAL if topic not in keep)
        return [name for name in names if name == ".lock" or (unwanted and name.startswith(unwanted))]

    shutil.copytree(log_dir, target, ignore=ignored)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def dump_all(log_dir: Path, kept: Path) -> str:
    """Run ``kafka-dump-log`` over the files of `log_dir` that are also in `kept`; names are relative.

    The zero tails of preallocated logs and indexes, on which the tool gives up, are cut in `log_dir` before.
    """
    names = sorted(str(path.relative_to(kept)) for path in kept.glob("*/*") if path.suffix in DUMPED)
    for name in names:
        if name.endswith(".log"):
            _cut_zero_tail(log_dir / name)
        elif name.endswith("index"):
            _cut_zero_entries(log_dir / name)
    return dump_log(names, root=log_dir)


def _cut_zero_entries(index: Path) -> None:
    entry_bytes = {".index": 8, ".timeindex": 12, ".txnindex": 34}[index.suffix]
    data = index.read_bytes()
    size = len(data) // entry_bytes * entry_bytes
    while size and not any(data[size - entry_bytes : size]):
        size -= entry_bytes
    if size < len(data):
        os.truncate(index, size)


def _cut_zero_tail(log: Path) -> None:
    data = log.read_bytes()
    position = 0
    while position + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        if size == 0:
            os.truncate(log, position)
            return
        position += 12 + size


def write_gzip(path: Path, data: bytes) -> None:
    """Write compressed bytes that depend on nothing but `data`."""
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _json_rows(rows: Sequence[Json]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _offsets(broker: Broker, topics: Sequence[str], records: Sequence[Json]) -> list[Json]:
    offsets = broker.offsets(*topics)
    queries = [
        (row["topic"], row["partition"], timestamp)
        for row in offsets
        for timestamp in _interesting_timestamps(
            [r["timestamp"] for r in records if (r["topic"], r["partition"]) == (row["topic"], row["partition"])]
        )
    ]
    answers = broker.offsets_for_times(queries)
    for row in offsets:
        row["for_times"] = [
            {"timestamp": answer["timestamp"], "offset": answer["offset"], "found_timestamp": answer["found_timestamp"]}
            for answer in answers
            if (answer["topic"], answer["partition"]) == (row["topic"], row["partition"])
        ]
    return offsets


def _interesting_timestamps(timestamps: Sequence[int]) -> list[int]:
    known = sorted({timestamp for timestamp in timestamps if timestamp >= 0})
    if not known:
        return [0]
    sample = known[:: max(1, len(known) // 6)]
    edges = [0, known[0], known[0] + 1, known[-1] - 1, known[-1], known[-1] + 1]
    wanted = {*edges, *sample, *(timestamp + 1 for timestamp in sample[1:4])}
    return sorted(timestamp for timestamp in wanted if 0 <= timestamp < 1 << 63)
