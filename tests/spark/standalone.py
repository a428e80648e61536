"""Programs of Spark that run beside the tests: a standalone cluster, and whatever says in its log that it is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import JAVA_OPTIONS

STARTED_WITHIN_SECONDS = 60


@contextmanager
def running(log: Path, environment: Mapping[str, str], *command: str) -> Iterator[None]:
    """Run a program in a process group of its own, and kill all of that in the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def wait_for(log: Path, pattern: str) -> re.Match[str]:
    """Return where a log says something, once it does."""
    deadline = time.monotonic() + STARTED_WITHIN_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{log.name} does not say {pattern!r}:\n{log.read_text(errors='replace')[-3000:]}")


@contextmanager
def standalone_cluster(folder: Path, spark_home: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a master and two workers on loopback, each worker with a core; yield the master's URL."""
    environment = {
        **environment,
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }
    start = (str(spark_home / "bin" / "spark-class"),)
    package = "org.apache.spark.deploy"
    loopback = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        log = folder / "master.log"
        master = (*start, f"{package}.master.Master", *loopback, "--port", "0")
        stack.enter_context(running(log, environment, *master))
        url = wait_for(log, r"Starting Spark master at (spark://\S+)")[1]
        for number in range(2):
            own = folder / f"worker-{number}"
            own.mkdir()
            worker = (*start, f"{package}.worker.Worker", *loopback, "--cores", "1", "--memory", "768m")
            stack.enter_context(running(own / "log", environment, *worker, "--work-dir", str(own), url))
        for number in range(2):
            wait_for(folder / f"worker-{number}" / "log", "Successfully registered with master")
        yield url
