"""What the errors of a commit say of what readers see, and that a commit which was decided can be finished."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import ALL_VISIBLE, NOTHING_VISIBLE, WILL_BE_VISIBLE, CommitError, SeglogError, StorageError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.txn_versions import TxnVersion
from sparklog.write.partition import LogWriter
from sparklog.write.staged_files import StagedRun
from tests.build import ProducerEntry, producer_snapshot, producer_snapshot_name, write_partition
from tests.log.logs import batch
from tests.places import LOCAL, moved
from tests.storage.crash import CrashingStorage, FailingStorage
from tests.topic.staged import CONFIG, NOW_MS, findings, rows, stage, values, write

STORAGE = LocalWritableStorage()
OLD = [rows(["old 0", "old 1", "old 2"], partition=[0, 0, 1])]
NEW = [rows([f"new {n}" for n in range(12)], partition=[n % 2 for n in range(12)])]
DAY_MS = 24 * 3600 * 1000


def outcome_of(storage: CrashingStorage, job: CommitRequest, staged: Sequence[StagedRun]) -> tuple[str, str]:
    """Commit: what the error says of what is visible, and all that it says; nothing where there is none."""
    try:
        commit(moved(job, storage), staged, NOW_MS)
    except SeglogError as error:
        return error.outcome, str(error)
    return "", ""


@pytest.mark.parametrize("is_full", [False, True], ids=["once", "full"])
def test_error_at_any_call_says_what_is_visible(tmp_path: Path, is_full: bool) -> None:
    """Nothing, all, or that all will be: and that is so, and doing as the sentence says gives every row once."""
    original = tmp_path / "original"
    original.mkdir()
    write(original, OLD)
    job, staged = stage(original, NEW, transaction=TxnVersion("app", 1))
    old, fail_at, seen = values(original), 0, set()
    both = {"events-0": old["events-0"] + [f"new {n}" for n in range(0, 12, 2)]}
    both["events-1"] = old["events-1"] + [f"new {n}" for n in range(1, 12, 2)]
    while True:
        fail_at += 1
        folder = tmp_path / f"at-{fail_at}"
        shutil.copytree(original, folder)
        storage = FailingStorage(folder, fail_at, is_full=is_full)
        here = moved(job, LOCAL, folder)
        said, text = outcome_of(storage, here, staged)
        sentences = [sentence for sentence in (NOTHING_VISIBLE, ALL_VISIBLE, WILL_BE_VISIBLE) if sentence in text]
        assert sentences == [said] * bool(said), text
        seen.add(said)
        if not storage.has_failed:
            break
        assert values(folder) == (both if said == "" else old), storage.calls[-1]
        if said == NOTHING_VISIBLE:
            commit(here, staged, NOW_MS)
        elif said == WILL_BE_VISIBLE:
            LogWriter.open(folder / "events-0", CONFIG).close()
        assert values(folder) == both, storage.calls[-1]
        assert findings(folder) == []
        shutil.rmtree(folder)
    assert seen == {"", NOTHING_VISIBLE, WILL_BE_VISIBLE}


def test_folder_that_cannot_be_swept_does_not_fail_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = LocalWritableStorage.names

    def names(self: LocalWritableStorage, path: str) -> object:
        if path.endswith("events-1") and (tmp_path / files.LAST_COMMIT).exists():
            raise StorageError(f"no permission to read {path}")
        return whole(self, path)

    monkeypatch.setattr(LocalWritableStorage, "names", names)
    write(tmp_path, OLD)
    monkeypatch.undo()
    assert values(tmp_path)["events-0"] == ["old 0", "old 1"]
    assert "files that jobs may have staged there are not removed" in caplog.text


def test_loop_of_links_in_another_topic_does_not_fail_the_commit(tmp_path: Path) -> None:
    (tmp_path / "other-0").mkdir()
    (tmp_path / "other-0" / "loop").symlink_to(tmp_path / "other-0" / "loop")
    (tmp_path / "more-0").symlink_to(tmp_path / "more-0")
    write(tmp_path, OLD)
    (tmp_path / "more-0").unlink()
    shutil.rmtree(tmp_path / "other-0")
    assert values(tmp_path)["events-0"] == ["old 0", "old 1"]


# Every journal that is decided can be carried out.


def test_idle_producer_in_the_snapshot_of_the_end_is_no_foreign_write(tmp_path: Path) -> None:
    """As most backups are: the broker's snapshot at the log end offset has a producer that wrote days ago."""
    folder = tmp_path / "events-0"
    write_partition(folder, [batch(0, 10, producer_id=5, producer_epoch=0, base_sequence=0)])
    entry = ProducerEntry(5, 0, 9, 9, 9, NOW_MS - 9 * DAY_MS)
    snapshot = folder / producer_snapshot_name(10)
    snapshot.write_bytes(producer_snapshot([entry]))
    before = snapshot.read_bytes()
    config = LogConfig(compression_type="uncompressed", segment_ms=1)
    write(tmp_path, [rows(["a"], partition=[0])], partitions=1, config=config)
    assert len(list(folder.glob("*.log"))) == 2
    assert snapshot.read_bytes() == before
    write(tmp_path, [rows(["b"], partition=[0])], partitions=1, config=config)
    assert values(tmp_path)["events-0"][10:] == ["a", "b"]


def test_journal_that_cannot_be_carried_out_is_not_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, OLD)

    def refuse(*_: object) -> None:
        raise CommitError("a file is in the way")

    monkeypatch.setattr("sparklog.topic.write.commit.refuse_foreign_changes", refuse)
    with pytest.raises(CommitError, match=NOTHING_VISIBLE):
        write(tmp_path, NEW)
    monkeypatch.undo()
    assert not (tmp_path / files.JOURNAL).exists()
    write(tmp_path, NEW)
    assert values(tmp_path)["events-0"] == ["old 0", "old 1", *(f"new {n}" for n in range(0, 12, 2))]


def snapshot_of(producer_id: int, end: int, timestamp: int) -> bytes:
    return producer_snapshot([ProducerEntry(producer_id, 0, 9, end - 1, 0, timestamp)])


def extra_files(end: int) -> dict[str, tuple[str, bytes]]:
    """What may lie in the folder of a log that ends at an offset: a name and a content each."""
    snapshot, epochs = producer_snapshot_name(end), "leader-epoch-checkpoint"
    return {
        "idle producer": (snapshot, snapshot_of(5, end, NOW_MS - 9 * DAY_MS)),
        "busy producer": (snapshot, snapshot_of(6, end, NOW_MS)),
        "broken snapshot": (snapshot, b"no snapshot"),
        "later snapshot": (producer_snapshot_name(end + 5), producer_snapshot([])),
        "orphan index": (f"{end:020d}.index", bytes(24) + b"\1" * 24),
        "orphan time index": (f"{end + 1:020d}.timeindex", bytes(24) + b"\1" * 24),
        "orphan transactions": (f"{end:020d}.txnindex", b"\1" * 34),
        "deleted segment": (f"{end:020d}.log.deleted", b"x" * 50),
        "no epochs": (epochs, b"0\n0\n"),
        "empty epochs": (epochs, b""),
        "epochs of others": (epochs, b"0\n1\n7 %d\n" % (end + 9)),
        "broken epochs": (epochs, b"\xff"),
        "topic id": ("partition.metadata", b"version: 0\ntopic_id: Q2TYVrXaSDWPZ5lUZtm3Jg"),
        "next segment, empty": (f"{end:020d}.log", b""),
        "clean shutdown": ("../.kafka_cleanshutdown", b"{}"),
    }


def pad(folder: Path, suffix: str) -> None:
    """Put zeros behind the entries of indexes, or the batches of the last log."""
    paths = [max(folder.glob("*.log"))] if suffix == ".log" else folder.glob(f"*{suffix}")
    for path in paths:
        path.write_bytes(path.read_bytes() + bytes(2400))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    batches=st.integers(0, 6),
    extras=st.sets(st.sampled_from(sorted(extra_files(0))), max_size=5),
    padded=st.sets(st.sampled_from([".log", ".index", ".timeindex"])),
    segment_ms=st.sampled_from([1, 1 << 40]),
    segment_bytes=st.sampled_from([300, 2000, 1 << 20]),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    is_overwrite=st.booleans(),
)
def test_any_journal_can_be_carried_out_on_the_directory_that_it_was_made_from(
    tmp_path_factory: pytest.TempPathFactory,
    batches: int,
    extras: set[str],
    padded: set[str],
    segment_ms: int,
    segment_bytes: int,
    sizes: list[int],
    is_overwrite: bool,
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    folder = directory / "events-0"
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    write_partition(folder, [batch(n * 10, 10, **producer) for n in range(batches)], segment_bytes=600)
    # Behind a clean shutdown zeros at the end of a log are damage, and so they are in a segment that is not the last.
    for suffix in sorted(padded - ({".log"} if extras & {"clean shutdown", "next segment, empty"} else set())):
        pad(folder, suffix)
    for extra in sorted(extras):
        name, content = extra_files(batches * 10)[extra]
        if not ((folder / name).exists() and name.endswith(".log")):
            (folder / name).write_bytes(content)
    config = LogConfig(
        compression_type="uncompressed", segment_ms=segment_ms, segment_bytes=segment_bytes, batch_size=200
    )
    new = [f"new {n}" for n in range(sum(sizes))]
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    tasks = [rows(new[at : at + size], partition=[0] * size) for at, size in zip(starts, sizes, strict=True)]
    write(directory, tasks, partitions=1, config=config, is_overwrite=is_overwrite)
    found = values(directory)["events-0"]
    assert found == (new if is_overwrite else found[: batches * 10] + new)
    write(directory, [rows(["last"], partition=[0])], partitions=1, config=config)
    assert values(directory)["events-0"] == [*found, "last"]
