"""A backup has its source as of one time, shares what did not change, and is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparklog
from sparklog.errors import CorruptCheckpointError, InvalidOptionError, LockedError, PathNotFoundError
from sparklog.jobs.backup.arguments import BackupRun, backup, backups_in, locked_set, prune_backups
from sparklog.jobs.backup.checking import verify_backups
from sparklog.jobs.backup.manifest import (
    SET_MARK,
    BackupManifest,
    BackupTopic,
    backup_ids,
    manifest_path,
    read_manifest,
)
from sparklog.jobs.mirror.state import claim_target
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.log.files import TopicPartition
from sparklog.log.journal import Journal, LogExtent
from sparklog.log.layout import read_layout
from sparklog.storage.base import Storage
from tests.growth import settle
from tests.jobs.mirror.sources import (
    CHANGES,
    TOPIC_IDS,
    append,
    batches_in,
    compact,
    cut_and_write_on,
    files_of_logs,
    give_topic_id,
    grow,
    make_source,
    mirror_into,
)
from tests.places import LOCAL, directory_at
from tests.storage.crash import CrashingStorage, crashes
from tests.system.test_cluster_metadata import framed, topic, write_log


def back_up(source: Path, target: Path, storage: Storage = LOCAL, *, source_storage: Storage = LOCAL) -> BackupManifest:
    """Make a backup, with every change to the set through a storage, and every look at the source through another."""
    theirs, place = directory_at(source, source_storage), directory_at(target, storage)
    with locked_set(place, 0):
        claim_target(theirs, place, SET_MARK, "set of backups")
        summary = BackupRun(theirs, place, LocalRunner(1), LogJobOptions()).run()
    assert summary.manifest is not None
    return summary.manifest


def restored(target: Path, backup_id: str, folder: Path) -> Path:
    """Write the files of a backup to a folder."""
    for name, file in read_manifest(directory_at(target), backup_id).all_files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join((target / piece.name).read_bytes() for piece in file.pieces))
    return folder


def stored_bytes(target: Path) -> int:
    return sum(path.stat().st_size for path in (target / "pieces").rglob("*") if path.is_file())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_backups_have_the_source_as_it_was(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    wanted = [files_of_logs(source)]
    first = backup(source, target).manifest
    change(source)
    wanted.append(files_of_logs(source))
    second = backup(source, target).manifest
    assert first is not None
    assert second is not None
    assert [each.backup_id for each in backups_in(target)] == [first.backup_id, second.backup_id]
    for manifest, files in zip((first, second), wanted, strict=True):
        assert files_of_logs(restored(target, manifest.backup_id, tmp_path / manifest.backup_id)) == files
    assert list(verify_backups(target)) == []


def test_later_backup_stores_only_what_is_new(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    log_bytes = sum(path.stat().st_size for path in source.rglob("*.log"))
    settle(source)
    assert backup(source, target, dry_run=True).new_bytes == log_bytes
    assert not target.exists()
    assert backup(source, target).new_bytes == log_bytes
    before = stored_bytes(target)
    assert backup(source, target).new_bytes == 0
    assert stored_bytes(target) == before
    append(source, 1)
    grown = sum(path.stat().st_size for path in source.rglob("*.log")) - log_bytes
    summary = backup(source, target)
    assert summary.new_bytes == grown
    assert summary.manifest is not None
    (log,) = summary.manifest.partitions
    pieces = [len(file.pieces) for file in log.files if file.name.endswith(".log") and file.size_bytes]
    assert pieces == [1] * (len(pieces) - 1) + [2], "the last segment has grown"


def test_set_that_lost_a_piece_stores_it_again(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    settle(source)
    backup(source, target)
    lost = max(
        (path for path in (target / "pieces").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    lost.unlink()
    assert [each.code for each in verify_backups(target)] == ["piece-missing"]
    assert backup(source, target).new_bytes > 0
    assert list(verify_backups(target)) == []


def test_topics_groups_and_offsets_are_in_the_manifest(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    append(source, 1, "other-2")
    (source / "topics.properties").write_text("events/retention.ms=77\n")
    (source / "replication-offset-checkpoint").write_text("0\n1\nevents 0 20\n")
    sparklog.delete_records(source / "events-0", before_offset=5)
    with sparklog.Consumer(
        str(source), "events", group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.poll(timeout_ms=1000, max_records=3)
        consumer.commit()
    manifest = backup(source, target).manifest
    assert manifest is not None
    assert manifest.topics == {
        "events": BackupTopic(TOPIC_IDS[0], 1, {"retention.ms": "77"}),
        "other": BackupTopic(None, 3, {}),
    }
    assert {at: each.offset for at, each in manifest.groups["billing"].items()} == {TopicPartition("events", 0): 8}
    events = manifest.partitions[0]
    assert (events.start_offset, events.end_offset, events.high_watermark) == (5, 24, 20)
    assert {each.name for each in manifest.files} >= {"topics.properties", "seglog.offsets"}


def test_commit_that_is_not_finished_is_not_in_a_backup(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    append(source, 3, "other-0")
    wanted = {name: batches_in(source / name) for name in ("events-0", "other-0")}
    layouts = [read_layout(directory_at(source).folder(name)) for name in wanted]
    extents = {
        each.folder.name: LogExtent(
            each.start_offset, each.end_offset, each.segments[-1].base_offset, each.end.position
        )
        for each in layouts
    }
    for name in wanted:
        append(source, 1, name)
    (source / "seglog.journal").write_bytes(Journal("c", extents, ()).to_json())
    manifest = backup(source, target).manifest
    assert manifest is not None
    mirror_into(source, tmp_path / "mirror")
    found = restored(target, manifest.backup_id, tmp_path / "restored")
    for name, batches in wanted.items():
        assert batches_in(found / name) == batches_in(tmp_path / "mirror" / name) == batches


@pytest.mark.parametrize("change", [grow, compact, cut_and_write_on], ids=lambda change: change.__name__)
def test_backup_that_is_killed_anywhere_leaves_the_others_whole(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    source = tmp_path / "source"
    make_source(source)
    wanted = [batches_in(source / "events-0")]
    settle(source)

    def prepare(folder: Path) -> None:
        backup(source, folder / "set")
        change(source)
        wanted.append(batches_in(source / "events-0"))

    def run(storage: CrashingStorage, folder: Path) -> None:
        back_up(source, folder / "set", storage)

    for number, crash in enumerate(crashes(prepare, run, tmp_path)):
        target = crash.folder / "set"
        assert list(verify_backups(target)) == [], crash
        ids = backup_ids(directory_at(target))
        assert len(ids) in (1, 2), crash
        ids.append(back_up(source, target).backup_id)
        assert list(verify_backups(target)) == [], crash
        for backup_id, batches in ((ids[0], wanted[0]), (ids[-1], wanted[1])):
            found = restored(target, backup_id, tmp_path / f"restored{number}-{backup_id}")
            assert batches_in(found / "events-0") == batches, crash


def test_log_that_is_damaged_is_in_the_backup_up_to_the_damage(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    append(source, 2, "other-0")
    whole = batches_in(source / "events-0")
    damaged = sorted((source / "events-0").glob("*.log"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    manifest = backup(source, target).manifest
    assert manifest is not None
    assert not manifest.is_whole
    events, other = manifest.partitions
    assert damaged.name in str(events.error)
    assert other.error is None
    found = batches_in(restored(target, manifest.backup_id, tmp_path / "restored") / "events-0")
    assert found == whole[: len(found)]
    assert len(found) * 2 == events.end_offset == 18
    assert [(each.code, each.severity.value) for each in verify_backups(target)] == [("backup-damaged", "warning")]


def test_prune_keeps_the_newest_whole_backups_and_what_they_need(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    for _ in range(4):
        backup(source, target)
        append(source, 1)
        compact(source)
    wanted = batches_in(source / "events-0")
    backup(source, target)
    ids = backup_ids(directory_at(target))
    before = stored_bytes(target)
    dry = prune_backups(target, keep=2, dry_run=True)
    assert (dry.removed, dry.kept) == (tuple(ids[:3]), tuple(ids[3:]))
    assert backup_ids(directory_at(target)) == ids
    (target / "pieces" / "left.tmp").write_bytes(b"x" * 10)
    assert prune_backups(target, keep=2) == dry
    assert dry.freed_bytes > 0
    assert stored_bytes(target) == before - dry.freed_bytes
    assert list(verify_backups(target)) == []
    assert batches_in(restored(target, ids[-1], tmp_path / "restored") / "events-0") == wanted
    assert prune_backups(target, keep=9).removed == ()


def test_backup_with_damage_does_not_count_as_one_to_keep(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    backup(source, target)
    damaged = min((source / "events-0").glob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    for _ in range(3):
        backup(source, target)
    assert prune_backups(target, keep=1).removed == ()
    assert len(backups_in(target)) == 4


def test_damage_in_a_set_is_named_and_nothing_is_pruned_by_a_damaged_manifest(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    for _ in range(2):
        backup(source, target)
    piece = max(
        (path for path in (target / "pieces").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    piece.write_bytes(piece.read_bytes()[:-1] + b"!")
    (finding,) = verify_backups(target)
    assert (finding.code, finding.path) == ("piece-checksum", str(piece))
    assert ".log of backup" in finding.message
    assert "1 other file" in finding.message
    piece.write_bytes(piece.read_bytes() + b"!")
    assert [each.code for each in verify_backups(target)] == ["piece-checksum"]
    manifest = target / manifest_path(backup_ids(directory_at(target))[1])
    manifest.write_bytes(manifest.read_bytes()[:-9] + b"!")
    assert [each.code for each in verify_backups(target)] == ["manifest", "piece-checksum"]
    before = stored_bytes(target)
    with pytest.raises(CorruptCheckpointError):
        prune_backups(target, keep=1)
    assert stored_bytes(target) == before


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    backup(source, target)
    for keep in (0, -1, 1.5, None, True):
        with pytest.raises(InvalidOptionError, match="keep is"):
            prune_backups(target, keep=keep)  # type: ignore[arg-type]
    for missing in (source, tmp_path / "nothing"):
        with pytest.raises(PathNotFoundError, match="no set of backups"):
            backups_in(missing)
        with pytest.raises(PathNotFoundError, match="no set of backups"):
            list(verify_backups(missing))
    append(tmp_path / "other", 1)
    with pytest.raises(InvalidOptionError, match="set of backups of another directory"):
        backup(tmp_path / "other", target)
    with pytest.raises(InvalidOptionError, match="no set of backups"):
        backup(tmp_path / "other", source)
    with pytest.raises(InvalidOptionError, match="in the other"):
        backup(source, source / "set")
    with locked_set(directory_at(target), 0), pytest.raises(LockedError, match="a backup is made or removed"):
        backup(source, target, lock_timeout_seconds=0)


def test_topic_made_anew_is_told_apart(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    backup(source, target)
    give_topic_id(source, TOPIC_IDS[1])
    backup(source, target)
    assert [each.topics["events"].topic_id for each in backups_in(target)] == list(TOPIC_IDS)


def test_topics_of_the_cluster_are_in_the_manifest_and_its_log_beside_it(tmp_path: Path) -> None:
    source, target, other = tmp_path / "source", tmp_path / "set", "ELp_WcwCTsycrietGK4V7Q"
    make_source(source)
    config = framed("ConfigRecord", resourceType=2, resourceName="events", name="retention.ms", value="5")
    write_log(source, topic("events", TOPIC_IDS[0]), topic("elsewhere", other), config)
    (source / "topics.properties").write_text("events/retention.bytes=6\n")
    manifest = backup(source, target).manifest
    assert manifest is not None
    assert manifest.topics == {
        "elsewhere": BackupTopic(other, 0, {}),
        "events": BackupTopic(TOPIC_IDS[0], 1, {"retention.ms": "5", "retention.bytes": "6"}),
    }
    assert [each.topic for each in manifest.partitions] == ["events"]
    assert f"__cluster_metadata-0/{0:020d}.log" in {each.name for each in manifest.files}


def test_damaged_metadata_of_the_cluster_leave_the_topics_of_the_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    write_log(source, topic("events", TOPIC_IDS[0]), topic("elsewhere", TOPIC_IDS[1]))
    path = source / "__cluster_metadata-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    manifest = backup(source, target).manifest
    assert manifest is not None
    assert list(manifest.topics) == ["events"]
    assert "without the rows of cluster_topics, which cannot be read" in caplog.text
    assert "the cluster's metadata are in the backup up to the damage" in caplog.text
