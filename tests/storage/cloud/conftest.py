"""A server of each kind for all tests of this folder, with the golden directories in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sparklog.storage.objects import file
from tests.spark.conftest import session, spark
from tests.storage.servers.buckets import in_environment, make_bucket, put_folder_into
from tests.storage.servers.proxy import Proxy, proxied
from tests.storage.servers.server import Server, azurite, fake_gcs, hdfs, seaweed

__all__ = ["session", "spark"]

DATA: Final = Path(__file__).parents[2] / "data"
SERVERS: Final[dict[str, Callable[[Path], AbstractContextManager[Server]]]] = {
    "s3": seaweed,
    "azure": azurite,
    "gcs": fake_gcs,
    "hdfs": hdfs,
}


class Golden(NamedTuple):
    """The golden directories in a bucket of a running server, whose variables are set."""

    server: Server
    url: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.storage)


@pytest.fixture(scope="module", params=SERVERS)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as server, in_environment(server.environment):
        yield Golden(server, put_folder_into(server, make_bucket(server, f"golden-{server.port}"), DATA, "data"))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    with seaweed(tmp_path_factory.mktemp("s3")) as server, in_environment(server.environment):
        yield Golden(server, put_folder_into(server, make_bucket(server, f"golden-{server.port}"), DATA, "data"))


@pytest.fixture
def proxy(s3: Golden, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the S3 server; the variables lead to it, and nothing is kept of earlier reads."""
    monkeypatch.setattr(file, "_spans", file._Spans())
    with proxied(s3.server.port) as found, in_environment(s3.server.environment_by(found.port)):
        yield found
