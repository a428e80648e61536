"""Records that commit offsets: what they say, and in which versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.log.files import TopicPartition
from sparklog.system.group_commits import commit_records, read_group
from sparklog.system.messages import decode_key, decode_value, message
from tests.system.logs import Put, put, write_log

NOW_MS = 1_790_000_000_000
COMPONENT = "group-coordinator"
OFFSETS = {TopicPartition("a", 0): 7, TopicPartition("b", 12): 1 << 40}


def committed(group: str, version: int) -> Put:
    return put("OffsetCommit", {"group": group, "topic": "a", "partition": 0}, {"offset": 3}, version)


def of_group(version: int, **fields: object) -> Put:
    value = {"protocolType": "consumer", "generation": 4, "protocol": None, "leader": None, "members": [], **fields}
    value["currentStateTimestamp"] = 1000
    return put("GroupMetadata", {"group": "g"}, value, version)


@pytest.mark.parametrize(
    ("there", "written"), [([], 3), ([0], 0), ([1], 1), ([1, 2], 2), ([3, 1], 3), ([4], 3), ([4, 0], 3)]
)
def test_version_is_the_newest_that_is_there_and_all_supported_brokers_read(
    tmp_path: Path, there: list[int], written: int
) -> None:
    steps = [committed(f"other-{version}", version) for version in there]
    before = read_group(write_log(tmp_path / "__consumer_offsets-0", steps), "g")
    assert before.offset_version == written
    for (key, value), (at, offset) in zip(commit_records("g", OFFSETS, before, NOW_MS), OFFSETS.items(), strict=True):
        assert key[:2] == b"\0\1"
        assert decode_key(COMPONENT, key) == {"group": "g", "topic": at.topic, "partition": at.partition}
        _, version, fields = decode_value(COMPONENT, 1, value)
        assert version == written
        assert fields is not None
        assert (fields["offset"], fields["metadata"], fields["commitTimestamp"]) == (offset, "", NOW_MS)
        assert fields.get("leaderEpoch", -1) == fields.get("expireTimestamp", -1) == -1


@pytest.mark.parametrize("version", [2, 3, 4])
def test_empty_classic_group_is_empty_since_now(tmp_path: Path, version: int) -> None:
    before = read_group(write_log(tmp_path / "__consumer_offsets-0", [of_group(version)]), "g")
    *offsets, (key, value) = commit_records("g", OFFSETS, before, NOW_MS)
    assert len(offsets) == 2
    assert key == b"\0\2" + message("GroupMetadataKey").encode({"group": "g"}, 0)
    _, written, fields = decode_value(COMPONENT, 2, value)
    assert written == version
    assert fields == {
        "protocolType": "consumer", "generation": 4, "protocol": None, "leader": None,
        "currentStateTimestamp": NOW_MS, "members": [],
    }  # fmt: skip


def test_group_that_has_members_or_does_not_say_since_when_is_left_as_it_is(tmp_path: Path) -> None:
    member = {"memberId": "m", "clientId": "", "clientHost": "", "subscription": b"", "assignment": b""}
    steps = {"one": of_group(3, members=[member]), "two": of_group(1), "three": committed("g", 3)}
    for name, step in steps.items():
        before = read_group(write_log(tmp_path / name, [step]), "g")
        assert len(commit_records("g", OFFSETS, before, NOW_MS)) == 2


def test_what_a_log_says_of_a_group_is_its_own(tmp_path: Path) -> None:
    tombstone = put("OffsetCommit", {"group": "gone", "topic": "a", "partition": 0}, None)
    log = write_log(tmp_path / "t", [committed("g", 3), committed("h", 3), tombstone, Put(b"\0\1", b"\0\1")])
    found = read_group(log, "g")
    assert found.offsets == {TopicPartition("a", 0): (3, "", 0)}
    assert found.groups == {"g", "h"}
    assert read_group(log, "new").offsets == {}
