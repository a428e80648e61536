"""The public writer of a partition: what is stored for its topic counts, under what its caller says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from sparklog.log.layout import read_layout
from sparklog.record.codecs.table import CODEC_IDS
from sparklog.topic.write.configs import read_properties
from tests.places import directory_at, folder_at

TEXT = b"some words that come again and again " * 20


def append(folder: Path, config: sparklog.LogConfig | None = None) -> None:
    with sparklog.PartitionLog.open(folder, config) as log:
        for _ in range(20):
            log.append({"value": [TEXT] * 20})


def written(folder: Path) -> tuple[int, set[Any]]:
    """Return how many segments a log has, and its codecs."""
    layout = read_layout(folder_at(folder))
    names = {number: name for name, number in CODEC_IDS.items()}
    codecs = set()
    for segment in layout.segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                codecs |= {names[int(each) & 7] for each in window.headers.column("attributes")}
    return len(layout.segments), codecs


def test_stored_properties_are_over_defaults_and_given_ones_over_them(tmp_path: Path) -> None:
    stored = "events/segment.bytes=1000\nevents/compression.type=zstd\nother/compression.type=gzip\n"
    (tmp_path / "topics.properties").write_text(stored)
    append(tmp_path / "events-0")
    append(tmp_path / "events-1", sparklog.LogConfig.from_properties({"compression.type": "gzip"}))
    append(tmp_path / "events-2", sparklog.LogConfig.from_properties({"segment.bytes": str(1 << 30)}))
    append(tmp_path / "plain-0")
    segments, codecs = written(tmp_path / "events-0")
    assert segments > 1
    assert codecs == {"zstd"}
    segments, codecs = written(tmp_path / "events-1")
    assert segments > 1
    assert codecs == {"gzip"}
    assert written(tmp_path / "events-2") == (1, {"zstd"})
    assert written(tmp_path / "plain-0") == (1, {"lz4"})
    assert set(read_properties(directory_at(tmp_path))) == {"events", "other"}


def test_wrong_stored_property_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "topics.properties").write_text("events/segment.bytes=many\n")
    with pytest.raises(InvalidOptionError, match=r"segment\.bytes.*topics\.properties"):
        sparklog.PartitionLog.open(tmp_path / "events-0")
    assert [path.name for path in tmp_path.iterdir()] == ["topics.properties"]
