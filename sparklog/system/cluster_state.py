"""Makes the state of a cluster by replaying the records of its metadata.

A change of a partition holds only the fields that differ: null, or -2 for the leader, keeps a field. A change that
names a leader begins a leader epoch, even if the leader is the same; every change begins a partition epoch. Removing a
topic removes its partitions and its configs.

Source: apache/kafka, PartitionRegistration.java (merge), ClusterDelta.java, TopicsDelta.java, ConfigurationsDelta.java,
FeaturesDelta.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparklog.system.codecs import MessageFields
from sparklog.system.framed import FramedRecord

_LEADER_STAYS: Final = -2
_TOPIC_CONFIG: Final = 2
_FENCED: Final = {1: True, -1: False}
_REPLICA_FIELDS: Final = (
    "isr",
    "replicas",
    "removingReplicas",
    "addingReplicas",
    "directories",
    "eligibleLeaderReplicas",
    "lastKnownElr",
)


class ClusterState:
    """The topics, partitions, configs, brokers and features of a cluster; empty at first.

    Attributes
    ----------
    topics : dict of str to str
        Names by topic ids.
    partitions : dict of str to dict of int to dict
        The current fields of each `PartitionRecord`, by topic id and partition.
    configs : dict of (int, str) to dict of str to str
        Values by the type and name of the resource that they are set for.
    brokers : dict of int to dict
        The current fields of each `RegisterBrokerRecord`, by broker id.
    features : dict of str to int
        Levels by names.
    removed : set of str
        Ids of topics that the records remove; a snapshot no longer has the earlier ones.
    missing : list of str
        Objects that records change although they do not exist: records before them are missing, or were wrong.
    """

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.partitions: dict[str, dict[int, MessageFields]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers: dict[int, MessageFields] = {}
        self.features: dict[str, int] = {}
        self.removed: set[str] = set()
        self.missing: list[str] = []

    def apply(self, record: FramedRecord) -> None:
        """Replay a record. Records of other types are ignored."""
        replay = _REPLAYS.get(record.name)
        if replay is not None:
            replay(self, record.fields)

    def _add_topic(self, fields: MessageFields) -> None:
        self.topics[fields["topicId"]] = fields["name"]
        self.partitions.setdefault(fields["topicId"], {})

    def _remove_topic(self, fields: MessageFields) -> None:
        name = self.topics.pop(fields["topicId"], None)
        self.partitions.pop(fields["topicId"], None)
        self.removed.add(fields["topicId"])
        if name is None:
            self.missing.append(f"the topic {fields['topicId']} that is removed")
        else:
            self.configs.pop((_TOPIC_CONFIG, name), None)

    def _add_partition(self, fields: MessageFields) -> None:
        self.partitions.setdefault(fields["topicId"], {})[fields["partitionId"]] = fields

    def _change_partition(self, fields: MessageFields) -> None:
        topic_id, number = fields["topicId"], fields["partitionId"]
        now = self.partitions.get(topic_id, {}).get(number)
        if now is None:
            self.missing.append(f"partition {number} of the topic {topic_id} that is changed")
            return
        changed = {name: fields[name] for name in _REPLICA_FIELDS if fields[name] is not None}
        if fields["leader"] != _LEADER_STAYS:
            changed |= {"leader": fields["leader"], "leaderEpoch": now["leaderEpoch"] + 1}
        if fields["leaderRecoveryState"] != -1:
            changed["leaderRecoveryState"] = fields["leaderRecoveryState"]
        self.partitions[topic_id][number] = {**now, **changed, "partitionEpoch": now["partitionEpoch"] + 1}

    def _clear_elr(self, fields: MessageFields) -> None:
        for topic_id, name in self.topics.items():
            if fields["topicName"] not in ("", name):
                continue
            for number, now in self.partitions[topic_id].items():
                if now["eligibleLeaderReplicas"] or now["lastKnownElr"]:
                    cleared: MessageFields = {"eligibleLeaderReplicas": [], "lastKnownElr": []}
                    cleared["partitionEpoch"] = now["partitionEpoch"] + 1
                    self.partitions[topic_id][number] = {**now, **cleared}

    def _set_config(self, fields: MessageFields) -> None:
        of = fields["resourceType"], fields["resourceName"]
        if fields["value"] is not None:
            self.configs.setdefault(of, {})[fields["name"]] = fields["value"]
        else:
            self.configs.get(of, {}).pop(fields["name"], None)

    def _register_broker(self, fields: MessageFields) -> None:
        self.brokers[fields["brokerId"]] = fields

    def _unregister_broker(self, fields: MessageFields) -> None:
        self.brokers.pop(fields["brokerId"], None)

    def _change_broker(self, fields: MessageFields) -> None:
        changed: MessageFields = {}
        if fields["fenced"] in _FENCED:
            changed["fenced"] = _FENCED[fields["fenced"]]
        if fields["inControlledShutdown"] == 1:
            changed["inControlledShutdown"] = True
        if fields["logDirs"]:
            changed["logDirs"] = fields["logDirs"]
        if fields["cordonedLogDirs"] is not None:
            changed["cordonedLogDirs"] = fields["cordonedLogDirs"]
        self._update_broker(fields["brokerId"], changed)

    def _update_broker(self, broker_id: int, changed: MessageFields) -> None:
        if broker_id in self.brokers:
            self.brokers[broker_id] = {**self.brokers[broker_id], **changed}
        else:
            self.missing.append(f"the broker {broker_id} that is changed")

    def _fence_broker(self, fields: MessageFields) -> None:
        self._update_broker(fields["id"], {"fenced": True})

    def _unfence_broker(self, fields: MessageFields) -> None:
        self._update_broker(fields["id"], {"fenced": False})

    def _set_feature(self, fields: MessageFields) -> None:
        if fields["featureLevel"]:
            self.features[fields["name"]] = fields["featureLevel"]
        else:
            self.features.pop(fields["name"], None)


_REPLAYS: Final[dict[str, Callable[[ClusterState, Any], None]]] = {
    "TopicRecord": ClusterState._add_topic,
    "RemoveTopicRecord": ClusterState._remove_topic,
    "PartitionRecord": ClusterState._add_partition,
    "PartitionChangeRecord": ClusterState._change_partition,
    "ClearElrRecord": ClusterState._clear_elr,
    "ConfigRecord": ClusterState._set_config,
    "RegisterBrokerRecord": ClusterState._register_broker,
    "UnregisterBrokerRecord": ClusterState._unregister_broker,
    "BrokerRegistrationChangeRecord": ClusterState._change_broker,
    "FenceBrokerRecord": ClusterState._fence_broker,
    "UnfenceBrokerRecord": ClusterState._unfence_broker,
    "FeatureLevelRecord": ClusterState._set_feature,
}
