"""The fields of the JSON that each command prints: names, types and meanings; ``--fields`` shows them.

A test holds them against the output. A type is that of JSON; ``?`` means that it may be null. Keys and values that are
no UTF-8 are base64, in a field with ``_base64`` behind the name.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Field(NamedTuple):
    """A field of a row."""

    name: str
    kind: str
    meaning: str


def _fields(text: str) -> tuple[Field, ...]:
    """Read lines of name, type and meaning."""
    return tuple(Field(*line.split(maxsplit=2)) for line in text.strip().splitlines())


_SCANNED: Final = """
first_timestamp        integer?  ms since 1970, of the first batch that has a time
max_timestamp          integer?  ms since 1970, the largest
codecs                 array     names of codecs; without --full those at the ends of the segments
magics                 array     versions of the batch format
batches                integer   with --full
records                integer?  with --full; without markers, and null where wrappers do not say it
control_batches        integer   with --full
transactional_batches  integer   with --full
codec_batches          object    with --full; batches by codec
codec_bytes            object    with --full; bytes by codec, without markers
uncompressed_bytes     object    with --ratio; bytes by codec, if they were not compressed
compression_ratio      number?   with --ratio; uncompressed bytes for one byte of the log
histogram              array     with --histogram; timestamp, batches, records, bytes of at most 24 spans of time
"""
_IDS: Final = """
cluster_id             string?   from meta.properties
node_id                integer?  from meta.properties, the number of the broker
directory_id           string?   from meta.properties
"""
_RECORD: Final = """
topic             string    name of the topic, or of the folder where it is no partition's
partition         integer?  number of the partition
offset            integer   offset of the record
timestamp         integer   ms since 1970; -1 none
timestamp_type    string    CreateTime, LogAppendTime or NoTimestampType
key               string?   text; or key_base64
value             string?   text; or value_base64
headers           array     objects with key, and value or value_base64
leader_epoch      integer   -1 in old formats
producer_id       integer   -1 none
producer_epoch    integer   -1 none
sequence          integer   -1 none
is_transactional  boolean   whether it is part of a transaction
codec             string    how its batch is compressed
magic             integer   version of the batch format
base_offset       integer   first offset of its batch
file              string    name of the segment's file
position          integer   byte position of its batch in the file
"""
_BATCH: Final = """
topic              string    as of records
partition          integer?  as of records
file               string    name of the segment's file
position           integer   byte position in the file
base_offset        integer?  first offset; null in a damaged wrapper
last_offset        integer   last offset
record_count       integer?  null in a damaged wrapper
size_bytes         integer   length of the batch
magic              integer   version of the batch format
codec              string    how it is compressed
crc                integer   checksum that the header says
is_valid           boolean   whether that is the checksum of the bytes
timestamp_type     string    as of records
max_timestamp      integer   ms since 1970; -1 none
leader_epoch       integer   -1 in old formats
producer_id        integer   -1 none
producer_epoch     integer   -1 none
base_sequence      integer   -1 none
last_sequence      integer   -1 none
is_transactional   boolean   whether it is part of a transaction
is_control         boolean   whether it is a marker
control_type       string?   ABORT, COMMIT, ... of a marker
coordinator_epoch  integer?  of the end of a transaction
delete_horizon_ms  integer?  when compaction may remove tombstones
"""
_PLANNED: Final = _fields(
    """
task       integer  number of the task
topic      string   name of the topic
partition  integer  number of the partition
from       integer  first offset that would be moved
to         integer  the offset behind the last
log_bytes  integer  about how many bytes of log would be read
"""
)
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
ROWS: Final[dict[str, dict[str, tuple[Field, ...]]]] = {
    "describe": {
        "a topic": _fields(
            """
topic                  string    name of the topic
topic_id               string?   from partition.metadata
partitions             integer   number of partitions
segments               integer   number of segments
log_bytes              integer   length of all .log files
total_bytes            integer   length of all files
offsets                integer   sum of end offsets less start offsets
"""
            + _SCANNED.strip()
            + """
configs                object    properties stored for the topic, name to value
damaged_partitions     integer   partitions with an error
directories            array     path, cluster_id, node_id, directory_id of each log directory
"""
        ),
        "a partition (--partitions)": _fields(
            """
topic                  string    name of the topic, or of the folder
partition              integer?  number of the partition
path                   string    the folder
topic_id               string?   from partition.metadata
segments               integer   number of segments
log_bytes              integer   length of all .log files
total_bytes            integer   length of all files
start_offset           integer?  log start offset; null where damage hides it
end_offset             integer?  log end offset, exclusive; null where damage hides it
last_stable_offset     integer?  null also where finding it would mean reading much
"""
            + _SCANNED.strip()
            + _IDS
            + "error                  string?   what is damaged"
        ),
        "a segment (--segments)": _fields(
            """
topic                  string    name of the topic, or of the folder
partition              integer?  number of the partition
path                   string    the folder
base_offset            integer   of the file's name
end_offset             integer?  offset after the last; null where damage hides it
log_bytes              integer   length of the .log file
"""
            + _SCANNED.strip()
            + "\nerror                  string?   what is damaged"
        ),
    },
    "dump": {"a record": _fields(_RECORD), "a batch (--batches)": _fields(_BATCH)},
    "verify": {
        "a finding": _fields(
            """
severity  string    error, warning or note
code      string    kind of the finding
path      string    the file or folder
position  integer?  byte position in the file
offset    integer?  offset that is expected there
message   string    what is wrong
"""
        )
    },
    "recover": {
        "an action": _fields(
            """
status  string  done; would be (--dry-run); damaged, left as it is; failed, cannot be read or written
path    string  the file or folder
what    string  what was done, or what is wrong
"""
        )
    },
    "export": {
        "a range of offsets": _fields(
            """
topic         string    name of the topic
partition     integer   number of the partition
from          integer   first offset that was moved
to            integer   the offset behind the last, from which the next export goes on
rows          integer   number of records; without markers, and aborted ones by the isolation level
log_bytes     integer   about how many bytes of log were read
topic_id      string?   from partition.metadata
leader_epoch  integer?  of the last offset, from leader-epoch-checkpoint
files         array     path (in the target), bytes, rows and crc32c of each
"""
        ),
        "a range of a task (--dry-run)": _PLANNED,
    },
    "copy": {
        "a range of offsets": _fields(
            """
topic         string    name of the topic
partition     integer   number of the partition
from          integer   first offset that was moved
to            integer   the offset behind the last, from which the next copy goes on
rows          integer   number of records in the batches
log_bytes     integer   bytes of the batches
topic_id      string?   from partition.metadata
leader_epoch  integer?  of the last offset, from leader-epoch-checkpoint
source        string    path of the log directory
target_topic  string    the topic that it was copied to
files         array     none
"""
        ),
        "a range of a task (--dry-run)": _PLANNED,
    },
    "clean": {
        "a partition that something went from, or would (--dry-run)": _fields(
            """
topic               string    name of the topic
partition           integer   number of the partition
start_offset        integer   log start offset after it
end_offset          integer   log end offset, exclusive
dropped_segments    integer   how many segments retention drops
dropped_offsets     integer   by how many offsets the log start offset is raised
dropped_bytes       integer   length of the logs of those segments
first_timestamp     integer?  ms since 1970, of the first batch that is dropped
last_timestamp      integer?  the largest of all that is dropped
rewritten_segments  integer   how many segments were rewritten
new_segments        integer   how many those became
rewritten_bytes     integer   length of their logs before
new_bytes           integer   and after
removed_records     integer   how many records the rewriting left out
"""
        ),
    },
    "load": {
        "a partition": _fields(
            """
topic         string   name of the topic
partition     integer  number of the partition
first_offset  integer  of the first record that was written
last_offset   integer  of the last
records       integer  number of records
size_bytes    integer  length of their batches
"""
        ),
        "a file, or some row groups of one (--dry-run)": _fields(
            """
task        integer   number of the task
path        string    path of the file
rows        integer?  null where only reading the file would tell
size_bytes  integer   about how many bytes of the file would be read
topic       string?   name of the topic; null where rows name it
partitions  integer?  how many partitions it has, or would get
"""
        ),
    },
    "ledger verify": {
        "a finding": _fields(
            """
kind       string   ledger, missing, unfinished, size, checksum, rows, doubled, overlap, gap, unknown, staged, rewritten
is_damage  boolean  whether rows may be lost, doubled or changed
path       string   path of the file, or of the ledger
reason     string   what is wrong
"""
        )
    },
    "lag": {
        "a partition": _fields(
            """
topic       string    name of the topic
partition   integer   number of the partition
offset      integer?  the first offset that the query has not committed; null where it has read nothing there
end_offset  integer?  the end of the log; null where it is gone
lag         integer?  offsets between the two
"""
        )
    },
    "ledger show": {
        "a partition": _fields(
            """
topic         string    name of the topic
partition     integer   number of the partition
from          integer   first offset that was moved
to            integer   the offset behind the last, from which the next job goes on
rows          integer   number of records in all
log_bytes     integer   about how many bytes of log they were
files         integer   number of files
bytes         integer   length of all files
topic_id      string?   from partition.metadata
leader_epoch  integer?  of the last offset, from leader-epoch-checkpoint
source        string?   of a copy, path of the log directory
target_topic  string?   of a copy, the topic that it was copied to
time_ms       integer   of the last commit, ms since 1970
"""
        ),
        "a commit (--commits)": _fields(
            """
number   integer  counts from 0
job      string   what was done, such as export
run      string   tells a run of a job from others
time_ms  integer  ms since 1970
entries  integer  ranges of offsets and loaded files
rows     integer  number of records
files    integer  files that were made, or loaded
"""
        ),
        "a file that was loaded": _fields(
            """
path         string   the file
into         string?  the topic that it was loaded into, where that was said
bytes        integer  its length when it was loaded
modified_ns  integer  its time then, ns since 1970
rows         integer  number of records
time_ms      integer  of the commit, ms since 1970
"""
        ),
    },
    "groups": {
        "a group": _fields(
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
        "an offset (--offsets)": _fields(_COMMITTED),
        "a member (--members)": _fields(
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
        "a partition (--lag)": _fields(
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
"""
        ),
        "a record (--history)": _fields(_OF_GROUP.strip() + _WRITTEN),
        "a commit (--offsets --history)": _fields(_COMMITTED.strip() + _WRITTEN),
    },
    "groups set": {
        "an offset": _fields(
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
        "a transactional id": _fields(_TRANSACTION),
        "a change (--history)": _fields(_TRANSACTION.strip() + _WRITTEN),
    },
    "cluster": {
        "a topic": _fields(
            """
topic               string   name of the topic
topic_id            string   id of the topic
partitions          integer  number of partitions
replication_factor  integer  replicas of the partition that has the most
configs             object   values that are set for the topic, by name
"""
        ),
        "a partition (partitions)": _fields(
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
        "a config (configs)": _fields(
            """
resource_type  string  topic, broker, group, client-metrics
resource_name  string  name or number; empty of all brokers
name           string  name of the config
value          string  value that is set
"""
        ),
        "a broker (brokers)": _fields(
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
        "a feature (features)": _fields(
            """
feature  string   name of the feature
level    integer  that it is on
"""
        ),
        "a record (records)": _fields(
            """
record      string    name of the record in Kafka
version     integer   of the record
fields      string    fields of the record as JSON
log_offset  integer?  of the record; null in a snapshot
timestamp   integer   ms since 1970
snapshot    integer?  end offset of the snapshot that it is in
"""
        ),
        "a record (--history)": _fields(_RECORD_OF_CLUSTER.strip() + _WRITTEN),
    },
}


def rows_of(command: str) -> list[dict[str, Any]]:
    """Make a row of each field of a command's JSON."""
    return [
        {"of": of, "field": field.name, "type": field.kind, "meaning": field.meaning}
        for of, fields in ROWS[command].items()
        for field in fields
    ]
