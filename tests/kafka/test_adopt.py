"""The newest broker adopts every golden partition, and its consumer reads the same of it: the files hold it all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden import GoldenSet, IsolationLevel, decoded, golden_sets
from tests.kafka.adopt import adoption
from tests.kafka.broker import Broker, HarnessError
from tests.kafka.tool import Json

pytestmark = pytest.mark.kafka

FIELDS = ("offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch")


def _adoptable(*, unclean: bool) -> list[tuple[str, GoldenSet, str, int]]:
    """Return (new topic, set, topic, partition) for all but internal topics; those of kill -9 only if `unclean`."""
    return [
        (f"{golden.name}.{topic}.{partition}", golden, topic, partition)
        for golden in golden_sets()
        for topic, partition in golden.partitions
        if not topic.startswith("__") and (unclean or (golden.log_dir / ".kafka_cleanshutdown").exists())
    ]


@pytest.mark.parametrize("trust_indexes", [False, True])
def test_the_newest_broker_adopts_every_golden_partition(tmp_path: Path, trust_indexes: bool) -> None:
    plans = _adoptable(unclean=not trust_indexes)
    with Broker.start(tmp_path / "broker") as broker:
        for name, *_ in plans:
            broker.create_topic(name)
        broker.stop()
        with adoption(broker, trust_indexes=trust_indexes) as adopt:
            for name, golden, topic, partition in plans:
                start = golden.offsets[topic, partition].beginning
                adopt(name, 0, golden.partition_dir(topic, partition), log_start_offset=start or None)
        broker.restart()
        names = [name for name, *_ in plans]
        offsets = {row["topic"]: row for row in broker.offsets(*names)}
        levels: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
        read = {level: _by_topic(broker.consume(*names, isolation=level)) for level in levels}
    for name, golden, topic, partition in plans:
        expected = golden.offsets[topic, partition]
        row = offsets[name]
        assert (row["beginning"], row["end"]) == (expected.beginning, expected.end), name
        assert row["last_stable"] == expected.last_stable, name
        for level in levels:
            wanted = golden.records(level, topic, partition)
            assert [_fields(r) for r in read[level].get(name, [])] == [_fields(r) for r in wanted], (name, level)


def test_a_running_broker_adopts_nothing(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "broker") as broker:
        broker.create_topic("t")
        with pytest.raises(HarnessError, match="stop it first"), adoption(broker):
            pass


def _by_topic(rows: list[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(decoded(row))
    return found


def _fields(record: Json) -> list[Any]:
    return [record[name] for name in FIELDS]
