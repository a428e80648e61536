"""Makes ``sparklog/system/definitions.json`` from the message definitions in Kafka's jars: ``make definitions``.

What is kept of a definition is what decides its bytes: names, types, versions, nulls, tags and defaults. Texts about
fields, and what only code generators need, are left out.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.kafka.jars import NEWEST, jars

DEFINITIONS = Path(__file__).parent.parent.parent / "sparklog" / "system" / "definitions.json"

COMPONENTS: dict[str, frozenset[str] | None] = {
    "group-coordinator": None,
    "transaction-coordinator": None,
    "share-coordinator": None,
    "metadata": None,
    "storage": frozenset(
        {
            "RemoteLogSegmentMetadataRecord",
            "RemoteLogSegmentMetadataUpdateRecord",
            "RemotePartitionDeleteMetadataRecord",
            "RemoteLogSegmentMetadataSnapshotRecord",
        }
    ),
    "clients": frozenset(
        {
            "ConsumerProtocolSubscription",
            "ConsumerProtocolAssignment",
            "LeaderChangeMessage",
            "SnapshotHeaderRecord",
            "SnapshotFooterRecord",
            "KRaftVersionRecord",
            "VotersRecord",
            "EndTxnMarker",
        }
    ),
}
"""The jars that are looked into, and what is taken of each; all of it where None is said."""

_KEPT = ("name", "type", "versions", "nullableVersions", "taggedVersions", "flexibleVersions", "tag", "default")
_KEPT_OF_MESSAGE = ("type", "name", "apiKey", "validVersions", "flexibleVersions")


def definitions_of(jar: Path) -> dict[str, Any]:
    """Read the definitions of records in a jar, by name; those of requests and responses are passed over."""
    found = {}
    with zipfile.ZipFile(jar) as packed:
        for path in packed.namelist():
            if not re.search(r"\b(message|metadata)/\w+\.json$", path):
                continue
            text = re.sub(r"^\s*//.*$", "", packed.read(path).decode(), flags=re.MULTILINE)
            # Some of Kafka's files have more behind the object, which its own reader passes over as well.
            definition, _ = json.JSONDecoder().raw_decode(text.strip())
            if definition["type"] not in ("request", "response", "header"):
                found[definition["name"]] = definition
    return found


def compact(definition: dict[str, Any]) -> dict[str, Any]:
    """Return what decides the bytes of a message."""
    kept: dict[str, Any] = {name: definition[name] for name in _KEPT_OF_MESSAGE if name in definition}
    kept["fields"] = list(_compact_fields(definition["fields"]))
    if "commonStructs" in definition:
        kept["commonStructs"] = [
            {"name": each["name"], "versions": each["versions"], "fields": list(_compact_fields(each["fields"]))}
            for each in definition["commonStructs"]
        ]
    return kept


def _compact_fields(fields: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for field in fields:
        kept = {name: field[name] for name in _KEPT if name in field}
        if "fields" in field:
            kept["fields"] = list(_compact_fields(field["fields"]))
        yield kept


def make(version: str = NEWEST) -> str:
    """Make the text of the file from a release's jars."""
    components: dict[str, list[dict[str, Any]]] = {}
    for component, wanted in COMPONENTS.items():
        found = definitions_of(jars(version) / f"kafka-{component}-{version}.jar")
        names = sorted(found) if wanted is None else sorted(wanted)
        components[component] = [compact(found[name]) for name in names]
    lines = [
        f" {json.dumps(component)}: [\n"
        + ",\n".join(f"  {json.dumps(each, separators=(',', ':'))}" for each in messages)
        + "\n ]"
        for component, messages in components.items()
    ]
    source = f"Made by 'make definitions' from the jars of Apache Kafka {version}, Apache License 2.0"
    return f'{{\n "source": {json.dumps(source)},\n' + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    DEFINITIONS.write_text(make())
    print(f"{DEFINITIONS}: {DEFINITIONS.stat().st_size} bytes")
