"""Servers of object stores on loopback, for tests; each comes from a package registry.

A server that cannot be installed or started is a failure of the test, which is never skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = Path(__file__).parent / ".programs"
_START_SECONDS_MAX: Final = 90
AZURITE: Final = "azurite@3.35.0"
GCS: Final = "github.com/fsouza/fake-gcs-server@v1.52.3"


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes
    ----------
    port : int
        Its port on loopback.
    buckets : str
        The URL in front of the names of buckets, such as ``s3://``.
    environment : mapping of str to str
        The variables by which its users find it, with their credentials.
    """

    port: int
    buckets: str
    environment: Mapping[str, str] = field(repr=False)

    def environment_by(self, port: int) -> dict[str, str]:
        """Return the environment of a user who reaches it through another port, such as a proxy's."""
        return {name: text.replace(f":{self.port}", f":{port}") for name, text in self.environment.items()}


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and whose numbers plus 10,000 are free."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1] % 20_000 + 10_000
            with suppress(OSError):
                for bound, number in ((other, port + 10_000),):
                    bound.bind(("127.0.0.1", number))
                with socket.socket() as third:
                    third.bind(("127.0.0.1", port))
                if port not in found:
                    found.append(port)
    return found


@contextmanager
def installed(name: str) -> Iterator[Path]:
    """Hold the folder of a program while it is installed, by one process at a time."""
    PROGRAMS.mkdir(exist_ok=True)
    with (PROGRAMS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield PROGRAMS / name


@contextmanager
def running(command: Sequence[str], folder: Path, is_up: Any, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a server until the end of a ``with`` block, and wait until it answers."""
    output = folder / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment}, cwd=folder)
    try:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start: {output.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def answers(url: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> bool:
    """Return whether a server answers a request with success."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=dict(headers or {})), timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def seaweed(folder: Path) -> Iterator[Server]:
    """Run SeaweedFS, an S3 server, with one user and no bucket."""
    master, volume, filer, port = free_ports(4)
    actions = ["Admin", "Read", "Write", "List"]
    identity = {"name": "us", "credentials": [{"accessKey": "our-key", "secretKey": "our-secret"}], "actions": actions}
    reader = {"name": "they", "credentials": [{"accessKey": "their-key", "secretKey": "their-secret"}], "actions": []}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity, reader]}))
    ports = {"master.port": master, "volume.port": volume, "filer.port": filer, "s3.port": port}
    command = [str(Path(sys.executable).parent / "weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-filer", "-s3"]
    command += [*(f"-{name}={number}" for name, number in ports.items()), f"-s3.config={folder / 's3.json'}"]
    command += [
        "-volume.max=100",
        "-master.volumeSizeLimitMB=64",
        "-master.telemetry=false",
        "-s3.iam=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    environment = {
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "our-key",
        "AWS_SECRET_ACCESS_KEY": "our-secret",
    }
    with running(command, folder, lambda: answers(f"http://127.0.0.1:{port}/status"), {}):
        yield Server(port, "s3://", environment)


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """Run Azurite, a server of Azure's blobs."""
    with installed("azurite") as program:
        if not (program / "ready").exists():
            shutil.rmtree(program, ignore_errors=True)
            subprocess.run(["npm", "install", "--silent", "--prefix", str(program), AZURITE], check=True)
            (program / "ready").touch()
    (port,) = free_ports(1)
    command = [str(program / "node_modules/.bin/azurite-blob"), "--blobPort", str(port), "--skipApiVersionCheck"]
    command += ["--silent", "--location", str(folder), "--disableTelemetry"]
    # The account that every Azurite has, and its documented key.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
        "AZURE_STORAGE_ACCOUNT_KEY": key,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/devstoreaccount1",
        "AZURE_ALLOW_HTTP": "true",
    }
    with running(command, folder, lambda: _is_open(port), {}):
        yield Server(port, "az://", environment)


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Server]:
    """Run fake-gcs-server, a server of Google Cloud Storage."""
    with installed("gcs") as program:
        if not (program / "fake-gcs-server").exists():
            environment = {**os.environ, "GOBIN": str(program), "CGO_ENABLED": "0"}
            subprocess.run(["go", "install", GCS], check=True, env=environment)
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = [str(program / "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-external-url", address, "-public-host", f"127.0.0.1:{port}", "-log-level=error"]
    account = folder / "account.json"
    unused = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    account.write_text(json.dumps({"gcs_base_url": address, "disable_oauth": True, **unused}))
    with running(command, folder, lambda: _is_open(port), {}):
        yield Server(port, "gs://", {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_ALLOW_HTTP": "true"})


@contextmanager
def hdfs(folder: Path) -> Iterator[Server]:
    """Run a name node and a data node of HDFS in one process."""
    here = Path(__file__).parent
    with installed("hdfs") as program:
        if not (program / "ready").exists():
            command = ["mvn", "-q", "-B", "-f", str(here / "hdfs-pom.xml"), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={program}"], check=True)
            (program / "ready").touch()
    java = ["java", "-Xmx768m", "-XX:+UseSerialGC", "-cp", f"{program}/*", str(here / "MiniDfs.java")]
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [*java, str(folder / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, cwd=folder
        )
    try:
        assert process.stdout is not None
        port = next((int(line.split()[1]) for line in process.stdout if line.startswith(b"PORT ")), None)
        if port is None:
            raise RuntimeError(f"HDFS did not start: {(folder / 'output.txt').read_text(errors='replace')[-2000:]}")
        yield Server(port, f"hdfs://127.0.0.1:{port}/", {"HADOOP_USER_NAME": "us"})
    finally:
        process.kill()
        process.communicate()


def _is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
