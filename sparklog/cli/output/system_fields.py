"""The fields of the JSON of commands about Kafka's internal topics; `sparklog.cli.output.fields` has the others."""

from __future__ import annotations

from typing import Final

from sparklog.cli.output.field import Field, fields_in

_WRITTEN: Final = """
log_partition  integer   number of the partition of the internal topic
log_offset     integer   offset of the record in it
timestamp      integer   of the record, ms since 1970
transaction    string?   committed, aborted or open; null of a record of none
is_tombstone   boolean   whether the record removes what its key names
raw_key        string?   bytes of a record that cannot be decoded; or raw_key_base64
raw_value      string?   as raw_key
"""
_COMMITTED: Final = """
group             string?   name of the group
topic             string?   name of the topic
partition         integer?  number of the partition
offset            integer?  offset that was committed
leader_epoch      integer?  of the record before that offset
metadata          string?   text that the client committed with it
commit_timestamp  integer?  ms since 1970
expire_timestamp  integer?  ms since 1970, where the client said one
topic_id          string?   of the topic
"""
_OF_GROUP: Final = """
group      string?   name of the group
member_id  string?   of the member that the record is about
record     string?   name of the record in Kafka
version    integer?  of the record
fields     string?   fields of the record as JSON
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
_RECORD_OF_CLUSTER: Final = """
record   string?   name of the record in Kafka
version  integer?  of the record
fields   string?   fields of the record as JSON
"""
SYSTEM_ROWS: Final[dict[str, dict[str, tuple[Field, ...]]]] = {
    "groups": {
        "a group": fields_in(
            """
group            string    name of the group
type             string?   classic, consumer, share or streams
state            string    Empty, Stable, Assigning, ...; Unknown where a record of it cannot be decoded
epoch            integer?  generation of a classic group, else the group epoch
protocol_type    string?   consumer, connect, ...
protocol         string?   assignment protocol of a classic group
leader           string?   member id of the leader of a classic group
state_timestamp  integer?  of the last change of a classic group, ms since 1970
members          array?    as of --members
"""
        ),
        "an offset (--offsets)": fields_in(
            _COMMITTED + "committed_in      string    __consumer_offsets or seglog.offsets"
        ),
        "a member (--members)": fields_in(
            """
group                   string    name of the group
member_id               string    id of the member
instance_id             string?   of a static member
rack_id                 string?   of the client
client_id               string    of the client
client_host             string    of the client
member_epoch            integer?  null in a classic group
subscribed_topics       array?    names of topics
subscribed_topic_regex  string?   pattern of topics
assigned_partitions     array?    topic, topic_id, subtopology_id and partitions
"""
        ),
        "a partition (--lag)": fields_in(
            """
group           string    name of the group
topic           string    name of the topic
partition       integer   number of the partition
current_offset  integer?  offset that was committed
log_end_offset  integer?  end of the log; null where it is not there
lag             integer?  log_end_offset less current_offset
consumer_id     string?   id of the member that the partition is assigned
host            string?   of that member
client_id       string?   of that member
committed_in    string?   __consumer_offsets or seglog.offsets
"""
        ),
        "a record (--history)": fields_in(_OF_GROUP.strip() + _WRITTEN),
        "a commit (--offsets --history)": fields_in(_COMMITTED.strip() + _WRITTEN),
    },
    "groups set": {
        "an offset": fields_in(
            """
group           string    name of the group
topic           string    name of the topic
partition       integer   number of the partition
current_offset  integer?  offset that was committed before
new_offset      integer   offset that was set, or without --execute would be
"""
        )
    },
    "transactions": {
        "a transactional id": fields_in(_TRANSACTION),
        "a change (--history)": fields_in(_TRANSACTION.strip() + _WRITTEN),
        "an open transaction (--hanging, --abort)": fields_in(
            """
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
timeout_ms          integer?  how long it may be; null where no coordinator knows the producer
transactional_id    string?   of the producer; null where no coordinator knows it
is_coordinated      boolean   whether a coordinator knows that it is open
is_hanging          boolean   whether no coordinator will end it, or one should have by now
"""
        ),
    },
    "cluster": {
        "a topic": fields_in(
            """
topic               string   name of the topic
topic_id            string   id of the topic
partitions          integer  number of partitions
replication_factor  integer  replicas of the partition that has the most
configs             object   values that are set for the topic, by name
"""
        ),
        "a partition (partitions)": fields_in(
            """
topic                     string    name of the topic
topic_id                  string    id of the topic
partition                 integer   number of the partition
leader                    integer?  broker that leads it; null where none does
leader_epoch              integer   counts leaders
partition_epoch           integer   counts changes
replicas                  array     brokers
isr                       array     brokers in sync
adding_replicas           array     brokers that a reassignment adds
removing_replicas         array     brokers that it removes
eligible_leader_replicas  array     brokers that may lead it though they are not in sync
last_known_elr            array     those that were before an unclean shutdown
leader_recovery_state     string    RECOVERED or RECOVERING
directories               array     ids of log directories, one a replica
"""
        ),
        "a config (configs)": fields_in(
            """
resource_type  string  topic, broker, group, client-metrics
resource_name  string  name or number; empty of all brokers
name           string  name of the config
value          string  value that is set
"""
        ),
        "a broker (brokers)": fields_in(
            """
broker_id                 integer  number of the broker
broker_epoch              integer  of its registration
incarnation_id            string?  of its process
rack                      string?  that it is in
fenced                    boolean  whether it serves nothing
in_controlled_shutdown    boolean  whether it hands over what it leads
endpoints                 array    name, host, port and security_protocol
features                  array    name, min_version and max_version that it supports
log_directories           array    ids
cordoned_log_directories  array    ids of those that get no new partitions
"""
        ),
        "a feature (features)": fields_in(
            """
feature  string   name of the feature
level    integer  that it is on
"""
        ),
        "a record (records)": fields_in(
            """
record      string    name of the record in Kafka
version     integer   of the record
fields      string    fields of the record as JSON
log_offset  integer?  of the record; null in a snapshot
timestamp   integer   ms since 1970
snapshot    integer?  end offset of the snapshot that it is in
"""
        ),
        "a record (--history)": fields_in(_RECORD_OF_CLUSTER.strip() + _WRITTEN),
    },
}
