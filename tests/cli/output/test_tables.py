"""Tables at any width: no line is wider than the terminal, and no word is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparklog.cli.output.tables import _folded
from tests.build import Record, v2_batch, write_partition
from tests.golden import EXAMPLES
from tests.terminal import on_a_terminal, run

COMMANDS = [
    ["describe", str(EXAMPLES)],
    ["describe", str(EXAMPLES), "--full"],
    ["describe", str(EXAMPLES), "--ratio", "--histogram"],
    ["describe", str(EXAMPLES), "--partitions"],
    ["describe", str(EXAMPLES), "--partitions", "--ratio"],
    ["describe", str(EXAMPLES), "--segments"],
    ["describe", str(EXAMPLES), "--segments", "--full"],
    ["dump", str(EXAMPLES / "shop-events-0")],
    ["dump", str(EXAMPLES / "shop-orders-0"), "--batches"],
    ["dump", str(EXAMPLES / "recovery-point-offset-checkpoint")],
    ["verify", str(EXAMPLES)],
]
NEVER_LEFT_OUT = {"TOPIC", "PARTITION", "PARTS", "SIZE", "OFFSETS", "START", "END", "BASE", "RECORDS", "WHAT", "VALUE"}


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(arguments: list[str], columns: int) -> None:
    shown = on_a_terminal(columns, *arguments)
    assert shown.strip()
    if columns >= 80:
        assert max(map(len, shown.splitlines())) <= columns
    if arguments[0] == "describe":
        whole = set(re.split(r"\s+", run(*arguments).stdout))
        for line in re.sub(r"\(a wider.*?\)\n", "", shown, flags=re.DOTALL).splitlines():
            for word in line.split():
                # Times are cut to their dates, and a share of the bytes follows its codec.
                assert word in whole or any(each.startswith(word) for each in whole if "-" in word), word


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_what_matters_is_shown_at_80_columns(arguments: list[str]) -> None:
    piped, shown = run(*arguments).stdout, on_a_terminal(80, *arguments)
    titles = {word for word in piped.split() if word in NEVER_LEFT_OUT}
    assert titles
    assert titles <= set(shown.split())


def test_pipe_gets_every_column_whole() -> None:
    header = run("describe", EXAMPLES, "--partitions").stdout.splitlines()[0]
    assert re.split(r"\s{2,}", header) == [
        "PARTITION", "SEGS", "SIZE", "START", "END", "STABLE", "FROM (UTC)", "TO", "FORMATS",
    ]  # fmt: skip


def test_columns_that_are_left_out_are_named() -> None:
    shown = on_a_terminal(60, "describe", str(EXAMPLES), "--partitions")
    assert "(a wider terminal or --json shows more: " in shown
    assert "SEGS" in shown.partition("(a wider")[2]
    assert "SEGS" not in shown.partition("(a wider")[0]


def test_long_topic_is_folded_at_its_dots_and_dashes(tmp_path: Path) -> None:
    topic = "europe-west.payments.card-authorizations.declined-by-issuer.retry_queue"
    write_partition(tmp_path / f"{topic}-0", [v2_batch([Record(0, 1, b"k", b"v")])])
    shown = on_a_terminal(80, "describe", str(tmp_path))
    pieces = [line.split("  ")[0].strip() for line in shown.splitlines()[1:]]
    assert "".join(pieces).startswith(topic)
    assert pieces[0][-1] in ".-_"
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("one two-three", 9, ["one", "two-three"]),
        ("see /a/long/path/name here", 12, ["see /a/long/", "path/name", "here"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("日本語 日本", 6, ["日本語", "日本"]),
    ],
)
def test_folding(text: str, width: int, lines: list[str]) -> None:
    assert _folded(text, width) == lines
