"""What the README tells users to run is run; what it says of options and targets is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SHELL_LINES = [line.split("  #")[0].strip() for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


def test_python_snippets_run_one_after_the_other() -> None:
    snippets = [text for kind, text in BLOCKS if kind == "python" and "/var/lib/kafka" not in text]
    assert len(snippets) >= 3
    done = run(sys.executable, "-W", "error::DeprecationWarning:sparklog", "-c", "\n".join(snippets))
    assert done.returncode == 0, done.stderr
    assert "user-" in done.stdout


@pytest.mark.parametrize("line", [line for line in SHELL_LINES if line.startswith("sparklog ")])
def test_command_line_runs(line: str) -> None:
    done = run(*line.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_make_targets_exist_and_ci_runs_them() -> None:
    named = {line.split()[1] for line in SHELL_LINES if line.startswith("make ")} | {"test-kafka"}
    assert named >= {"demo", "test"}
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert re.search(rf"^make {target}$", ci, re.MULTILINE)


def test_options_table_is_that_of_the_code() -> None:
    from sparklog.spark.options import described

    rows = dict(re.findall(r"^\| `([A-Za-z.]+)` \| [^|]* \| (.*) \|$", README, re.MULTILINE))
    for name, _, doc in described():
        if name != "paths":
            assert rows.get(name) == doc.replace("|", "\\|"), f"the README says of {name}: {rows.get(name)}"


def test_quickstart_prints_records_an_aggregation_and_where_time_went() -> None:
    done = run(sys.executable, "examples/quickstart.py")
    assert done.returncode == 0, done.stderr
    for expected in ("user-", "page_view", "committed", "where time went"):
        assert expected in done.stdout
