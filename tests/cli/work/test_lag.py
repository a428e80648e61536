"""``lag``: how far a query is behind, by its checkpoint, once or again and again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.spark.stream.test_reader import append
from tests.terminal import run
from tests.topic.streams.test_checkpoints import batch


def test_followed_query_is_printed_as_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    append(logs / "t-0", 0, 20)
    batch(checkpoint, 0, '{"t":{"0":5}}')

    def meanwhile(seconds: float) -> None:
        if (checkpoint / "offsets" / "1").exists():
            raise KeyboardInterrupt
        batch(checkpoint, 1, '{"t":{"0":20}}')
        append(logs / "t-0", 20, 3)

    # Not `time.sleep` itself, which threads of Spark call as well.
    monkeypatch.setattr("sparklog.cli.work.lag.time", SimpleNamespace(sleep=meanwhile))
    done = run("lag", logs, checkpoint, "--follow", "--json")
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.output.splitlines()]
    assert [(row["offset"], row["end_offset"], row["lag"]) for row in found] == [(5, 20, 15), (20, 23, 3)]


def test_source_is_chosen_by_its_name(tmp_path: Path) -> None:
    append(tmp_path / "logs" / "t-0", 0, 20)
    batch(tmp_path / "checkpoint", 0, 'ours:{"t":{"0":5}}', 'theirs:{"t":{"0":7}}', version="v2")
    done = run("lag", tmp_path / "logs", tmp_path / "checkpoint", "--source", "theirs", "--json")
    assert json.loads(done.output)["offset"] == 7
