"""The commands of jobs: what they move, what they print, and how they end."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.cli.output.fields import ROWS
from sparklog.cli.output.progress import job_progress
from sparklog.cli.work.export import selection_of
from sparklog.errors import InvalidOptionError
from sparklog.jobs.ledger import Loaded, encode_commit
from sparklog.jobs.run.job import Amount
from tests.cli.output.test_fields import disagreements
from tests.golden import EXAMPLES
from tests.jobs.tables import append, files, read, rows
from tests.terminal import lines, on_a_terminal, run

SOME = ("--topics", "shop-orders", "--processes", "1")


def test_export_moves_what_is_new_and_the_ledger_shows_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run("export", EXAMPLES, out, *SOME)
    assert first.exit_code == 0
    assert first.stdout.splitlines()[0].split() == ["TOPIC", "PARTS", "RECORDS", "LOG", "FILES", "SIZE"]
    assert first.stdout.splitlines()[1].startswith("shop-orders      2      145 ")
    assert "145 records moved to 2 files in " in first.stdout
    assert run("export", EXAMPLES, out, *SOME).stdout == "nothing new to move\n"
    shown = run("ledger", "show", out).stdout.splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["PARTITION", "FROM", "TO", "RECORDS"],
        ["shop-orders-0", "0", "94", "72"],
        ["shop-orders-1", "0", "94", "73"],
    ]
    (commit,) = lines("ledger", "show", out, "--commits", "--json")
    assert {name: commit[name] for name in ("number", "job", "entries", "rows", "files")} == {
        "number": 0,
        "job": "export",
        "entries": 2,
        "rows": 145,
        "files": 2,
    }


def test_values_are_decoded_and_what_does_not_decode_is_set_aside_or_ends_its_partition(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    append(logs / "a-0", '{"id": 1}', "no JSON", '{"id": 3}')
    given = ("--processes", "1", "--value-format", "json", "--value-schema", "id bigint", "--unnests-value")
    assert run("export", logs, out, *given, "--on-decode-error", "dead_letter").exit_code == 0
    assert [row["id"] for row in rows(out) if "id" in row] == [1, 3]
    refused = run("export", logs, tmp_path / "other", *given)
    assert refused.exit_code == 1
    assert "a-0" in refused.stderr
    assert "offset 1" in refused.stderr


def test_export_moves_what_passes_a_filter_and_the_ledger_says_what_was_looked_at(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("export", EXAMPLES, out, *SOME, "--where", "partition = 1 AND offset < 10").exit_code == 0
    moved = {row["partition"]: (row["from"], row["to"], row["rows"]) for row in lines("ledger", "show", out, "--json")}
    expected = [row for row in read(EXAMPLES) if (row["topic"], row["partition"]) == ("shop-orders", 1)]
    passed = [row for row in expected if row["offset"] < 10]
    assert moved == {0: (0, 94, 0), 1: (0, 94, len(passed))}
    assert run("ledger", "verify", out).exit_code == 0
    wrong = run("export", EXAMPLES, tmp_path / "other", *SOME, "--where", "partition = 'one'")
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines()[0].endswith("expected a whole number, as partition is, and there is 'one'")


def test_a_property_that_is_none_is_told_with_its_option(tmp_path: Path) -> None:
    refused = run("export", EXAMPLES, tmp_path / "out", "--format", "iceberg", "--table", "a.b", "--catalog", "sqlite")
    assert refused.exit_code == 2
    assert "--catalog 'sqlite' is not name=value" in refused.stderr


def test_ledger_sums_what_was_moved_of_a_partition_by_several_runs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for end in ("40", "60", "latest"):
        run("export", EXAMPLES, out, "--partitions", "shop-orders:0", "--processes", "1", "--to", end)
    (row,) = lines("ledger", "show", out, "--json")
    wanted = [each for each in read(EXAMPLES) if (each["topic"], each["partition"]) == ("shop-orders", 0)]
    assert (row["from"], row["to"], row["rows"], row["files"]) == (0, 94, len(wanted), 3)
    assert row["bytes"] == sum((out / name).stat().st_size for name in files(out))


def test_ledger_is_verified_and_a_changed_file_is_found(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("export", EXAMPLES, out, *SOME)
    sound = run("ledger", "verify", out)
    assert (sound.exit_code, sound.stdout) == (0, "all files are as the ledger says\n")
    first, second = (out / name for name in files(out))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    second.unlink()
    damaged = run("ledger", "verify", out)
    assert damaged.exit_code == 1
    assert damaged.stdout.splitlines()[0].split() == ["KIND", "FILE", "WHAT"]
    found = [json.loads(line) for line in run("ledger", "verify", out, "--json").stdout.splitlines()]
    kinds = {row["path"]: (row["kind"], row["is_damage"]) for row in found}
    assert kinds == {str(first): ("checksum", True), str(second): ("missing", True)}
    (quick,) = run("ledger", "verify", out, "--quick", "--json").stdout.splitlines()
    assert json.loads(quick)["kind"] == "missing"


@pytest.mark.filterwarnings("ignore")
def test_the_log_of_an_iceberg_table_is_shown_and_verified_as_a_ledger(tmp_path: Path) -> None:
    out, catalog = tmp_path / "out", f"uri=sqlite:///{tmp_path}/catalog.db"
    of_table = ["--table", "db.rows", "--catalog", "type=sql", "--catalog", catalog]
    moved = run("export", EXAMPLES, out, "--format", "iceberg", "--topics", "shop-orders", *of_table)
    assert moved.exit_code == 0, moved.output
    rows = lines("ledger", "show", out, "--json", *of_table)
    assert {row["topic"] for row in rows} == {"shop-orders"}
    (commit,) = lines("ledger", "show", out, "--commits", "--json", *of_table)
    assert commit["rows"] == sum(row["rows"] for row in rows) > 0
    assert run("ledger", "verify", out, *of_table).stdout == "all files are as the ledger says\n"
    assert "give its name and its catalog" in run("ledger", "verify", out).stderr
    min(out.rglob("*.parquet")).unlink()
    assert run("ledger", "verify", out, *of_table).exit_code == 1


def test_ledger_of_loaded_files_in_a_log_directory_is_shown(tmp_path: Path) -> None:
    loaded = Loaded("/in/a.parquet", "events", 2048, 7, 3)
    (tmp_path / "seglog.ledger.jsonl").write_bytes(encode_commit(0, "load", "run", 1_700_000_000_000, [loaded]))
    assert (
        run("ledger", "show", tmp_path).stdout.splitlines()[1] == "/in/a.parquet  2.0 KiB        3  2023-11-14 22:13:20"
    )
    (row,) = lines("ledger", "show", tmp_path / "seglog.ledger.jsonl", "--json")
    assert row == {
        "path": "/in/a.parquet",
        "into": "events",
        "bytes": 2048,
        "modified_ns": 7,
        "rows": 3,
        "time_ms": 1_700_000_000_000,
    }


def test_dry_run_says_what_would_be_moved_and_makes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    planned = lines("export", EXAMPLES, out, "--dry-run", "--json", *SOME)
    assert not out.exists()
    moved = lines("export", EXAMPLES, out, "--json", *SOME)
    named = [[(row["topic"], row["partition"], row["from"], row["to"]) for row in each] for each in (planned, moved)]
    assert named[0] == named[1] == [("shop-orders", 0, 0, 94), ("shop-orders", 1, 0, 94)]
    assert run("export", EXAMPLES, out, "--dry-run", *SOME).stdout == "0 tasks to do, about 0 B of logs\n"


def test_damage_ends_with_1_and_the_others_are_moved(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "logs")
    log = tmp_path / "logs" / "shop-orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    result = run("export", tmp_path / "logs", tmp_path / "out", *SOME, "--task-bytes", "4096")
    assert result.exit_code == 1
    assert str(log) in result.stderr
    assert "Traceback" not in result.output
    assert {row["partition"] for row in lines("ledger", "show", tmp_path / "out", "--json")} == {1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", str(EXAMPLES), "{out}", "--format", "parket"], "parquet"),
        (["export", str(EXAMPLES), "{out}", "--partitions", "shop-orders"], "topic:partition"),
        (["export", str(EXAMPLES), "{out}", "--from", "yesterday"], "ISO 8601"),
        (["export", str(EXAMPLES), "{out}", "--from", "5", "--from", "2024-01-01"], "give one of them"),
        (["export", str(EXAMPLES), "{out}", "--topics", "nothing"], "nothing"),
        (["export", str(EXAMPLES), "{out}", "--from-group", "dashbord"], "did you mean 'dashboard'?"),
        (
            ["copy", str(EXAMPLES), "{out}", "--to-group", "dashboard", "--to", "5"],
            "end_offsets and end_group are given",
        ),
        (["ledger", "show", "{out}"], "no ledger"),
        (["load", "{out}/nothing.csv", "{out}", "--config", "compression.type"], "name=value"),
        (["copy", str(EXAMPLES), "{out}", "--recompress", "brotli"], "brotli"),
        (["copy", str(EXAMPLES), "{out}", "--renames", "shop-orders"], "old:new"),
    ],
)
def test_what_cannot_be_done_is_one_line_on_stderr(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = run(*(each.replace("{out}", str(tmp_path)) for each in arguments))
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([], (None, None)),
        (["earliest"], (None, None)),
        (["7"], ({("shop-orders", 0): 7, ("shop-orders", 1): 7}, None)),
        (["7", "shop-orders:1:9"], ({("shop-orders", 0): 7, ("shop-orders", 1): 9}, None)),
        (["2023-11-14T22:13:20"], (None, 1_700_000_000_000)),
    ],
)
def test_where_to_begin_is_an_offset_or_a_time(texts: list[str], wanted: tuple[Any, ...]) -> None:
    found = selection_of([str(EXAMPLES)], {"topics": ["shop-orders"]}, texts, [])
    assert (found["start_offsets"], found["start_time"]) == wanted


@pytest.mark.parametrize("command", [("export", "out"), ("copy", "out"), ("clean",)])
def test_topics_and_partitions_together_are_refused_by_name(command: tuple[str, ...], tmp_path: Path) -> None:
    verb, *target = command
    logs = shutil.copytree(EXAMPLES, tmp_path / "logs")
    chosen = ("--topics", "shop-orders", "--partitions", "shop-events:0")
    refused = run(verb, logs, *(tmp_path / each for each in target), *chosen)
    assert refused.exit_code == 2
    assert "topics and partitions are given: give one of them" in refused.output
    assert not (tmp_path / "out").exists()


def test_two_times_to_end_at_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="--to is given two times"):
        selection_of([str(EXAMPLES)], {}, [], ["2023-11-14", "2023-11-15"])


def test_tables_of_jobs_fit_a_terminal(tmp_path: Path) -> None:
    run("export", EXAMPLES, tmp_path / "out", *SOME)
    for arguments in (["ledger", "show"], ["ledger", "show", "--commits"]):
        printed = on_a_terminal(80, *arguments, str(tmp_path / "out"))
        assert printed
        assert max(map(len, printed.splitlines())) <= 80


def test_offsets_restrict_what_is_moved(tmp_path: Path) -> None:
    run("export", EXAMPLES, tmp_path / "out", *SOME, "--from", "shop-orders:0:20", "--to", "30")
    offsets = [row["offset"] for row in rows(tmp_path / "out")]
    wanted = [row for row in read(EXAMPLES) if row["topic"] == "shop-orders" and row["offset"] < 30]
    assert sorted(offsets) == sorted(row["offset"] for row in wanted if row["partition"] or row["offset"] >= 20)


def test_a_group_says_what_is_moved(tmp_path: Path) -> None:
    of_orders = ("--topics", "shop-orders", "--processes", "1")
    run("export", EXAMPLES, tmp_path / "out", *of_orders, "--from-group", "fraud-check")
    offsets = [row["offset"] for row in rows(tmp_path / "out")]
    wanted = [row for row in read(EXAMPLES) if row["topic"] == "shop-orders"]
    assert sorted(offsets) == sorted(row["offset"] for row in wanted if row["partition"] or row["offset"] >= 60)
    elsewhere = ("--to-group", "fraud-check", "--offsets-path", EXAMPLES)
    shutil.copytree(EXAMPLES / "shop-orders-0", tmp_path / "logs" / "shop-orders-0")
    run("copy", tmp_path / "logs", tmp_path / "copied", "--processes", "1", *elsewhere)
    copied = [row["value"] for row in read(tmp_path / "copied")]
    before = [row["value"] for row in wanted if not row["partition"] and row["offset"] < 60]
    # Batches are copied whole.
    assert copied[: len(before)] == before
    assert len(copied) - len(before) < 8


def test_progress_of_a_job_is_told_in_bytes_and_records() -> None:
    with job_progress("exporting") as watch:
        watch.planned(2, 100)
        watch.advanced("a", Amount(60, 3))
        watch.advanced("b", Amount(40, 4))
        (task,) = watch._bar.tasks  # type: ignore[attr-defined]
        assert (task.total, task.completed, task.fields["records"]) == (100, 100, 7)


def test_json_of_an_export_names_its_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = [json.loads(line) for line in run("export", EXAMPLES, out, "--json", *SOME).stdout.splitlines()]
    assert sorted(file["path"] for row in told for file in row["files"]) == files(out)


def test_copy_moves_what_is_new_under_another_name_and_the_ledger_shows_it(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    arguments = ("copy", EXAMPLES, logs, *SOME, "--renames", "shop-orders:orders")
    planned = run(*arguments, "--dry-run")
    assert planned.stdout.splitlines()[-1].startswith("1 task to do")
    assert not logs.exists()
    first = run(*arguments)
    assert first.exit_code == 0
    assert first.stdout.splitlines()[0].split() == ["TOPIC", "PARTS", "RECORDS", "LOG"]
    assert run(*arguments).stdout == "nothing new to move\n"
    shown = lines("ledger", "show", logs, "--json")
    assert [(row["topic"], row["partition"], row["to"], row["target_topic"]) for row in shown] == [
        ("shop-orders", 0, 94, "orders"),
        ("shop-orders", 1, 94, "orders"),
    ]
    assert "TO TOPIC" in run("ledger", "show", logs).stdout
    other = "which no cluster reaches"
    assert other in first.stdout
    assert other not in run("copy", EXAMPLES, tmp_path / "kept", *SOME, "--keep-producers").stdout
    wanted = [row["value"] for row in read(EXAMPLES) if row["topic"] == "shop-orders"]
    assert [row["value"] for row in read(logs)] == wanted


def test_ledger_tells_copies_of_a_partition_to_two_topics_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("copy", EXAMPLES, tmp_path / "logs", "--partitions", "shop-orders:0", "--renames", f"shop-orders:{name}")
    shown = lines("ledger", "show", tmp_path / "logs", "--json")
    assert [(row["target_topic"], row["from"], row["to"]) for row in shown] == [("one", 0, 94), ("two", 0, 94)]


def test_copy_of_damage_ends_with_1_and_nothing_is_copied(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "logs")
    log = tmp_path / "logs" / "shop-orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    result = run("copy", tmp_path / "logs", tmp_path / "out", *SOME)
    assert result.exit_code == 1
    assert str(log) in result.stderr
    assert run("ledger", "show", tmp_path / "out").exit_code == 2


def test_a_dry_run_of_a_load_says_which_files_it_would_load_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"value": ["a", "b"]}), tmp_path / "in" / "1.parquet")
    arguments = ("load", tmp_path / "in", tmp_path / "logs", "--topic", "orders", "--num-partitions", "3")
    run(*arguments)
    pq.write_table(pa.table({"value": ["c", "d", "e"]}), tmp_path / "in" / "2.parquet")
    (tmp_path / "in" / "3.csv").write_text("value\nf\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "logs").rglob("*"))
    shown = run(*arguments, "--dry-run")
    assert shown.exit_code == 0
    assert "2 files to load in 1 task into orders, 3 partitions: " in shown.stdout
    assert shown.stdout.endswith(", 3 records and more, 1 file passed over\n")
    found = lines(*arguments, "--dry-run", "--json")
    assert [(Path(row["path"]).name, row["rows"], row["partitions"]) for row in found] == [
        ("2.parquet", 3, 3),
        ("3.csv", None, 3),
    ]
    wanted = ROWS["load"]["a file, or some row groups of one (--dry-run)"]
    assert [wrong for row in found for wrong in disagreements(row, wanted)] == []
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "logs").rglob("*")) == before
    run(*arguments)
    assert run(*arguments, "--dry-run").stdout == "nothing new to load, 3 files passed over\n"
    assert not run(
        "load", tmp_path / "in", tmp_path / "new", "--topic", "t", "--num-partitions", "1", "--dry-run"
    ).exit_code
    assert not (tmp_path / "new").exists()


def test_columns_of_csv_have_the_types_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,name,ok\n1,a,true\n2,,false\n")
    arguments = ("load", tmp_path / "in.csv", tmp_path / "logs", "--topic", "t", "--num-partitions", "1")
    loaded = run(*arguments, "--value-json", "--csv-types", "id bigint, ok boolean")
    assert loaded.exit_code == 0, loaded.output
    assert [json.loads(row["value"]) for row in read(tmp_path / "logs")] == [
        {"id": 1, "name": "a", "ok": True},
        {"id": 2, "ok": False},
    ]
    refused = run(*arguments, "--csv-types", "id bigit")
    assert refused.exit_code == 2
    assert "csv_types" in refused.stderr
    assert "bigint" in refused.stderr


def test_load_writes_what_is_new_and_the_ledger_shows_it(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("user,amount\na,1\nb,2\n")
    arguments = ("load", tmp_path / "in.csv", tmp_path / "logs", "--topic", "orders", "--num-partitions", "1")
    options = ("--key", "user", "--value", "amount", "--config", "compression.type=zstd", "--processes", "1")
    first = run(*arguments, *options)
    assert first.exit_code == 0
    assert first.stdout.splitlines()[1].split()[:4] == ["orders-0", "0", "1", "2"]
    assert "2 records of 1 file loaded in " in first.stdout
    assert run(*arguments, *options).stdout == "nothing new to load, 1 file passed over\n"
    assert [(row["key"], row["value"]) for row in read(tmp_path / "logs")] == [(b"a", b"1"), (b"b", b"2")]
    for command, of, found in (
        ("ledger show", "a file that was loaded", lines("ledger", "show", tmp_path / "logs")),
        ("load", "a partition", lines(*arguments, *options, "--again")),
    ):
        assert [wrong for row in found for wrong in disagreements(row, ROWS[command][of])] == []
        assert found


def test_restore_says_how_much_it_restored(tmp_path: Path) -> None:
    source, target = EXAMPLES, tmp_path / "restored"
    done = run("restore", source, target)
    assert re.search(r"^[\d,]+ records of \d+ partitions? restored in ", done.stdout, re.MULTILINE), done.output
    again = run("restore", source, target)
    assert again.stdout.splitlines()[-1] == "no records were left to restore; every log of the source is there"
