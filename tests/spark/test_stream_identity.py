"""Logs of topics without an id: what proves that one was made anew, and what retention and the cleaner may do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import sparklog
from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.storage.local import LocalStorage
from sparklog.topic.streams.offsets import INITIAL, StreamOffset
from tests.build import Record, empty_batch, message_set, v2_batch
from tests.spark.stream.test_reader import append, read, reader_of, with_id
from tests.topic.places.test_live import age

ALL = ReadAllAvailable()
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}


def log_of(folder: Path) -> Path:
    return folder / f"{0:020}.log"


def batch(first: int, *, kept: tuple[int, ...] = tuple(range(10)), later_ms: int = 0, **fields: Any) -> bytes:
    """Encode a batch of ten offsets of which records are kept, as the cleaner leaves it where not all are."""
    records = [Record(n, 1_000 * (first + n) + later_ms, b"%d" % n, b"v") for n in kept]
    given = {"leader_epoch": 3, **PRODUCER, "base_sequence": first, "last_offset_delta": 9, **fields}
    return v2_batch(records, base_offset=first, **given)


def write(folder: Path, *batches: bytes) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log_of(folder).write_bytes(b"".join(batches))


REMADE: dict[str, list[bytes]] = {
    "later": [batch(0, later_ms=5), batch(10, later_ms=5), batch(20, later_ms=5)],
    "by another producer": [batch(n, producer_id=8) for n in (0, 10, 20)],
    "in a new epoch": [batch(n, producer_epoch=1) for n in (0, 10, 20)],
    "by another leader": [batch(n, leader_epoch=4) for n in (0, 10, 20)],
    "with other sequences": [batch(n, base_sequence=n + 1) for n in (0, 10, 20)],
    "in transactions": [batch(n, transactional=True) for n in (0, 10, 20)],
    "in larger batches": [batch(0, last_offset_delta=14), batch(15, last_offset_delta=14)],
    "as long as it was": [batch(0, later_ms=5), batch(10, later_ms=5)],
}


@pytest.mark.parametrize("name", REMADE)
def test_log_that_was_made_anew_is_data_loss_and_is_read_from_its_beginning(tmp_path: Path, name: str) -> None:
    for fails in (True, False):
        write(tmp_path / "t-0", batch(0), batch(10))
        reader = reader_of(tmp_path, startingOffsets="earliest", failOnDataLoss=str(fails).lower())
        end = reader.latestOffset(INITIAL, ALL)
        write(tmp_path / "t-0", *REMADE[name])
        after = reader.latestOffset(end, ALL)
        assert after != end
        if fails:
            with pytest.raises(DataLossError, match="t-0 has another batch before offset 20 than when it was read"):
                read(reader, end, after)
        else:
            assert read(reader, end, after) == [("t-0", 0, 20 if name == "as long as it was" else 30)]
            assert reader.latestOffset(after, ALL) == after


def cleaned_in_part(folder: Path) -> None:
    log_of(folder).write_bytes(batch(0) + batch(10, kept=(2, 5), delete_horizon_ms=99, codec="gzip"))


def emptied(folder: Path) -> None:
    empty = empty_batch(10, 19, leader_epoch=3, **PRODUCER, base_sequence=10, max_timestamp=19_000)
    log_of(folder).write_bytes(batch(0) + empty)


def removed_and_written_on(folder: Path) -> None:
    log_of(folder).write_bytes(batch(0) + batch(20, later_ms=5))


def removed_by_retention(folder: Path) -> None:
    log_of(folder).unlink()
    (folder / f"{20:020}.log").write_bytes(b"")


def given_an_id(folder: Path) -> None:
    with_id(folder, "AAAAAAAAAAAAAAAAAAAAAQ")


@pytest.mark.parametrize(
    ("change", "is_longer"),
    [
        (cleaned_in_part, False),
        (emptied, False),
        (removed_and_written_on, True),
        (removed_by_retention, False),
        (given_an_id, False),
    ],
)
def test_what_a_broker_does_to_a_log_is_no_loss(
    tmp_path: Path, change: Callable[[Path], None], is_longer: bool
) -> None:
    write(tmp_path / "t-0", batch(0), batch(10))
    reader = reader_of(tmp_path, startingOffsets="earliest")
    end = reader.latestOffset(INITIAL, ALL)
    change(tmp_path / "t-0")
    after = reader.latestOffset(end, ALL)
    assert read(reader, end, after) == ([("t-0", 20, 30)] if is_longer else [])
    # What only cleaning has changed makes no batch.
    assert (after == end) is (not is_longer and change is not given_an_id)
    assert reader.latestOffset(after, ALL) == after


def test_log_that_was_made_anew_between_plan_and_run_is_not_read_for_the_old_one(tmp_path: Path) -> None:
    for name in ("by batches", "by ids"):
        folder = tmp_path / name / "t-0"
        write(folder, batch(0), batch(10))
        if name == "by ids":
            with_id(folder, "AAAAAAAAAAAAAAAAAAAAAQ")
        reader = reader_of(folder.parent, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger=10)
        start = reader.latestOffset(INITIAL, ReadMaxRows(1))
        end = reader.latestOffset(start, ALL)
        # The driver dies here, and Spark plans the batch again.
        write(folder, batch(0, later_ms=5), batch(10, later_ms=5), batch(20, later_ms=5))
        if name == "by ids":
            with_id(folder, "AAAAAAAAAAAAAAAAAAAAAg")
        with pytest.raises(DataLossError, match="than when the batch was planned"):
            read(reader_of(folder.parent), start, end)
        again = reader_of(folder.parent, failOnDataLoss="false")
        assert read(again, start, end) == []
        assert read(again, end, again.latestOffset(end, ALL)) == [("t-0", 0, 30)]


def test_log_that_was_converted_to_an_old_format_and_back_is_data_loss(tmp_path: Path) -> None:
    """Of the batch that the stream has read last nothing proves that it is the same: its leader epoch is lost."""
    records = [Record(n, 1_000 + n, b"%d" % n, b"v") for n in range(10)]
    write(tmp_path / "t-0", *(v2_batch(records, base_offset=first, leader_epoch=3) for first in (0, 10)))
    reader = reader_of(tmp_path, startingOffsets="earliest")
    end = reader.latestOffset(INITIAL, ALL)
    for record_format in (1, 2):
        sparklog.clean(tmp_path, format=record_format, recompress="gzip", processes=1)
    with pytest.raises(DataLossError, match="t-0 has another batch before offset 20 than when it was read"):
        read(reader, end, reader.latestOffset(end, ALL))


def test_offset_in_the_midst_of_a_batch_is_known_by_that_batch(tmp_path: Path) -> None:
    write(tmp_path / "t-0", batch(0), batch(10))
    reader = reader_of(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=14)
    end = reader.latestOffset(INITIAL, ReadMaxRows(1))
    assert end == {
        "t": {"0": 14},
        "@endBatches": {"t": {"0": [10, 19, 3, 7, 0, 10, 0, 19_000]}},
        "@from": {"t": {"0": 0}},
    }
    write(tmp_path / "t-0", batch(0, later_ms=5), batch(10, later_ms=5))
    with pytest.raises(DataLossError, match="t-0 has another batch before offset 14"):
        read(reader, end, reader.latestOffset(end, ReadMaxRows(1)))


def test_old_formats_are_known_by_nothing(tmp_path: Path) -> None:
    write(tmp_path / "t-0", message_set([Record(n, 5, None, b"v") for n in range(3)], magic=1))
    end = reader_of(tmp_path, startingOffsets="earliest").latestOffset(INITIAL, ALL)
    assert end == {"t": {"0": 3}, "@from": {"t": {"0": 0}}}


def test_topics_with_an_id_are_known_by_it_alone(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 20)
    with_id(tmp_path / "t-0", "AAAAAAAAAAAAAAAAAAAAAQ")
    end = reader_of(tmp_path, startingOffsets="earliest").latestOffset(INITIAL, ALL)
    assert end == {"t": {"0": 20}, "@topicIds": {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}, "@from": {"t": {"0": 0}}}


def made_by_us(folder: Path, count: int) -> None:
    with sparklog.PartitionLog.open(folder) as log:
        for number in range(count):
            log.append({"value": [b"%d" % number]}, now_ms=5)


def test_log_of_ours_that_was_made_anew_is_data_loss_though_its_batches_are_the_same(tmp_path: Path) -> None:
    made_by_us(tmp_path / "t-0", 20)
    reader = reader_of(tmp_path, startingOffsets="earliest")
    end = reader.latestOffset(INITIAL, ALL)
    shutil.rmtree(tmp_path / "t-0")
    made_by_us(tmp_path / "t-0", 30)
    after = reader.latestOffset(end, ALL)
    with pytest.raises(
        DataLossError, match="the log of t-0 was deleted and made again, or is another: it has another id"
    ):
        read(reader, end, after)
    again = reader_of(tmp_path, failOnDataLoss="false")
    assert read(again, end, after) == [("t-0", 0, 30)]
    assert again.latestOffset(after, ALL) == after


def test_idle_trigger_opens_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        append(tmp_path / f"t-{number}", 0, 20)
    age(tmp_path)
    reader = reader_of(tmp_path, startingOffsets="earliest")
    end = reader.latestOffset(INITIAL, ALL)
    read(reader, INITIAL, end)
    opened: list[str] = []
    plain_open = LocalStorage.open

    def counted(self: LocalStorage, path: str) -> object:
        opened.append(path)
        return plain_open(self, path)

    monkeypatch.setattr(LocalStorage, "open", counted)
    assert reader.latestOffset(end, ALL) == end
    assert [path for path in opened if path.endswith(".log")] == []


@pytest.mark.parametrize("found", [[], "x", {"t": 5}, {"t": {"0": 5}}, {"t": {"0": [1] * 7}}, {"t": {"0": [None] * 8}}])
def test_offset_whose_batches_are_damaged_is_an_error_of_ours(found: object) -> None:
    text = json.dumps({"t": {"0": 5}, "@endBatches": found})
    with pytest.raises(InvalidOptionError, match="not the offsets of a stream"):
        StreamOffset.parse(json.loads(text))


@pytest.mark.parametrize("found", [[], "x", {"t": 5}, {"t": None}])
def test_offset_whose_ids_are_damaged_is_an_error_of_ours(found: object) -> None:
    with pytest.raises(InvalidOptionError, match="not the ids of the topics of a stream"):
        StreamOffset.parse({"t": {"0": 5}, "@topicIds": found})


@pytest.mark.parametrize("found", [[], "x", {"t": 5}, {"t": {"0": 5}}])
def test_offset_whose_log_ids_are_damaged_is_an_error_of_ours(found: object) -> None:
    with pytest.raises(InvalidOptionError, match="not the offsets of a stream"):
        StreamOffset.parse({"t": {"0": 5}, "@logIds": found})
