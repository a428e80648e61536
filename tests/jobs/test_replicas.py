"""Jobs on logs that are merged from replicas, in several log directories."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from tests import terminal
from tests.log.replicas import FOLDER, Copy, expected, merged, run, written
from tests.log.scans.test_of_replicas import damage, flip

END = 45


def replicas(tmp_path: Path) -> list[Path]:
    """Write three replicas, each damaged elsewhere, one with an end that was cut from the others."""
    old = Copy(run(0, 36) + run(36, END), high_watermark=30)
    new = Copy(run(0, 36) + run(36, END, 4), ((0, 0), (4, 36)), high_watermark=42)
    directories = written(tmp_path, new, old, new)
    for number, directory in enumerate(directories):
        damage(directory, {number, number + 3, number + 6}, flip)
    return directories


def test_export_of_replicas_has_every_committed_record_once(tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    with pytest.raises(InvalidOptionError, match="is in two places"):
        sparklog.export(directories, tmp_path / "lake", processes=1)
    summary = sparklog.export(directories, tmp_path / "lake", replicas="merge", processes=1)
    rows = pq.read_table(tmp_path / "lake", columns=["offset", "value"]).sort_by("offset").to_pylist()
    found = [(row["offset"], row["value"].split(b":")[0].decode()) for row in rows]
    assert found == expected((0, 36, 0), (36, 42, 4)) == merged(directories)
    assert summary.rows == 42
    assert sparklog.export(directories, tmp_path / "lake", replicas="merge", processes=1).rows == 0


def test_copy_of_replicas_is_one_sound_log(tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    sparklog.copy(directories, tmp_path / "copy", replicas="merge", replicas_min=2, keep_offsets=True, processes=1)
    with sparklog.open_topic(tmp_path / "copy") as topic:
        assert topic.read(columns="offset")["offset"].to_pylist() == list(range(END))
    assert not [each for each in sparklog.verify(tmp_path / "copy") if each.severity.name == "ERROR"]


def test_dump_of_a_pattern_merges_the_replicas_that_match(tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    pattern = str(directories[0].parent / "broker-*" / FOLDER)
    refused = terminal.run("dump", pattern)
    assert (refused.exit_code, "is in two places" in refused.stderr) == (2, True)
    shown = terminal.run("dump", pattern, "--replicas", "merge", "--format", "json")
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 42)
    shown = terminal.run("dump", pattern, "--replicas", "merge", "--replicas-min", "2", "--last", "5", "--json")
    assert [json.loads(line)["offset"] for line in shown.stdout.splitlines()] == list(range(40, END))
    refused = terminal.run("dump", pattern, "--replicas", "merge", "--follow")
    assert (refused.exit_code, "name the folder of one replica" in refused.stderr) == (2, True)


def test_dump_of_batches_says_from_which_replica_each_comes(tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    pattern = str(directories[0].parent / "broker-*" / FOLDER)
    shown = terminal.run("dump", pattern, "--replicas", "merge", "--batches", "--json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["base_offset"], row["is_valid"]) for row in rows] == [(n, True) for n in range(0, 42, 3)]
    # The leader is the first; batches 0, 3 and 6 are damaged there.
    others = [row["base_offset"] for row in rows if not row["file"].startswith(f"{directories[0]}/")]
    assert others == [0, 9, 18]
    shown = terminal.run("dump", pattern, "--replicas", "merge", "--batches", "--last", "2", "--json")
    assert [json.loads(line)["base_offset"] for line in shown.stdout.splitlines()] == [36, 39]
