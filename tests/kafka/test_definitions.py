"""The definitions of messages are those of Kafka's newest release, and read what older releases write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kafka.definitions import DEFINITIONS, definitions_of, make
from tests.kafka.jars import NEWEST_TOOLS, OLD, jars
from tests.system.plain import holds

pytestmark = pytest.mark.kafka

BEFORE_4 = "3.9.1"
# They are in files of their own, or within other messages, and in no topic.
NO_RECORDS = {"ControlRecordTypeSchema", "DefaultPrincipalData", "ProducerSnapshot", "QuorumStateData", "AbortedTxn"}
# Share groups of 3.9 were not for use, and no later release reads them: type 9 is not known since, and the other value
# is cut short to those who know the later one.
OF_EARLY_SHARE_GROUPS = {
    "ShareGroupPartitionMetadataKey",
    "ShareGroupPartitionMetadataValue",
    "ShareGroupMetadataValue",
}


def test_definitions_are_those_of_the_newest_release() -> None:
    assert DEFINITIONS.read_text() == make()


@pytest.mark.parametrize("version", [OLD, BEFORE_4, NEWEST_TOOLS])
def test_messages_of_an_older_release_have_the_same_bytes(version: str) -> None:
    """But for metadata of 2.8, whose KRaft was a preview that no later release reads."""
    components = json.loads(DEFINITIONS.read_text())
    ours = {each["name"]: each for name, messages in components.items() if name != "source" for each in messages}
    compared = 0
    for name, definition in older(version):
        for each in valid(definition):
            # The type of a key was its version before 4.0: the same two bytes.
            ours_version = 0 if ours[name]["type"] == "coordinator-key" and each == ours[name]["apiKey"] else each
            assert ours_version in valid(ours[name]), f"{name} {each}"
            assert_reads(shape(ours[name], ours_version), shape(definition, each), f"{name} {each}")
            compared += 1
    assert compared > 10


def older(version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the definitions of records that an older release has."""
    for jar in sorted(jars(version).glob("kafka*.jar")):
        for name, definition in definitions_of(jar).items():
            is_read = not is_of_preview(definition) if version == OLD else True
            if version == BEFORE_4:
                is_read = name not in OF_EARLY_SHARE_GROUPS
            if name not in NO_RECORDS and is_read:
                yield name, definition


def is_of_preview(definition: dict[str, Any]) -> bool:
    return str(definition["type"]) == "metadata" or str(definition["name"]) == "LeaderChangeMessage"


def valid(definition: dict[str, Any]) -> range:
    first, _, last = definition["validVersions"].partition("-")
    return range(int(first), int(last or first) + 1)


def assert_reads(ours: Any, theirs: Any, what: str) -> None:
    """The newest release may have tags within a version that an older one never writes."""
    if not isinstance(theirs, tuple | list | dict):
        assert ours == theirs, what
    elif isinstance(theirs, dict):
        assert ours.keys() >= theirs.keys(), what
        for tag in theirs:
            assert_reads(ours[tag], theirs[tag], what)
    else:
        assert len(ours) == len(theirs), what
        for each, other in zip(ours, theirs, strict=True):
            assert_reads(each, other, what)


def shape(definition: dict[str, Any], version: int) -> Any:
    """Return what decides the bytes of a version: types, nulls and tags, in order."""
    shared = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}

    def of(fields: list[dict[str, Any]]) -> Any:
        tagged = [field for field in fields if holds(field.get("taggedVersions"), version)]
        plain = [field for field in fields if field not in tagged and holds(field.get("versions"), version)]
        return [of_field(field) for field in plain], {int(field["tag"]): of_field(field) for field in tagged}

    def of_field(field: dict[str, Any]) -> Any:
        kind = field["type"].removeprefix("[]")
        nested = field.get("fields") or shared.get(kind)
        nullable = holds(field.get("nullableVersions"), version)
        return field["name"].lower(), field["type"].startswith("[]"), nullable, of(nested) if nested else kind

    return holds(definition.get("flexibleVersions"), version), of(definition["fields"])
