"""Workers of another Python: the user is told in one sentence which Python they run, and what to set."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.errors import WorkerPythonError
from sparklog.spark.read.reader import SeglogReader
from sparklog.spark.worker import process as workers
from tests.spark.conftest import ROOT

REGISTER = """
import os, sys
from pyspark.sql import SparkSession
sys.path.insert(0, sys.argv[1])
import sparklog
for python in sys.argv[3:]:
    os.environ["PYSPARK_PYTHON"] = python
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        sparklog.register(spark)
    except sparklog.errors.WorkerPythonError as error:
        print(error)
    else:
        print("ROWS", spark.read.format("seglog").load(sys.argv[2]).count())
    spark.stop()
"""


def registered(folder: Path, *pythons: str | Path, **environment: str) -> list[str]:
    """Return what a program prints that registers the format with each Python, in a folder that has no sparklog."""
    without = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    command = [sys.executable, "-c", REGISTER, str(ROOT), str(ROOT / "examples" / "data"), *map(str, pythons)]
    environment = {**without, "PYSPARK_PYTHON": str(pythons[0]), **environment}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has none of our packages: this one, without those that were installed into it."""
    python = tmp_path_factory.mktemp("bare") / "bare-python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture(scope="module")
def refusals(bare_python: Path) -> list[str]:
    """Return what is said of a Python without sparklog, and then of one that is not there."""
    return registered(bare_python.parent, bare_python, bare_python.with_name("nowhere"))


def test_python_without_sparklog_is_named_in_one_sentence_with_what_to_set(refusals: list[str]) -> None:
    line, _ = refusals
    version = sys.version.split()[0]
    assert line.startswith("[SEGLOG_WORKER_PYTHON] the Python that Spark's workers run, ")
    assert f"({version}), has no sparklog, numpy, numba, pyarrow; set PYSPARK_PYTHON={sys.executable}, " in line


def test_python_that_is_not_there_is_named(refusals: list[str], bare_python: Path) -> None:
    _, line = refusals
    nowhere = bare_python.with_name("nowhere")
    assert line.startswith(
        f"[SEGLOG_WORKER_PYTHON] Spark's workers cannot run their Python, {nowhere}: Cannot run program "
    )
    assert f"set PYSPARK_PYTHON={sys.executable}, " in line


def test_driver_s_python_that_is_jupyter_reads_once_the_format_is_registered(tmp_path: Path) -> None:
    """Spark looks for formats with the driver's Python, and a notebook's cannot be asked so."""
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\nexit 1\n")
    jupyter.chmod(0o755)
    printed = registered(tmp_path, sys.executable, PYSPARK_DRIVER_PYTHON=str(jupyter), PYTHONPATH=str(ROOT))
    assert printed == ["ROWS 2149"]


def test_workers_are_asked_by_a_task_where_this_machine_does_not_tell(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str] = []
    answer = workers._answer

    def answered(session: SparkSession) -> str:
        answers.append(answer(session))
        return answers[-1]

    monkeypatch.setattr(workers, "_has_all_here", lambda _: False)
    monkeypatch.setattr(workers, "_asked", set())
    monkeypatch.setattr(workers, "_answer", answered)
    for _ in range(2):
        sparklog.register(spark)
    (only,) = answers
    assert only.endswith(", []]")


def test_what_a_task_cannot_tell_for_another_reason_is_a_warning(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "_has_all_here", lambda _: False)
    monkeypatch.setattr(workers, "_asked", set())
    monkeypatch.setattr(workers, "_answer", _raising("no task is let in"))
    sparklog.register(spark)
    assert "no task is let in" in caplog.text


def test_python_of_another_version_is_told_from_what_spark_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_has_all_here", lambda _: False)
    monkeypatch.setattr(workers, "_asked", set())
    said = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11"
    monkeypatch.setattr(workers, "_answer", _raising(f"An error occurred\n  at here: {said}.\n at there"))
    with pytest.raises(WorkerPythonError) as raised:
        sparklog.register(spark)
    assert f"{spark.sparkContext.pythonExec}: {said}; set PYSPARK_PYTHON=" in str(raised.value)


def _raising(text: str) -> Any:
    def fail(_: object) -> str:
        raise RuntimeError(text)

    return fail


def test_session_without_a_context_is_asked_by_a_query(spark: SparkSession) -> None:
    class Remote:
        """A session of Spark Connect has no context."""

        range = spark.range

    assert workers._answer(Remote()).endswith(", []]")  # type: ignore[arg-type]


def test_reader_that_a_worker_without_sparklog_loads_says_what_to_do(bare_python: Path, tmp_path: Path) -> None:
    reader = SeglogReader("options", "schema", "columns")  # type: ignore[arg-type]
    assert vars(pickle.loads(pickle.dumps(reader))) == vars(reader)
    file = tmp_path / "reader"
    file.write_bytes(pickle.dumps(reader))
    load = "import pickle, pathlib, sys; pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())"
    ran = subprocess.run([bare_python, "-c", load, file], capture_output=True, text=True, cwd=tmp_path, env={})
    assert ran.stderr.splitlines()[-1].startswith("ImportError: the Python that this worker of Spark runs, ")
    assert ran.stderr.splitlines()[-1].endswith(
        "has no sparklog: install it there, or set PYSPARK_PYTHON to a Python that has it, before the session is made"
    )
