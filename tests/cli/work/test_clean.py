"""``clean`` at the terminal: what goes, what would go, and how it ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparklog.cli.output.fields import ROWS
from sparklog.errors import LockedError
from tests.cleaner.logs import ALL, values, write
from tests.cli.output.test_fields import disagreements
from tests.terminal import lines, on_a_terminal, run

OLD = ("--retention-ms", "3600000", "--processes", "1")
(OF,) = ROWS["clean"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path / "events-0")
    write(tmp_path / "orders-0")
    return tmp_path


def test_table_says_what_would_go_and_then_what_went(directory: Path) -> None:
    would = run("clean", directory, *OLD, "--dry-run")
    assert would.exit_code == 0
    said, titles, *topics = would.stdout.splitlines()
    assert said.endswith(" of 2 partitions would go")
    assert titles.split()[:5] == ["TOPIC", "PARTITIONS", "SEGMENTS", "OFFSETS", "DROPPED"]
    assert [(row.split()[:4], row.split()[-1]) for row in topics] == [
        (["events", "1", "6", "120"], "retention"),
        (["orders", "1", "6", "120"], "retention"),
    ]
    assert values(directory / "events-0") == ALL
    done = run("clean", directory, *OLD)
    assert done.stdout.splitlines()[1:] == would.stdout.splitlines()[1:]
    assert " of 2 partitions went in " in done.stdout.splitlines()[0]
    assert values(directory / "events-0") == []
    assert run("clean", directory, *OLD).stdout == "nothing to clean in 2 partitions\n"


def test_each_partition_is_shown_on_demand(directory: Path) -> None:
    _, titles, *partitions = run("clean", directory, *OLD, "--dry-run", "--verbose").stdout.splitlines()
    assert titles.split()[:6] == ["PARTITION", "START", "END", "SEGMENTS", "OFFSETS", "DROPPED"]
    assert [row.split()[:5] for row in partitions] == [
        ["events-0", "120", "120", "6", "120"],
        ["orders-0", "120", "120", "6", "120"],
    ]


def test_topic_has_one_line_with_the_sums_of_its_partitions_and_all_reasons(directory: Path) -> None:
    (directory / "keys.csv").write_text("key\nk\n")
    write(directory / "events-1")
    options = ("--erase", directory / "keys.csv", "--dry-run", "--retention-bytes", "400", "--processes", "1")
    rows = lines("clean", directory, *options)
    assert [row["reasons"] for row in rows] == [["retention", "erasure"]] * 3
    said, titles, events, orders = run("clean", directory, *options).stdout.splitlines()
    assert "to erase" in said
    assert titles.split()[-3:] == ["REASON", "REWRITTEN", "INTO"]
    assert events.split()[:3] == ["events", "2", str(sum(row["dropped_segments"] for row in rows[:2]))]
    assert orders.split()[:3] == ["orders", "1", str(rows[2]["dropped_segments"])]
    assert "retention,erasure" in events


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--recompress", "gzip"], "conversion"),
        (["--cleanup-policy", "compact", "--config", "min.cleanable.dirty.ratio=0"], "compaction"),
    ],
)
def test_reason_is_the_work_that_changed_the_log(directory: Path, options: list[str], reason: str) -> None:
    found = lines("clean", directory, *options, "--dry-run", "--processes", "1")
    assert [row["reasons"] for row in found] == [[reason]] * 2


def test_lines_are_limited_and_the_rest_is_counted(tmp_path: Path) -> None:
    for number in range(23):
        write(tmp_path / f"t{number:02d}-0")
    options = ("clean", tmp_path, *OLD, "--dry-run")
    assert len(run(*options).stdout.splitlines()) == 2 + 23
    shown = on_a_terminal(100, *map(str, options)).splitlines()
    assert shown[0].endswith("of 23 partitions would go")
    assert [row.split()[0] for row in shown[2:22]] == [f"t{number:02d}" for number in range(20)]
    assert shown[22:] == ["(3 more topics: --limit shows them, --verbose shows each partition)"]
    assert len(run(*options, "--limit", "2").stdout.splitlines()) == 2 + 2 + 1
    each = run(*options, "--limit", "2", "--verbose").stdout.splitlines()
    assert [row.split()[0] for row in each[2:4]] == ["t00-0", "t01-0"]
    assert each[4:] == ["(21 more partitions: --limit shows them)"]
    assert len(on_a_terminal(100, *map(str, options), "--verbose").splitlines()) == 2 + 23
    only_sum = run(*options, "--limit", "0").stdout.splitlines()
    assert only_sum == [shown[0], "(23 more topics: --limit shows them, --verbose shows each partition)"]
    assert len(lines(*options)) == 23
    for option in (["--limit", "2"], ["--verbose"]):
        refused = run(*options, "--json", *option)
        assert (refused.exit_code, "--json shows every partition" in refused.stderr) == (2, True)


def test_json_has_the_fields_that_are_said(directory: Path) -> None:
    found = lines("clean", directory, *OLD, "--partitions", "orders:0", "--json")
    assert [(row["topic"], row["partition"], row["dropped_segments"]) for row in found] == [("orders", 0, 6)]
    assert [wrong for row in found for wrong in disagreements(row, ROWS["clean"][OF])] == []


def test_damage_ends_with_1_and_the_others_are_cleaned(directory: Path) -> None:
    log = directory / "events-0" / f"{100:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    result = run("clean", directory, *OLD)
    assert result.exit_code == 1
    assert str(log) in result.stderr
    assert "the other partitions were cleaned" in result.stderr
    assert values(directory / "orders-0") == []


def test_partition_that_is_none_is_refused(directory: Path) -> None:
    result = run("clean", directory, "--partitions", "events")
    assert result.exit_code == 2
    assert "--partitions 'events' is not topic:partition" in result.stderr


def test_keys_are_erased_and_proven_absent(directory: Path) -> None:
    keys = directory.parent / "gone.csv"
    keys.write_text("key\nk\n")
    shutil.copytree(directory, directory.parent / "copy")
    before = run("verify", directory / "events-0", "--absent", keys)
    assert before.exit_code == 1
    assert "holds 20 records that must be absent, the first at offset 0" in before.stdout
    options = ("--erase", keys, "--config", "file.delete.delay.ms=0", "--processes", "1")
    found = lines("clean", directory, *options, "--json")
    assert [(row["topic"], row["erased_records"], row["erased_offsets"]) for row in found] == [
        ("events", 120, [[0, 119]]),
        ("orders", 120, [[0, 119]]),
    ]
    assert [wrong for row in found for wrong in disagreements(row, ROWS["clean"][OF])] == []
    assert run("verify", directory, "--absent", keys).exit_code == 0
    deleted = directory / "events-0.0123456789abcdef-delete"
    shutil.copytree(directory.parent / "copy" / "events-0", deleted)
    assert run("verify", directory, "--absent", keys).exit_code == 1
    result = run("clean", directory, *options, "--dry-run")
    assert f"note: {deleted} would go, which is no part of a log" in result.stderr
    assert f"note: {deleted} went, which is no part of a log" in run("clean", directory, *options).stderr
    assert run("verify", directory, "--absent", keys).exit_code == 0
    assert values(directory / "events-0") == []


def test_logs_are_cleaned_again_and_again_until_it_is_ended(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 1:
            write(directory / "later-0")
        elif len(waited) == 2:
            monkeypatch.setattr("sparklog.cli.work.clean.run_clean", locked)
        else:
            raise KeyboardInterrupt

    def locked(*_: object, **__: object) -> None:
        raise LockedError("others are at work")

    # Only there: a thread that another test has left may sleep as well.
    monkeypatch.setattr("sparklog.cli.commands.clean.time", SimpleNamespace(sleep=wait))
    result = run("clean", directory, *OLD, "--every", "5m")
    assert result.exit_code == 0
    assert waited == [300.0] * 3
    assert values(directory / "events-0") == values(directory / "later-0") == []
    assert "of 2 partitions went" in result.stdout
    assert "of 1 partition went" in result.stdout
    assert "warning: [SEGLOG_LOCKED] others are at work" in result.stderr


@pytest.mark.parametrize("every", ["", "5", "m", "0s", "-5m", "5w", "1.5h"])
def test_span_of_time_that_is_none_is_refused(directory: Path, every: str) -> None:
    result = run("clean", directory, *OLD, "--every", every)
    assert result.exit_code == 2
    assert "is no time such as 30s, 5m, 2h or 1d" in result.stderr
    assert values(directory / "events-0") == ALL


def test_format_that_loses_nothing_and_a_codec_are_options(directory: Path) -> None:
    done = run("clean", directory, "--format", "1", "--recompress", "gzip", "--processes", "1")
    assert done.exit_code == 0
    assert values(directory / "events-0") == ALL
    assert run("clean", directory, "--format", "0").exit_code != 0
    assert run("clean", directory, "--format", "0", "--lossy", "--processes", "1").exit_code == 0
    wrong = run("clean", directory, "--blank", "null")
    assert wrong.exit_code == 2
    assert "say what by erase or erase_where" in wrong.stderr
