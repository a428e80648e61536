"""The rows of commands about Kafka's internal topics; `sparklog.cli.output.fields` has all other rows."""

from __future__ import annotations

from typing import Final

from sparklog.cli.output.columns import RowShape, declared_columns

_LOG_RECORD: Final = """
log_partition  integer  number of the partition of the internal topic
log_offset     integer  offset of the record in it
timestamp      integer  of the record, ms since 1970
transaction    string?  committed, aborted or open; null of a record of none
is_tombstone   boolean  whether the record removes what its key names
raw_key        string?  bytes of a record that cannot be decoded; or raw_key_base64
raw_value      string?  as raw_key
"""
_COMMITTED: Final = """
group             string?   name of the group
topic             string?   name of the topic
partition         integer?  number of the partition
offset            integer?  offset that was committed
leader_epoch      integer?  of the record before that offset
metadata          string?   text that the client committed with it
commit_timestamp  integer?  ms since 1970
expire_timestamp  integer?  ms since 1970, if the client gave one
topic_id          string?   of the topic
"""
_TRANSACTION: Final = """
transactional_id            string?   id that the producer has
producer_id                 integer?  number of the producer
producer_epoch              integer?  its epoch
state                       string?   Empty, Ongoing, PrepareCommit, CompleteCommit, ...
timeout_ms                  integer?  after which the coordinator aborts a transaction
partitions                  array?    topic and partitions of its transaction
start_timestamp             integer?  ms since 1970
last_update_timestamp       integer?  ms since 1970
previous_producer_id        integer?  number that the producer had before
next_producer_id            integer?  number that it has from the next transaction on
next_producer_epoch         integer?  epoch that goes with it
client_transaction_version  integer?  version of the protocol that the producer speaks
"""
GROUP: Final = RowShape.parse(
    """a group
group            string    name of the group
type             string?   classic, consumer, share or streams
state            string    Empty, Stable, Assigning, ...; Unknown if a record of it cannot be decoded
epoch            integer?  generation of a classic group, else the group epoch
protocol_type    string?   consumer, connect, ...
protocol         string?   assignment protocol of a classic group
leader           string?   member id of the leader of a classic group
state_timestamp  integer?  of the last change of a classic group, ms since 1970
members          array?    as of --members""",
    "group/name30, type/number, state/number, epoch, members/count, protocol@2, state_timestamp/seconds=SINCE UTC@1",
)
COMMITTED_OFFSET: Final = RowShape.parse(
    "an offset (--offsets)\n" + _COMMITTED + "committed_in      string    __consumer_offsets or seglog.offsets",
    "topic/partition=PARTITION, offset, leader_epoch=EPOCH@1, commit_timestamp/seconds=WHEN (UTC), metadata@2, "
    "committed_in=IN@3",
)
MEMBER: Final = RowShape.parse(
    """a member (--members)
group                   string    name of the group
member_id               string    id of the member
instance_id             string?   of a static member
rack_id                 string?   of the client
client_id               string    of the client
client_host             string    of the client
member_epoch            integer?  null in a classic group
subscribed_topics       array?    names of topics
subscribed_topic_regex  string?   pattern of topics
assigned_partitions     array?    topic, topic_id, subtopology_id and partitions""",
    "member_id=MEMBER, client_id/name16=CLIENT@1, client_host/name16=HOST@2, assigned_partitions/partitions=PARTITIONS",
)
GROUP_LAG: Final = RowShape.parse(
    """a partition (--lag)
group           string    name of the group
topic           string    name of the topic
partition       integer   number of the partition
current_offset  integer?  offset that was committed
log_end_offset  integer?  end of the log; null if the log does not exist
lag             integer?  log_end_offset less current_offset
consumer_id     string?   id of the member that the partition is assigned
host            string?   of that member
client_id       string?   of that member
committed_in    string?   __consumer_offsets or seglog.offsets""",
    "topic/partition=PARTITION, current_offset, log_end_offset=LOG END, lag, consumer_id@3, host@2, client_id@1, "
    "committed_in=IN@4",
)
GROUP_LAG_SUM: Final = declared_columns("group/name30=GROUP, partitions, lag, unknown=NOT KNOWN")
"""The columns of the lag of a whole group; JSON has each partition."""
GROUP_RECORD: Final = RowShape.parse(
    """a record (--history)
group      string?   name of the group
member_id  string?   of the member that the record is about
record     string?   name of the record in Kafka
version    integer?  of the record
fields     string?   fields of the record as JSON"""
    + _LOG_RECORD,
    "log_offset=OFFSET, timestamp/seconds=TIME (UTC), group/text, record/text, fields/fields",
)
OFFSET_COMMIT: Final = RowShape.parse(
    "a commit (--offsets --history)\n" + _COMMITTED + _LOG_RECORD,
    "log_partition=LOG@2, log_offset=OFFSET, timestamp/seconds=TIME (UTC), transaction/blank@1, group/id, "
    "topic/partition=PARTITION, offset/committed=COMMITTED",
)
NEW_OFFSET: Final = RowShape.parse(
    """an offset
group           string    name of the group
topic           string    name of the topic
partition       integer   number of the partition
current_offset  integer?  offset that was committed before
new_offset      integer   offset that was set, or without --execute would be""",
    "topic/partition=PARTITION, current_offset, new_offset",
)
TRANSACTION: Final = RowShape.parse(
    "a transactional id\n" + _TRANSACTION,
    "transactional_id, state/number, producer_id/producer=PRODUCER, start_timestamp/seconds=FROM (UTC)@2, "
    "last_update_timestamp/seconds=LAST (UTC), partitions/partitions@1",
)
TRANSACTION_CHANGE: Final = RowShape.parse(
    "a change (--history)\n" + _TRANSACTION + _LOG_RECORD,
    "log_partition=LOG@2, log_offset=OFFSET, timestamp/seconds=TIME (UTC), transactional_id/id, state/state, "
    "producer_id/producer=PRODUCER",
)
OPEN_TRANSACTION: Final = RowShape.parse(
    """an open transaction (--hanging, --abort)
status              string    open, aborted or would be aborted
topic               string    name of the topic
partition           integer   number of the partition
producer_id         integer   id of its producer
producer_epoch      integer   epoch of its producer
coordinator_epoch   integer   of the producer's last marker; -1 none
first_offset        integer   its first record
last_stable_offset  integer   where readers of committed records stop in this log
end_offset          integer   log end offset
start_timestamp     integer   ms since 1970, of its first batch; -1 not known
last_timestamp      integer   ms since 1970, of its producer's last batch
age_ms              integer?  how long it has been open
timeout_ms          integer?  how long it may be open; null if no coordinator knows the producer
transactional_id    string?   of the producer; null if no coordinator knows it
is_coordinated      boolean   whether a coordinator knows that it is open
is_hanging          boolean   whether no coordinator will end it, or one should have by now""",
    "topic/partition=PARTITION, producer_id/producer=PRODUCER, first_offset=FROM OFFSET, "
    "last_stable_offset=LSO@2, end_offset=END@1, age_ms/span=AGE, timeout_ms/span=TIMEOUT, "
    "is_hanging/yes=HANGING, transactional_id@1",
)
CLUSTER_TOPIC: Final = RowShape.parse(
    """a topic
topic               string   name of the topic
topic_id            string   id of the topic
partitions          integer  number of partitions
replication_factor  integer  number of replicas, the most of any partition
configs             object   values that are set for the topic, by name""",
    "topic/name30, topic_id=ID@1, partitions=PARTS, replication_factor=REPLICAS, configs/configs",
)
CLUSTER_PARTITION: Final = RowShape.parse(
    """a partition (partitions)
topic                     string    name of the topic
topic_id                  string    id of the topic
partition                 integer   number of the partition
leader                    integer?  broker that leads it; null if none does
leader_epoch              integer   counts leaders
partition_epoch           integer   counts changes
replicas                  array     brokers
isr                       array     brokers in sync
adding_replicas           array     brokers that a reassignment adds
removing_replicas         array     brokers that it removes
eligible_leader_replicas  array     brokers that may lead it though they are not in sync
last_known_elr            array     eligible leader replicas before an unclean shutdown
leader_recovery_state     string    RECOVERED or RECOVERING
directories               array     ids of log directories, one a replica""",
    "topic/partition=PARTITION, leader, leader_epoch=EPOCH, replicas, isr, eligible_leader_replicas=ELR@1, "
    "adding_replicas=ADDING@2, removing_replicas=REMOVING@2",
)
CLUSTER_CONFIG: Final = RowShape.parse(
    """a config (configs)
resource_type  string  topic, broker, group, client-metrics
resource_name  string  name or number; empty for all brokers
name           string  name of the config
value          string  value that is set""",
    "resource_type/resource=OF, name/name30, value",
)
BROKER: Final = RowShape.parse(
    """a broker (brokers)
broker_id                 integer  number of the broker
broker_epoch              integer  of its registration
incarnation_id            string?  of its process
rack                      string?  that it is in
fenced                    boolean  whether it serves nothing
in_controlled_shutdown    boolean  whether it hands over its leaderships
endpoints                 array    name, host, port and security_protocol
features                  array    name, min_version and max_version that it supports
log_directories           array    ids
cordoned_log_directories  array    ids of log directories that get no new partitions""",
    "broker_id=BROKER, broker_epoch=EPOCH, rack@1, fenced/broker=STATE, endpoints/endpoints",
)
FEATURE: Final = RowShape.parse(
    """a feature (features)
feature  string   name of the feature
level    integer  that it is on""",
    "feature/name40, level",
)
CLUSTER_RECORD: Final = RowShape.parse(
    """a record (records)
record      string    name of the record in Kafka
version     integer   of the record
fields      string    fields of the record as JSON
log_offset  integer?  of the record; null in a snapshot
timestamp   integer   ms since 1970
snapshot    integer?  end offset of the snapshot that it is in""",
    "log_offset/position=OFFSET, timestamp/seconds=TIME (UTC), record/text, fields/text",
)
CLUSTER_CHANGE: Final = RowShape.parse(
    """a record (--history)
record   string?   name of the record in Kafka
version  integer?  of the record
fields   string?   fields of the record as JSON"""
    + _LOG_RECORD,
    "log_offset=OFFSET, timestamp/seconds=TIME (UTC), transaction/blank@1, record/text, fields/fields",
)
SYSTEM_ROWS: Final = {
    "groups": (GROUP, COMMITTED_OFFSET, MEMBER, GROUP_LAG, GROUP_RECORD, OFFSET_COMMIT),
    "groups set": (NEW_OFFSET,),
    "transactions": (TRANSACTION, TRANSACTION_CHANGE, OPEN_TRANSACTION),
    "cluster": (CLUSTER_TOPIC, CLUSTER_PARTITION, CLUSTER_CONFIG, BROKER, FEATURE, CLUSTER_RECORD, CLUSTER_CHANGE),
}
