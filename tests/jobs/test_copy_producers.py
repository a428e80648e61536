"""Which producer ids batches have after a copy: those of another cluster must not meet the target's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import InvalidProducerEpochError
from sparklog.log.clock import wall_clock_ms
from sparklog.log.layout import read_layout
from sparklog.log.reader import IsolationLevel
from sparklog.record.batches.producer_stamps import FIRST_OWN_PRODUCER_ID
from sparklog.write.partition import LogWriter
from tests.build import control_batch, write_partition
from tests.jobs.copies import copy, moved, records, refuse_wrong_state, source
from tests.log.logs import batch
from tests.places import folder_at
from tests.topic.staged import findings, rows

LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
KEPT = [7, 7, 9]
TOPIC_ID = "Q2TYVrXaSDWPZ5lUZtm3Jg"


def in_transaction(base_offset: int, count: int) -> bytes:
    return batch(base_offset, count, producer_id=7, producer_epoch=1, base_sequence=0, transactional=True)


ABORTED = (in_transaction(0, 5), control_batch("abort", 5, 7, 1), batch(6, 2, producer_id=9, producer_epoch=0))
COMMITTED = (in_transaction(0, 5), control_batch("commit", 5, 7, 1), batch(6, 2, producer_id=9, producer_epoch=0))


def write(directory: Path, *batches: bytes, cluster: str | None = None, topic_id: str | None = None) -> Path:
    write_partition(directory / "events-0", batches)
    if topic_id is not None:
        (directory / "events-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster is not None:
        belongs_to(directory, cluster)
    return directory


def belongs_to(directory: Path, cluster: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")


def producers(folder: Path) -> list[int]:
    """Return the producer id of each batch that has one."""
    found: list[int] = []
    for segment in read_layout(folder_at(folder)).segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                found += window.headers.column("producer_id").tolist()
    return [each for each in found if each >= 0]


def test_producers_of_another_cluster_get_ids_that_no_cluster_reaches(tmp_path: Path) -> None:
    """Two clusters are not the same because neither says which it is."""
    clusters = (("other", "A", "B"), ("neither", None, None), ("theirs", "A", None), ("ours", None, "A"))
    for name, theirs, ours in clusters:
        folder = write(tmp_path / name / "in", *ABORTED, cluster=theirs) / "events-0"
        if ours is not None:
            belongs_to(tmp_path / name / "out", ours)
        copy(tmp_path / name / "out", source(tmp_path / name / "in"))
        copied = tmp_path / name / "out" / "events-0"
        of_transaction, of_marker, alone = producers(copied)
        assert of_transaction == of_marker != alone, name
        assert min(of_marker, alone) >= FIRST_OWN_PRODUCER_ID, name
        columns = ["offset", "value", "producer_epoch", "sequence", "is_transactional"]
        for level in LEVELS:
            assert records(copied, level, columns) == records(folder, level, columns), name
        refuse_wrong_state(copied)
        assert findings(tmp_path / name / "out") == []
        assert [each.producers_of for each in moved(tmp_path / name / "out")] == [str(tmp_path / name / "in")]


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_replaced_ids_are_right_in_every_batch_of_a_long_log(tmp_path: Path, codec: str | None) -> None:
    """Batches of many lengths and of three producers, some without one: the checksum of each is that of its bytes."""
    some = [batch(n * 10, 1 + n % 9, last_offset_delta=9, producer_id=n % 4 - 1) for n in range(200)]
    folder = write(tmp_path / "a", *some) / "events-0"
    copy(tmp_path / "b", source(tmp_path / "a"), codec=codec)
    ids = dict(zip(producers(folder), producers(tmp_path / "b" / "events-0"), strict=True))
    assert len(set(ids.values())) == 3
    assert producers(tmp_path / "b" / "events-0") == [ids[each] for each in producers(folder)]
    assert records(tmp_path / "b" / "events-0") == records(folder)
    assert findings(tmp_path / "b") == []


def test_producers_of_the_same_cluster_keep_their_ids_in_their_topic(tmp_path: Path) -> None:
    write(tmp_path / "in", *ABORTED, cluster="A")
    belongs_to(tmp_path / "out", "A")
    copy(tmp_path / "out", source(tmp_path / "in"))
    assert producers(tmp_path / "out" / "events-0") == KEPT
    # Another topic is one to which the same producer may begin to write, with a sequence number of 0.
    copy(tmp_path / "out", source(tmp_path / "in", renames={"events": "again"}))
    assert min(producers(tmp_path / "out" / "again-0")) >= FIRST_OWN_PRODUCER_ID


def test_a_topic_made_anew_in_the_same_cluster_is_another_one(tmp_path: Path) -> None:
    write(tmp_path / "in", *ABORTED, cluster="A", topic_id=TOPIC_ID)
    write(tmp_path / "out", cluster="A", topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    copy(tmp_path / "out", source(tmp_path / "in"))
    assert min(producers(tmp_path / "out" / "events-0")) >= FIRST_OWN_PRODUCER_ID


def test_sources_that_are_merged_are_not_taken_for_one_another(tmp_path: Path) -> None:
    """An open transaction of the one stays open, and another's marker of the same producer id does not end it."""
    write(tmp_path / "a", batch(0), in_transaction(10, 5))
    write(tmp_path / "b", *COMMITTED, cluster="A")
    belongs_to(tmp_path / "c", "A")
    copy(tmp_path / "c", source(tmp_path / "a"), source(tmp_path / "b"))
    merged = tmp_path / "c" / "events-0"
    assert len(set(producers(merged))) == 3
    assert min(producers(merged)) >= FIRST_OWN_PRODUCER_ID
    assert len(records(merged, "read_committed")) == 10
    refuse_wrong_state(merged)
    # It is ended by its own, under the same id.
    (tmp_path / "a" / "events-0" / f"{0:020d}.log").write_bytes(
        batch(0) + in_transaction(10, 5) + control_batch("commit", 15, 7, 1)
    )
    copy(tmp_path / "c", source(tmp_path / "a"), source(tmp_path / "b"))
    assert len(records(merged, "read_committed")) == 22
    assert len(set(producers(merged))) == 3


@pytest.mark.parametrize(("was_kept", "is_said"), [(True, True), (False, True), (True, False)])
def test_an_open_transaction_is_ended_under_the_id_with_which_it_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_kept: bool, is_said: bool
) -> None:
    """Also where the second copy is asked for the other way, and where the ledger is of a version that kept all ids."""
    log = write(tmp_path / "a", batch(0), in_transaction(10, 5)) / "events-0" / f"{0:020d}.log"
    copied = tmp_path / "b" / "events-0"
    with monkeypatch.context() as patch:
        if not is_said:
            patch.setattr("sparklog.jobs.ledger._OF_COPY", ("source", "target_topic"))
        copy(tmp_path / "b", source(tmp_path / "a"), keeps_producers=was_kept)
    assert [each.producers_of for each in moved(tmp_path / "b")] == [None if was_kept else str(tmp_path / "a")]
    log.write_bytes(log.read_bytes() + control_batch("abort", 15, 7, 1) + in_transaction(16, 2))
    copy(tmp_path / "b", source(tmp_path / "a"), keeps_producers=not was_kept)
    assert len(set(producers(copied))) == 1
    assert (producers(copied)[0] == 7) == was_kept
    log.write_bytes(log.read_bytes() + control_batch("commit", 18, 7, 1))
    copy(tmp_path / "b", source(tmp_path / "a"))
    assert records(copied, "read_committed") == records(log.parent, "read_committed")
    # Nothing depends on it any more.
    log.write_bytes(log.read_bytes() + in_transaction(19, 2) + control_batch("abort", 21, 7, 1))
    copy(tmp_path / "b", source(tmp_path / "a"))
    assert producers(copied)[-1] >= FIRST_OWN_PRODUCER_ID
    assert records(copied, "read_committed") == records(log.parent, "read_committed")


def test_a_producer_goes_on_behind_a_copy_of_batches_with_its_id(tmp_path: Path) -> None:
    """It is fenced, or taken for a repetition, where the batches that were copied keep their ids."""
    write(tmp_path / "a", batch(0, 5, producer_id=0, producer_epoch=3, base_sequence=0, max_timestamp=wall_clock_ms()))
    own: dict[str, Any] = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0}
    copy(tmp_path / "kept", source(tmp_path / "a"), keeps_producers=True)
    copy(tmp_path / "replaced", source(tmp_path / "a"))
    with LogWriter.open(tmp_path / "kept" / "events-0") as log, pytest.raises(InvalidProducerEpochError):
        log.append(rows(["own"]), **own)
    with LogWriter.open(tmp_path / "replaced" / "events-0") as log:
        assert log.append(rows(["own"]), **own) == (5, 5)


def test_the_summary_says_how_many_batches_got_other_ids(tmp_path: Path) -> None:
    write(tmp_path / "a", *ABORTED, batch(8))
    assert sparklog.copy(tmp_path / "a", tmp_path / "b", processes=1).replaced_batches == 3
    kept = sparklog.copy(tmp_path / "a", tmp_path / "c", keep_producers=True, processes=1)
    assert (kept.replaced_batches, producers(tmp_path / "c" / "events-0")) == (0, KEPT)
