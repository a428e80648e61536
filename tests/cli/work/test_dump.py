"""``dump``: which records, in which form, and following a log that is written to."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.parsing import Format
from sparklog.cli.work.dump import CountedOutput, DumpOptions
from sparklog.cli.work.follow import _Follower
from sparklog.inspect.dump_range import DumpRange
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.cli.commands.test_main import COMMAND
from tests.golden import EXAMPLES, golden_set
from tests.terminal import lines, run

EVENTS = EXAMPLES / "shop-events"
DEADLINE_SECONDS = 60


def batch(offset: int, *values: bytes) -> bytes:
    return v2_batch([Record(n, n, b"k", value) for n, value in enumerate(values)], base_offset=offset)


def test_only_some_partitions_are_dumped() -> None:
    assert {row["partition"] for row in lines("dump", EVENTS, "--partition", "0", "--partition", "2")} == {0, 2}
    missing = run("dump", EVENTS, "--partition", "7")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert f"--partition 7: {EVENTS} has 0, 1, 2" in missing.stderr


def test_records_that_pass_a_filter_are_those_of_all_that_do() -> None:
    wanted = lines("dump", EVENTS)[3]["key"]
    where = f"key = '{wanted}' AND partition >= 0"
    expected = [row for row in lines("dump", EVENTS) if row["key"] == wanted]
    assert lines("dump", EVENTS, "--where", where) == expected
    assert lines("dump", EVENTS, "--where", where, "--partition", str(expected[0]["partition"]), "--last", "1") == [
        [row for row in expected if row["partition"] == expected[0]["partition"]][-1]
    ]
    assert (
        lines("dump", EVENTS, "--where", f"NOT (key != '{wanted}' OR offset < 5)", "--limit", "2")
        == [row for row in expected if row["offset"] >= 5][:2]
    )


def test_wrong_filter_is_shown_with_a_caret_below_it() -> None:
    done = run("dump", EVENTS, "--where", "offset > 5 AND keys = 'a'")
    assert done.exit_code == 2
    first, text, caret = done.stderr.splitlines()
    assert first == "error: [SEGLOG_INVALID_OPTION] where, at character 16: no column 'keys'; did you mean 'key'?"
    assert text[caret.index("^") :].startswith("keys = 'a'")


def test_records_with_a_key_are_those_of_all_that_have_it() -> None:
    wanted = lines("dump", EVENTS)[3]["key"]
    expected = [row for row in lines("dump", EVENTS) if row["key"] == wanted]
    assert lines("dump", EVENTS, "--key", wanted) == expected
    assert lines("dump", EVENTS, "--key-base64", base64.b64encode(wanted.encode()).decode()) == expected
    assert lines("dump", EVENTS, "--key", wanted, "--partition", str(expected[0]["partition"]), "--last", "1") == [
        [row for row in expected if row["partition"] == expected[0]["partition"]][-1]
    ]


def test_last_of_each_partition() -> None:
    found = lines("dump", EVENTS, "--last", "2")
    ends = {row["partition"]: row["end_offset"] for row in lines("describe", EVENTS, "--partitions")}
    assert [(row["partition"], row["offset"]) for row in found] == [
        (partition, end - back) for partition, end in ends.items() for back in (2, 1)
    ]
    assert [row["offset"] for row in lines("dump", EXAMPLES / "shop-events-0", "--last", "3", "--limit", "1")] == [629]


def test_last_committed_records_are_not_those_of_aborted_transactions() -> None:
    log = golden_set("v2-transactions").log_dir / "transactions"
    committed = lines("dump", log, "--isolation-level", "read_committed")
    assert lines("dump", log, "--isolation-level", "read_committed", "--last", "50") == committed[-50:]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--last", "1", "--offset", "1"], "--offset and --last both say where to begin"),
        (["--key", "a", "--key-base64", "YQ=="], "--key and --key-base64 both say which key"),
        (["--key-base64", "a"], "no base64"),
        (["--key", "a", "--batches"], "--batches shows none"),
        (["--where", "key = 'a'", "--batches"], "--where is for records, and --batches shows none"),
        (["--where", "keys = 'a'"], "no column 'keys'; did you mean 'key'?"),
        (["--batches", "--format", "raw"], "--format raw"),
        (["--follow", "--end-offset", "1"], "--follow has no end"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: list[str], said: str) -> None:
    result = run("dump", EXAMPLES / "shop-events-0", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize("options", [["--partition", "0"], ["--follow"]])
def test_option_for_folders_is_refused_of_a_file(options: list[str]) -> None:
    result = run("dump", EXAMPLES / "shop-events-0" / f"{0:020d}.log", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the path is that of a file" in result.stderr


@pytest.mark.parametrize("options", [["--limit", "300"], ["--batches"]])
def test_csv_has_what_json_has(options: list[str]) -> None:
    for path in (EXAMPLES / "shop-orders-0", golden_set("v2-records").log_dir / "nulls-none-0"):
        rows = list(csv.DictReader(io.StringIO(run("dump", path, "--format", "csv", *options).stdout)))
        found = lines("dump", path, *options)
        assert rows == [{name: csv_text(name, row) for name in rows[0]} for row in found]


def csv_text(name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if name == "headers":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def test_csv_tells_null_from_empty_and_bytes_from_text(tmp_path: Path) -> None:
    records = [Record(0, 1, None, b""), Record(1, 2, b"\xff", b'a"b,\nc')]
    write_partition(tmp_path / "events-0", [v2_batch(records)])
    shown = run("dump", tmp_path / "events-0", "--format", "csv").stdout
    header, first, rest = shown.split("\n", 2)
    assert header.split(",")[5:9] == ['"key"', '"key_base64"', '"value"', '"value_base64"']
    assert first.split(",")[5:9] == ["", "", '""', ""]
    assert ',"/w==","a""b,\nc",,' in rest


def test_csv_of_entries_has_their_names_first() -> None:
    shown = run("dump", EXAMPLES / "shop-events-0" / "leader-epoch-checkpoint", "--format", "csv").stdout
    assert shown == "epoch,start_offset\n0,0\n"


def test_raw_is_the_values_and_nothing_else(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", [batch(0, b"\xff\x00", b"", b"text")])
    assert run("dump", tmp_path / "events-0", "--format", "raw").stdout_bytes == b"\xff\x00\n\ntext\n"


class Following:
    """A process that follows a path, and the offsets that it has printed so far."""

    def __init__(self, output: Path, *arguments: str | Path) -> None:
        self._output = output
        command = [*COMMAND, "dump", *map(str, arguments), "--json", "--follow"]
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def rows(self) -> list[tuple[int, int]]:
        whole = self._output.read_text().rpartition("\n")[0]
        return [(row["partition"], row["offset"]) for row in map(json.loads, whole.splitlines())]

    def said(self) -> str:
        return self._output.with_suffix(".err").read_text()

    def wait(self, is_reached: Callable[[], bool]) -> None:
        until = time.monotonic() + DEADLINE_SECONDS
        while not is_reached():
            assert time.monotonic() < until, (self.rows(), self.said())
            time.sleep(0.02)

    def wait_for(self, *rows: tuple[int, int]) -> None:
        self.wait(lambda: len(self.rows()) >= len(rows))
        assert self.rows() == list(rows)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_SECONDS)


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def start(*arguments: str | Path) -> Following:
        started.append(Following(tmp_path / f"out-{len(started)}", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def test_followed_log_is_printed_as_it_grows_rolls_and_is_cut(tmp_path: Path, follow: Callable[..., Following]) -> None:
    folder = tmp_path / "logs" / "events-0"
    write_partition(folder, [batch(0, b"a", b"b", b"c")])
    first, second = (folder / f"{base:020d}.log" for base in (0, 4))
    following = follow(folder, "--last", "1")
    following.wait_for((0, 2))
    torn = batch(3, b"d")
    with first.open("ab") as file:
        file.write(torn[:-2])
        file.flush()
        time.sleep(0.5)
        file.write(torn[-2:])
    following.wait_for((0, 2), (0, 3))
    second.write_bytes(batch(4, b"e", b"f"))
    following.wait_for((0, 2), (0, 3), (0, 4), (0, 5))
    second.write_bytes(batch(4, b"g"))
    following.wait(lambda: "was cut from offset 6 to 5" in following.said())
    second.write_bytes(batch(4, b"g") + batch(5, b"h"))
    following.wait_for((0, 2), (0, 3), (0, 4), (0, 5), (0, 5))
    for path in folder.glob(f"{0:020d}.*"):
        path.unlink()
    second.rename(folder / "kept")
    (folder / f"{9:020d}.log").write_bytes(batch(9, b"i"))
    (folder / "kept").unlink()
    following.wait(lambda: following.rows()[-1] == (0, 9))
    assert "offsets 6 to 8 were removed before they were read" in following.said()
    assert following.interrupt() == 0


def test_followed_directory_shows_partitions_that_come_and_says_which_go(
    tmp_path: Path, follow: Callable[..., Following]
) -> None:
    folder = tmp_path / "logs"
    write_partition(folder / "events-0", [batch(0, b"a")])
    following = follow(folder, "--last", "1")
    following.wait_for((0, 0))
    write_partition(folder / "events-1", [batch(0, b"a")])
    following.wait_for((0, 0), (1, 0))
    shutil.rmtree(folder / "events-1")
    following.wait(lambda: "events-1 is gone" in following.said())
    assert following.interrupt() == 0


def metadata(topic_id: str) -> str:
    return f"version: 0\ntopic_id: {topic_id}"


def test_followed_log_that_is_made_again_beyond_its_old_end_is_printed_from_its_beginning(
    tmp_path: Path, follow: Callable[..., Following]
) -> None:
    folder = tmp_path / "logs" / "events-0"
    write_partition(folder, [batch(0, b"a", b"b")])
    (folder / "partition.metadata").write_text(metadata("Q2TYVrXaSDWPZ5lUZtm3Jg"))
    made = tmp_path / "events-0"
    write_partition(made, [batch(0, b"c", b"d", b"e", b"f")])
    (made / "partition.metadata").write_text(metadata("R2TYVrXaSDWPZ5lUZtm3Jg"))
    following = follow(folder)
    following.wait_for((0, 0), (0, 1))
    folder.rename(tmp_path / "deleted")
    made.rename(folder)
    following.wait_for((0, 0), (0, 1), (0, 0), (0, 1), (0, 2), (0, 3))
    # Either it is seen that the folder is another one, or that there is none for a while.
    assert "events-0 was deleted and made again" in following.said() or "events-0 is gone" in following.said()
    assert following.interrupt() == 0


@pytest.mark.parametrize(
    ("old", "new", "is_printed_again"),
    [
        ("Q2TYVrXaSDWPZ5lUZtm3Jg", "Q2TYVrXaSDWPZ5lUZtm3Jg", False),
        ("Q2TYVrXaSDWPZ5lUZtm3Jg", "R2TYVrXaSDWPZ5lUZtm3Jg", True),
        ("Q2TYVrXaSDWPZ5lUZtm3Jg", "damaged", True),
        (None, None, True),
    ],
)
def test_another_topic_id_and_without_one_another_folder_is_another_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str | None, new: str | None, *, is_printed_again: bool
) -> None:
    folder, made = tmp_path / "logs" / "events-0", tmp_path / "events-0"
    for each, topic_id in ((folder, old), (made, new)):
        write_partition(each, [batch(0, b"a"), batch(1, b"b")])
        if topic_id is not None:
            (each / "partition.metadata").write_text(metadata(topic_id))
    options = DumpOptions(str(folder), DumpRange(), Format.JSON)
    follower = _Follower(options, CountedOutput.of(options))
    follower.look()
    capsys.readouterr()
    folder.rename(tmp_path / "deleted")
    made.rename(folder)
    follower.look()
    printed = capsys.readouterr()
    assert printed.out.count("\n") == (2 if is_printed_again else 0)
    assert ("made again, and is printed from its beginning" in printed.err) is is_printed_again


def test_following_ends_after_so_many_rows_and_at_damage(tmp_path: Path, follow: Callable[..., Following]) -> None:
    folder = tmp_path / "logs" / "events-0"
    write_partition(folder, [batch(0, b"a", b"b"), batch(2, b"c")])
    limited = follow(folder, "--limit", "2")
    assert limited.process.wait(DEADLINE_SECONDS) == 0
    assert limited.rows() == [(0, 0), (0, 1)]
    damaged = bytearray(batch(3, b"d"))
    damaged[-1] ^= 1
    with (folder / f"{0:020d}.log").open("ab") as file:
        file.write(damaged + batch(4, b"e"))
    following = follow(folder)
    assert following.process.wait(DEADLINE_SECONDS) == 2
    assert following.rows() == [(0, 0), (0, 1), (0, 2)]
    assert following.said().startswith("error: [SEGLOG_CORRUPT_BATCH]")


def test_followed_committed_records_come_when_their_transaction_is_decided(
    tmp_path: Path, follow: Callable[..., Following]
) -> None:
    folder = tmp_path / "logs" / "events-0"
    record = Record(0, 1, b"k", b"b")
    undecided = v2_batch([record], base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    write_partition(folder, [batch(0, b"a"), undecided])
    following = follow(folder, "--isolation-level", "read_committed")
    following.wait_for((0, 0))
    with (folder / f"{0:020d}.log").open("ab") as file:
        file.write(control_batch("commit", 2, producer_id=7, producer_epoch=0))
    following.wait_for((0, 0), (0, 1))
    assert following.interrupt() == 0


def test_interrupted_command_ends_as_sigint_would(tmp_path: Path) -> None:
    script = (
        "import sys, sparklog.cli.commands.main as main\n"
        "def interrupt(path): raise KeyboardInterrupt\n"
        "main.logs_at = interrupt\n"
        "main.run()"
    )
    ran = subprocess.run([COMMAND[0], "-c", script, "describe", str(tmp_path)], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_full_disk_is_one_line_on_stderr() -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*COMMAND, "dump", str(EVENTS), "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 2
    assert ran.stderr == "error: the output cannot be written: No space left on device\n"


def test_csv_has_no_formulas_where_it_is_asked_for(tmp_path: Path) -> None:
    write_partition(tmp_path / "a-0", [batch(0, b"=1+1", b"1+1", b"@x\xff")])
    found = list(csv.DictReader(io.StringIO(run("dump", tmp_path, "--format", "csv", "--escape-formulas").stdout)))
    assert [row["value"] for row in found] == ["'=1+1", "1+1", ""]
    assert [row["producer_id"] for row in found] == ["-1"] * 3
    (tmp_path / "a-0" / "partition.metadata").write_text("version: 0\ntopic_id: -AAAAAAAAAAAAAAAAAAAAA\n")
    of_file = run("dump", tmp_path / "a-0" / "partition.metadata", "--format", "csv", "--escape-formulas")
    assert "'-AAAA" in of_file.stdout
    assert "'-AAAA" not in run("dump", tmp_path / "a-0" / "partition.metadata", "--format", "csv").stdout
    refused = run("dump", tmp_path, "--escape-formulas")
    assert (refused.exit_code, "--escape-formulas is for --format csv, and the format is table" in refused.stderr) == (
        2,
        True,
    )
