"""Commits of rows in record formats 0 and 1: batches get the offsets of the log, or are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from tests.oracle import decode_log
from tests.topic.staged import findings, rows, stage, values, write

WRITABLE = [(0, "uncompressed"), *((1, codec) for codec in ("uncompressed", "gzip", "snappy", "lz4"))]
VERSIONS = {0: "0.9.0", 1: "0.10.2"}


def config_of(magic: int, codec: str, segment_bytes: int = 1 << 30) -> LogConfig:
    return LogConfig(
        message_format_version=VERSIONS[magic],
        compression_type=codec,
        index_interval_bytes=100,
        batch_size=400,
        segment_bytes=segment_bytes,
    )


@pytest.mark.parametrize(("magic", "codec"), WRITABLE)
@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000, 700])
def test_batches_get_the_offsets_of_the_log(tmp_path: Path, magic: int, codec: str, segment_bytes: int) -> None:
    """In files that tasks share, and in those of a partition's own, which become segments; behind other tasks' rows."""
    config = config_of(magic, codec, segment_bytes=segment_bytes)
    wanted: list[list[str]] = [[], []]
    for job in range(3):
        tasks = []
        for task in range(2):
            given = [f"{job} {task} {n} {'x' * (n % 50)}" for n in range(400)]
            partitions = [n % 2 for n in range(400)]
            tasks.append(rows(given, partition=partitions))
            for partition in range(2):
                wanted[partition] += given[partition::2]
        write(tmp_path, tasks, config=config)
        assert values(tmp_path) == {f"events-{n}": wanted[n] for n in range(2)}
        assert findings(tmp_path) == []
    for partition in range(2):
        paths = sorted((tmp_path / f"events-{partition}").glob("*.log"))
        batches = [batch for path in paths for batch in decode_log(path.read_bytes())]
        assert {(batch.magic, batch.codec) for batch in batches} == {(magic, config.codec)}
        assert [record.offset for batch in batches for record in batch.records] == list(range(1200))
        assert (len(paths) > 1) == (segment_bytes < 1 << 30)


def test_formats_follow_one_another_in_a_log(tmp_path: Path) -> None:
    given = [f"{n}" for n in range(100)]
    for magic, codec in WRITABLE:
        write(tmp_path, [rows(given)], partitions=1, config=config_of(magic, codec))
    assert not (tmp_path / "events-0" / "leader-epoch-checkpoint").exists()
    write(tmp_path, [rows(given)], partitions=1)
    # The first epoch begins with the first batch that has one.
    assert (tmp_path / "events-0" / "leader-epoch-checkpoint").read_text() == f"0\n1\n0 {len(given) * len(WRITABLE)}\n"
    assert values(tmp_path) == {"events-0": given * (len(WRITABLE) + 1)}
    assert findings(tmp_path) == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "producer"])
def test_compressed_messages_of_format_0_are_refused(tmp_path: Path, codec: str) -> None:
    with pytest.raises(InvalidOptionError, match="offsets of their own in the messages of a compressed batch"):
        stage(tmp_path, [rows(["a"])], config=config_of(0, codec))


@pytest.mark.parametrize("magic", [0, 1])
def test_transaction_is_refused_in_formats_without_any(tmp_path: Path, magic: int) -> None:
    with pytest.raises(InvalidOptionError, match="which has no producers and no transactions"):
        stage(tmp_path, [rows(["a"])], config=config_of(magic, "uncompressed"), is_transactional=True)
