"""Parsing ``meta.properties``: both versions, and every damage is one error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptCheckpointError
from sparklog.inspect.meta_properties import MetaProperties, is_directory_id, parse_meta_properties
from tests.golden import golden_set

ID = "XRqbfiuRTM-M4eyTNUBq3w"


def parse(text: str | bytes) -> MetaProperties:
    return parse_meta_properties(text if isinstance(text, bytes) else text.encode(), "meta.properties")


def test_files_of_brokers() -> None:
    new, old = (golden_set(name).log_dir / "meta.properties" for name in ("v2-internal", "old-mixed"))
    assert parse(new.read_bytes()) == MetaProperties(1, "c3Bhcmtsb2ctdGVzdHMtMQ", 1, ID)
    assert parse(old.read_bytes()) == MetaProperties(0, "krZhHRuKSS2anyw7IdEMPQ", 1, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=2\ncluster.id=a\nnode.id=1",
        "version=1\nnode.id=1",
        "version=1\ncluster.id=a",
        "version=1\ncluster.id=a\nnode.id=-1",
        "version=1\ncluster.id=a\nnode.id=1.5",
        "version=1\ncluster.id=a\nnode.id=1180591620717411303424",
        "version=1\ncluster.id=a\nnode.id=1\nnode.id=2",
        "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=short",
        f"version=1\ncluster.id=a\nnode.id=1\ndirectory.id={'A' * 22}",
        "version=\\uZZZZ",
    ],
)
def test_what_no_broker_writes_is_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        parse(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with suppress(CorruptCheckpointError):
        parse(data)


def test_only_ids_of_directories_are_directories() -> None:
    assert is_directory_id(ID)
    assert not any(is_directory_id("A" * 21 + last) for last in "AQg")
