"""``delete-records`` and ``truncate`` at the terminal: what they say, what they ask, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.cli.output.fields import ROWS
from sparklog.write.partition import LogWriter
from tests.cleaner.logs import ALL, findings, logs, values, write
from tests.cli.output.test_fields import disagreements
from tests.terminal import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "events-0")
    return tmp_path / "events-0"


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_records_are_deleted_after_yes_and_not_after_anything_else(folder: Path) -> None:
    before = files_of(folder.parent)
    for answer in ("n\n", "\n", "nay\n", "yes please\n"):
        would = run("delete-records", folder, "--before-offset", 47, answer=answer)
        assert (would.exit_code, would.stdout) == (0, "nothing was changed: the log has offsets [0, 120)\n")
        assert f"{folder}: 47 offsets, 2 segments and " in would.stderr
        assert "would go, then the log has offsets [47, 120). Cut the log? [y/N]" in would.stderr
    assert files_of(folder.parent) == before
    done = run("delete-records", folder, "--before-offset", 47, answer="y\n")
    assert done.exit_code == 0
    assert done.stdout.endswith(" went: the log has offsets [47, 120)\n")
    assert values(folder) == ALL[47:]
    assert findings(folder) == []
    assert (
        run("delete-records", folder, "--before-offset", 3).stdout == "nothing to cut: the log has offsets [47, 120)\n"
    )


@pytest.mark.parametrize(("time", "start"), [("1033", 33), ("1970-01-01T00:00:01.033", 33), ("2100-01-01", 120)])
def test_records_before_a_time_are_deleted(folder: Path, time: str, start: int) -> None:
    assert run("delete-records", folder, "--before-time", time, "--yes").exit_code == 0
    assert values(folder) == ALL[start:]


def test_end_is_cut_off_after_yes_and_not_after_no(folder: Path) -> None:
    before = files_of(folder.parent)
    would = run("truncate", folder, 35, answer="no\n")
    assert (would.exit_code, would.stdout) == (0, "nothing was changed: the log has offsets [0, 120)\n")
    assert "then the log has offsets [0, 30)" in would.stderr
    assert files_of(folder.parent) == before
    done = run("truncate", folder, 35, "-y")
    assert done.exit_code == 0
    assert "90 offsets, 4 segments and " in done.stdout
    assert values(folder) == ALL[:30]
    assert run("truncate", folder, 35).stdout == "nothing to cut: the log has offsets [0, 30)\n"


@pytest.mark.parametrize("command", [("delete-records", "--before-offset", "-1"), ("truncate", "60")])
def test_json_has_the_fields_that_are_said_and_what_would_go_is_what_goes(
    folder: Path, command: tuple[str, ...]
) -> None:
    name, *rest = command
    (fields,) = ROWS[name].values()
    rows = [
        json.loads(run(name, folder, *rest, "--json", *more, answer=answer).stdout)
        for more, answer in (((), "n\n"), (("--yes",), ""))
    ]
    assert [wrong for row in rows for wrong in disagreements(row, fields)] == []
    assert [row.pop("is_done") for row in rows] == [False, True]
    assert rows[0] == rows[1]
    assert (rows[0]["topic"], rows[0]["partition"]) == ("events", 0)


def test_nobody_to_ask_is_an_error_and_changes_nothing(folder: Path) -> None:
    before = files_of(folder.parent)
    for command in (("delete-records", folder, "--before-offset", 5), ("truncate", folder, 5)):
        result = run(*command)
        assert result.exit_code == 2
        assert "--yes does not ask" in result.stderr
    assert files_of(folder.parent) == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("delete-records",), "one of --before-offset and --before-time"),
        (("delete-records", "--before-offset", "1", "--before-time", "1"), "one of --before-offset and --before-time"),
        (("delete-records", "--before-time", "noon"), "--before-time 'noon' is neither ISO 8601 nor ms"),
        (("delete-records", "--before-offset", "121"), "up to 120"),
    ],
)
def test_what_cannot_be_done_ends_with_2(folder: Path, command: tuple[str, ...], said: str) -> None:
    name, *rest = command
    result = run(name, folder, *rest, "--yes")
    assert result.exit_code == 2
    assert said in result.stderr
    assert values(folder) == ALL


def test_truncating_before_the_start_or_a_log_directory_ends_with_2(folder: Path) -> None:
    run("delete-records", folder, "--before-offset", 50, "--yes")
    for path, said in ((folder, "begins at offset 50"), (folder.parent, "not named as a partition's folder")):
        result = run("truncate", path, 49, "--yes")
        assert result.exit_code == 2
        assert said in result.stderr.replace("\n", " ")


def test_writer_is_waited_for_and_then_named(folder: Path) -> None:
    with LogWriter.open(folder):
        result = run("truncate", folder, 60, "--yes", "--lock-timeout-seconds", 0)
    assert result.exit_code == 2
    assert values(folder) == ALL


def test_log_that_grew_while_the_question_was_open_is_not_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(_: str) -> bool:
        with LogWriter.open(folder) as log:
            log.append({"value": [b"new"]})
        return True

    monkeypatch.setattr("sparklog.cli.output.render.confirmed", grow)
    result = run("truncate", folder, 60)
    assert result.exit_code == 2
    assert "had offsets [0, 120) when it was looked at, and has [0, 121) now; nothing was cut" in result.stderr
    assert values(folder) == [*ALL, b"new"]
    # What lies before an offset is the same.
    assert run("delete-records", folder, "--before-offset", -1).exit_code == 0
    assert values(folder) == [b"new"]


def test_damage_ends_with_1_and_the_log_stays(folder: Path) -> None:
    log = folder / f"{100:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    before = {name: data for name, data in files_of(folder).items() if name.endswith(".log")}
    result = run("truncate", folder, 60, "--yes")
    assert result.exit_code == 1
    assert str(log) in result.stderr.replace("\n", "")
    assert {name: data for name, data in files_of(folder).items() if name.endswith(".log")} == before


def test_stored_delay_keeps_the_files_that_went(folder: Path) -> None:
    (folder.parent / "topics.properties").write_text("events/file.delete.delay.ms=0\n")
    run("delete-records", folder, "--before-offset", 47, "--yes")
    assert logs(folder) == [40, 60, 80, 100]
    assert not list(folder.glob("*.deleted"))
