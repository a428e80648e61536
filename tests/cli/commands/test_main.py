"""The command line: what it prints where, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.output.text import bytes_text, time_text
from sparklog.errors import StorageError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.journal import Append, Journal, LogExtent
from sparklog.storage.local import LocalFile, LocalStorage
from sparklog.write.group_offsets import commit_group_offsets
from sparklog.write.journal import write_journal
from tests.build import Record, v2_batch, write_partition
from tests.golden import EXAMPLES, golden_set
from tests.places import directory_at
from tests.terminal import lines, run

COMMAND = [sys.executable, "-c", "from sparklog.cli.commands.main import run; run()"]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Copy the example directory and flip a bit of one batch's records, at offset 49 of shop-events-0."""
    folder = tmp_path / "logs"
    shutil.copytree(EXAMPLES, folder)
    path = folder / "shop-events-0" / f"{0:020d}.log"
    at = next(row for row in lines("dump", path, "--batches") if row["base_offset"] == 49)["position"]
    data = bytearray(path.read_bytes())
    data[at + 100] ^= 1
    path.write_bytes(data)
    return folder


def test_describe_topics_partitions_and_segments_as_json() -> None:
    topics = lines("describe", EXAMPLES)
    assert [(row["topic"], row["partitions"], row["offsets"]) for row in topics] == [
        ("__consumer_offsets", 1, 13),
        ("shop-events", 3, 2000),
        ("shop-orders", 2, 188),
    ]
    assert topics[1]["codecs"] == ["none", "gzip", "snappy", "lz4", "zstd"]
    partitions = lines("describe", EXAMPLES / "shop-orders", "--partitions", "--full")
    assert [(row["start_offset"], row["end_offset"], row["last_stable_offset"]) for row in partitions] == [
        (0, 94, 94)
    ] * 2
    assert partitions[0]["records"] + partitions[0]["control_batches"] == 94
    segments = lines("describe", EXAMPLES / "shop-events-0", "--segments")
    assert [(row["base_offset"], row["end_offset"]) for row in segments] == [(0, 335), (335, 590), (590, 632)]


@pytest.mark.parametrize("command", ["describe", "dump", "verify", "recover"])
@pytest.mark.parametrize("path", ["", " ", "file:", "file://[x", "a\0b", "\udcff"])
def test_path_that_is_none_is_not_the_folder_that_we_run_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, path: str
) -> None:
    monkeypatch.chdir(EXAMPLES / "shop-events-0")
    result = run(command, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert "[SEGLOG_INVALID_OPTION] path " in result.stderr


def test_link_to_a_partitions_folder_is_not_recovered(tmp_path: Path) -> None:
    """The lock would be that of the directory that the link is in."""
    shutil.copytree(EXAMPLES / "shop-events-0", tmp_path / "disk" / "shop-events-0")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "shop-events-0").symlink_to(tmp_path / "disk" / "shop-events-0")
    before = sorted((tmp_path / "disk").rglob("*"))
    result = run("recover", tmp_path / "logs", "--json")
    assert result.exit_code == 2
    assert "is a link to" in json.loads(result.stdout)["what"]
    assert sorted((tmp_path / "disk").rglob("*")) == before


def test_describe_as_a_table_is_plain_where_it_is_piped() -> None:
    result = run("describe", EXAMPLES)
    assert result.stdout.splitlines()[0].split()[:3] == ["TOPIC", "PARTS", "SEGS"]
    assert "shop-events" in result.stdout
    assert "\x1b" not in result.stdout


def test_describe_of_a_damaged_end_tells_what_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [v2_batch([Record(0, 1)])])
    with (folder / f"{0:020d}.log").open("ab") as file:
        file.write(b"\xff" * 50)
    result = run("describe", folder, "--partitions", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["end_offset"] is None
    assert result.stderr.startswith("warning: events-0: ")


def test_dump_tells_text_from_bytes_and_null_from_empty(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    headers = [("a", None), ("b", b""), ("b", b"\xff")]
    records = [
        Record(0, 1, None, b""),
        Record(1, 2, "å".encode(), b"\xff\x00", headers),
        Record(2, 3, b"", None),
    ]
    write_partition(folder, [v2_batch(records)])
    found = lines("dump", folder)
    assert (found[0]["key"], found[0]["value"], found[0]["headers"]) == (None, "", [])
    assert found[1]["key"] == "å"
    assert base64.b64decode(found[1]["value_base64"]) == b"\xff\x00"
    assert "value" not in found[1]
    assert found[1]["headers"] == [
        {"key": "a", "value": None},
        {"key": "b", "value": ""},
        {"key": "b", "value_base64": "/w=="},
    ]
    assert (found[2]["key"], found[2]["value"]) == ("", None)
    table = run("dump", folder).stdout
    assert '0xff00  [a=null b="" b=0xff]' in table


def test_dump_table_escapes_what_would_move_the_cursor(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [v2_batch([Record(0, 1, b"a\x1b[2Jb", b"line\nline")])])
    table = run("dump", folder).stdout
    assert "\x1b" not in table
    assert r"a\x1b[2Jb" in table
    assert r"line\nline" in table


def test_dump_from_an_offset_to_an_offset_with_a_limit() -> None:
    folder = EXAMPLES / "shop-events-0"
    assert [row["offset"] for row in lines("dump", folder, "--offset", "333", "--end-offset", "337")] == [
        333,
        334,
        335,
        336,
    ]
    assert [row["offset"] for row in lines("dump", folder, "--limit", "2")] == [0, 1]
    batches = lines("dump", folder, "--batches", "--offset", "333", "--end-offset", "337")
    assert [(row["base_offset"], row["last_offset"]) for row in batches] == [(304, 334), (335, 361)]


@pytest.mark.parametrize("time", ["1772442807500", "2026-03-02T09:13:27.500", "2026-03-02T10:13:27.500+01:00"])
def test_dump_from_a_time(time: str) -> None:
    found = lines("dump", EXAMPLES / "shop-events-0", "--time", time, "--limit", "1")
    assert found[0]["timestamp"] >= 1772442807500
    before = lines("dump", EXAMPLES / "shop-events-0", "--end-offset", str(found[0]["offset"]))
    assert all(row["timestamp"] < 1772442807500 for row in before)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_dump_at_an_isolation_level_gives_what_the_consumer_was_given(level: Any) -> None:
    golden = golden_set("v2-transactions")
    found = lines("dump", golden.log_dir / "transactions", "--isolation-level", level)
    assert [row["offset"] for row in found] == [row["offset"] for row in golden.records(level, "transactions", 0)]


def test_dump_of_a_topic_gives_its_partitions_one_after_another() -> None:
    found = lines("dump", EXAMPLES / "shop-orders")
    assert [row["partition"] for row in found] == sorted(row["partition"] for row in found)
    assert {(row["topic"], row["partition"]) for row in found} == {("shop-orders", 0), ("shop-orders", 1)}


def test_dump_of_checkpoints_and_metadata() -> None:
    assert {"topic": "shop-events", "partition": 1, "offset": 799} in lines(
        "dump", EXAMPLES / "recovery-point-offset-checkpoint"
    )
    assert lines("dump", EXAMPLES / "shop-events-0" / "leader-epoch-checkpoint") == [{"epoch": 0, "start_offset": 0}]
    assert list(lines("dump", EXAMPLES / "shop-events-0" / "partition.metadata")[0]) == ["topic_id"]
    deleted = golden_set("v2-lifecycle").log_dir / "deleted-0.f442c850a0aa41e498ac513910640125-delete"
    assert lines("dump", deleted) == lines("dump", deleted / f"{0:020d}.log")


def test_dump_prints_what_stands_before_damage_and_then_the_error(damaged: Path) -> None:
    for options in ([], ["--json"]):
        result = run("dump", damaged / "shop-events-0", "--offset", "45", *options)
        assert result.exit_code == 2
        assert len(result.stdout.splitlines()) == (4 if options else 6)
        assert re.match(r"error: \[SEGLOG_CORRUPT_BATCH\] CRC-32C .*offset 49\)", result.stderr)
        assert len(result.stderr.splitlines()) == 1
    batches = lines("dump", damaged / "shop-events-0", "--batches")
    assert [row["base_offset"] for row in batches if not row["is_valid"]] == [49]


def test_dump_begins_also_where_the_end_of_the_log_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [v2_batch([Record(0, 1)])])
    with (folder / f"{0:020d}.log").open("ab") as file:
        file.write(b"\xff" * 50)
    for path in (folder, folder / f"{0:020d}.log"):
        result = run("dump", path, "--json")
        assert result.exit_code == 2
        assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "nowhere"], "SEGLOG_PATH_NOT_FOUND"),
        (["verify", "nowhere"], "SEGLOG_PATH_NOT_FOUND"),
        (["dump", "nowhere"], "SEGLOG_PATH_NOT_FOUND"),
        (["dump", str(EXAMPLES), "--time", "yesterday"], "ISO 8601"),
        (["dump", str(EXAMPLES), "--time", "1", "--offset", "1"], "--offset and --time"),
        (["dump", str(EXAMPLES / "meta.properties")], "cannot dump"),
    ],
)
def test_what_cannot_be_done_is_one_line_on_stderr(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_folder_in_the_place_of_a_log_is_one_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "events-0" / f"{0:020d}.log").mkdir(parents=True)
    result = run("dump", tmp_path / "events-0")
    first, second = result.stderr.splitlines()
    assert "is not a regular file" in first
    assert second.startswith("note: nothing to show")


def test_verify_of_a_sound_directory_ends_with_0() -> None:
    result = run("verify", EXAMPLES)
    assert result.exit_code == 0
    assert "in 6 partitions checked: 0 errors, 0 warnings" in result.stdout


def test_verify_of_a_damaged_directory_ends_with_1(damaged: Path) -> None:
    result = run("verify", damaged)
    assert result.exit_code == 1
    assert "1 error, 0 warnings" in result.stdout
    result = run("verify", damaged / "shop-events", damaged / "shop-orders-0", "--json")
    assert result.exit_code == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    errors = [row for row in found if row.get("severity") == "error"]
    (damage,) = [row for row in found if "severity" not in row]
    assert (damage["first_offset"], damage["end_offset"] > 49) == (49, True)
    fields = ["severity", "code", "path", "position", "offset", "message", "fault", "command"]
    assert [list(row) for row in errors] == [fields]
    assert (errors[0]["offset"], errors[0]["path"]) == (49, str(damaged / "shop-events-0" / f"{0:020d}.log"))


def test_warnings_alone_end_with_0(damaged: Path) -> None:
    (damaged / "shop-events-1" / f"{0:020d}.index").unlink()
    result = run("verify", damaged / "shop-events-1")
    assert (result.exit_code, "0 errors, 1 warning" in result.stdout) == (0, True)


def test_many_findings_are_cut_in_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write_partition(folder, [v2_batch([Record(0, 1)], base_offset=n, crc=0) for n in range(600)])
    assert "... and 10" in run("verify", folder).stdout
    assert len(run("verify", folder, "--json").stdout.splitlines()) >= 600


def test_version() -> None:
    assert run("--version").stdout.startswith("sparklog ")


def test_piping_into_head_is_quiet() -> None:
    for options in ([], ["--json"]):
        command = [*COMMAND, "dump", str(EXAMPLES / "shop-events"), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""


def test_error_of_a_process_has_no_traceback() -> None:
    ran = subprocess.run([*COMMAND, "dump", "nowhere"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: [SEGLOG_PATH_NOT_FOUND]")
    assert len(ran.stderr.splitlines()) == 1


def test_describe_loads_no_compiled_code() -> None:
    script = "import sys, sparklog.cli.commands.main; print('numba' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def read_terminal(leader: int) -> bytes:
    """Return all that is written to a terminal, which is gone when the process has ended."""
    shown = b""
    with suppress(OSError):
        while piece := os.read(leader, 1 << 16):
            shown += piece
    os.close(leader)
    return shown


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(0, "1970-01-01 00:00:00.000"), (-1, "-"), (None, "-"), ((1 << 63) - 1, str((1 << 63) - 1))],
)
def test_times_as_text(timestamp: int | None, text: str) -> None:
    assert time_text(timestamp) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")])
def test_sizes_as_text(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_recover_finishes_what_a_dead_writer_left_and_says_it(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(EXAMPLES, folder)
    log = max((folder / "shop-events-0").glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole + b"torn")
    # A broker that was shut down, or that had flushed so far, leaves no torn end.
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (folder / name).unlink()
    staged = folder / "shop-events-0" / "seglog-00000000000000-0-0-0.log.staged"
    staged.write_bytes(b"x")
    would = lines("recover", folder, "--dry-run")
    assert {row["status"] for row in would} == {"would be"}
    assert log.read_bytes() != whole
    assert staged.exists()
    done = lines("recover", folder)
    assert [(row["path"], row["what"]) for row in done] == [(row["path"], row["what"]) for row in would]
    assert log.read_bytes() == whole
    assert not staged.exists()
    assert "0 things done" in run("recover", folder).stdout
    (kept,) = (folder / "shop-events-0").glob("*.cut")
    assert kept.read_bytes() == b"torn"
    assert "1 thing done" in run("recover", "--drop-cut", folder).stdout
    assert not kept.exists()


def test_recover_leaves_damage_alone_unless_told(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    first, second = v2_batch([Record(0, value=b"x" * 50)]), v2_batch([Record(0, value=b"y")], base_offset=1)
    log = folder / f"{0:020d}.log"
    log.write_bytes(first[:-1] + b"z" + second)
    result = run("recover", tmp_path)
    assert result.exit_code == 1
    assert "damaged" in result.stdout
    assert "recover --truncate" in result.stdout
    assert len(log.read_bytes()) == len(first + second)
    result = run("recover", tmp_path, "--truncate")
    assert result.exit_code == 0
    assert f"loses the {len(first + second)} bytes" in result.stdout
    assert log.read_bytes() == b""


def test_recover_of_a_commit_that_was_decided_finishes_it(tmp_path: Path) -> None:
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    first, second = v2_batch([Record(0, value=b"x")]), v2_batch([Record(0, value=b"y")], base_offset=1)
    log.write_bytes(first)
    (tmp_path / "a.staged").write_bytes(second)
    moves = (Append("a.staged", 0, len(second), f"t-0/{log.name}", len(first)),)
    journal = Journal("1", {"t-0": LogExtent(0, 1, 0, len(first))}, moves)
    write_journal(directory_at(tmp_path), journal)
    assert lines("describe", tmp_path)[0]["offsets"] == 1
    assert any("decided is not finished" in row["message"] for row in lines("verify", tmp_path))
    assert "a commit to 1 partition" in run("recover", tmp_path).stdout
    assert lines("describe", tmp_path)[0]["offsets"] == 2


def test_recover_finds_what_verify_finds(tmp_path: Path) -> None:
    """A flipped bit far from the end of a log that was closed cleanly."""
    folder = tmp_path / "logs"
    shutil.copytree(EXAMPLES, folder)
    log = min((folder / "shop-events-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    assert run("verify", folder).exit_code == 1
    for options in (["--dry-run"], []):
        result = run("recover", folder, *options)
        assert result.exit_code == 1
        assert "1 damaged and left as they are" in result.stdout
    assert log.read_bytes() == content


def test_recover_does_not_call_a_missing_permission_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(EXAMPLES, folder)
    whole = LocalStorage.open

    def refuse(self: LocalStorage, path: str) -> LocalFile:
        if "shop-events-0" in path and path.endswith(".log"):
            raise StorageError(f"no permission to read {path}")
        return whole(self, path)

    monkeypatch.setattr(LocalStorage, "open", refuse)
    result = run("recover", "--dry-run", folder, "--json")
    assert result.exit_code == 2
    assert {json.loads(line)["status"] for line in result.stdout.splitlines()} == {"failed"}


@pytest.mark.parametrize("options", [[], ["--json"], ["--batches"]])
@pytest.mark.parametrize("wanted", [["--offset", "99999999"], ["--time", "2030-01-01"]])
def test_dump_from_behind_the_end_says_what_the_log_holds(options: list[str], wanted: list[str]) -> None:
    result = run("dump", EXAMPLES / "shop-events-0", *wanted, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: [SEGLOG_OFFSET_OUT_OF_RANGE] {' '.join(wanted)}")
    latest = max(row["timestamp"] for row in lines("dump", EXAMPLES / "shop-events-0"))
    assert f"shop-events-0 has offsets 0 to 631, with times up to {time_text(latest)}" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_dump_of_many_logs_begins_where_one_of_them_reaches() -> None:
    ends = {row["partition"]: row["end_offset"] for row in lines("describe", EXAMPLES / "shop-events", "--partitions")}
    longest = max(ends, key=lambda partition: ends[partition])
    found = lines("dump", EXAMPLES / "shop-events", "--offset", str(ends[longest] - 1))
    assert [(row["partition"], row["offset"]) for row in found] == [(longest, ends[longest] - 1)]
    behind = run("dump", EXAMPLES / "shop-events", "--offset", str(ends[longest] + 1))
    assert behind.exit_code == 2
    assert behind.stderr.count(" has offsets 0 to ") == 3


def test_dump_of_nothing_at_the_very_end_is_noted_and_well() -> None:
    for options in (["--offset", "632"], ["--offset", "5", "--end-offset", "5"]):
        for more in ([], ["--json"], ["--batches"]):
            result = run("dump", EXAMPLES / "shop-events-0", *options, *more)
            assert (result.exit_code, result.stdout) == (0, "")
            assert result.stderr.startswith("note: nothing to show: shop-events-0 has offsets 0 to 631")


def test_dump_of_an_empty_log_is_noted(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", [], base_offset=7)
    result = run("dump", tmp_path / "events-0")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "note: nothing to show: events-0 has no record, and its next offset is 7\n"


@pytest.mark.parametrize("magic", [0, 1])
def test_dump_of_wrappers_gives_their_first_offset_and_their_count(magic: int) -> None:
    folder = golden_set("old-codecs").log_dir / f"v{magic}-gzip-0"
    found = lines("dump", folder, "--batches")
    records = lines("dump", folder)
    assert all(row["codec"] == "gzip" for row in found)
    for row in found:
        inside = [
            record["offset"] for record in records if row["base_offset"] <= record["offset"] <= row["last_offset"]
        ]
        assert (inside[0], len(inside)) == (row["base_offset"], row["record_count"])
    assert sum(row["record_count"] for row in found) == len(records)
    assert "?" not in run("dump", folder, "--batches").stdout
    first = found[0]
    assert lines("dump", folder, "--batches", "--end-offset", str(first["base_offset"] + 1)) == [first]


def test_dump_of_a_damaged_wrapper_does_not_make_up_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "v1-gzip-0"
    shutil.copytree(golden_set("old-codecs").log_dir / "v1-gzip-0", folder)
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    first = lines("dump", folder, "--batches")[0]
    assert (first["base_offset"], first["record_count"], first["is_valid"]) == (None, None, False)


@pytest.mark.parametrize("arguments", [["dump", str(EXAMPLES / "shop-events")], ["verify", str(EXAMPLES)]])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_pipe_that_is_closed_ends_a_command_as_sigpipe_would(arguments: list[str], options: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*COMMAND, *arguments, *options], stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 141


def test_pipe_that_is_closed_ends_no_repair_halfway(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"events-{number}"
        write_partition(folder, [v2_batch([Record(0, 1)])])
        with (folder / f"{0:020d}.log").open("ab") as file:
            file.write(bytes(100))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*COMMAND, "recover", "--json", str(tmp_path)], stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
    assert lines("recover", "--dry-run", tmp_path) == []


@pytest.mark.parametrize("command", ["describe", "verify"])
def test_processes_print_what_one_prints(command: str, damaged: Path) -> None:
    alone, together = (run(command, damaged, "--processes", count) for count in ("1", "2"))
    assert (together.exit_code, together.stdout) == (alone.exit_code, alone.stdout)
    assert run(command, damaged, "--processes", "0").exit_code == 2


def test_warm_up_says_where_compiled_kernels_are_kept(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARKLOG_CACHE_DIR": str(tmp_path / "kept"), "COLUMNS": "200"}
    code = (
        # Compiling all takes too long for a test: the smallest kernel stands for them.
        "import sparklog.record.kernels.warm_up, sparklog.record.kernels.compile as compile\n"
        "load = compile.KERNELS['capacity']; compile.KERNELS.clear(); compile.KERNELS['capacity'] = load\n"
        "from sparklog.cli.commands.main import run; run()"
    )
    ran = subprocess.run([sys.executable, "-c", code, "warm-up"], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "sparklog: compiling kernels, once for this machine\n")
    (folder,) = (tmp_path / "kept").iterdir()
    assert ran.stdout == f"all kernels (1) are compiled for this machine, in {folder}\n"
    assert len([path for path in folder.iterdir() if path.stat().st_size]) == 1


@pytest.mark.long
def test_warm_up_without_a_folder_to_keep_kernels_in_is_no_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparklog.record.kernels.compile._found_folders", lambda: ([], None))
    result = run("warm-up")
    assert result.exit_code == 1
    assert "set SPARKLOG_CACHE_DIR" in result.stderr


HOSTILE = "\x1b[2J\x7f\x9b\u202e\u2066"
ESCAPED = "\\x1b[2J\\x7f\\x9b\\u202e\\u2066"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a log directory in which a group, a value and a file have names that a terminal would obey."""
    write_partition(tmp_path / "a-0", [v2_batch([Record(0, 0, HOSTILE.encode(), HOSTILE.encode())])])
    commit_group_offsets(directory_at(tmp_path), HOSTILE, {TopicPartition("a", 0): OffsetCommit(0, HOSTILE, 1)})
    (tmp_path / "a-0" / HOSTILE).touch()
    (tmp_path / "a-0" / f"{0:020}.index{HOSTILE}").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["groups"], ["groups", "--offsets"], ["groups", "--lag"], ["verify"], ["describe"], ["dump"]],
)  # fmt: skip
def test_tables_have_no_character_that_a_terminal_obeys(hostile: Path, command: list[str]) -> None:
    found = run(*command, hostile)
    assert all(each.isprintable() or each == "\n" for each in found.stdout + found.stderr)
    if command[0] in ("groups", "verify"):
        assert ESCAPED in found.stdout


@pytest.mark.parametrize("form", ["json", "csv", "raw"])
def test_json_and_csv_on_a_terminal_have_escapes_that_mean_the_same_and_raw_is_raw(hostile: Path, form: str) -> None:
    path, piped = hostile / "a-0", run("dump", hostile / "a-0", "--format", form).stdout_bytes
    leader, follower = pty.openpty()
    with subprocess.Popen([*COMMAND, "dump", str(path), "--format", form], stdout=follower) as child:
        os.close(follower)
        shown = read_terminal(leader).replace(b"\r\n", b"\n")
        child.wait()
    assert HOSTILE.encode() in piped or form == "json"
    if form == "raw":
        assert shown == piped == HOSTILE.encode() + b"\n"
    else:
        assert all(each.isprintable() or each == "\n" for each in shown.decode())
    if form == "json":
        assert json.loads(shown) == json.loads(piped)
        assert json.loads(shown)["value"] == HOSTILE
