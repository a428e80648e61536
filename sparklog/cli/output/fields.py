"""The fields of the JSON that each command prints: names, types and meanings; ``--fields`` shows them.

A test holds them against the output. A type is that of JSON; ``?`` means that it may be null. Keys and values that are
no UTF-8 are base64, in a field with ``_base64`` behind the name.
"""

from __future__ import annotations

from typing import Any, Final

from sparklog.cli.output.field import Field, fields_in
from sparklog.cli.output.system_fields import SYSTEM_ROWS

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
_PLANNED: Final = fields_in(
    """
task       integer  number of the task
topic      string   name of the topic
partition  integer  number of the partition
from       integer  first offset that would be moved
to         integer  the offset behind the last
log_bytes  integer  about how many bytes of log would be read
"""
)
_CUT: Final = fields_in(
    """
topic             string   name of the topic
partition         integer  number of the partition
is_done           boolean  false where the answer was no, or there was nothing to cut
start_offset      integer  log start offset after the cut, or as it would be
end_offset        integer  log end offset, exclusive
dropped_segments  integer  how many segments go whole
dropped_offsets   integer  how many offsets the log has less
dropped_bytes     integer  by how much the logs of its segments get shorter
"""
)
ROWS: Final[dict[str, dict[str, tuple[Field, ...]]]] = {
    "describe": {
        "a topic": fields_in(
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
        "a partition (--partitions)": fields_in(
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
        "a segment (--segments)": fields_in(
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
    "dump": {"a record": fields_in(_RECORD), "a batch (--batches)": fields_in(_BATCH)},
    "verify": {
        "a finding": fields_in(
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
        "an action": fields_in(
            """
status  string  done; would be (--dry-run); damaged, left as it is; failed, cannot be read or written
path    string  the file or folder
what    string  what was done, or what is wrong
"""
        )
    },
    "export": {
        "a range of offsets": fields_in(
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
        "a range of offsets": fields_in(
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
producers_of  string?   names the source whose producers got other ids; null where they kept theirs
files         array     none
"""
        ),
        "a range of a task (--dry-run)": _PLANNED,
    },
    "clean": {
        "a partition that something went from, or would (--dry-run)": fields_in(
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
erased_records      integer   how many records were erased, or lost their values
erased_offsets      array     their offsets, as ranges: pairs of the first and the last
lost                string    what a conversion to an older format has lost
"""
        ),
    },
    **{command: {"the partition": _CUT} for command in ("delete-records", "truncate")},
    "load": {
        "a partition": fields_in(
            """
topic         string   name of the topic
partition     integer  number of the partition
first_offset  integer  of the first record that was written
last_offset   integer  of the last
records       integer  number of records
size_bytes    integer  length of their batches
"""
        ),
        "a file, or some row groups of one (--dry-run)": fields_in(
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
        "a finding": fields_in(
            """
kind       string   ledger, overlap, gap, or of a file missing, size, checksum, rows, doubled, foreign, unknown or other
is_damage  boolean  whether rows may be lost, doubled or changed
path       string   path of the file, or of the ledger
reason     string   what is wrong
"""
        )
    },
    "lag": {
        "a partition": fields_in(
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
        "a partition": fields_in(
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
        "a commit (--commits)": fields_in(
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
        "a file that was loaded": fields_in(
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
    "topics list": {
        "a topic": fields_in(
            """
topic       string   name of the topic
partitions  integer  how many partitions of it are here
configs     object   properties that are stored for it, by name
"""
        )
    },
    **SYSTEM_ROWS,
}


def rows_of(command: str) -> list[dict[str, Any]]:
    """Make a row of each field of a command's JSON."""
    return [
        {"of": of, "field": field.name, "type": field.kind, "meaning": field.meaning}
        for of, fields in ROWS[command].items()
        for field in fields
    ]
