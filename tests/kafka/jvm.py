"""Java processes that cannot outlive this one.

Three things see to it: each runs in a process group of its own that `atexit` kills, `Guard` halts it when the pipe
to this process closes (also when this process is killed), and every wait has an end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.kafka.jars import HarnessError, classpath

LOG_TAIL_LINES = 30
HEAP = "-Xmx512m"

_running: set[Jvm] = set()


class Jvm:
    """A Java main class in a process group of its own.

    Parameters
    ----------
    version : str
        The Kafka release whose jars it runs with.
    main : sequence of str
        Class name and arguments.
    log : Path
        Takes its standard error, and standard output unless `talks`; appended to.
    cwd : Path
        Working directory.
    talks : bool
        Standard input and output are pipes for the caller, and `Guard` stays out of the way: such a program
        ends at the end of its input by itself.
    """

    def __init__(
        self,
        version: str,
        main: Sequence[str],
        log: Path,
        cwd: Path,
        *,
        talks: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.name = main[0]
        java = ["java", HEAP, "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        java += ["-Dorg.slf4j.simpleLogger.showDateTime=true", *options, "-cp", classpath(version)]
        java += list(main) if talks else ["Guard", *main]
        with log.open("ab") as sink:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                java,
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else sink,
                stderr=sink,
                start_new_session=True,
            )
        _running.add(self)

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to its standard input."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe from its standard output; only with `talks`."""
        assert self.process.stdout is not None
        return self.process.stdout

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def log_text(self) -> str:
        """Everything it logged."""
        return self.log.read_text(errors="replace")

    def log_tail(self) -> str:
        """The last lines it logged."""
        return "\n".join(self.log_text().splitlines()[-LOG_TAIL_LINES:])

    def wait_for_log(self, pattern: str, timeout_s: float, start: int = 0) -> None:
        """Wait until a line after position `start` of the log matches, or raise `HarnessError` with the log's tail."""
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.log_text()[start:], re.MULTILINE):
            if not self.alive() or time.monotonic() > deadline:
                state = "still runs" if self.alive() else f"ended with status {self.process.returncode}"
                self.kill()
                raise HarnessError(f"{self.name} {state}, and did not log {pattern!r}:\n{self.log_tail()}")
            time.sleep(0.05)

    def terminate(self, timeout_s: float) -> None:
        """Send SIGTERM and wait; `HarnessError` when it does not end in time, or ended with something else."""
        if not self.alive():
            raise HarnessError(f"{self.name} ended by itself, status {self.process.returncode}:\n{self.log_tail()}")
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as err:
            self.kill()
            raise HarnessError(f"{self.name} did not stop in {timeout_s} s:\n{self.log_tail()}") from err
        self.kill()
        if status not in (0, 128 + signal.SIGTERM):
            raise HarnessError(f"{self.name} stopped with status {status}:\n{self.log_tail()}")

    def kill(self) -> None:
        """Send SIGKILL to the process group and wait. Harmless when it is gone."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        _running.discard(self)


def run_java(version: str, main: Sequence[str], cwd: Path, timeout_s: float = 120) -> str:
    """Run a Java program to its end and return its standard output.

    Raises
    ------
    HarnessError
        It did not end in time, or with a status other than 0. The message has its output.
    """
    command = ["java", HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath(version), "Guard", *main]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    # The guard's pipe must stay open, and communicate() would close it: the outputs are read by threads.
    texts: list[str] = ["", ""]
    readers = [
        threading.Thread(target=_collect, args=(pipe, texts, i), daemon=True)
        for i, pipe in enumerate((process.stdout, process.stderr))
    ]
    for reader in readers:
        reader.start()
    try:
        status = process.wait(timeout_s)
    except BaseException as err:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        if isinstance(err, subprocess.TimeoutExpired):
            raise HarnessError(f"{main[0]} did not end in {timeout_s} s") from err
        raise
    finally:
        for reader in readers:
            reader.join(10)
        process.stdin.close()
    if status:
        raise HarnessError(f"{' '.join(main)}\nexit status {status}\n{texts[0][-4000:]}\n{texts[1][-4000:]}")
    return texts[0]


def _collect(pipe: IO[str] | None, texts: list[str], i: int) -> None:
    if pipe is not None:
        with pipe:
            texts[i] = pipe.read()


def _kill_all() -> None:
    for jvm in list(_running):
        jvm.kill()


atexit.register(_kill_all)
