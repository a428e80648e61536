"""``__cluster_metadata``: what a cluster consists of, by its newest snapshot and the log behind it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptBatchError, CorruptLogError, MessageDecodeError
from sparklog.log.layout import read_layout
from sparklog.system import cluster_metadata as cluster
from sparklog.system.messages import decode_framed, message
from sparklog.system.records import InternalLog, Undecodable
from tests.build import Record, control_batch, v2_batch, write_partition
from tests.golden import golden_set
from tests.places import folder_at
from tests.system.logs import encode_framed

ID, OTHER = "nT3VsuYvSyWUb7u3L98_lA", "ELp_WcwCTsycrietGK4V7Q"
DIRECTORY = "XRqbfiuRTM-M4eyTNUBq3w"
BEGIN, END, ABORT = "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"


def framed(record: str, version: int = 0, /, **fields: Any) -> bytes:
    return encode_framed(message(record), version, fields)


def topic(name: str, topic_id: str = ID) -> bytes:
    return framed("TopicRecord", name=name, topicId=topic_id)


def partition(number: int, topic_id: str = ID, **fields: Any) -> bytes:
    given = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "directories": [DIRECTORY] * 2, **fields}
    epochs = {"leaderEpoch": 0, "partitionEpoch": 0}
    return framed("PartitionRecord", 2, partitionId=number, topicId=topic_id, **epochs, **given)


def change(number: int, topic_id: str = ID, version: int = 2, **fields: Any) -> bytes:
    return framed("PartitionChangeRecord", version, partitionId=number, topicId=topic_id, **fields)


def records(values: Sequence[bytes], base_offset: int) -> bytes:
    made = [Record(number, 1000, None, value) for number, value in enumerate(values)]
    return v2_batch(made, base_offset=base_offset)


def leader_change(offset: int) -> bytes:
    return control_batch("leader-change", offset, -1, -1, transactional=False)


def write_log(root: Path, *values: bytes, base_offset: int = 0) -> Path:
    """Write a log that begins with a control batch, as those of controllers do; then a batch a record."""
    folder = root / "__cluster_metadata-0"
    batches = [leader_change(base_offset)]
    batches += [records([value], base_offset + 1 + number) for number, value in enumerate(values)]
    write_partition(folder, batches, base_offset=base_offset)
    return folder


def write_snapshot(folder: Path, end_offset: int, *values: bytes, has_footer: bool = True, suffix: str = "") -> Path:
    batches = [control_batch("snapshot-header", 0, -1, -1, transactional=False), records(values, 1)]
    if has_footer:
        batches.append(control_batch("snapshot-footer", 1 + len(values), -1, -1, transactional=False))
    path = folder / f"{end_offset:020d}-{0:010d}.checkpoint{suffix}"
    path.write_bytes(b"".join(batches))
    return path


def opened(folder: Path) -> InternalLog:
    return InternalLog(read_layout(folder_at(folder)))


def partitions_of(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = cluster.current_partitions(opened(folder), Undecodable()).to_pylist()
    return {(row["topic"], row["partition"]): row for row in rows}


def topics_of(folder: Path) -> list[str]:
    topics: list[str] = cluster.current_topics(opened(folder), Undecodable())["topic"].to_pylist()
    return topics


def test_change_of_a_partition_leaves_what_it_does_not_say(tmp_path: Path) -> None:
    folder = write_log(
        tmp_path,
        topic("t"),
        partition(0),
        change(0, isr=[1]),
        change(0, leader=2, isr=[2], leaderRecoveryState=1),
        change(0, leader=2),
        change(0, leader=-1, eligibleLeaderReplicas=[2]),
        change(0, replicas=[2, 3], addingReplicas=[3], removingReplicas=[1]),
    )
    row = partitions_of(folder)["t", 0]
    assert (row["leader"], row["leader_epoch"], row["partition_epoch"]) == (None, 3, 5)
    assert (row["replicas"], row["isr"]) == ([2, 3], [2])
    assert (row["adding_replicas"], row["removing_replicas"]) == ([3], [1])
    assert (row["eligible_leader_replicas"], row["last_known_elr"]) == ([2], [])
    assert row["leader_recovery_state"] == "RECOVERING"
    assert row["directories"] == [DIRECTORY, DIRECTORY]


@pytest.mark.parametrize("name", ["t", ""])
def test_cleared_leader_replicas_are_gone_of_one_topic_or_of_all(tmp_path: Path, name: str) -> None:
    values = [topic("t"), partition(0, lastKnownElr=[1]), topic("u", OTHER), partition(0, OTHER, lastKnownElr=[1])]
    found = partitions_of(write_log(tmp_path, *values, framed("ClearElrRecord", topicName=name)))
    assert (found["t", 0]["last_known_elr"], found["t", 0]["partition_epoch"]) == ([], 1)
    assert found["u", 0]["last_known_elr"] == ([1] if name else [])


def test_topic_that_is_removed_takes_partitions_and_configs_with_it(tmp_path: Path) -> None:
    def config(name: str, value: str | None, of: str = "t", kind: int = 2) -> bytes:
        return framed("ConfigRecord", resourceType=kind, resourceName=of, name=name, value=value)

    values = [topic("t"), partition(0), config("a", "1"), config("b", "2"), config("a", None), config("c", "3", "", 4)]
    folder = write_log(tmp_path / "a", *values)
    configs = cluster.current_configs(opened(folder), Undecodable()).to_pylist()
    assert [tuple(row.values()) for row in configs] == [("broker", "", "c", "3"), ("topic", "t", "b", "2")]
    (row,) = cluster.current_topics(opened(folder), Undecodable()).to_pylist()
    assert (row["topic"], row["partitions"], row["replication_factor"], row["configs"]) == ("t", 1, 2, [("b", "2")])
    folder = write_log(tmp_path / "b", *values, framed("RemoveTopicRecord", topicId=ID))
    assert topics_of(folder) == []
    assert partitions_of(folder) == {}
    assert len(cluster.current_configs(opened(folder), Undecodable())) == 1


def test_broker_is_what_its_records_say_together(tmp_path: Path) -> None:
    endpoint = {"name": "SASL", "host": "h", "port": 65535, "securityProtocol": 3}
    registered = framed(
        "RegisterBrokerRecord", 4, brokerId=1, brokerEpoch=9, rack="r", fenced=True, endPoints=[endpoint], logDirs=[ID]
    )

    def changed(**fields: Any) -> bytes:
        return framed("BrokerRegistrationChangeRecord", 3, brokerId=1, brokerEpoch=9, **fields)

    def broker(name: str, *values: bytes) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = cluster.current_brokers(
            opened(write_log(tmp_path / name, *values)), Undecodable()
        ).to_pylist()
        return rows

    (row,) = broker("a", registered)
    assert (row["broker_id"], row["broker_epoch"], row["rack"], row["fenced"]) == (1, 9, "r", True)
    assert row["endpoints"] == [{"name": "SASL", "host": "h", "port": 65535, "security_protocol": "SASL_SSL"}]
    (row,) = broker("b", registered, changed(fenced=-1), changed(inControlledShutdown=1, cordonedLogDirs=[OTHER]))
    assert (row["fenced"], row["in_controlled_shutdown"], row["log_directories"]) == (False, True, [ID])
    assert row["cordoned_log_directories"] == [OTHER]
    (row,) = broker("c", registered, framed("UnfenceBrokerRecord", id=1, epoch=9), changed(logDirs=[OTHER]))
    assert (row["fenced"], row["log_directories"]) == (False, [OTHER])
    (row,) = broker("d", registered, changed(fenced=-1), framed("FenceBrokerRecord", id=1, epoch=9))
    assert row["fenced"] is True
    assert broker("e", registered, framed("UnregisterBrokerRecord", brokerId=1, brokerEpoch=9)) == []


def test_feature_of_level_0_is_off(tmp_path: Path) -> None:
    values = [
        framed("FeatureLevelRecord", name=name, featureLevel=level) for name, level in [("a", 1), ("b", 2), ("a", 0)]
    ]
    table = cluster.current_features(opened(write_log(tmp_path, *values)), Undecodable())
    assert table.to_pylist() == [{"feature": "b", "level": 2}]


def kraft_version(offset: int, level: int) -> bytes:
    """A control batch of two records, as those of controllers: of a leader, and of the version."""
    value = b"\0\0" + level.to_bytes(2, "big") + b"\0"
    made = [Record(0, 0, b"\0\0\0\2", b""), Record(1, 0, b"\0\0\0\5", value)]
    return v2_batch(made, base_offset=offset, control=True)


def test_version_of_kraft_is_in_control_records(tmp_path: Path) -> None:
    feature = framed("FeatureLevelRecord", name="a", featureLevel=3)
    folder = tmp_path / "__cluster_metadata-0"

    def features() -> list[tuple[str, int]]:
        table = cluster.current_features(opened(folder), Undecodable())
        return [(row["feature"], row["level"]) for row in table.to_pylist()]

    write_partition(folder, [kraft_version(0, 1), records([feature], 2), kraft_version(3, 2)])
    assert features() == [("a", 3), ("kraft.version", 2)]
    write_partition(folder, [kraft_version(0, 0), records([feature], 2)])
    assert features() == [("a", 3)]
    footer = control_batch("snapshot-footer", 3, -1, -1, transactional=False)
    write_snapshot(folder, 3).write_bytes(kraft_version(0, 1) + records([feature], 2) + footer)
    assert features() == [("a", 3), ("kraft.version", 1)]


@pytest.mark.parametrize(
    ("end", "state", "topics"),
    [([framed(END)], "committed", ["t", "u"]), ([framed(ABORT)], "aborted", ["t"]), ([], "open", ["t"])],
)
def test_records_of_a_transaction_count_once_it_has_ended(
    tmp_path: Path, end: list[bytes], state: str, topics: list[str]
) -> None:
    folder = write_log(tmp_path, topic("t"), framed(BEGIN), topic("u", OTHER), *end)
    assert topics_of(folder) == topics
    rows = [row for batch in cluster.records_history(opened(folder), Undecodable()) for row in batch.to_pylist()]
    assert [row["transaction"] for row in rows] == [None, *[state] * (2 + len(end))]
    assert cluster.current_records(opened(folder), Undecodable())["record"].to_pylist() == ["TopicRecord"] * len(topics)


def test_newest_whole_snapshot_and_the_log_behind_it_count(tmp_path: Path) -> None:
    folder = write_log(tmp_path, topic("old"), topic("new", OTHER), base_offset=5)
    write_snapshot(folder, 6, topic("older", DIRECTORY))
    write_snapshot(folder, 7, topic("kept"))
    write_snapshot(folder, 8, topic("x"), has_footer=False)
    write_snapshot(folder, 8, topic("x"), suffix=".part")
    write_snapshot(folder, 8, topic("x"), suffix=".deleted")
    assert topics_of(folder) == ["kept", "new"]
    rows = cluster.current_records(opened(folder), Undecodable()).to_pylist()
    assert [(row["snapshot"], row["log_offset"]) for row in rows] == [(7, None), (None, 7)]


_IDS = st.sampled_from([ID, OTHER])
_BROKERS = st.lists(st.integers(1, 3), max_size=3)
_MAYBE = st.one_of(st.none(), _BROKERS)
_STEPS = st.lists(
    st.one_of(
        st.builds(topic, st.sampled_from("tu"), _IDS),
        st.builds(partition, st.integers(0, 1), _IDS, replicas=_BROKERS, lastKnownElr=_MAYBE),
        st.builds(change, st.integers(0, 1), _IDS, isr=_MAYBE, leader=st.integers(-2, 3), replicas=_MAYBE),
        st.builds(lambda topic_id: framed("RemoveTopicRecord", topicId=topic_id), _IDS),
        st.builds(lambda name: framed("ClearElrRecord", topicName=name), st.sampled_from(["", "t"])),
    ),
    max_size=20,
)


def slow_partitions(values: Sequence[bytes]) -> dict[tuple[str, int, str], tuple[Any, ...]]:
    """Leader, its epoch, the partition's epoch, replicas and in-sync replicas, by the text of the records."""
    topics: dict[str, str] = {}
    found: dict[tuple[str, int], list[Any]] = {}
    for value in values:
        name, fields = _decoded(value)
        topic_id = fields.get("topicId", "")
        at = topic_id, fields.get("partitionId", -1)
        if name == "TopicRecord":
            topics[topic_id] = fields["name"]
        elif name == "RemoveTopicRecord":
            topics.pop(topic_id, None)
            found = {each: row for each, row in found.items() if each[0] != topic_id}
        elif name == "PartitionRecord":
            elr = bool(fields["lastKnownElr"])
            found[at] = [fields["leader"], 0, 0, fields["replicas"], fields["isr"], elr]
        elif name == "PartitionChangeRecord" and at in found:
            row = found[at]
            row[2] += 1
            if fields["leader"] != -2:
                row[0], row[1] = fields["leader"], row[1] + 1
            row[3] = row[3] if fields["replicas"] is None else fields["replicas"]
            row[4] = row[4] if fields["isr"] is None else fields["isr"]
        elif name == "ClearElrRecord":
            for each, row in found.items():
                if row[5] and each[0] in topics and fields["topicName"] in ("", topics[each[0]]):
                    row[2], row[5] = row[2] + 1, False
    named = {(topics[each[0]], each[1], each[0]): row for each, row in found.items() if each[0] in topics}
    return {each: (None if row[0] == -1 else row[0], *row[1:5]) for each, row in named.items()}


def _decoded(value: bytes) -> tuple[str, dict[str, Any]]:
    found, _, fields = decode_framed(value, "metadata")
    return found.name, fields


@given(values=_STEPS, cut=st.integers(0, 20))
def test_partitions_are_those_of_a_slow_replay_wherever_a_snapshot_stands(values: list[bytes], cut: int) -> None:
    cut = min(cut, len(values))
    with tempfile.TemporaryDirectory() as root:
        whole, behind = write_log(Path(root) / "a", *values), write_log(Path(root) / "b", *values)
        write_snapshot(behind, 1 + cut, *values[:cut])
        for folder in (whole, behind):
            rows = cluster.current_partitions(opened(folder), Undecodable()).to_pylist()
            found = {
                (row["topic"], row["partition"], row["topic_id"]): (
                    row["leader"],
                    row["leader_epoch"],
                    row["partition_epoch"],
                    row["replicas"],
                    row["isr"],
                )
                for row in rows
            }
            assert found == slow_partitions(values)


def test_snapshot_may_be_ahead_of_the_log(tmp_path: Path) -> None:
    folder = write_log(tmp_path, topic("old"))
    write_snapshot(folder, 100, topic("kept"))
    assert topics_of(folder) == ["kept"]


def test_log_whose_beginning_is_in_no_snapshot_is_an_error(tmp_path: Path) -> None:
    folder = write_log(tmp_path, topic("t"), base_offset=5)
    write_snapshot(folder, 4, topic("kept"))
    with pytest.raises(CorruptLogError, match="begins at offset 5, and no whole snapshot has the records from 4"):
        topics_of(folder)


def test_damaged_record_in_the_newest_snapshot_is_an_error(tmp_path: Path) -> None:
    folder = write_log(tmp_path, topic("t"))
    path = write_snapshot(folder, 2, topic("kept"), topic("other", OTHER))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"kept", b"kepu"))
    with pytest.raises(CorruptBatchError, match="checkpoint"):
        topics_of(folder)


def test_snapshot_cut_short_anywhere_is_passed_over(tmp_path: Path) -> None:
    folder = write_log(tmp_path, topic("t"))
    path = write_snapshot(folder, 1, topic("kept"))
    whole = path.read_bytes()
    assert partitions_of(folder) == {}
    assert len(cluster.current_records(opened(folder), Undecodable())) == 2
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert topics_of(folder) == ["t"]


def test_record_of_a_later_version_is_an_error_and_in_the_history(tmp_path: Path) -> None:
    later = b"\1\5\3" + b"\0" * 30
    folder = write_log(tmp_path, topic("t"), later)
    with pytest.raises(MessageDecodeError, match=r"PartitionChangeRecord has version 3.*offset 2.*cannot be told"):
        topics_of(folder)
    rows = [row for batch in cluster.records_history(opened(folder), Undecodable()) for row in batch.to_pylist()]
    assert [(row["record"], row["raw_value"]) for row in rows] == [("TopicRecord", None), (None, later)]


def test_record_of_a_type_that_is_not_known_is_counted(tmp_path: Path) -> None:
    folder, unreadable = write_log(tmp_path, topic("t"), b"\1\x70\0"), Undecodable()
    assert cluster.current_topics(opened(folder), unreadable).num_rows == 1
    assert (unreadable.count, "type 112, which is not known" in unreadable.first) == (1, True)


def test_change_of_what_is_not_there_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_log(tmp_path, change(0), framed("RemoveTopicRecord", topicId=ID), framed("FenceBrokerRecord", id=4))
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert topics_of(folder) == []
    assert "3 records of" in caplog.text
    assert "partition 0 of the topic" in caplog.text


def test_history_of_a_view_has_its_records_alone(tmp_path: Path) -> None:
    folder = write_log(tmp_path, topic("t"), partition(0), change(0))
    rows = [row for batch in cluster.partitions_history(opened(folder), Undecodable()) for row in batch.to_pylist()]
    assert [(row["record"], row["version"], row["log_offset"]) for row in rows] == [
        ("PartitionRecord", 2, 2),
        ("PartitionChangeRecord", 2, 3),
    ]


def test_metadata_of_a_broker() -> None:
    """The dump of the set has the same records; the broker was stopped, which is why no partition has a leader."""
    log = opened(golden_set("v2-internal").log_dir / "__cluster_metadata-0")
    topics = cluster.current_topics(log, Undecodable()).to_pylist()
    assert [(row["topic"], row["topic_id"], row["partitions"]) for row in topics] == [
        ("__consumer_offsets", "ELp_WcwCTsycrietGK4V7Q", 1),
        ("__transaction_state", "84WkvOcFTxCC0ID7oRFAuw", 1),
        ("read-by-groups", "nT3VsuYvSyWUb7u3L98_lA", 2),
    ]
    partitions = cluster.current_partitions(log, Undecodable()).to_pylist()
    assert {(row["leader"], row["leader_epoch"], row["partition_epoch"]) for row in partitions} == {(None, 1, 1)}
    assert {tuple(row["eligible_leader_replicas"]) for row in partitions} == {(1,)}
    (broker,) = cluster.current_brokers(log, Undecodable()).to_pylist()
    assert (broker["broker_id"], broker["fenced"], broker["in_controlled_shutdown"]) == (1, True, True)
    features = {row["feature"]: row["level"] for row in cluster.current_features(log, Undecodable()).to_pylist()}
    assert (features["metadata.version"], features["kraft.version"]) == (30, 1)
    records = cluster.current_records(log, Undecodable())
    assert records.num_rows == 54
    assert "Bootstrap records" not in records["fields"].to_pylist()
