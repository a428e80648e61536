"""``mirror`` and ``backup`` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.jobs.backup import arguments as backing_up
from tests.jobs.mirror.sources import append, assert_equal, make_source
from tests.terminal import run


def test_mirror_says_how_far_it_was_behind(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    dry = run("mirror", source, target, "--dry-run")
    assert "24 offsets behind" in dry.stdout
    assert not target.exists()
    assert "of 1 log copied: the mirror was" in run("mirror", source, target).stdout
    assert_equal(source, target)
    row = json.loads(run("mirror", source, target, "--json").stdout)
    assert (row["copied_bytes"], row["behind_offsets"], row["errors"]) == (0, 0, [])


def test_mirror_follows_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt
        append(source, len(waits))

    monkeypatch.setattr("sparklog.jobs.mirror.job.time.sleep", sleep)
    found = run("mirror", source, target, "--follow", "--every", "5s", "--json")
    assert found.exit_code == 0
    assert [json.loads(line)["behind_offsets"] for line in found.stdout.splitlines()] == [24, 2, 4]
    assert waits == [5.0, 5.0, 5.0]
    assert_equal(source, target)


def test_damage_fails_a_mirror_and_names_the_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mirror"
    make_source(source)
    append(source, 1, "other-0")
    damaged = min((source / "events-0").glob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    found = run("mirror", source, target)
    assert found.exit_code == 1
    assert damaged.name in found.stderr
    assert "the other logs were mirrored" in found.stderr


def test_backups_are_made_listed_checked_and_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    for _ in range(3):
        assert run("backup", source, target).exit_code == 0
        append(source, 1)
    listed = [json.loads(line) for line in run("backup", "list", target, "--json").stdout.splitlines()]
    assert [row["partitions"] for row in listed] == [1, 1, 1]
    assert listed[0]["backup_id"] in run("backup", "list", target).stdout
    assert run("verify", "--manifest", target).stdout.endswith("checked: 0 errors, 0 warnings, 0 notes\n")
    assert "2 backups" in run("backup", "prune", target, "--keep", "1", "--dry-run").stdout
    assert "nothing was changed" in run("backup", "prune", target, "--keep", "1", answer="n\n").stdout
    assert len(backing_up.backups_in(target)) == 3
    assert "went" in run("backup", "prune", target, "--keep", "1", "--yes").stdout
    (left,) = backing_up.backups_in(target)
    assert left.backup_id == listed[2]["backup_id"]
    piece = max(
        (each for each in (target / "pieces").rglob("*") if each.is_file()), key=lambda each: each.stat().st_size
    )
    piece.write_bytes(b"?" + piece.read_bytes()[1:])
    found = run("verify", "--manifest", target)
    assert found.exit_code == 1
    assert "needs it" in " ".join(found.stdout.split())


def test_damage_fails_a_backup_and_the_sound_part_is_there(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    make_source(source)
    damaged = sorted((source / "events-0").glob("*.log"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    found = run("backup", source, target, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["damaged_partitions"] == 1
    assert "up to offset 18" in " ".join(found.stderr.split())


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    make_source(tmp_path / "source")
    for command in (
        ("backup", "list", tmp_path / "source"),
        ("verify", "--manifest", tmp_path / "source"),
        ("mirror", tmp_path / "sourse", tmp_path / "mirror"),
        ("verify", "--manifest", "--absent", "k.csv", tmp_path),
        ("backup", tmp_path / "source", tmp_path / "source" / "set"),
    ):
        assert run(*command).exit_code == 2, command
