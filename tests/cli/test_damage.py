"""Commands that go on after damage, and what they say of it."""

from __future__ import annotations

import json
from pathlib import Path

from sparklog.cli.output.fields import ROWS
from tests.cli.output.test_fields import disagreements
from tests.jobs.dead_disk import make_dead_disk
from tests.jobs.tables import rows
from tests.terminal import lines, run

SKIP = ("--on-damage", "skip", "--processes", "1")


def test_one_command_exports_all_that_can_be_read_and_prints_what_is_lost(tmp_path: Path) -> None:
    sound = make_dead_disk(tmp_path / "logs")
    result = run(
        "export", tmp_path / "logs", tmp_path / "out", *SKIP, "--partition-by", "", "--quarantine", tmp_path / "q"
    )
    assert result.exit_code == 0
    assert {(row["topic"], row["offset"]) for row in rows(tmp_path / "out")} == sound
    assert "damaged places could not be read" in result.stderr
    assert "the checksum does not match the bytes" in result.stdout
    assert (tmp_path / "q" / "damage.jsonl").exists()
    differences = run("ledger", "verify", tmp_path / "out")
    assert differences.exit_code == 0
    assert "could not be read" in differences.stdout
    assert (
        run("export", tmp_path / "logs", tmp_path / "out", *SKIP, "--partition-by", "").stdout
        == "nothing new to move\n"
    )


def test_copy_goes_on_after_damage(tmp_path: Path) -> None:
    sound = make_dead_disk(tmp_path / "logs")
    moved = lines("copy", tmp_path / "logs", tmp_path / "copy", *SKIP)
    assert sum(row["rows"] for row in moved) == len(sound)
    assert {row["topic"] for row in moved if row["lost"]} == {"flipped", "zeros", "noise", "torn", "segment", "nothing"}
    assert not [each for row in moved for each in disagreements(row, ROWS["copy"]["a range of offsets"])]
    best_effort = run("copy", tmp_path / "logs", tmp_path / "other", "--on-damage", "best_effort")
    assert "fail or skip" in best_effort.stderr
    assert best_effort.exit_code == 2


def test_dump_goes_on_after_damage(tmp_path: Path) -> None:
    sound = make_dead_disk(tmp_path / "logs")
    for topic in ("noise", "zeros", "torn", "segment"):
        offsets = [row["offset"] for row in lines("dump", tmp_path / "logs" / topic, "--on-damage", "skip")]
        assert offsets == sorted(offset for of, offset in sound if of == topic)
        last = [row["offset"] for row in lines("dump", tmp_path / "logs" / topic, "--on-damage", "skip", "--last", "5")]
        assert last == offsets[-5:]
        assert run("dump", tmp_path / "logs" / topic, "--json").exit_code == 2 or topic == "torn"
    assert "leave out" in run("dump", tmp_path / "logs" / "zeros", "--on-damage", "skip", "--batches").stderr


def test_rows_of_verify_have_the_table_of_damage(tmp_path: Path) -> None:
    make_dead_disk(tmp_path / "logs")
    result = run("verify", tmp_path / "logs", "--json", "--processes", "1")
    assert result.exit_code == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    damage = [row for row in found if "first_offset" in row]
    assert {row["topic"] for row in damage} == {"flipped", "zeros", "noise", "torn", "segment", "nothing"}
    assert not [
        each for row in damage for each in disagreements(row, ROWS["verify"]["bytes or offsets that cannot be read"])
    ]
    assert {row["code"] for row in found if row not in damage} >= {"corrupt-batch", "not-a-batch"}
    sound = run("verify", tmp_path / "logs" / "clean", "--json", "--processes", "1")
    assert "first_offset" not in sound.stdout
