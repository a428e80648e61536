"""Kafka's jars, brought once from Maven Central into ``tests/kafka/.jars/<version>/``, and the compiled tools."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

NEWEST = "4.4.0"
"""The newest release of the broker and the clients on Maven Central."""

NEWEST_TOOLS = "4.3.1"
"""The newest release with its command line tools there (``kafka-tools`` and ``kafka-tools-api``, missing of 4.4.0)."""

OLD = "2.8.2"
"""The last release line that writes magic 0 and 1, on topics with an old ``message.format.version``."""

HERE = Path(__file__).parent
JARS = HERE / ".jars"
SOURCES = {NEWEST: ("Guard.java", "KafkaTool.java", "Members.java"), NEWEST_TOOLS: ("KafkaReader.java",)}
"""What is compiled, by the release whose classes it is written for: those that a reader needs have moved since."""
MAVEN_TIMEOUT_S = 600


class HarnessError(Exception):
    """The harness, a broker or a tool failed; the message carries what they printed."""


@functools.cache
def jars(version: str) -> Path:
    """Return the directory of a release's jars; Maven brings them when it is not there yet.

    Raises
    ------
    HarnessError
        Maven is missing or failed.
    """
    directory = JARS / version
    with _fetching_alone():
        if directory.is_dir():
            return directory
        fetched = JARS / f"{version}.tmp-{os.getpid()}"
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dkafka.version={version}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        if version == NEWEST_TOOLS:
            command += ["-P", "tools"]
        _run(command, MAVEN_TIMEOUT_S)
        _publish(fetched, directory)
    return directory


@functools.cache
def connector_jars() -> list[Path]:
    """Return the jars that Spark's own Kafka connector needs beside Spark; Maven brings them."""
    pom = HERE / "connector-pom.xml"
    directory = JARS / f"connector-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    with _fetching_alone():
        if not directory.is_dir():
            fetched = JARS / f"connector.tmp-{os.getpid()}"
            command = ["mvn", "-q", "-B", "-f", str(pom)]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
            _run(command, MAVEN_TIMEOUT_S)
            _publish(fetched, directory)
    return sorted(directory.glob("*.jar"))


@functools.cache
def tool_classes() -> Path:
    """Return the directory of `KafkaTool`, `KafkaReader` and `Guard`, each compiled against the release it is for."""
    sources = {version: [HERE / name for name in names] for version, names in SOURCES.items()}
    contents = b"".join(path.read_bytes() for paths in sources.values() for path in paths)
    digest = hashlib.sha256("".join(SOURCES).encode() + contents).hexdigest()
    directory = JARS / f"classes-{digest[:16]}"
    if not directory.is_dir():
        built = JARS / f"classes.tmp-{os.getpid()}"
        for version, paths in sources.items():
            command = ["javac", "--release", "17", "-d", str(built), "-cp", f"{jars(version)}/*", *map(str, paths)]
            _run(command, 120)
        _publish(built, directory)
    return directory


def classpath(version: str) -> str:
    """Return the class path that runs a release's classes, and those of `tool_classes`."""
    return os.pathsep.join([str(tool_classes()), f"{jars(version)}/*"])


def is_zookeeper(version: str) -> bool:
    """Whether this harness runs the release with ZooKeeper: those before 3.5 (their KRaft was a preview)."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) < (3, 5)


@contextlib.contextmanager
def _fetching_alone() -> Iterator[None]:
    """Keep other processes of tests from Maven, whose own store of jars is for one at a time."""
    JARS.mkdir(exist_ok=True)
    with (JARS / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _publish(built: Path, directory: Path) -> None:
    # Another process may have been quicker: its directory is as good as ours.
    try:
        built.rename(directory)
    except OSError:
        shutil.rmtree(built)
        if not directory.is_dir():
            raise


def _run(command: list[str], timeout_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise HarnessError(f"{command[0]} did not run: {err}") from err
    if done.returncode:
        raise HarnessError(f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")
