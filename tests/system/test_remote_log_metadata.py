"""``__remote_log_metadata``: the segments that remote storage has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparklog.system.messages import decode_framed, message
from sparklog.system.records import InternalLog, Undecodable
from sparklog.system.remote_log_metadata import current_segments, segments_history
from tests.system.logs import Put, encode_framed, write_log

AT = {"name": "orders", "id": "nT3VsuYvSyWUb7u3L98_lA", "partition": 2}
ONE, TWO = "A" * 21 + "Q", "A" * 21 + "g"


def framed(name: str, fields: dict[str, Any]) -> Put:
    return Put(None, encode_framed(message(name), 0, fields))


def added(segment: str, start: int, **more: Any) -> Put:
    fields = {
        "remoteLogSegmentId": {"topicIdPartition": AT, "id": segment},
        "startOffset": start,
        "endOffset": start + 9,
    }
    return framed("RemoteLogSegmentMetadataRecord", {**fields, "segmentSizeInBytes": 70, **more})


def became(segment: str, state: int, **more: Any) -> Put:
    fields = {"remoteLogSegmentId": {"topicIdPartition": AT, "id": segment}, "remoteLogSegmentState": state}
    return framed("RemoteLogSegmentMetadataUpdateRecord", {**fields, **more})


def deleted(state: int, **at: Any) -> Put:
    fields = {"topicIdPartition": {**AT, **at}, "remotePartitionDeleteState": state}
    return framed("RemotePartitionDeleteMetadataRecord", fields)


def segments(log: InternalLog) -> list[tuple[int, str]]:
    return [(row["start_offset"], row["state"]) for row in current_segments(log, Undecodable()).to_pylist()]


def test_segment_is_what_its_records_say_together(tmp_path: Path) -> None:
    epochs = [{"leaderEpoch": 3, "offset": 0}]
    steps = [added(ONE, 0, segmentLeaderEpochs=epochs), became(ONE, 1, brokerId=5, customMetadata=b"x")]
    (row,) = current_segments(write_log(tmp_path / "x-0", steps), Undecodable()).to_pylist()
    assert (row["topic"], row["partition"], row["segment_id"]) == ("orders", 2, ONE)
    assert (row["start_offset"], row["end_offset"], row["size_bytes"], row["broker_id"]) == (0, 9, 70, 5)
    assert (row["state"], row["custom_metadata"]) == ("COPY_SEGMENT_FINISHED", b"x")
    assert row["leader_epochs"] == [{"epoch": 3, "start_offset": 0}]


# What RemoteLogMetadataSerde of Kafka 4.4.0 makes of a segment, of its update, and of the deletion of its partition.
OF_KAFKA = [
    "010000076f72646572736f60d860d3894e33a21c7e32aa2b111a0000000200e9589450184e4abba4980a9e822fde88000000"
    "00000000000500000000000000630000000100000000000004d2000000000000030903000000000000000000000005000000"
    "000300000000000000320000001000000000",
    "010100076f72646572736f60d860d3894e33a21c7e32aa2b111a0000000200e9589450184e4abba4980a9e822fde88000000"
    "000700000000000003780301020100",
    "010200076f72646572736f60d860d3894e33a21c7e32aa2b111a00000002000000000100000000000000090000",
]


def test_records_of_kafkas_own_serializer_decode_to_what_it_was_given(tmp_path: Path) -> None:
    steps = [Put(None, bytes.fromhex(each)) for each in OF_KAFKA]
    for step in steps:
        found, version, fields = decode_framed(step.value or b"", "storage")
        assert encode_framed(found, version, fields) == step.value
    (row,) = current_segments(write_log(tmp_path / "x-0", steps), Undecodable()).to_pylist()
    assert (row["topic"], row["topic_id"], row["partition"]) == ("orders", "b2DYYNOJTjOiHH4yqisRGg", 2)
    assert row["segment_id"] == "6ViUUBhOSrukmAqegi_eiA"
    assert (row["start_offset"], row["end_offset"], row["size_bytes"]) == (5, 99, 4096)
    assert (row["state"], row["broker_id"], row["custom_metadata"]) == ("COPY_SEGMENT_FINISHED", 7, b"\1\2")
    assert row["leader_epochs"] == [{"epoch": 0, "start_offset": 5}, {"epoch": 3, "start_offset": 50}]


def test_segments_that_are_deleted_are_gone(tmp_path: Path) -> None:
    steps = [added(TWO, 10), added(ONE, 0), became(ONE, 1)]
    assert segments(write_log(tmp_path / "a-0", steps)) == [(0, "COPY_SEGMENT_FINISHED"), (10, "COPY_SEGMENT_STARTED")]
    steps += [became(ONE, 2), became(TWO, 3)]
    assert segments(write_log(tmp_path / "b-0", steps)) == [(0, "DELETE_SEGMENT_STARTED")]
    assert segments(write_log(tmp_path / "c-0", [*steps, deleted(1), deleted(2, partition=1)])) != []
    assert segments(write_log(tmp_path / "d-0", [*steps, deleted(2)])) == []


def test_update_of_a_segment_whose_first_record_is_gone_makes_no_row(tmp_path: Path) -> None:
    assert segments(write_log(tmp_path / "x-0", [became(ONE, 1)])) == []


def test_record_that_cannot_be_decoded_is_shown_as_its_bytes_and_counted(tmp_path: Path) -> None:
    wrong = [Put(None, b"\1\1\5"), Put(None, None), Put(b"key", b"\1\x63\0")]
    log, unreadable = write_log(tmp_path / "x-0", [added(ONE, 0), *wrong]), Undecodable()
    assert current_segments(log, unreadable).num_rows == 1
    assert unreadable.count == 3
    rows = [row for batch in segments_history(log, Undecodable()) for row in batch.to_pylist()]
    assert [row["record"] for row in rows] == ["RemoteLogSegmentMetadataRecord", None, None, None]
    assert [(row["raw_key"], row["raw_value"]) for row in rows[1:]] == [(each.key, each.value) for each in wrong]
