"""A backup is restored where it is stored: the one that is wanted, equal to its source; damage is named."""

from __future__ import annotations

import logging
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import CorruptCheckpointError, CorruptLogError, InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.jobs.backup.as_directory import BackupStorage
from sparklog.jobs.backup.manifest import BackupManifest, backup_ids, read_manifest, write_manifest
from sparklog.jobs.backup.pieces import Piece
from sparklog.log.layout import read_layout
from sparklog.topic.internal.groups import CONSUMER_OFFSETS
from tests.build import write_partition
from tests.jobs.copies import records
from tests.jobs.mirror.sources import TOPIC_IDS, append, give_topic_id
from tests.jobs.restore.test_cluster import view, write_source
from tests.log.logs import batch
from tests.places import directory_at, folder_at
from tests.storage.crash import tree_of
from tests.topic.groups import commits, write_groups
from tests.topic.staged import findings


def back_up(source: Path, target: Path) -> BackupManifest:
    manifest = sparklog.backup(source, target, processes=1).manifest
    assert manifest is not None
    return manifest


def restore(source: Path, target: Path, **options: Any) -> Path:
    sparklog.restore(source, target, processes=1, **options)
    assert findings(target) == []
    return target


def logs_in(directory: Path) -> dict[str, Any]:
    """Return the records, offsets and topic id of each log; of commits only what they say, since they are renewed."""
    found: dict[str, Any] = {}
    for folder in sorted(directory.glob("*-[0-9]*")):
        layout, topic_id = read_layout(folder_at(folder)), folder / "partition.metadata"
        is_plain = not folder.name.startswith(CONSUMER_OFFSETS)
        found[folder.name] = (
            (records(folder), layout.start_offset, layout.end_offset) if is_plain else None,
            topic_id.read_text() if topic_id.exists() else None,
        )
    return found


def offsets_in(directory: Path) -> list[Any]:
    rows = sparklog.views.read(directory, "consumer_offsets").to_pylist()
    return sorted((row["group"], row["topic"], row["partition"], row["offset"]) for row in rows)


def pieces_of(target: Path) -> list[Path]:
    """Return the pieces of a set, the largest last."""
    return sorted((path for path in (target / "pieces").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)


def test_backups_are_restored_when_the_source_is_gone(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 12)
    append(source, 5, "other-2")
    give_topic_id(source)
    write_groups(source, {"g": commits("g", {("events", 0): 3, ("other", 2): 7})})
    sparklog.delete_records(source / "events-0", before_offset=5)
    wanted, ids = [(logs_in(source), offsets_in(source))], [back_up(source, target).backup_id]
    for number in range(3):
        append(source, 2, word=f"more{number}")
        wanted.append((logs_in(source), offsets_in(source)))
        ids.append(back_up(source, target).backup_id)
    assert max(len(file.pieces) for _, file in read_manifest(directory_at(target), ids[-1]).all_files()) > 1
    shutil.rmtree(source)
    before = tree_of(target)
    for number, backup_id in enumerate(ids):
        found = restore(target, tmp_path / f"restored{number}", backup=backup_id)
        assert (logs_in(found), offsets_in(found)) == wanted[number]
    assert logs_in(restore(target, tmp_path / "newest")) == wanted[-1][0]
    assert wanted[0][0]["events-0"][0][1] == 5
    assert TOPIC_IDS[0] in wanted[0][0]["events-0"][1]
    sparklog.restore(target, tmp_path / "by processes", processes=2, task_bytes=1000)
    assert logs_in(tmp_path / "by processes") == wanted[-1][0]
    assert tree_of(target) == before
    # It is found finished without a look at all pieces.
    pieces_of(target)[-1].unlink()
    assert sparklog.restore(target, tmp_path / "newest", processes=1).moved == ()


def test_node_of_a_new_cluster_is_the_same_from_a_backup(tmp_path: Path) -> None:
    source, target = write_source(tmp_path / "source"), tmp_path / "set"
    back_up(source, target)
    seen: list[Any] = []
    for name, origin in (("from source", source), ("from set", target)):
        place = tmp_path / name
        place.mkdir()
        restore(origin, place / "logs", for_cluster=place / "metadata", topics_script=place / "topics.sh")
        topics = view(place / "metadata", "topics")
        shown = {topic: (row["partitions"], row["configs"]) for topic, row in topics.items()}
        node = (place / "metadata" / "meta.properties").read_text().split("node.id")[1].split()[0]
        seen.append((shown, topics["orders"]["topic_id"], node, (place / "topics.sh").read_text()))
    assert seen[0] == seen[1]
    assert seen[0][0]["orders"][0] == 3


def test_time_chooses_the_oldest_backup_that_has_all_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    made = []
    for number in range(3):
        write_partition(source / "events-0", [batch(10 * n, 10) for n in range(number + 1)])
        made.append(back_up(source, target))
    for number, at_ms in enumerate(each.made_ms for each in made):
        found = restore(target, tmp_path / f"at{number}", to=at_ms)
        assert len(records(found / "events-0")) == 10 * (number + 1)
        assert f"{target}/{made[number].backup_id}" in (found / "seglog.ledger.jsonl").read_text()
    assert len(records(restore(target, tmp_path / "early", to=1005) / "events-0")) == 5
    assert f"{target}/{made[0].backup_id}" in (tmp_path / "early" / "seglog.ledger.jsonl").read_text()
    assert caplog.messages == []
    for name, to in (("late", made[2].made_ms + 1), ("far", 2**70)):
        assert len(records(restore(target, tmp_path / name, to=to) / "events-0")) == 30
        assert f"backup {made[2].backup_id} of {target} is restored, and was made before" in caplog.text
        caplog.clear()
    assert len(records(restore(target, tmp_path / "named", to=1005, backup=made[1].backup_id) / "events-0")) == 5
    assert restore(target, tmp_path / "first", to=-(2**70)).is_dir()


def test_backup_with_damage_is_passed_over_or_restored_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 12)
    whole, wanted = back_up(source, target), logs_in(source)
    log = max((source / "events-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"!")
    damaged = back_up(source, target)
    caplog.clear()
    caplog.set_level(logging.WARNING)
    assert logs_in(restore(target, tmp_path / "default")) == wanted
    assert f"backup {damaged.backup_id} is passed over, since events-0 was damaged" in caplog.text
    caplog.clear()
    found = restore(target, tmp_path / "named", backup=damaged.backup_id)
    end_offset = damaged.partitions[0].end_offset
    assert records(found / "events-0") == wanted["events-0"][0][0][:end_offset]
    assert f"backup {damaged.backup_id} has events-0 up to offset {end_offset} only" in caplog.text
    (target / "manifests" / f"{whole.backup_id}.json").write_bytes(b"{}")
    with pytest.raises(PathNotFoundError, match=f"no whole backup in {target}.*{damaged.backup_id}"):
        restore(target, tmp_path / "none")
    assert f"backup {whole.backup_id} is passed over" in caplog.text
    with pytest.raises(CorruptCheckpointError, match=whole.backup_id):
        restore(target, tmp_path / "none", backup=whole.backup_id)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("harm", ["missing", "shorter", "longer", "changed", "link"])
def test_piece_that_is_wrong_is_named_and_nothing_is_restored(tmp_path: Path, harm: str) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 12)
    backup_id = back_up(source, target).backup_id
    piece = pieces_of(target)[-1]
    data = piece.read_bytes()
    piece.unlink()
    if harm == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        piece.symlink_to(tmp_path / "elsewhere")
    elif harm != "missing":
        # Base offsets are in no checksum of Kafka.
        piece.write_bytes({"shorter": data[:-1], "longer": data + b"!", "changed": b"\1" + data[1:]}[harm])
    with pytest.raises(SeglogError) as raised:
        restore(target, tmp_path / "restored")
    for word in (piece.name, "events-0/", backup_id):
        assert word in str(raised.value)
    assert list((tmp_path / "restored").glob("events-*")) == []


def test_small_file_with_other_bytes_is_not_believed(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 2)
    give_topic_id(source)
    manifest = back_up(source, target)
    (file,) = [each for each in manifest.partitions[0].files if each.name == "partition.metadata"]
    (target / file.pieces[0].name).write_text(f"version: 0\ntopic_id: {TOPIC_IDS[1]}")
    with pytest.raises(CorruptLogError, match=f"{manifest.backup_id}/events-0/partition.metadata"):
        restore(target, tmp_path / "restored")


def test_forged_manifests_are_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 12)
    manifest, place = back_up(source, target), directory_at(target)
    (log,) = manifest.partitions
    first, *others = log.files
    bad = {
        "twice": replace(manifest, partitions=(log, log)),
        "twice.": replace(manifest, partitions=(replace(log, files=(first, *log.files)),)),
        "no backup has": replace(manifest, partitions=(replace(log, files=(replace(first, name="../x"),)),)),
        "no SHA-256": replace(
            manifest, partitions=(replace(log, files=(replace(first, pieces=(Piece("../../x", 3),)),)),)
        ),
        "piece": replace(
            manifest,
            partitions=(replace(log, files=(*others, replace(first, pieces=(Piece("0" * 64, 2**62),) * 2000))),),
        ),
    }
    for reason, forged in bad.items():
        write_manifest(place, forged)
        with pytest.raises(SeglogError, match=reason.strip(".")):
            restore(target, tmp_path / "restored", backup=manifest.backup_id)
        assert list(tmp_path.glob("restored/events-*")) == []
    write_manifest(place, replace(manifest, partitions=()))
    with pytest.raises(PathNotFoundError, match="no log directory with logs"):
        restore(target, tmp_path / "restored")


def test_arguments_that_cannot_be_meant_change_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 2)
    back_up(source, target)
    before = tree_of(tmp_path)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (PathNotFoundError, "no backup 'x'", {"backup": "x"}),
        (PathNotFoundError, "no backup", {"backup": "../manifests/" + backup_ids(directory_at(target))[0]}),
        (InvalidOptionError, "must be the id of a backup", {"backup": 20261101}),
        (PathNotFoundError, "no set of backups", {"source": source, "backup": backup_ids(directory_at(target))[0]}),
        (InvalidOptionError, "is in", {"target": target / "inside"}),
        (InvalidOptionError, "is in", {"for_cluster": target / "inside"}),
    ]
    for error, message, given in wrong:
        with pytest.raises(error, match=message):
            sparklog.restore(**{"source": target, "target": tmp_path / "restored", "processes": 1, **given})
        assert tree_of(tmp_path) == before, message
    assert sparklog.restore(target, tmp_path / "restored", dry_run=True, processes=1).planned
    assert tree_of(tmp_path) == before


def test_backup_is_read_like_its_source_and_its_pickle_is_small(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    append(source, 12)
    (source / "replication-offset-checkpoint").write_text("0\n1\nevents 0 20\n")
    manifest = back_up(source, target)
    append(source, 4)
    storage = BackupStorage(directory_at(target), back_up(source, target).backup_id)
    (log,) = (each for each in storage.manifest.partitions[0].files if len(each.pieces) > 1)
    data, path = (source / "events-0" / log.name).read_bytes(), storage.directory.file(f"events-0/{log.name}")
    with storage.open(path) as file:
        assert file.size_bytes() == len(data)
        for position in range(0, len(data) + 2, 7):
            for length in (0, 1, 50, len(data)):
                room = memoryview(bytearray(length))
                assert bytes(file.read(position, length)) == data[position : position + length]
                assert bytes(room[: file.read_into(position, room)]) == data[position : position + length]
    assert storage.read_small(path) == data
    assert storage.read_small(storage.directory.file("replication-offset-checkpoint")) == b"0\n1\nevents 0 20\n"
    copied = pickle.loads(pickle.dumps(storage))
    assert (copied, copied.manifest) == (storage, storage.manifest)
    assert len(pickle.dumps(storage)) < 1000
    assert storage.identity(path) != BackupStorage(directory_at(target), manifest.backup_id).identity(path)
