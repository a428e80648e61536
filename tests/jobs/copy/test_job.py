"""Which batches a copy takes, under which offsets, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import CommitError, CorruptBatchError, InvalidOptionError, LockedError
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.log.config import LogConfig
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.reader import open_log
from sparklog.write.locking import hold
from sparklog.write.partition import LogWriter
from tests.build import (
    Record,
    control_batch,
    empty_batch,
    legacy_message,
    legacy_wrapper,
    offset_checkpoint,
    txn_index,
    write_partition,
)
from tests.jobs.copies import FIELDS, copy, copy_job, moved, records, refuse_wrong_state, source
from tests.log.logs import batch
from tests.places import directory_at, folder_at
from tests.strategies import logs as random_logs
from tests.topic.staged import findings, rows

AT = TopicPartition("events", 0)
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=100)
COLUMNS = ["offset", "value"]


def in_transaction(base_offset: int, count: int, producer_id: int = 7, base_sequence: int = 0) -> bytes:
    return batch(
        base_offset, count, producer_id=producer_id, producer_epoch=1, base_sequence=base_sequence, transactional=True
    )


def write(directory: Path, *batches: bytes, name: str = "events-0", **options: Any) -> Path:
    """Write a log, and return its folder."""
    write_partition(directory / name, batches, **options)
    return directory / name


def offsets(folder: Path) -> list[int]:
    return [offset for offset, *_ in records(folder, columns=COLUMNS)]


def extent(folder: Path) -> tuple[int, int]:
    with open_log(str(folder)) as log:
        return log.start_offset, log.end_offset


def test_gaps_between_batches_are_closed_and_those_within_stay(tmp_path: Path) -> None:
    compacted = batch(30, 2, last_offset_delta=9)
    folder = write(
        tmp_path / "a", batch(5, 2), batch(10, 3), compacted, empty_batch(50, 59), batch(70, 1), base_offset=5
    )
    copy(tmp_path / "b", source(tmp_path / "a"))
    assert offsets(tmp_path / "b" / "events-0") == [0, 1, 2, 3, 4, 5, 6, 25]
    assert records(tmp_path / "b" / "events-0") == records(folder)
    copy(tmp_path / "c", source(tmp_path / "a"), keeps_offsets=True)
    assert records(tmp_path / "c" / "events-0", columns=COLUMNS) == records(folder, columns=COLUMNS)
    assert extent(tmp_path / "c" / "events-0") == (5, 71)
    assert findings(tmp_path / "b") == findings(tmp_path / "c") == []


def test_copy_to_a_log_that_has_records_is_appended(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", batch(100, 5), batch(200, 5), base_offset=100)
    for name in ("kept", "counted"):
        with LogWriter.open(tmp_path / name / "events-0") as log:
            log.append(rows(["own 0", "own 1"]))
    copy(tmp_path / "kept", source(tmp_path / "a"), keeps_offsets=True)
    copy(tmp_path / "counted", source(tmp_path / "a"))
    assert offsets(tmp_path / "kept" / "events-0") == [0, 1, *range(100, 105), *range(200, 205)]
    assert offsets(tmp_path / "counted" / "events-0") == list(range(12))
    for name in ("kept", "counted"):
        assert records(tmp_path / name / "events-0")[2:] == records(folder)
        assert extent(tmp_path / name / "events-0")[0] == 0
        assert findings(tmp_path / name) == []


def test_offsets_that_the_target_is_past_are_refused_naming_both(tmp_path: Path) -> None:
    write(tmp_path / "a", batch(1, 5), base_offset=1)
    with LogWriter.open(tmp_path / "b" / "events-0") as log:
        log.append(rows(["own 0", "own 1"]))
    with pytest.raises(InvalidOptionError, match=r"of .*a/events-0 .* is 1, and .*b/events-0 ends at offset 2"):
        copy(tmp_path / "b", source(tmp_path / "a"), keeps_offsets=True)
    assert extent(tmp_path / "b" / "events-0") == (0, 2)


@pytest.mark.parametrize("is_there", [False, True])
def test_kept_offsets_begin_and_end_an_empty_log_where_the_source_does(tmp_path: Path, is_there: bool) -> None:
    """Also one of which no record is left, so that no consumer's offset is used again."""
    write(tmp_path / "a", batch(40, 10), batch(50, 10), base_offset=40)
    write(tmp_path / "a", name="events-1", base_offset=77)
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 45}))
    if is_there:
        with LogWriter.open(tmp_path / "b" / "events-0"):
            pass
    copy(tmp_path / "b", source(tmp_path / "a"), keeps_offsets=True)
    assert offsets(tmp_path / "b" / "events-0") == list(range(45, 60))
    assert [extent(tmp_path / "b" / f"events-{n}") for n in range(2)] == [(45, 60), (77, 77)]
    assert findings(tmp_path / "b") == []
    with LogWriter.open(tmp_path / "b" / "events-1") as log:
        assert log.append(rows(["next"])) == (77, 77)


def test_records_before_the_log_start_stay_hidden_or_are_not_copied(tmp_path: Path) -> None:
    write(tmp_path / "a", batch(40, 10), batch(50, 10), base_offset=40)
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 45}))
    copy(tmp_path / "b", source(tmp_path / "a"))
    assert offsets(tmp_path / "b" / "events-0") == list(range(5, 20))
    with pytest.raises(InvalidOptionError, match=r"has 5 offsets before its log start offset 45"):
        copy(tmp_path / "b", source(tmp_path / "a"), since_last=False)
    copy(tmp_path / "b", source(tmp_path / "a", start_offsets={AT: 50}), since_last=False)
    assert offsets(tmp_path / "b" / "events-0") == list(range(5, 30))


def test_range_is_widened_to_the_batches_at_its_ends(tmp_path: Path) -> None:
    write(tmp_path / "a", *(batch(n * 10) for n in range(5)))
    chosen = source(tmp_path / "a", start_offsets={AT: 15}, end_offsets={AT: 31})
    copy(tmp_path / "b", chosen, keeps_offsets=True)
    assert offsets(tmp_path / "b" / "events-0") == list(range(10, 40))
    copy(tmp_path / "b", source(tmp_path / "a"), keeps_offsets=True)
    assert offsets(tmp_path / "b" / "events-0") == list(range(10, 50))
    times = source(tmp_path / "a", start_time=1025, end_time=1030)
    copy(tmp_path / "c", times)
    assert [value for _, value in records(tmp_path / "c" / "events-0", columns=COLUMNS)] == [
        b"value of %d" % n for n in range(20, 30)
    ]


def test_rerun_copies_what_is_new_and_nothing_twice(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", batch(0), in_transaction(10, 5))
    copy(tmp_path / "b", source(tmp_path / "a"))
    copy(tmp_path / "b", source(tmp_path / "a"))
    shutil.rmtree(folder)
    # The transaction that was open is ended by its own marker.
    write(tmp_path / "a", batch(0), in_transaction(10, 5), control_batch("abort", 15, 7, 1), batch(16, 4))
    for _ in range(2):
        copy(tmp_path / "b", source(tmp_path / "a"))
    for level in ("read_uncommitted", "read_committed"):
        assert records(tmp_path / "b" / "events-0", level) == records(folder, level)
    assert [(each.start_offset, each.end_offset, each.rows) for each in moved(tmp_path / "b")] == [
        (0, 15, 15),
        (15, 20, 4),
    ]
    refuse_wrong_state(tmp_path / "b" / "events-0")


def test_sources_are_merged_one_behind_the_other(tmp_path: Path) -> None:
    """Producers of both have the same id and sequence numbers, and both have aborted transactions."""
    for name, kind in (("a", "abort"), ("b", "commit")):
        write(tmp_path / name, in_transaction(0, 5), control_batch(kind, 5, 7, 1), batch(6, 2))
    copy(tmp_path / "c", source(tmp_path / "a"), source(tmp_path / "b"), config=SMALL)
    both = [records(tmp_path / name / "events-0") for name in ("a", "b")]
    assert records(tmp_path / "c" / "events-0") == both[0] + both[1]
    committed = [records(tmp_path / name / "events-0", "read_committed") for name in ("a", "b")]
    assert records(tmp_path / "c" / "events-0", "read_committed") == committed[0] + committed[1]
    assert [len(each) for each in committed] == [2, 7]
    refuse_wrong_state(tmp_path / "c" / "events-0")
    # The ledger tells them apart.
    copy(tmp_path / "c", source(tmp_path / "a"), source(tmp_path / "b"))
    assert len(moved(tmp_path / "c")) == 2
    assert findings(tmp_path / "c") == []


def test_copies_add_to_the_transaction_index_of_one_segment(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / name, in_transaction(0, 5), control_batch("abort", 5, 7, 1), batch(6, 2))
        copy(tmp_path / "to", source(tmp_path / name), keeps_producers=True)
    assert len(read_layout(folder_at(tmp_path / "to" / "events-0")).segments) == 1
    assert records(tmp_path / "to" / "events-0", "read_committed", ["offset"]) == [
        (6,),
        (7,),
        (14,),
        (15,),
        (22,),
        (23,),
    ]
    refuse_wrong_state(tmp_path / "to" / "events-0")
    assert findings(tmp_path / "to") == []


def test_transaction_index_that_a_crash_has_torn_is_cut_before_it_is_added_to(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, in_transaction(0, 5), control_batch("abort", 5, 7, 1))
    copy(tmp_path / "to", source(tmp_path / "a"), keeps_producers=True)
    index = tmp_path / "to" / "events-0" / f"{0:020d}.txnindex"
    index.write_bytes(index.read_bytes() + txn_index([(8, 9, 99, 100)]) + b"torn")
    copy(tmp_path / "to", source(tmp_path / "b"), keeps_producers=True)
    refuse_wrong_state(tmp_path / "to" / "events-0")


@pytest.mark.parametrize("is_one_job", [True, False])
def test_open_transaction_that_another_source_would_end_is_refused(tmp_path: Path, is_one_job: bool) -> None:
    write(tmp_path / "a", batch(0), in_transaction(10, 5))
    write(tmp_path / "b", in_transaction(0, 5), control_batch("commit", 5, 7, 1))
    sources = [source(tmp_path / "a"), source(tmp_path / "b")]

    def run() -> None:
        if not is_one_job:
            copy(tmp_path / "c", sources.pop(0), keeps_producers=True)
        copy(tmp_path / "c", *sources, keeps_producers=True)

    match = (
        r"c/events-0 has a transaction of producer 7 open since offset 10, and .*b/events-0 has batches of a producer"
    )
    with pytest.raises(CommitError, match=match):
        run()
    assert (tmp_path / "c" / "events-0").exists() != is_one_job
    decided = [source(tmp_path / name, "read_committed") for name in ("a", "b")]
    copy(tmp_path / "d", *decided, keeps_producers=True)
    assert len(records(tmp_path / "d" / "events-0", "read_committed")) == 15


def test_committed_copy_ends_where_all_that_it_has_is_decided(tmp_path: Path) -> None:
    """Producer 7 is decided behind the last stable offset, which is where producer 8 begins."""
    write(tmp_path / "a", batch(0), in_transaction(10, 5), in_transaction(15, 5, 8), control_batch("abort", 20, 7, 1))
    copy(tmp_path / "b", source(tmp_path / "a", "read_committed"))
    assert extent(tmp_path / "b" / "events-0") == (0, 10)
    bounded = source(tmp_path / "a", "read_committed", end_offsets={AT: 12})
    copy(tmp_path / "c", bounded)
    assert extent(tmp_path / "c" / "events-0") == (0, 10)


def test_replicas_of_one_topic_are_not_merged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = write(tmp_path / name, batch(0))
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: Q2TYVrXaSDWPZ5lUZtm3Jg")
    with pytest.raises(InvalidOptionError, match="are the same partition of the same topic"):
        copy(tmp_path / "c", source(tmp_path / "a"), source(tmp_path / "b"))
    copy(tmp_path / "c", source(tmp_path / "a"))
    copy(tmp_path / "c", source(tmp_path / "b"))
    assert extent(tmp_path / "c" / "events-0") == (0, 10)


def test_topics_are_renamed_and_nothing_is_copied_to_itself(tmp_path: Path) -> None:
    write(tmp_path / "a", batch(0))
    with pytest.raises(InvalidOptionError, match="would be copied to itself"):
        copy(tmp_path / "a", source(tmp_path / "a"))
    with pytest.raises(InvalidOptionError, match="not a topic's name: 'no/topic'"):
        copy(tmp_path / "a", source(tmp_path / "a", renames={"events": "no/topic"}))
    copy(tmp_path / "a", source(tmp_path / "a", renames={"events": "again"}))
    copy(tmp_path / "a", source(tmp_path / "a", renames={"events": "more"}, topics=("events",)))
    for topic in ("again", "more"):
        assert records(tmp_path / "a" / f"{topic}-0") == records(tmp_path / "a" / "events-0")
    with pytest.raises(InvalidOptionError, match="is not a log directory"):
        copy(tmp_path / "a" / "again", source(tmp_path / "a"))


def test_legacy_batches_are_stamped_where_no_checksum_is_over_their_offsets(tmp_path: Path) -> None:
    some = [Record(n, 1000 + n, b"k", b"v%d" % n) for n in range(5)]
    folder = write(
        tmp_path / "a",
        legacy_message(20, b"k", b"of magic 0", magic=0),
        legacy_message(21, b"k", b"of magic 1", timestamp=1000),
        legacy_wrapper(some, base_offset=22),
        legacy_wrapper(some[::2], base_offset=40, codec="snappy"),
        batch(50, 3),
        base_offset=20,
    )
    copy(tmp_path / "b", source(tmp_path / "a"))
    # Behind offset 6, those that may have been taken by messages of the second wrapper are left to it.
    assert offsets(tmp_path / "b" / "events-0") == [0, 1, 2, 3, 4, 5, 6, 20, 22, 24, 25, 26, 27]
    assert records(tmp_path / "b" / "events-0") == records(folder)
    copy(tmp_path / "c", source(tmp_path / "a"), keeps_offsets=True)
    assert records(tmp_path / "c" / "events-0", columns=COLUMNS) == records(folder, columns=COLUMNS)
    begun = source(tmp_path / "a", start_offsets={AT: 24})
    copy(tmp_path / "d", begun)
    assert offsets(tmp_path / "d" / "events-0")[:5] == [0, 1, 2, 3, 4]
    assert findings(tmp_path / "b") == findings(tmp_path / "c") == []


def test_wrapper_of_magic_0_keeps_its_offsets_or_is_refused(tmp_path: Path) -> None:
    some = [Record(n, -1, b"k", b"v%d" % n) for n in range(5)]
    folder = write(tmp_path / "a", batch(0, 1), legacy_wrapper(some, base_offset=10, magic=0))
    with pytest.raises(InvalidOptionError, match=r"of magic 0 .*log, position \d+, offset 14.*keep_offsets"):
        copy(tmp_path / "b", source(tmp_path / "a"))
    assert not (tmp_path / "b" / "events-0").exists()
    copy(tmp_path / "b", source(tmp_path / "a"), keeps_offsets=True)
    assert records(tmp_path / "b" / "events-0", columns=COLUMNS) == records(folder, columns=COLUMNS)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_recompressed_batches_keep_all_but_their_codec(tmp_path: Path, codec: str) -> None:
    of_producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 4}
    folder = write(
        tmp_path / "a",
        *(batch(n * 10, codec=each, **of_producer) for n, each in enumerate(["none", "gzip", "snappy", "lz4", "zstd"])),
        batch(60, 3, last_offset_delta=9, log_append_time=True, max_timestamp=5000),
        empty_batch(70, 79, producer_id=9, producer_epoch=0, base_sequence=0),
        in_transaction(80, 2),
        control_batch("abort", 90, 7, 1),
    )
    copy(tmp_path / "b", source(tmp_path / "a"), codec=codec, keeps_offsets=True, keeps_producers=True)
    columns = ["offset", "timestamp", "timestampType", "key", "value", "headers"]
    for level in ("read_uncommitted", "read_committed"):
        assert records(tmp_path / "b" / "events-0", level, columns) == records(folder, level, columns)
    tables = [headers_of(each) for each in (tmp_path / "b" / "events-0", folder)]
    for name in ("base_offset", "last_offset", "producer_id", "base_sequence", "max_timestamp", "record_count"):
        assert tables[0][name].tolist() == tables[1][name].tolist(), name
    assert set((tables[0]["attributes"][:6] & 7).tolist()) == {["none", "gzip", "snappy", "lz4", "zstd"].index(codec)}
    refuse_wrong_state(tmp_path / "b" / "events-0")
    assert findings(tmp_path / "b") == []


def headers_of(folder: Path) -> Any:
    (segment,) = read_layout(folder_at(folder)).segments
    with segment.open() as log:
        (window,) = log.windows(log.start)
        return window.headers.table


def test_legacy_batch_is_not_recompressed(tmp_path: Path) -> None:
    write(tmp_path / "a", legacy_message(0, b"k", b"v"))
    with pytest.raises(InvalidOptionError, match=r"of magic 1 cannot be recompressed .*position 0, offset 0"):
        copy(tmp_path / "b", source(tmp_path / "a"), codec="zstd")
    with pytest.raises(InvalidOptionError, match="unknown codec 'brotli'"):
        copy(tmp_path / "b", source(tmp_path / "a"), codec="brotli")


def test_damage_is_named_and_nothing_is_visible(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", *(batch(n * 10) for n in range(5)))
    write(tmp_path / "a", batch(0), name="sound-0")
    log = folder / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptBatchError, match=r"a/events-0/0+\.log, position \d+, offset 20"):
        copy(tmp_path / "b", source(tmp_path / "a"))
    assert [
        path.name
        for path in (tmp_path / "b").rglob("*")
        if path.name not in (".lock", "seglog.lock", "seglog.jobs.lock")
    ] == []


def test_torn_tail_is_the_end_and_the_rest_is_copied_once_it_is_whole(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", batch(0))
    log, more = folder / "00000000000000000000.log", batch(10)
    sound = log.read_bytes()
    log.write_bytes(sound + more[:-5])
    copy(tmp_path / "b", source(tmp_path / "a"))
    assert extent(tmp_path / "b" / "events-0") == (0, 10)
    log.write_bytes(sound + more)
    copy(tmp_path / "b", source(tmp_path / "a"))
    assert offsets(tmp_path / "b" / "events-0") == list(range(20))


def test_source_that_grows_is_copied_up_to_where_it_ended(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", batch(0))
    job = copy_job(tmp_path / "b", source(tmp_path / "a"))
    with job.held():
        tasks = job.plan()
        log = folder / "00000000000000000000.log"
        log.write_bytes(log.read_bytes() + batch(10))
        job.commit([job.run(task, lambda _: None) for task in tasks])
    assert extent(tmp_path / "b" / "events-0") == (0, 10)


def test_two_copies_to_one_directory_do_not_run_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a", batch(0))
    (tmp_path / "b").mkdir()
    with hold(directory_at(tmp_path / "b"), 1.0), pytest.raises(LockedError, match="another writer holds"):
        copy(tmp_path / "b", source(tmp_path / "a"), options=LogJobOptions(lock_timeout_seconds=0.1))


def test_large_log_is_cut_into_tasks_whose_files_become_segments(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", *(batch(n * 10) for n in range(300)), index_interval_bytes=1000)
    job = copy_job(
        tmp_path / "b",
        source(tmp_path / "a"),
        config=LogConfig(segment_bytes=20_000),
        options=LogJobOptions(task_bytes=20_000),
    )
    results = run_job(job, LocalRunner(2))
    assert len(results) > 2
    assert records(tmp_path / "b" / "events-0", columns=COLUMNS) == records(folder, columns=COLUMNS)
    assert findings(tmp_path / "b") == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    found=random_logs(max_size=6), segment_bytes=st.sampled_from([1 << 30, 2000, 300]), codec=st.none() | st.just("lz4")
)
def test_copy_reads_as_what_was_copied(
    tmp_path_factory: pytest.TempPathFactory, found: Any, segment_bytes: int, codec: str | None
) -> None:
    data, views = found
    directory = tmp_path_factory.mktemp("copy")
    folder = directory / "a" / "events-0"
    folder.mkdir(parents=True)
    (folder / f"{views[0].base_offset if views else 0:020d}.log").write_bytes(data)
    has_legacy = any(view.magic < 2 for view in views)
    is_fixed = any(view.magic == 0 and view.codec != "none" for view in views)
    for keeps_offsets in (True, False):
        job: dict[str, Any] = {"keeps_offsets": keeps_offsets, "config": LogConfig(segment_bytes=segment_bytes)}
        target = directory / str(keeps_offsets)
        if (codec and has_legacy) or (is_fixed and not keeps_offsets):
            with pytest.raises(InvalidOptionError):
                copy(target, source(directory / "a"), codec=codec, **job)
            continue
        copy(target, source(directory / "a"), codec=codec, **job)
        columns = ["offset", *FIELDS] if keeps_offsets else FIELDS
        for level in ("read_uncommitted", "read_committed"):
            wanted = records(folder, level, columns)
            assert records(target / "events-0", level, columns) == wanted, (keeps_offsets, level)
        refuse_wrong_state(target / "events-0")
        # The entry of time 0 at a segment's first offset looks like padding.
        assert [each for each in findings(target) if "index-padded" not in each] == []
