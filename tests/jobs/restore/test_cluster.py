"""The node of a new cluster that a restore formats: its metadata, and what it does not take over."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import CorruptCheckpointError, InvalidOptionError
from sparklog.inspect.describe import describe_directory
from sparklog.jobs.restore.new_cluster import FEATURES, NewCluster, NewPartition, NewTopic, snapshot_name
from sparklog.jobs.restore.nodes import (
    OldPartition,
    RestoredLog,
    RestoredNode,
    RestoredNodes,
    TopicOutline,
    read_nodes,
)
from sparklog.jobs.restore.script import script_of
from sparklog.log.checked_lines import encode_line
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.layout import read_layout
from sparklog.storage.registry import Location
from sparklog.system.codecs import MessageFields
from sparklog.system.messages import message
from sparklog.system.metadata_snapshots import newest_snapshot
from sparklog.write.group_offsets import commit_group_offsets, read_group_offsets
from tests.build import write_partition
from tests.golden import golden_set
from tests.jobs.copies import records
from tests.log.logs import batch, idempotent
from tests.places import directory_at, folder_at
from tests.storage.crash import CrashingStorage, Loss, crashes, tree_of
from tests.system.logs import put, write_log
from tests.topic.staged import findings

ID, OTHER_ID = "AAAAAAAAQACAAAAAAAAAAQ", "AAAAAAAAQACAAAAAAAAAAg"


def write_source(directory: Path) -> Path:
    for name in ("orders-0", "orders-2"):
        write_partition(directory / name, [idempotent(0, 4100), batch(10, 10)])
        (directory / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}\n")
    (directory / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n8 10\n")
    write_partition(directory / "plain-0", [batch(0)])
    write_log(
        directory / "__consumer_offsets-0", [put("OffsetCommit", {"group": "g", "topic": "orders"}, {"offset": 3}, 3)]
    )
    commit_group_offsets(directory_at(directory), "own", {TopicPartition("orders", 0): OffsetCommit(30, "", 5)})
    (directory / "topics.properties").write_text("orders/retention.ms=-1\n")
    (directory / "meta.properties").write_text("version=1\ncluster.id=old\nnode.id=7\ndirectory.id=olddirectory\n")
    return directory


def view(metadata: Path, name: str) -> dict[str, dict[str, object]]:
    rows = sparklog.views.read(metadata, f"cluster_{name}").to_pylist()
    return {str(row.get("topic") or row.get("feature")) + str(row.get("partition", "")): row for row in rows}


def test_node_knows_topics_partitions_and_configs_and_is_no_node_of_the_old_cluster(tmp_path: Path) -> None:
    source, target, metadata = write_source(tmp_path / "old"), tmp_path / "new", tmp_path / "metadata"
    summary = sparklog.restore(source, target, for_cluster=metadata, processes=1)
    logs, node = describe_directory(directory_at(target)), describe_directory(directory_at(metadata))
    assert summary.cluster_id == logs.cluster_id == node.cluster_id != "old"
    assert logs.node_id == node.node_id == 7
    assert len({logs.directory_id, node.directory_id, "olddirectory", None}) == 4
    topics, partitions = view(metadata, "topics"), view(metadata, "partitions")
    assert {name: row["partitions"] for name, row in topics.items()} == {
        "orders": 3,
        "plain": 1,
        "__consumer_offsets": 1,
    }
    assert topics["orders"]["topic_id"] == ID
    assert dict(topics["orders"]["configs"]) == {"retention.ms": "-1"}  # type: ignore[call-overload]
    assert ("cleanup.policy", "compact") in topics["__consumer_offsets"]["configs"]  # type: ignore[operator]
    # A consumer that has committed in epoch 8 must not be told that its records were cut off.
    assert [partitions[f"orders{n}"]["leader_epoch"] for n in range(3)] == [8, 0, 0]
    assert all(row["directories"] == [logs.directory_id] and row["replicas"] == [7] for row in partitions.values())
    for name, row in topics.items():
        text = (target / f"{name}-0" / "partition.metadata").read_text()
        assert text.split("topic_id: ")[1].strip() == row["topic_id"]
    assert {name: row["level"] for name, row in view(metadata, "features").items()} == {**FEATURES, "kraft.version": 1}
    producer_ids = [
        row for row in sparklog.views.read(metadata, "cluster_metadata").to_pylist() if "Ids" in row["record"]
    ]
    assert '"nextProducerId":5000' in producer_ids[0]["fields"]


def test_one_directory_for_logs_and_metadata_has_one_id(tmp_path: Path) -> None:
    source, target = write_source(tmp_path / "old"), tmp_path / "new"
    sparklog.restore(source, target, for_cluster=target, processes=1)
    (row,) = {str(row["directories"]) for row in view(target, "partitions").values()}
    assert row == str([describe_directory(directory_at(target)).directory_id])
    assert findings(target) == []


def test_features_are_those_of_the_old_cluster(tmp_path: Path) -> None:
    golden = golden_set("v2-internal").log_dir
    metadata = tmp_path / "metadata"
    sparklog.restore(golden, tmp_path / "new", for_cluster=metadata, metadata=golden, processes=1)
    of_new, of_old = view(metadata, "features"), view(golden, "features")
    assert {**of_old, "kraft.version": None} == {**of_new, "kraft.version": None}
    assert {row["leader"] for row in view(metadata, "partitions").values()} == {None}


def test_formatted_directories_keep_ids_features_and_voters(tmp_path: Path) -> None:
    """As ``kafka-storage format --standalone`` leaves them; the broker's own way is tested beside a broker."""
    source, target, metadata = write_source(tmp_path / "old"), tmp_path / "new", tmp_path / "metadata"
    voter = {
        "voterId": 3,
        "voterDirectoryId": OTHER_ID,
        "endpoints": [{"name": "CONTROLLER", "host": "here", "port": 1234}],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }
    (metadata / "__cluster_metadata-0").mkdir(parents=True)
    target.mkdir()
    first = NewCluster(3, {**FEATURES, "metadata.version": 27}, [voter], [])
    (metadata / "__cluster_metadata-0" / snapshot_name(0, 0)).write_bytes(first.encode(5))
    for place, directory_id in ((metadata, OTHER_ID), (target, ID)):
        text = f"version=1\ncluster.id=made\nnode.id=3\ndirectory.id={directory_id}\n"
        (place / "meta.properties").write_text(text)
    before = (metadata / "meta.properties").read_bytes(), (target / "meta.properties").read_bytes()
    assert sparklog.restore(source, target, for_cluster=metadata, processes=1).cluster_id == "made"
    assert before == ((metadata / "meta.properties").read_bytes(), (target / "meta.properties").read_bytes())
    assert view(metadata, "features")["metadata.version"]["level"] == 27
    snapshot = newest_snapshot(directory_at(metadata).folder("__cluster_metadata-0"))
    assert snapshot is not None
    assert snapshot.end_offset == 1
    control = [row["value"] for each in snapshot.control_batches(("value",)) for row in each.to_pylist()]
    assert message("VotersRecord").decode(control[2], 0)["voters"] == [voter]


def test_node_that_was_started_or_is_another_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    source, target, metadata = write_source(tmp_path / "old"), tmp_path / "new", tmp_path / "metadata"
    for place, cluster in ((metadata, "one"), (target, "two")):
        place.mkdir()
        (place / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")
    before = tree_of(tmp_path)
    with pytest.raises(InvalidOptionError, match="format both for one cluster"):
        sparklog.restore(source, target, for_cluster=metadata, processes=1)
    (target / "meta.properties").unlink()
    (metadata / "__cluster_metadata-0").mkdir()
    (metadata / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    with pytest.raises(InvalidOptionError, match="a controller was started"):
        sparklog.restore(source, target, for_cluster=metadata, processes=1)
    (metadata / "__cluster_metadata-0" / "quorum-state").unlink()
    (source / "orders-2" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    with pytest.raises(InvalidOptionError, match="several ids"):
        sparklog.restore(source, target, for_cluster=metadata, processes=1)
    assert {path for path in tree_of(tmp_path) if path not in before} == {Path("metadata/__cluster_metadata-0")}


def test_assignments_are_those_of_the_old_cluster_and_only_equal_logs_are_in_sync() -> None:
    """Each row has the old partition, each node's last leader epoch and end, the replicas, the ISR and new epochs."""
    nodes = {1: 10, 2: 20, 3: 30}
    unknown, of_old = OldPartition(), OldPartition(7, (30, 10, 20), (10,))
    log = RestoredLog
    cases: list[tuple[OldPartition, dict[int, RestoredLog], list[int], list[int], list[int]]] = [
        (unknown, {1: log(3, 50), 2: log(3, 50), 3: log(3, 50)}, [1, 2, 3], [1, 2, 3], [0, 0, 0]),
        (unknown, {1: log(3, 50), 2: log(3, 60), 3: log(3, 60)}, [2, 3, 1], [2, 3], [0, 1, 1]),
        (unknown, {1: log(3, 90), 2: log(4, 60), 3: log(3, 60)}, [3, 1, 2], [2], [0, 1, 2]),
        (unknown, {2: log(-1, 9), 3: log(-1, 9)}, [3, 2], [2], [0, 1]),
        (unknown, {}, [1], [1], []),
        (of_old, {1: log(3, 50), 2: log(3, 60), 3: log(3, 60)}, [3, 1, 2], [1], [0, 1, 1]),
        (of_old, {1: log(3, 50), 2: log(3, 50)}, [3, 1, 2], [1, 2], [0, 0]),
        (of_old, {2: log(3, 50)}, [3, 1, 2], [2], [0]),
    ]
    topic = TopicOutline("t", ID, [case[0] for case in cases], {})
    found = RestoredNodes({"t": topic}, {})
    for number, old_id in nodes.items():
        logs = {f"t-{n}": case[1][number] for n, case in enumerate(cases) if number in case[1]}
        found = found.with_node(number, RestoredNode(old_id, f"/{number}", f"directory {number}", 0, logs))
    for n, (partition, case) in enumerate(zip(found.new_topics()[0].partitions, cases, strict=True)):
        assert (partition.replicas, partition.isr) == case[2:4], n
        assert [each.logs[f"t-{n}"].epoch for each in found.nodes.values() if f"t-{n}" in each.logs] == case[4], n
        assert partition.directories == [f"directory {each}" for each in partition.replicas]
        # A leader begins an epoch above all that the logs have.
        assert partition.leader_epoch == max([case[0].leader_epoch, *(each[0] for each in case[1].values()), *case[4]])


def test_nodes_are_added_to_a_cluster_one_after_the_other(tmp_path: Path) -> None:
    metadata = tmp_path / "metadata"
    for number in (7, 8):
        source = write_source(tmp_path / f"old{number}")
        (source / "meta.properties").write_text(f"version=1\ncluster.id=old\nnode.id={number}\n")
    write_partition(tmp_path / "old8" / "more-0", [batch(0)])
    write_partition(tmp_path / "old8" / "plain-0", [batch(3)])
    ids = set()
    for number in (7, 8):
        target = tmp_path / f"new{number}"
        summary = sparklog.restore(
            tmp_path / f"old{number}", target, for_cluster=metadata, controller_id=100, processes=1
        )
        assert describe_directory(directory_at(target)).node_id == number
        ids |= {summary.cluster_id, describe_directory(directory_at(metadata)).cluster_id}
    assert len(ids) == 1
    assert describe_directory(directory_at(metadata)).node_id == 100
    partitions = view(metadata, "partitions")
    assert {name: (row["replicas"], row["isr"]) for name, row in partitions.items()} == {
        "orders0": ([7, 8], [7, 8]),
        "orders1": ([7], [7]),
        "orders2": ([7, 8], [7]),
        "plain0": ([7, 8], [8]),
        "__consumer_offsets0": ([7, 8], [7]),
        "more0": ([8], [8]),
    }
    for name, epoch in (("orders-0", 0), ("orders-2", 1), ("plain-0", 1)):
        with (tmp_path / "new8" / name / "00000000000000000000.log").open("rb") as log:
            assert int.from_bytes(log.read(16)[12:]) == epoch
        text = (tmp_path / "new8" / name / "leader-epoch-checkpoint").read_text()
        assert text.split()[2] == str(epoch)
    assert findings(tmp_path / "new8") == []
    before = tree_of(tmp_path)
    wrong: list[tuple[str, dict[str, object]]] = [
        ("node 8 of this cluster was restored to", {}),
        ("--controller-id is 9", {"controller_id": 9}),
        ("must be a node id", {"controller_id": True}),
        ("must be a node id", {"controller_id": 1 << 31}),
        ("give for_cluster", {"controller_id": 9, "for_cluster": None}),
        ("of its own", {"controller_id": 9, "for_cluster": tmp_path / "another"}),
    ]
    for text, given in wrong:
        options = {"for_cluster": metadata, **given}
        with pytest.raises(InvalidOptionError, match=text):
            sparklog.restore(tmp_path / "old8", tmp_path / "another", processes=1, **options)  # type: ignore[arg-type]
        assert tree_of(tmp_path) == before
    (tmp_path / "old8" / "meta.properties").write_text("version=1\ncluster.id=old\nnode.id=9\n")
    (tmp_path / "old8" / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    (tmp_path / "old8" / "orders-2" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    with pytest.raises(InvalidOptionError, match="the topic orders has the id"):
        sparklog.restore(tmp_path / "old8", tmp_path / "another", for_cluster=metadata, processes=1)


def test_file_of_nodes_that_is_damaged_or_forged_is_refused(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    node = RestoredNode(1, "/logs", OTHER_ID, 5, {"t-0": RestoredLog(3, 50, 1)})
    found = RestoredNodes({"t": TopicOutline("t", ID, [OldPartition(1, [2], [2])], {"k": "v"})}, {4: node})
    data = found.encode()
    (tmp_path / "seglog.nodes").write_bytes(data)
    assert read_nodes(directory) == found
    forged = [data[:-1], data[:40], b"", b"{}", data.replace(b"50", b"51")]
    fields = json.loads(data)
    for path, value in [
        (("version",), 2),
        (("nodes",), [1]),
        (("nodes", "4", 0), 1 << 70),
        (("nodes", "4", 2), "short"),
        (("nodes", "4", 4, "t-0"), [1, None, 2]),
        (("nodes", "x"), fields["nodes"]["4"]),
        (("topics", 0, 1), None),
        (("topics", 0, 2), [[1.5, [], []]]),
        (("topics", 0, 3), {"k": None}),
    ]:
        changed = json.loads(data)
        del changed["crc32c"]
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        forged.append(encode_line(changed))
    for each in forged:
        (tmp_path / "seglog.nodes").write_bytes(each)
        with pytest.raises(CorruptCheckpointError, match="not a file of restored nodes"):
            read_nodes(directory)


def test_controller_among_others_is_refused(tmp_path: Path) -> None:
    """The others could elect a leader that does not have the metadata."""
    source, metadata = write_source(tmp_path / "old"), tmp_path / "metadata"
    (metadata / "__cluster_metadata-0").mkdir(parents=True)
    voters: list[MessageFields] = [
        {"voterId": n, "voterDirectoryId": ID, "endpoints": [], "kRaftVersionFeature": {}} for n in (1, 2)
    ]
    first = NewCluster(1, FEATURES, voters, [])
    (metadata / "__cluster_metadata-0" / snapshot_name(0, 0)).write_bytes(first.encode(5))
    (metadata / "meta.properties").write_text(f"version=1\ncluster.id=made\nnode.id=1\ndirectory.id={ID}\n")
    before = tree_of(tmp_path)
    with pytest.raises(InvalidOptionError, match="one of 2 controllers"):
        sparklog.restore(source, tmp_path / "new", for_cluster=metadata, processes=1)
    assert tree_of(tmp_path) == before


def test_many_topics_are_many_batches_in_the_snapshot(tmp_path: Path) -> None:
    topics = [
        NewTopic(f"t{n}", ID, [NewPartition(0, [1], [1], [ID])] * 10, {"retention.ms": str(n)}) for n in range(300)
    ]
    (tmp_path / "__cluster_metadata-0").mkdir()
    data = NewCluster(1, FEATURES, [], topics, 1).encode(5)
    (tmp_path / "__cluster_metadata-0" / snapshot_name()).write_bytes(data)
    records_of = sparklog.views.read(tmp_path, "cluster_metadata").to_pylist()
    assert len(records_of) == len(FEATURES) + 300 * 12 + 1
    for cut in (1, 100, len(data) - 1):
        (tmp_path / "__cluster_metadata-0" / snapshot_name()).write_bytes(data[:-cut])
        assert newest_snapshot(directory_at(tmp_path).folder("__cluster_metadata-0")) is None


def test_script_says_nothing_that_a_shell_would_run(tmp_path: Path) -> None:
    value = 'a\'; touch $(pwd)/gone `x` \n, "b"'
    topics = [TopicOutline("orders", ID, (OldPartition(),) * 2, {"k": value}), TopicOutline("__x", ID, (), {"k": "v"})]
    words = shlex.split(script_of(topics), comments=True)
    assert words[-1] == f"k=[{value}]"
    assert "__x" not in words
    source, script = write_source(tmp_path / "old"), tmp_path / "topics.sh"
    sparklog.restore(source, tmp_path / "new", topics_script=script, processes=1)
    commands = [shlex.split(line) for line in script.read_text().splitlines() if line.startswith("kafka-")]
    assert [each[0] for each in commands] == ["kafka-topics.sh", "kafka-configs.sh", "kafka-topics.sh"]
    assert commands[0][-6:] == ["--topic", "orders", "--partitions", "3", "--replication-factor", "$replicas"]
    assert commands[1][-4:] == ["--entity-name", "orders", "--add-config", "retention.ms=-1"]


@pytest.mark.parametrize("kind", ["one directory", "two", "second node"])
def test_restore_that_stops_anywhere_is_seen_whole_or_not_at_all_and_a_rerun_ends_it(tmp_path: Path, kind: str) -> None:
    source, is_one = write_source(tmp_path / "old"), kind == "one directory"
    if kind == "second node":
        (tmp_path / "first").mkdir()
        first = write_source(tmp_path / "first" / "old")
        (first / "meta.properties").write_text("version=1\ncluster.id=old\nnode.id=6\n")
        sparklog.restore(first, tmp_path / "logs6", for_cluster=tmp_path / "first" / "metadata", to=1015, processes=1)
    names = sorted(path.name for path in source.glob("*-[0-9]"))
    before = tree_of(source)

    def prepare(folder: Path) -> None:
        (folder / "logs").mkdir()
        if kind == "second node":
            shutil.copytree(tmp_path / "first" / "metadata", folder / "metadata")
        else:
            (folder / "metadata").mkdir()

    def run(storage: CrashingStorage | None, folder: Path) -> None:
        def at(name: str) -> str | Location:
            return str(folder / name) if storage is None else Location(storage, str(folder / name))

        sparklog.restore(source, at("logs"), to=1015, for_cluster=at("logs" if is_one else "metadata"), processes=1)

    wanted = {name: [row for row in records(source / name) if row[0] < 1015] for name in names}
    (tmp_path / "crashes").mkdir()
    outcomes = set()
    losses: tuple[Loss, ...] = ("lost",) if is_one else ("torn",)
    for crash in crashes(prepare, run, tmp_path / "crashes", losses):
        logs, metadata = crash.folder / "logs", crash.folder / ("logs" if is_one else "metadata")
        seen = {path.name: records(path) for path in logs.glob("*-[0-9]") if path.name in names}
        seen = {name: found for name, found in seen.items() if found}
        user = {name: found for name, found in wanted.items() if not name.startswith("__")}
        assert {name: found for name, found in seen.items() if name in user} in ({}, user), str(crash)
        if (logs / "meta.properties").exists():
            # A broker that starts now finds all logs, and a controller that knows them.
            assert all((logs / name / "partition.metadata").exists() for name in names), str(crash)
            assert set(view(metadata, "topics")) == {"orders", "plain", "__consumer_offsets"}, str(crash)
        run(None, crash.folder)
        assert {name: records(logs / name) for name in user} == user, str(crash)
        assert findings(logs) == [], str(crash)
        offset = read_group_offsets(directory_at(logs))["own"][TopicPartition("orders", 0)].offset
        assert offset == read_layout(folder_at(logs / "orders-0")).end_offset < 30, str(crash)
        (cluster_id,) = {describe_directory(directory_at(place)).cluster_id for place in (logs, metadata)}
        assert cluster_id is not None, str(crash)
        partitions = [row for name, row in view(metadata, "partitions").items() if name != "orders1"]
        (directories,) = {str(sorted(row["directories"])) for row in partitions}  # type: ignore[call-overload]
        places = (logs, tmp_path / "logs6") if kind == "second node" else (logs,)
        assert directories == str(sorted(describe_directory(directory_at(each)).directory_id or "" for each in places))
        # The logs of both are equal.
        assert len(view(metadata, "partitions")["orders0"]["isr"]) == len(places), str(crash)  # type: ignore[arg-type]
        for topic, row in view(metadata, "topics").items():
            assert str(row["topic_id"]) in (logs / f"{topic}-0" / "partition.metadata").read_text(), str(crash)
        assert list(crash.folder.rglob("*.staged")) == [], str(crash)
        outcomes.add(bool(seen))
    assert outcomes == {True, False}
    assert tree_of(source) == before
