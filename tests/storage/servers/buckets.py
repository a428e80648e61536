"""Makes buckets on the servers, and puts folders into them."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import hdfs_native
import obstore
import pytest

from sparklog.storage.objects import stores
from sparklog.storage.objects.stores import store_of
from tests.storage.servers.server import Server


@contextmanager
def in_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Have variables set, for this process and the processes that it starts."""
    with pytest.MonkeyPatch.context() as patched:
        for name in os.environ:
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "HADOOP_")):
                patched.delenv(name)
        for name, text in environment.items():
            patched.setenv(name, text)
        # Stores take the variables when they are made.
        stores._opened.clear()
        yield
    stores._opened.clear()


def make_bucket(server: Server, name: str) -> str:
    """Make a bucket, and return its URL. The S3 server makes buckets by itself."""
    if server.buckets == "gs://":
        body, kind = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
        _send(urllib.request.Request(f"http://127.0.0.1:{server.port}/storage/v1/b", data=body, headers=kind))
    if server.buckets == "az://":
        _send(_container(server, name))
    return f"{server.buckets}{name}"


def put_folder_into(server: Server, bucket: str, folder: Path, prefix: str = "") -> str:
    """Put the files of a folder into a bucket of a server whose variables are set; return the URL of the folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]

    def put(path: Path) -> None:
        put_object(server, bucket, f"{prefix}/{path.relative_to(folder)}".strip("/"), path.read_bytes())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, files))
    return f"{bucket}/{prefix}".rstrip("/")


def put_object(server: Server, bucket: str, key: str, data: bytes) -> None:
    """Put an object into a bucket."""
    if server.buckets.startswith("hdfs:"):
        with hdfs_native.Client(server.buckets).create(
            f"{bucket.removeprefix(server.buckets.rstrip('/'))}/{key}", hdfs_native.WriteOptions(overwrite=True)
        ) as file:
            file.write(data)
        return
    if server.buckets != "gs://":
        obstore.put(store_of(bucket, ()).store, key, data)  # type: ignore[attr-defined]
        return
    # The server does not take the uploads of the library, which are those of the XML interface.
    query = urllib.parse.urlencode({"uploadType": "media", "name": key})
    url = f"http://127.0.0.1:{server.port}/upload/storage/v1/b/{bucket.removeprefix(server.buckets)}/o?{query}"
    _send(urllib.request.Request(url, data=data, headers={"Content-Type": "application/octet-stream"}))


def _container(server: Server, name: str) -> urllib.request.Request:
    account, key = (server.environment[f"AZURE_STORAGE_ACCOUNT_{each}"] for each in ("NAME", "KEY"))
    date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
    headers = {"x-ms-date": date, "x-ms-version": version, "Content-Length": "0"}
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}", f"/{account}/{account}/{name}"]
    signed = hmac.new(base64.b64decode(key), "\n".join([*lines, "restype:container"]).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signed.digest()).decode()}"
    url = f"http://127.0.0.1:{server.port}/{account}/{name}?restype=container"
    return urllib.request.Request(url, method="PUT", headers=headers)


def _send(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=30):
        pass
