"""Messages by Kafka's definitions, against a second maker of them, and against damage."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sparklog.errors import MessageDecodeError
from sparklog.log.reader import open_log
from sparklog.system.messages import (
    decode_framed,
    decode_key,
    decode_value,
    json_of,
    message,
    messages_of,
)
from tests.golden import golden_set
from tests.system.logs import encode_framed
from tests.system.plain import make, versions

ALL = [pytest.param(definition, version, id=f"{definition['name']}-{version}") for definition, version in versions()]
MADE_EACH = 20
FLIPS_EACH = 60


@pytest.mark.parametrize(("definition", "version"), ALL)
def test_message_of_every_version_decodes_to_its_fields_and_back(definition: dict[str, Any], version: int) -> None:
    found = message(definition["name"])
    for seed in range(MADE_EACH):
        made = make(definition, version, random.Random(seed))
        assert found.decode(made.data, version) == made.fields
        assert found.decode(found.encode(made.fields, version), version) == made.fields
        assert json_of(made.fields).startswith("{")


@pytest.mark.parametrize(("definition", "version"), ALL)
def test_tags_that_are_not_known_are_skipped(definition: dict[str, Any], version: int) -> None:
    found = message(definition["name"])
    for seed in range(MADE_EACH):
        made = make(definition, version, random.Random(seed), unknown_tags=True)
        assert found.decode(made.data, version) == made.fields


@pytest.mark.parametrize(("definition", "version"), ALL)
def test_message_cut_short_anywhere_or_longer_by_a_byte_is_an_error(definition: dict[str, Any], version: int) -> None:
    found, made = message(definition["name"]), make(definition, version, random.Random(7))
    for wrong in [*(made.data[:cut] for cut in range(len(made.data))), made.data + b"\0"]:
        with pytest.raises(MessageDecodeError, match=definition["name"]):
            found.decode(wrong, version)


@pytest.mark.parametrize(("definition", "version"), ALL)
def test_flipped_bits_give_fields_or_an_error_and_nothing_else(definition: dict[str, Any], version: int) -> None:
    found, dice = message(definition["name"]), random.Random(11)
    made = make(definition, version, dice)
    for _ in range(FLIPS_EACH if made.data else 0):
        damaged = bytearray(made.data)
        for _ in range(dice.choice([1, 1, 2, 8])):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            fields = found.decode(bytes(damaged), version)
        except MessageDecodeError:
            continue
        assert fields.keys() == made.fields.keys()


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff"])
def test_array_that_says_it_is_larger_than_the_bytes_is_refused_at_once(count: bytes) -> None:
    with pytest.raises(MessageDecodeError):
        message("ConsumerGroupTargetAssignmentMemberValue").decode(count + b"\0" * 100, 0)


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(MessageDecodeError, match="no UTF-8"):
        message("GroupMetadataKey").decode(b"\0\1\xff", 0)


def test_null_where_there_must_be_a_value_is_refused() -> None:
    with pytest.raises(MessageDecodeError, match="null at byte 0"):
        message("GroupMetadataKey").decode(b"\xff\xff", 0)
    with pytest.raises(MessageDecodeError, match="length -2"):
        message("GroupMetadataKey").decode(b"\xff\xfe", 0)


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\1\0\2\0", "tag 0 of 2 bytes"),  # longer than what is left
        (b"\2\0\1\0\0\1\0", "tag 0 of 1 bytes"),  # twice the same
        (b"\1\0\2\0\0", "ends at byte 1 of 2"),  # bytes behind what it holds
        (b"\1\0\1\2", "neither present nor null"),
    ],
)
def test_tagged_field_that_does_not_fit_is_refused(tags: bytes, reason: str) -> None:
    member = message("ConsumerGroupMemberMetadataValue")
    whole = member.encode({}, 0)
    assert whole.endswith(b"\1\0\1\0")
    with pytest.raises(MessageDecodeError, match=reason):
        member.decode(whole[:-4] + tags, 0)


def test_nullable_struct_in_a_tagged_field_is_written_as_a_broker_does() -> None:
    member = message("ConsumerGroupMemberMetadataValue")
    assert member.decode(member.encode({}, 0), 0)["classicMemberMetadata"] is None
    value = {"sessionTimeoutMs": 5, "supportedProtocols": [{"name": "range", "metadata": b"\1"}]}
    assert member.decode(member.encode({"classicMemberMetadata": value}, 0), 0)["classicMemberMetadata"] == value


@pytest.mark.parametrize("version", [-1, 5, 1 << 14])
def test_version_that_is_not_known_is_said(version: int) -> None:
    with pytest.raises(MessageDecodeError, match=f"OffsetCommitValue has version {version}, and those from 0 to 4"):
        message("OffsetCommitValue").decode(b"\0" * 40, version)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\x18", b"\xff\xff\0\0"])
def test_key_that_does_not_say_what_it_is_is_an_error(key: bytes | None) -> None:
    with pytest.raises(MessageDecodeError):
        decode_key("group-coordinator", key)


@pytest.mark.parametrize("value", [b"", b"\1", b"\0\0", b"\2\0\0", b"\1\x7f\0", b"\1\2\x01", b"\xff" * 9])
def test_frame_that_is_cut_short_or_not_known_is_an_error(value: bytes) -> None:
    with pytest.raises(MessageDecodeError):
        decode_framed(value, "metadata")


@pytest.mark.parametrize(
    ("folder", "component"),
    [("__consumer_offsets-0", "group-coordinator"), ("__transaction_state-0", "transaction-coordinator")],
)
def test_what_a_broker_wrote_decodes_with_no_byte_left_and_encodes_to_the_same(folder: str, component: str) -> None:
    records = open_log(golden_set("v2-internal").log_dir / folder).read(columns=["key", "value"]).to_pylist()
    assert len(records) >= 7
    for record in records:
        kind = int.from_bytes(record["key"][:2], "big")
        key = decode_key(component, record["key"])
        assert messages_of(component, "coordinator-key")[kind].encode(key, 0) == record["key"][2:]
        found, version, fields = decode_value(component, kind, record["value"])
        if fields is not None:
            assert version is not None
            assert found.encode_versioned(fields, version) == record["value"]


def test_metadata_that_a_broker_wrote_decodes_with_no_byte_left_and_encodes_to_the_same() -> None:
    values = open_log(golden_set("v2-internal").log_dir / "__cluster_metadata-0").read(columns="value")["value"]
    assert len(values) > 40
    for value in values.to_pylist():
        found, version, fields = decode_framed(value, "metadata")
        assert encode_framed(found, version, fields) == value
