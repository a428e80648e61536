"""The text files of a log directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptCheckpointError
from sparklog.log.checkpoints import (
    encode_leader_epochs,
    encode_offset_checkpoint,
    encode_topic_id,
    parse_leader_epochs,
    parse_offset_checkpoint,
    parse_topic_id,
)
from sparklog.log.files import TopicPartition
from tests.build import leader_epoch_checkpoint, offset_checkpoint
from tests.golden import DATA, golden_sets

OFFSETS = st.dictionaries(
    st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
)


@given(OFFSETS)
def test_offset_checkpoint_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    found = parse_offset_checkpoint(offset_checkpoint(offsets).encode(), "x")
    assert found == {TopicPartition(*key): offset for key, offset in offsets.items()}


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2**63 - 1))))
def test_leader_epoch_checkpoint_round_trip(epochs: list[tuple[int, int]]) -> None:
    assert parse_leader_epochs(leader_epoch_checkpoint(epochs).encode(), "x") == epochs


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n", b"\n"])
def test_empty_checkpoint_has_no_line(data: bytes) -> None:
    assert parse_offset_checkpoint(data, "x") == {}


@pytest.mark.parametrize("data", [b"1\n0\n", b"7", b"0\n1\n", b"0\n1\na b\n", b"0\n1\na 0 x\n", b"0\nz\n", b"\xff\xff"])
def test_damaged_checkpoint_names_its_file(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="/logs/log-start"):
        parse_offset_checkpoint(data, "/logs/log-start")


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for parse in (parse_offset_checkpoint, parse_leader_epochs, parse_topic_id):
        try:
            parse(data, "x")
        except CorruptCheckpointError:
            continue


TOPIC_ID = "KVWSeREGR6epFvAH9VCwBA"
METADATA = [
    f"version: 0\ntopic_id: {TOPIC_ID}",
    f"version: 1\ntopic_id: {TOPIC_ID}\n",
    f"version: 2147483647\ntopic_id: {TOPIC_ID}\nsomething: new\n",
    f"version:  7\r\ntopic_id:\t{TOPIC_ID}\r\n",
    f"version: 0\ntopic_id: {TOPIC_ID}==",
]
NOT_METADATA = [
    "",
    "version: 0\n",
    f"topic_id: {TOPIC_ID}\n",
    f"version: -1\ntopic_id: {TOPIC_ID}\n",
    f"version: x\ntopic_id: {TOPIC_ID}\n",
    f"version:0\ntopic_id:{TOPIC_ID}\n",
    f"version: 0\ntopic_id: {'A' * 22}\n",
    f"version: 0\ntopic_id: {TOPIC_ID[:-1]}\n",
    f"version: 0\ntopic_id: {TOPIC_ID}x\n",
]


@pytest.mark.parametrize("text", METADATA)
def test_topic_id_is_read_of_every_version(text: str) -> None:
    assert parse_topic_id(text.encode(), "x") == TOPIC_ID


@pytest.mark.parametrize("text", NOT_METADATA)
def test_metadata_without_a_topic_id_is_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpointError, match="/logs/partition"):
        parse_topic_id(text.encode(), "/logs/partition.metadata")


def test_every_golden_checkpoint_reads() -> None:
    checkpoints = [path for path in DATA.glob("*/logs/*-checkpoint") if path.is_file()]
    assert len(checkpoints) >= 30
    for path in checkpoints:
        parse_offset_checkpoint(path.read_bytes(), str(path))
    metadata = list(DATA.glob("*/logs/*/partition.metadata"))
    assert len(metadata) >= 20
    for path in metadata:
        assert len(parse_topic_id(path.read_bytes(), str(path))) == 22


def test_files_of_brokers_are_encoded_byte_by_byte() -> None:
    compared = 0
    for golden in golden_sets():
        for path in golden.log_dir.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            if path.name.endswith("-offset-checkpoint") and data:
                assert encode_offset_checkpoint(parse_offset_checkpoint(data, str(path))) == data, path
            elif path.name == "leader-epoch-checkpoint" and data:
                assert encode_leader_epochs(parse_leader_epochs(data, str(path))) == data, path
            elif path.name == "partition.metadata":
                assert encode_topic_id(parse_topic_id(data, str(path))) == data, path
            else:
                continue
            compared += 1
    assert compared > 50
