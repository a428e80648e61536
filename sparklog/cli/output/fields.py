"""The rows that each command prints: the fields of its JSON, which ``--fields`` shows, and the columns of its tables.

A test compares them with the output. Types are JSON's; ``?`` means that the value may be null. Keys and values that are
not UTF-8 are base64, in a field with the suffix ``_base64``.
"""

from __future__ import annotations

from typing import Any, Final

from sparklog.cli.output.columns import Field, RowShape, declared_columns
from sparklog.cli.output.system_fields import SYSTEM_ROWS

_SCANNED: Final = """
first_timestamp        integer?  ms since 1970, of the first batch that has a time
max_timestamp          integer?  ms since 1970, the largest
codecs                 array     names of codecs; without --full only at the ends of the segments
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
DESCRIBED_TOPIC: Final = RowShape.parse(
    """a topic
topic        string   name of the topic
topic_id     string?  from partition.metadata
partitions   integer  number of partitions
segments     integer  number of segments
log_bytes    integer  length of all .log files
total_bytes  integer  length of all files
offsets      integer  sum of end offsets less start offsets"""
    + _SCANNED
    + """
configs             object   properties stored for the topic, name to value
damaged_partitions  integer  partitions with an error
directories         array    path, cluster_id, node_id, directory_id of each log directory""",
    "topic/name30, partitions=PARTS, segments=SEGS@4, total_bytes/size=SIZE, offsets, "
    "first_timestamp/minutes=FROM (UTC)@1, max_timestamp/minutes=TO@1, codecs/formats=FORMATS@3",
)
DESCRIBED_PARTITION: Final = RowShape.parse(
    """a partition (--partitions)
topic               string    name of the topic, or of the folder
partition           integer?  number of the partition
path                string    the folder
topic_id            string?   from partition.metadata
segments            integer   number of segments
log_bytes           integer   length of all .log files
total_bytes         integer   length of all files
start_offset        integer?  log start offset; null where damage hides it
end_offset          integer?  log end offset, exclusive; null where damage hides it
last_stable_offset  integer?  null also if finding it would mean reading much"""
    + _SCANNED
    + """
cluster_id    string?   from meta.properties
node_id       integer?  from meta.properties, the number of the broker
directory_id  string?   from meta.properties
error         string?   what is damaged""",
    "topic/partition=PARTITION, segments=SEGS@4, total_bytes/size=SIZE, start_offset=START, end_offset=END, "
    "last_stable_offset=STABLE@2, first_timestamp/minutes=FROM (UTC)@1, max_timestamp/minutes=TO@1, "
    "codecs/formats=FORMATS@3",
)
DESCRIBED_SEGMENT: Final = RowShape.parse(
    """a segment (--segments)
topic        string    name of the topic, or of the folder
partition    integer?  number of the partition
path         string    the folder
base_offset  integer   of the file's name
end_offset   integer?  offset after the last; null where damage hides it
log_bytes    integer   length of the .log file"""
    + _SCANNED
    + """
error  string?  what is damaged""",
    "topic/partition=PARTITION, base_offset=BASE, end_offset=END, log_bytes/size=SIZE, "
    "first_timestamp/seconds=FROM (UTC)@1, max_timestamp/seconds=TO@1, codecs/formats=FORMATS@3",
)
RECORD: Final = RowShape.parse(
    """a record
topic             string    name of the topic, or of the folder if it is not a partition's
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
position          integer   byte position of its batch in the file""",
    "offset, timestamp/time=TIME (UTC), key/data, value/value=VALUE  [HEADERS]",
)
BATCH: Final = RowShape.parse(
    """a batch (--batches)
topic              string    as in records
partition          integer?  as in records
file               string    name of the segment's file; its path with --replicas merge
position           integer   byte position in the file
base_offset        integer?  first offset; null in a damaged wrapper
last_offset        integer   last offset
record_count       integer?  null in a damaged wrapper
size_bytes         integer   length of the batch
magic              integer   version of the batch format
codec              string    how it is compressed
crc                integer   checksum in the header
is_valid           boolean   whether it is the checksum of the bytes
timestamp_type     string    as in records
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
delete_horizon_ms  integer?  when compaction may remove tombstones""",
    "position@2, base_offset/offsets=OFFSETS, record_count=RECORDS, size_bytes=BYTES, magic/format=FORMAT, "
    "max_timestamp/time=MAX TIME (UTC), leader_epoch/known=EPOCH@3, producer_id/producer=PRODUCER@1, "
    "delete_horizon_ms/flags=FLAGS",
)
FINDING: Final = RowShape.parse(
    """a finding
severity  string    error, warning or note
code      string    kind of the finding
path      string    the file or folder
position  integer?  byte position in the file
offset    integer?  offset expected there
message   string    what is wrong
fault     string    the possible cause
command   string    the command that mends it; see verify --explain""",
    "severity/text, code/text, position, offset, message/name30=WHAT",
)
DIFF: Final = RowShape.parse(
    """a range or a difference
topic         string    name of the topic, or of the folder
partition     integer?  number of the partition
start_offset  integer?  first offset of the range; null where the difference has no offset
end_offset    integer?  offset after the range; the first again if damaged bytes held no offset
kind          string    a range's is equal, missing, divergent, leader-epoch or damaged; see the documentation
copies        array     for each path a letter, missing or damaged, or the value that differs; null where there is none
reason        string    damage or error in a few words""",
    "topic/partition=PARTITION, start_offset=FROM, end_offset=END, kind/text, copies/list, reason/name30",
)
DIFF_PARTITIONS: Final = declared_columns(
    "topic/partition=PARTITION, equal, missing, divergent, leader_epoch=EPOCH, damaged, others"
)
DAMAGE: Final = RowShape.parse(
    """bytes or offsets that cannot be read
topic         string    name of the topic, or of the folder
partition     integer?  number of the partition
file          string    path of the segment's file
position      integer   of the first byte
length_bytes  integer   number of bytes; 0 if the file, or its end, is missing
first_offset  integer   the first offset that they may have held
end_offset    integer   the offset after the last
reason        string    the kind of damage""",
    "topic/name30, partition, file/name30=FILE, position, length_bytes/size=SIZE, first_offset=FROM, end_offset=TO, "
    "reason/name30=WHAT",
)
RECOVERY: Final = RowShape.parse(
    """an action
status  string  done; would be (--dry-run); damaged, left unchanged; failed, cannot be read or written
path    string  the file or folder
what    string  what was done, or what is wrong""",
    "status/text, path/name30=FILE, what/name30",
)
EXPORTED_RANGE: Final = RowShape.parse(
    """a range of offsets
topic         string    name of the topic
partition     integer   number of the partition
from          integer   first offset that was moved
to            integer   the offset after the last, where the next export continues
rows          integer   number of records; without markers, and aborted ones by the isolation level
log_bytes     integer   about how many bytes of log were read
topic_id      string?   from partition.metadata
leader_epoch  integer?  of the last offset, from leader-epoch-checkpoint
files         array     path (in the target), bytes, rows and crc32c of each
lost          array     skipped damage: file, position, length_bytes, first_offset, end_offset, reason of each""",
)
COPIED_RANGE: Final = RowShape.parse(
    """a range of offsets
topic         string    name of the topic
partition     integer   number of the partition
from          integer   first offset that was moved
to            integer   the offset after the last, where the next copy continues
rows          integer   number of records in the batches
log_bytes     integer   bytes of the batches
topic_id      string?   from partition.metadata
leader_epoch  integer?  of the last offset, from leader-epoch-checkpoint
source        string    path of the log directory
target_topic  string    the topic that it was copied to
producers_of  string?   names the source whose producers got other ids; null where they kept theirs
files         array     none
lost          array     skipped damage: file, position, length_bytes, first_offset, end_offset, reason of each""",
)
PLANNED_RANGE: Final = RowShape.parse(
    """a range of a task (--dry-run)
task       integer  number of the task
topic      string   name of the topic
partition  integer  number of the partition
from       integer  first offset that would be moved
to         integer  the offset after the last
log_bytes  integer  about how many bytes of log would be read""",
    "task, topic/partition=PARTITION, from, to, log_bytes/size=LOG",
)
CLEANED_PARTITION: Final = RowShape.parse(
    """a partition that data was removed from, or would be (--dry-run)
topic               string    name of the topic
partition           integer   number of the partition
start_offset        integer   log start offset after the cleaning
end_offset          integer   log end offset, exclusive
dropped_segments    integer   how many segments retention drops
dropped_offsets     integer   how far the log start offset is raised
dropped_bytes       integer   length of the logs of dropped segments
first_timestamp     integer?  ms since 1970, of the first batch that is dropped
last_timestamp      integer?  the largest of all dropped batches
rewritten_segments  integer   how many segments were rewritten
new_segments        integer   how many segments replaced them
rewritten_bytes     integer   length of their logs before
new_bytes           integer   and after
removed_records     integer   how many records the rewriting left out
erased_records      integer   how many records were erased, or lost their values
erased_offsets      array     their offsets, as ranges: pairs of the first and the last
lost                string    what a conversion to an older format has lost
reasons             array     causes of the changes: retention, compaction, erasure, conversion""",
    "topic/partition=PARTITION, start_offset=START, end_offset=END, dropped_segments=SEGMENTS, "
    "dropped_offsets=OFFSETS, dropped_bytes/size=DROPPED, first_timestamp/seconds=FROM (UTC)@2, "
    "last_timestamp/seconds=TO@1, rewritten_bytes/size=REWRITTEN, new_bytes/size=INTO",
)
CLEANED_TOPIC: Final = declared_columns(
    "topic/name30=TOPIC, partitions, dropped_segments=SEGMENTS, dropped_offsets=OFFSETS@3, dropped_bytes/size=DROPPED, "
    "first_timestamp/seconds=FROM (UTC)@2, last_timestamp/seconds=TO@1, reasons/list=REASON, "
    "rewritten_bytes/size=REWRITTEN, new_bytes/size=INTO",
)
"""The columns of a topic that data was removed from; JSON has each partition."""
LOG_TO_SALVAGE: Final = RowShape.parse(
    """a partition that would be salvaged (--dry-run)
topic      string   name of the topic
partition  integer  number of the partition
log_bytes  integer  length of its logs""",
    "topic/partition=PARTITION, log_bytes/size=LOG",
)
SALVAGED_PARTITION: Final = RowShape.parse(
    """a partition
topic              string   name of the topic
partition          integer  number of the partition
records            integer  how many records were kept, markers included
batches            integer  how many batches they are in
log_bytes          integer  length of these batches
start_offset       integer  log start offset of the copy
end_offset         integer  log end offset of the copy, exclusive
high_watermark     integer  high watermark of the copy
open_transactions  integer  transactions without an end; damage may have taken it
lost_bytes         integer  how many bytes hold no sound batch
lost_offsets       integer  how many offsets were lost, at most
damage             array    the table of damage: file, position, length_bytes, first_offset, end_offset, reason""",
    "topic/partition=PARTITION, records, batches@2, log_bytes/size=KEPT, start_offset=START@1, end_offset=END@1, "
    "lost_bytes/size=LOST, lost_offsets=LOST OFFSETS",
)
CUT_PARTITION: Final = RowShape.parse(
    """the partition
topic             string   name of the topic
partition         integer  number of the partition
is_done           boolean  false if the answer was no, or there was nothing to cut
start_offset      integer  log start offset after the cut, or as it would be
end_offset        integer  log end offset, exclusive
dropped_segments  integer  how many segments go whole
dropped_offsets   integer  how many offsets the log loses
dropped_bytes     integer  by how much the logs of its segments get shorter""",
)
MIRROR_PASS: Final = RowShape.parse(
    """a pass of the mirror
logs            integer  how many logs had changed, and were brought up to their source
copied_bytes    integer  bytes of batches that were copied
behind_bytes    integer  bytes that the mirror lacked before
behind_offsets  integer  offsets that the mirror lacked before
errors          array    errors of damaged logs, and of logs that changed while they were copied""",
)
BACKUP: Final = RowShape.parse(
    """a backup
backup_id           string    its id, which is its time
made_ms             integer   ms since 1970, when it began
partitions          integer   number of its partitions
damaged_partitions  integer   how many of them end at damage
groups              integer   number of consumer groups with committed offsets
size_bytes          integer   length of its files; backups share bytes
new_bytes           integer?  bytes of batches that this backup stored; null in a list""",
    "backup_id/text=BACKUP, made_ms/seconds=MADE (UTC), partitions=PARTS, damaged_partitions=DAMAGED, groups, "
    "size_bytes/size=SIZE",
)
LOADED_PARTITION: Final = RowShape.parse(
    """a partition
topic         string   name of the topic
partition     integer  number of the partition
first_offset  integer  of the first record that was written
last_offset   integer  of the last
records       integer  number of records
size_bytes    integer  length of their batches""",
    "topic/partition=PARTITION, first_offset=FIRST, last_offset=LAST, records, size_bytes/size=SIZE",
)
PLANNED_FILE: Final = RowShape.parse(
    """a file, or some row groups of one (--dry-run)
task        integer   number of the task
path        string    path of the file
rows        integer?  null if only reading the file would tell
size_bytes  integer   about how many bytes of the file would be read
topic       string?   name of the topic; null if rows name it
partitions  integer?  how many partitions it has, or would get""",
    "task, path/name30=FILE, rows=RECORDS, size_bytes/size=SIZE",
)
LEDGER_FINDING: Final = RowShape.parse(
    """a finding
kind       string   ledger, overlap, gap, or of a file missing, size, checksum, rows, doubled, foreign, unknown or other
is_damage  boolean  whether rows may be lost, doubled or changed
path       string   path of the file, or of the ledger
reason     string   what is wrong""",
    "kind/text, path/name30=FILE, reason/name30=WHAT",
)
QUERY_LAG: Final = RowShape.parse(
    """a partition
topic       string    name of the topic
partition   integer   number of the partition
offset      integer?  the first offset that the query has not committed; null if it has read nothing there
end_offset  integer?  the end of the log; null if it is gone
lag         integer?  offsets between the two""",
    "topic/short, partition, offset, end_offset=END, lag/known",
)
LEDGER_PARTITION: Final = RowShape.parse(
    """a partition
topic         string    name of the topic
partition     integer   number of the partition
from          integer   first offset that was moved
to            integer   the offset after the last, where the next job continues
rows          integer   number of records in all
log_bytes     integer   about how many bytes of log they were
files         integer   number of files
bytes         integer   length of all files
topic_id      string?   from partition.metadata
leader_epoch  integer?  of the last offset, from leader-epoch-checkpoint
source        string?   of a copy, path of the log directory
target_topic  string?   of a copy, the topic that it was copied to
time_ms       integer   of the last commit, ms since 1970""",
    "topic/partition=PARTITION, from, to, rows=RECORDS, files@2, bytes/size=SIZE, time_ms/seconds=LAST (UTC)@1",
)
LEDGER_COMMIT: Final = RowShape.parse(
    """a commit (--commits)
number   integer  counts from 0
job      string   what was done, such as export
run      string   id of the run of the job
time_ms  integer  ms since 1970
entries  integer  ranges of offsets and loaded files
rows     integer  number of records
files    integer  files that were made, or loaded""",
    "number, job/text, time_ms/seconds=TIME (UTC), rows=RECORDS, files, run/text@1",
)
LEDGER_FILE: Final = RowShape.parse(
    """a file that was loaded
path         string   the file
into         string?  the topic that it was loaded into, if one was given
bytes        integer  its length when it was loaded
modified_ns  integer  its time then, ns since 1970
rows         integer  number of records
time_ms      integer  of the commit, ms since 1970""",
    "path/name30=FILE, bytes/size=SIZE, rows=RECORDS, time_ms/seconds=LOADED (UTC)@1",
)
MANAGED_TOPIC: Final = RowShape.parse(
    """a topic
topic       string   name of the topic
partitions  integer  number of its partitions here
configs     object   properties stored for it, by name""",
    "topic/name30, partitions=PARTS, configs/configs",
)
COPIED_TOPICS: Final = declared_columns("topic/name30, partitions=PARTS, rows=RECORDS, log_bytes/size=LOG")
EXPORTED_TOPICS: Final = COPIED_TOPICS + declared_columns("files, bytes/size=SIZE")
LEDGER_COPIES: Final = (
    *LEDGER_PARTITION.columns[:4],
    *declared_columns("log_bytes/size=LOG, target_topic/name=TO TOPIC"),
    LEDGER_PARTITION.columns[-1],
)
_SHAPES: Final = {
    "describe": (DESCRIBED_TOPIC, DESCRIBED_PARTITION, DESCRIBED_SEGMENT),
    "dump": (RECORD, BATCH),
    "verify": (FINDING, DAMAGE),
    "diff": (DIFF,),
    "recover": (RECOVERY,),
    "export": (EXPORTED_RANGE, PLANNED_RANGE),
    "copy": (COPIED_RANGE, PLANNED_RANGE),
    "salvage": (SALVAGED_PARTITION, LOG_TO_SALVAGE),
    "clean": (CLEANED_PARTITION,),
    "delete-records": (CUT_PARTITION,),
    "truncate": (CUT_PARTITION,),
    "load": (LOADED_PARTITION, PLANNED_FILE),
    "ledger verify": (LEDGER_FINDING,),
    "mirror": (MIRROR_PASS,),
    "backup": (BACKUP,),
    "backup list": (BACKUP,),
    "lag": (QUERY_LAG,),
    "ledger show": (LEDGER_PARTITION, LEDGER_COMMIT, LEDGER_FILE),
    "topics list": (MANAGED_TOPIC,),
    **SYSTEM_ROWS,
}
ROWS: Final[dict[str, dict[str, tuple[Field, ...]]]] = {
    command: {shape.of: shape.fields for shape in shapes} for command, shapes in _SHAPES.items()
}


def rows_of_fields(command: str) -> list[dict[str, Any]]:
    """Make a row for each field of a command's JSON."""
    return [
        {"of": of, "field": field.name, "type": field.kind, "meaning": field.meaning}
        for of, fields in ROWS[command].items()
        for field in fields
    ]
