"""What ``meta.properties`` says of a log directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.inspect.describe import DirectoryDescription, describe_directory
from tests.golden import EXAMPLES
from tests.places import directory_at


def test_golden_directory_says_whose_it_is() -> None:
    found = describe_directory(directory_at(EXAMPLES))
    assert (found.cluster_id, found.node_id, found.error) == ("c3Bhcmtsb2ctdGVzdHMtMQ", 1, None)
    assert found.directory_id == "VeAgg9OkcjTVNMjRRv-Uqg"


def test_old_file_says_the_brokers_number(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\n")
    assert describe_directory(directory_at(tmp_path)) == DirectoryDescription(str(tmp_path), None, 7, None)


def test_directory_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert describe_directory(directory_at(tmp_path)) == DirectoryDescription(str(tmp_path))


@pytest.mark.parametrize("content", [b"node.id=x", b"node.id=\\u12"])
def test_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    found = describe_directory(directory_at(tmp_path))
    assert found.error is not None
    assert found.error.startswith(f"{tmp_path}/meta.properties: ")
    assert found.node_id is None
