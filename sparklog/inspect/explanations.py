"""Explains every code that ``verify`` gives: its meaning, who may have caused it, its effect, and what mends it.

In a command, ``DIR`` stands for the log directory, ``FOLDER`` for a folder in it, ``NEW`` for a new log directory, and
``SET`` for a set of backups.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparklog.errors import InvalidOptionError, did_you_mean


class Explanation(NamedTuple):
    """The meaning and the cause of the findings of a code.

    Attributes
    ----------
    meaning : str
    fault : str
        The possible cause, in a few words.
    effect : str
        The effect on readers and on a broker.
    command : str
        The command that mends it.
    """

    meaning: str
    fault: str
    effect: str
    command: str

    def paragraph(self, code: str) -> str:
        """Return the explanation as text."""
        return f"{code}: {self.meaning} Possible cause: {self.fault}. {self.effect}\n\nTo mend it: {self.command}"


_DISK: Final = "the disk, the memory, or a program that wrote to the file"
_CRASH: Final = "a crash of the broker, the writer or the machine"
_PERSON: Final = "a person or a script that moved, copied, edited or removed files"
_BROKER: Final = "nobody: a broker was at work"
_RESTORE: Final = "a restore of files from different times, or a person who moved or copied files"
_RECOVER: Final = "sparklog recover DIR"
_NEW_INDEX: Final = "rm FOLDER/INDEX && sparklog recover DIR"
_LOOK: Final = "sparklog recover --dry-run DIR"
_SALVAGE: Final = "sparklog salvage DIR NEW"
_AGAIN: Final = "sparklog verify DIR"
_DEEP: Final = "sparklog verify --deep DIR"
_BACKUP: Final = "sparklog backup DIR SET"
_COPY: Final = "sparklog copy DIR NEW --keep-offsets"
_UNMARK: Final = "rm DIR/.kafka_cleanshutdown"
_REMOVE: Final = "rm -r FOLDER"
_FORMAT: Final = "kafka-storage.sh format --cluster-id ID --config server.properties --ignore-formatted"
_INDEX: Final = (
    "Reads check each entry and do not depend on it. A broker trusts the index, and may answer a lookup wrongly."
)
_NOT_READ: Final = "A read that reaches it is an error. A broker fails the fetch, or refuses to load the partition."
_STRAY: Final = "Readers of the files are not affected. A KRaft broker renames the folder to -stray when it starts."

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "backup-damaged": Explanation(
        "A log was damaged when the backup was made, which has it up to the damage.",
        "the disk of the source",
        "A restore passes the backup over, unless it is named.",
        _BACKUP,
    ),
    "batch-offset": Explanation(
        "A record has an offset above the last one in the header of its batch.",
        "the program that made the batch",
        "A read from that offset on skips the record, here and at a broker.",
        _COPY,
    ),
    "batch-timestamp": Explanation(
        "A record is later than the largest timestamp in the header of its batch.",
        "the program that made the batch",
        "A lookup by time may skip the record, and retention may remove it early.",
        _COPY,
    ),
    "checkpoint": Explanation(
        "A checkpoint of the log directory gives a log an offset past its end, or names a log that is not here.",
        "lost records of the log, or a restore of files from different times",
        "Past the end: records are gone, and a log start offset there makes a broker delete the whole log. A line of a "
        "log that is not here does nothing.",
        _RECOVER,
    ),
    "checkpoint-missing": Explanation(
        "A broker stopped cleanly, and a checkpoint, or the line of a log in one, is missing.",
        _PERSON,
        "A broker takes the offset 0: it hides records until the high watermark rises, or offers deleted ones again.",
        _UNMARK,
    ),
    "checkpoint-order": Explanation(
        "A checkpoint gives a log an offset below the start of the log.",
        "a broker that was killed between two writes of its checkpoints, or a restore of files from different times",
        "A broker raises the offset to the start of the log. Readers do not use it.",
        _LOOK,
    ),
    "checkpoint-value": Explanation(
        "A checkpoint has a negative offset or partition.",
        _PERSON,
        "A broker may refuse to start, or take the log for empty.",
        "mv DIR/CHECKPOINT ELSEWHERE",
    ),
    "cluster-epoch": Explanation(
        "A log has a leader epoch above the one that the cluster's metadata have reached for its partition.",
        "a restore of older metadata, or a log of another cluster",
        "A broker truncates the log, or fails its replicas: the records of that epoch are in danger. Readers of the "
        "files see them.",
        _COPY,
    ),
    "cluster-metadata": Explanation(
        "The metadata log of the cluster cannot be replayed, or changes objects that it does not have.",
        _DISK,
        "Readers of records are not affected. A node does not start on it: take the folder from another controller.",
        "sparklog cluster DIR topics",
    ),
    "config-topic": Explanation(
        "The file topics.properties has properties of a topic that is not here.",
        "a misspelt name, or a deleted topic",
        "The properties have no effect: a topic that was meant has the defaults of retention and cleaning.",
        "sparklog topics list DIR",
    ),
    "corrupt-batch": Explanation(
        "A batch is whole by its size, and its checksum or its content is wrong.",
        _DISK,
        _NOT_READ,
        _SALVAGE,
    ),
    "corrupt-file": Explanation(
        "A small file, such as a checkpoint or a snapshot, is damaged.",
        _DISK,
        "A broker does without it, or does not start. Readers take the start of the log from the first segment.",
        _RECOVER,
    ),
    "cut": Explanation(
        "Bytes that a recovery cut off a segment are kept beside it.",
        "nobody: sparklog keeps them on purpose",
        "Nothing reads them.",
        "sparklog recover --drop-cut DIR",
    ),
    "directory-id": Explanation(
        "Two log directories have the same directory id.",
        "a copy of a disk, or of its meta.properties",
        "A broker that has both does not start. Readers of the files are not affected.",
        _FORMAT,
    ),
    "directory-unknown": Explanation(
        "The cluster's metadata do not list this directory for its node.",
        _RESTORE,
        "A broker registers it when it starts, and may set aside or move partitions. Readers are not affected.",
        _DEEP,
    ),
    "ends-early": Explanation(
        "A sealed segment ends before the next one begins, and the log was not compacted.",
        "lost or cut bytes of the segment",
        "The records are missing. A read that reaches the gap is an error, or skips it with failOnDataLoss=false.",
        _SALVAGE,
    ),
    "foreign-name": Explanation(
        "A name does not belong where it is, or is not a regular file.",
        _PERSON,
        "Nothing of it is read. A broker does not start with a foreign folder in its log directory.",
        "mv FOLDER ELSEWHERE",
    ),
    "future-alone": Explanation(
        "The copy that a move between disks makes is here without the log itself.",
        "a broker that died while it moved a partition between its disks",
        "Readers of the directory do not see its records. Brokers since 3.8 put it in place; older ones ignore it.",
        "sparklog describe FOLDER",
    ),
    "gone": Explanation("A file or folder went away before it was verified.", _BROKER, "It has no effect.", _AGAIN),
    "group-offset": Explanation(
        "A group has committed an offset past the end of a log, or of a log that is not here.",
        "lost records, or a topic that was deleted and created again",
        "The group's consumers begin at their reset policy, or skip records that come later.",
        "sparklog groups set DIR --group GROUP --to-earliest --execute",
    ),
    "index-entry": Explanation("An entry of an index contradicts the log.", _DISK, _INDEX, _NEW_INDEX),
    "index-entry-missing": Explanation(
        "A transaction was aborted, and the transaction index has no entry for it.",
        _CRASH,
        "A broker would serve the aborted records as committed. Reads of sparklog decide by the markers.",
        _NEW_INDEX,
    ),
    "index-missing": Explanation(
        "A segment has no index.", _CRASH, "Reads are right and slower. A broker makes it again.", _RECOVER
    ),
    "index-order": Explanation("The entries of an index do not ascend.", _DISK, _INDEX, _NEW_INDEX),
    "index-padded": Explanation(
        "Zeros follow the entries of an index of an earlier segment.",
        _CRASH,
        "Reads ignore the zeros. A broker takes the index for damaged, and makes it again.",
        _NEW_INDEX,
    ),
    "index-short": Explanation(
        "A time index ends before the largest timestamp of its segment.",
        _CRASH,
        "Lookups by time are right and slower. Retention by time may remove the segment early.",
        _NEW_INDEX,
    ),
    "index-size": Explanation("The size of an index is not a whole number of entries.", _CRASH, _INDEX, _NEW_INDEX),
    "journal-source": Explanation(
        "A commit was decided, and files that it needs are neither staged nor in place.",
        _PERSON,
        "Reads end before the commit. No write is possible until it is finished.",
        _LOOK,
    ),
    "leader-epoch": Explanation(
        "The leader epochs of the batches fall, or differ from the epochs of the checkpoint.",
        "damaged headers, or a checkpoint of another log: the epoch is not part of the checksum",
        "Readers of the files are not affected. A follower may truncate at the wrong offset.",
        "rm FOLDER/leader-epoch-checkpoint && sparklog recover DIR",
    ),
    "leftover": Explanation(
        "Kafka has set a folder aside, or a job has staged files and not committed them.",
        "nobody, or a broker or job that died",
        "Nothing reads it. A broker deletes -delete folders when it starts; -stray ones stay until somebody looks.",
        _RECOVER,
    ),
    "link": Explanation(
        "A name is a symbolic link.",
        _PERSON,
        "Its target is read. sparklog never writes through it.",
        "mv FOLDER ELSEWHERE",
    ),
    "log-id": Explanation(
        "Two folders have the same log id.",
        "a copy of a folder under another name",
        "A stream that read one takes the other for it if it is put in its place.",
        "rm FOLDER/seglog-identity",
    ),
    "lost-segment": Explanation(
        "The indexes of a segment exist, and its log does not.",
        _PERSON,
        "Its records are lost. A read that reaches the gap is an error. A broker deletes the indexes.",
        _SALVAGE,
    ),
    "manifest": Explanation(
        "The manifest of a backup is damaged, or of a later version of sparklog.",
        _DISK,
        "The backup cannot be restored, and prune removes nothing. Other backups of the set are not affected.",
        _BACKUP,
    ),
    "meta-cluster": Explanation(
        "Two log directories are of different clusters.",
        _RESTORE,
        "A broker that has both does not start. Topics of the same name are different topics.",
        _DEEP,
    ),
    "meta-garbled": Explanation(
        "The file meta.properties cannot be parsed, or lacks what its version requires.",
        _DISK,
        "A broker does not start. Readers of the files are not affected. Remove it before formatting.",
        _FORMAT,
    ),
    "meta-missing": Explanation(
        "There is no meta.properties, so nothing says which cluster and node the directory is of.",
        "nobody, if no broker has used the directory; else a person who removed it",
        "A KRaft broker does not start without it. Readers of the files are not affected.",
        _FORMAT,
    ),
    "meta-node": Explanation(
        "Two log directories of a cluster are of different nodes, or their files have different versions.",
        "nobody, if they are disks of several brokers",
        "One broker that has both does not start. Their partitions of the same name are replicas.",
        _DEEP,
    ),
    "not-a-batch": Explanation("Bytes of a log are no batch.", _DISK, _NOT_READ, _SALVAGE),
    "not-proven": Explanation(
        "Bytes cannot be read as records, so they may hold a key that must be absent.",
        _DISK,
        "It has no effect on reads beyond that of the damage.",
        _SALVAGE,
    ),
    "offset-order": Explanation(
        "Offsets do not ascend from batch to batch.",
        "a program that copied batches, or a segment of another log",
        _NOT_READ,
        _SALVAGE,
    ),
    "offset-range": Explanation(
        "A batch has offsets that belong to another segment.",
        "a segment that was renamed or exchanged",
        _NOT_READ,
        _SALVAGE,
    ),
    "orphan": Explanation(
        "An index has no log beside it.", _CRASH, "Readers ignore it. A broker deletes it.", _RECOVER
    ),
    "own-file": Explanation(
        "A file of sparklog's own in the log directory is damaged.",
        _DISK,
        "Readers and brokers ignore it, except a journal: writes and jobs refuse the directory.",
        _LOOK,
    ),
    "partition-directory": Explanation(
        "The cluster has the partition in another directory of the node.",
        "a person who moved the folder between disks",
        "A broker tells the controller the new place, or sets the folder aside if the other one has the partition.",
        _DEEP,
    ),
    "partition-doubled": Explanation(
        "Two directories of one node have the same partition.",
        "a person who moved the folder between disks, and left one behind",
        "The broker does not start. A read of both directories is refused.",
        "mv FOLDER ELSEWHERE",
    ),
    "partition-missing": Explanation(
        "The cluster has the partition in this directory, and its folder is not here.",
        "a person who removed it, or a disk that lost it",
        "Its records are gone from this disk. A broker makes an empty log, and fetches it if there is another replica.",
        "sparklog copy REPLICA DIR --topics TOPIC --keep-offsets",
    ),
    "partition-unassigned": Explanation(
        "The cluster has the partition on other nodes.",
        "a reassignment while the broker was down, or a disk of another node",
        _STRAY,
        _COPY,
    ),
    "partition-unknown": Explanation(
        "The cluster has no such topic or partition.",
        "a topic that was deleted while the broker was down, or a disk put into a new cluster",
        _STRAY,
        "kafka-topics.sh --create --topic TOPIC",
    ),
    "piece-checksum": Explanation(
        "The bytes of a file in a set of backups have changed since they were stored.",
        _DISK,
        "A restore of a backup that needs them is refused. The other backups of the set are not affected.",
        "rm SET/PIECE && sparklog backup DIR SET",
    ),
    "piece-missing": Explanation(
        "The bytes of a file that backups need are not in their set.",
        _PERSON,
        "A restore of a backup that needs them is refused. The other backups of the set are not affected.",
        _BACKUP,
    ),
    "present": Explanation(
        "A file has records with a key that must be absent.",
        "an erasure that was not made, or not of this copy",
        "The records can be read.",
        "sparklog clean DIR --erase KEYS",
    ),
    "quorum-state": Explanation(
        "The vote of the node is missing, garbled, or older than its metadata log.",
        _RESTORE,
        "The node does not start, or votes twice in one epoch. Take the folder of another controller.",
        "mv FOLDER ELSEWHERE",
    ),
    "segment-size": Explanation(
        "A segment is larger than a broker accepts.",
        "the program that wrote it",
        "Reads are right. No broker starts on the directory.",
        _COPY,
    ),
    "set-aside": Explanation(
        "Kafka was deleting the folder.", _BROKER, "Nothing reads it, and it is not verified.", _REMOVE
    ),
    "shutdown-marker": Explanation(
        "The marker of a clean shutdown contradicts the logs, or cannot be read.",
        _RESTORE,
        "A broker that finds it does not check the ends of the logs, and may serve a torn batch.",
        _UNMARK,
    ),
    "snapshot": Explanation(
        "A producer snapshot has batches after the offset in its name.",
        "a file that was renamed",
        "A broker may refuse sound batches of a producer as out of order.",
        _RECOVER,
    ),
    "snapshot-end": Explanation(
        "A producer snapshot is of an offset past the end of the log.",
        "lost records of the log, or a file of another log",
        "A broker removes it when it loads the log. Writers of sparklog ignore it.",
        _RECOVER,
    ),
    "snapshot-foreign": Explanation(
        "The producers of a snapshot have not written the batches of the log.",
        "a file of another log",
        "A broker may refuse sound batches as out of order, or take repeated ones. Writers of sparklog ignore it.",
        "rm FOLDER/SNAPSHOT",
    ),
    "stray-known": Explanation(
        "A broker has set the folder aside as unknown, and the cluster has its topic.",
        "a broker that started before it had the metadata, or a restore of metadata",
        "Its records are not served. Stop the broker, and rename the folder if the partition's own one is missing.",
        "mv FOLDER DIR/TOPIC-PARTITION",
    ),
    "topic-id": Explanation(
        "A partition has another topic id than the others of its topic, than the cluster, or none.",
        "a topic that was deleted and created again, or a folder of another cluster",
        _STRAY,
        _COPY,
    ),
    "torn-tail": Explanation(
        "The last batch of a log is cut short.",
        _CRASH,
        "Reads end before it, and a broker cuts it off. It is an error if all was on the disk: then records are lost, "
        "and the command needs --truncate.",
        _RECOVER,
    ),
    "unfinished": Explanation(
        "A write, a cleaning or a deletion has begun and not ended.",
        "nobody if it runs, else a crash",
        "Reads see all of a commit or nothing of it. The next writer or broker finishes it.",
        _RECOVER,
    ),
    "unreadable": Explanation(
        "A file or folder cannot be opened or read.",
        "the disk, or permissions",
        "Neither a reader nor a broker gets its contents.",
        _AGAIN,
    ),
    "zero-tail": Explanation(
        "Zeros follow the last batch of a log.",
        "nobody if the file was preallocated, else a crash",
        "Reads end before them, and a broker cuts them off. It is an error if all was on the disk: then records are "
        "lost, and the command needs --truncate.",
        _RECOVER,
    ),
}


def explanation_of(code: str) -> Explanation:
    """Return the explanation of a code; raise `InvalidOptionError` if there is no such code."""
    found = EXPLANATIONS.get(code)
    if found is None:
        hint = did_you_mean(code, list(EXPLANATIONS), f"the codes are {', '.join(EXPLANATIONS)}")
        raise InvalidOptionError(f"verify gives no finding with the code {code!r}: {hint}")
    return found
