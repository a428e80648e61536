"""The manifest of a backup: what is written is read again, and a damaged or forged one is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from sparklog.errors import CorruptCheckpointError, PathNotFoundError
from sparklog.jobs.backup.manifest import (
    BackupFile,
    BackupManifest,
    BackupPartition,
    BackupTopic,
    backup_ids,
    manifest_path,
    new_backup_id,
    read_manifest,
    write_manifest,
)
from sparklog.jobs.backup.pieces import Piece
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.places import LogDirectory
from sparklog.storage.base import Stamp
from tests.places import directory_at

LOG = BackupFile("0" * 20 + ".log", Stamp((1, 2), 3, 40), (Piece("ab" * 32, 30), Piece("cd" * 32, 10)))
MANIFEST = BackupManifest(
    "20261101T120000.007Z",
    1_793_534_400_007,
    {"path": "/logs"},
    {"events": BackupTopic("Q2TYVrXaSDWPZ5lUZtm3Jg", 3, {"retention.ms": "1"}), "raw": BackupTopic(None, 1, {})},
    (BackupPartition("events", 2, 5, 9, 8, None, (LOG,)), BackupPartition("raw", 0, 0, 0, None, "damaged", ())),
    (BackupFile("__cluster_metadata-0/quorum-state", Stamp((1, 3), 3, 0), ()),),
    {"billing": {TopicPartition("events", 2): OffsetCommit(7, "m", 1)}},
)


def place_at(path: Path) -> LogDirectory:
    (path / "manifests").mkdir()
    return directory_at(path)


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    write_manifest(place, MANIFEST)
    assert read_manifest(place, MANIFEST.backup_id) == MANIFEST
    assert backup_ids(place) == [MANIFEST.backup_id]
    assert MANIFEST.size_bytes == 40
    assert not MANIFEST.is_whole


def test_id_of_a_backup_is_its_time() -> None:
    assert new_backup_id(MANIFEST.made_ms) == MANIFEST.backup_id


def test_every_other_byte_of_a_manifest_is_refused(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    write_manifest(place, MANIFEST)
    path = tmp_path / manifest_path(MANIFEST.backup_id)
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        with pytest.raises(CorruptCheckpointError, match="not the manifest"):
            read_manifest(place, MANIFEST.backup_id)


@pytest.mark.parametrize(
    "forged",
    [
        {"version": 1},
        {"id": "20261101T120000.008Z"},
        {"made_ms": 1.5},
        {"made_ms": None},
        {"topics": {"../events": {"topic_id": None, "partition_count": 1, "configs": {}}}},
        {"partitions": [{"topic": "events", "partition": 2**70}]},
        {"files": [{"name": "../x", "stamp": [[1, 2], 3, 4], "pieces": []}]},
        {"files": [{"name": "__cluster_metadata-0/../x", "stamp": [[1, 2], 3, 4], "pieces": []}]},
        {"files": [{"name": "meta.properties", "stamp": [[1, 2], 3, 4], "pieces": [["../../x", 1]]}]},
        {"files": [{"name": "meta.properties", "stamp": [[1, 2], 3, 2**70], "pieces": []}]},
        {"files": [{"name": "meta.properties", "stamp": [[1, 2], 3], "pieces": []}]},
        {"files": [{"name": "meta.properties", "stamp": 7, "pieces": []}]},
        {"files": {"name": "meta.properties"}},
        {"source": {"path": None}},
        {"source": None},
        {"groups": {"g": {"events": {"x": [1, "", 1]}}}},
    ],
)
def test_forged_manifest_with_a_right_checksum_is_refused(tmp_path: Path, forged: dict[str, Any]) -> None:
    place = place_at(tmp_path)
    write_manifest(place, MANIFEST)
    path = tmp_path / manifest_path(MANIFEST.backup_id)
    fields = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "crc32c"}
    text = json.dumps(fields | forged, separators=(",", ":")).encode()[:-1]
    path.write_bytes(text + b',"crc32c":"%08x"}\n' % crc32c(text))
    with pytest.raises(CorruptCheckpointError, match="not the manifest"):
        read_manifest(place, MANIFEST.backup_id)


def test_backup_that_is_not_there_is_named(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    for missing in ("20261101T120000.009Z", "../../etc/passwd", ""):
        with pytest.raises(PathNotFoundError, match="no backup"):
            read_manifest(place, missing)
    assert replace(MANIFEST, partitions=()).is_whole
