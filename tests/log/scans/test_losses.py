"""A segment that is lost is said by whoever comes to it, and what looks like one and is none is not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import CorruptLogError, DataLossError
from sparklog.inspect.verify import verify_partition
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.log.config import LogConfig
from sparklog.log.reader import open_log
from sparklog.storage.base import Name
from sparklog.storage.local import LocalStorage
from sparklog.write.partition import LogWriter
from sparklog.write.recovery import recover_log
from tests.build import offset_checkpoint, write_partition
from tests.log.logs import batches, offsets
from tests.places import folder_at

EXPLICIT = "events/cleanup.policy=delete\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written = batches(12, 100)
    write_partition(
        tmp_path / "events-0", written, base_offset=100, segment_bytes=3 * len(written[0]), index_interval_bytes=300
    )
    assert [int(path.stem) for path in sorted((tmp_path / "events-0").glob("*.log"))] == [100, 130, 160, 190]
    return tmp_path / "events-0"


def file(folder: Path, base: int, suffix: str = ".log") -> Path:
    return folder / f"{base:020d}{suffix}"


def remove(folder: Path, base: int, *suffixes: str) -> None:
    for suffix in suffixes:
        file(folder, base, suffix).unlink(missing_ok=True)


def problems(folder: Path) -> list[tuple[str, str, int | None]]:
    found = (each for each in verify_partition(folder_at(folder)) if isinstance(each, Finding))
    return [(each.severity.value, each.code, each.offset) for each in found if each.severity is not Severity.NOTE]


def read(folder: Path, start: int | None = None, end: int | None = None) -> list[int]:
    with open_log(folder) as log:
        return offsets(log, start, end)


def recovered(folder: Path, *, truncate: bool = False) -> list[str]:
    found = recover_log(folder_at(folder), LogConfig(), 0, is_thorough=True, truncate=truncate)
    return [f"{Path(each.path).name}: {each.what}" for each in found.actions]


@pytest.mark.parametrize("kept", [".index", ".timeindex"])
def test_lost_segment_in_the_midst_is_an_error_of_reads_and_a_finding(
    folder: Path, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    remove(folder, 130, ".log", *({".index", ".timeindex"} - {kept}))
    assert ("error", "lost-segment", 130) in problems(folder)
    why = r"offsets \[130, 160\) .*the indexes of segment 130 exist, but its log does not"
    with pytest.raises(DataLossError, match=why):
        read(folder)
    with pytest.raises(DataLossError, match=r"offsets \[140, 150\)"):
        read(folder, 140, 150)
    with sparklog.open_topic(folder.parent / "events") as topic, pytest.raises(DataLossError):
        topic.read()
    assert read(folder, 100, 130) == list(range(100, 130))
    assert read(folder, 160) == list(range(160, 220))
    with open_log(folder) as log:
        pieces = log.batches(columns=["offset"], fail_on_data_loss=False)
        assert [n for each in pieces for n in each["offset"].to_pylist()] == [*range(100, 130), *range(160, 220)]
    assert "its log does not" in caplog.text


def test_recovery_and_writers_keep_the_proof_and_say_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove(folder, 130, ".log")
    with LogWriter.open(folder) as log:
        assert log.append({"value": [b"v"]}) == (220, 220)
    assert f"{file(folder, 130, '.index')} is kept: its log, from offset 130 on, is lost" in caplog.text
    for _ in range(2):
        assert [each for each in recovered(folder) if "kept: its log, from" in each] != []
        assert ("error", "lost-segment", 130) in problems(folder)
    with pytest.raises(DataLossError):
        read(folder)


@pytest.mark.parametrize("lost", [(190,), (160, 190), (100, 130, 160, 190)])
def test_log_that_lost_its_end_is_not_written_on(folder: Path, lost: tuple[int, ...]) -> None:
    for base in lost:
        remove(folder, base, ".log")
    if 100 in lost:
        (folder.parent / "log-start-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 100}))
    assert ("error", "lost-segment", lost[0]) in problems(folder)
    with pytest.raises(DataLossError, match=f"indexes of segment {lost[0]} exist, but its log does not: records"):
        read(folder)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(CorruptLogError, match="offsets that were used would be used again"):
        LogWriter.open(folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    recovered(folder, truncate=True)
    assert problems(folder) == []
    assert read(folder) == list(range(100, lost[0]))
    with LogWriter.open(folder) as log:
        assert log.append({"value": [b"v"]}) == (lost[0], lost[0])


@pytest.mark.parametrize("said", [EXPLICIT, "events/cleanup.policy=\n", ""])
def test_hole_between_segments_is_a_loss_where_the_topic_was_never_compacted(folder: Path, said: str) -> None:
    remove(folder, 130, ".log", ".index", ".timeindex")
    (folder.parent / "topics.properties").write_text(said)
    if said == EXPLICIT:
        assert problems(folder) == [("error", "ends-early", 130)]
        with pytest.raises(DataLossError, match=r"\[130, 160\).*no segment before 160 has them"):
            read(folder)
    else:
        assert problems(folder) == []
        assert len(read(folder)) == 90


def cleaned_before(folder: Path) -> None:
    (folder.parent / "cleaner-offset-checkpoint").write_text(offset_checkpoint({("events", 0): 190}))


def copied(folder: Path) -> None:
    (folder.parent / "seglog.ledger.jsonl").write_text("")


def compacts(folder: Path) -> None:
    (folder.parent / "topics.properties").write_text("events/cleanup.policy=delete,compact\n")


def says_it_in_vain(folder: Path) -> None:
    (folder.parent / "topics.properties").write_text("events/cleanup.policy=\\uzzzz\n")


@pytest.mark.parametrize("explained", [cleaned_before, copied, compacts, says_it_in_vain])
def test_hole_that_a_cleaner_or_a_copy_may_have_left_is_none(folder: Path, explained: Callable[[Path], None]) -> None:
    remove(folder, 130, ".log", ".index", ".timeindex")
    (folder.parent / "topics.properties").write_text(EXPLICIT)
    explained(folder)
    assert problems(folder) == []
    assert len(read(folder)) == 90


def retained(folder: Path) -> None:
    """Retention, or who copied a log while it ran, left the index of the first segment."""
    remove(folder, 100, ".log")


def being_removed(folder: Path) -> None:
    """A broker renames the log of a segment before its indexes."""
    file(folder, 130).rename(file(folder, 130, ".log.deleted"))


def merged(folder: Path) -> None:
    """A cleaner was killed behind the swap of its log, which has the batches of the next segment."""
    file(folder, 100).write_bytes(file(folder, 100).read_bytes() + file(folder, 130).read_bytes())
    remove(folder, 130, ".log", ".index")
    remove(folder, 100, ".index", ".timeindex")


def not_yet_written(folder: Path) -> None:
    """Of a segment that was begun, the power cut has left the indexes, which nobody has written to."""
    file(folder, 220, ".index").write_bytes(bytes(1 << 10))
    file(folder, 220, ".timeindex").write_bytes(b"")


@pytest.mark.parametrize("explained", [retained, being_removed, merged, not_yet_written])
def test_index_that_somebody_left_behind_proves_nothing(folder: Path, explained: Callable[[Path], None]) -> None:
    before = [n for n in range(100, 220) if not (explained is retained and n < 130)]
    expected = [n for n in before if not (explained is being_removed and 130 <= n < 160)]
    explained(folder)
    assert [each for each in problems(folder) if each[0] == "error"] == []
    assert read(folder) == expected
    for _ in range(2):
        assert not any("kept" in each for each in recovered(folder))
    assert problems(folder) == []
    assert read(folder) == expected
    assert {path.stem for path in folder.glob("*index")} == {path.stem for path in folder.glob("*.log")}


def test_segment_that_is_removed_while_the_folder_is_listed_is_not_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may see an index and miss its log, under the old name and the new one."""
    remove(folder, 130, ".log")
    plain, listed = LocalStorage.names, list[str]()

    def names(storage: LocalStorage, path: str) -> list[Name]:
        found = plain(storage, path)
        listed.append(path)
        if path == str(folder):
            for suffix in (".index", ".timeindex"):
                if file(folder, 130, suffix).exists():
                    file(folder, 130, suffix).rename(file(folder, 130, f"{suffix}.deleted"))
        return found

    with open_log(folder) as log:
        monkeypatch.setattr(LocalStorage, "names", names)
        assert len(offsets(log)) == 90
    assert listed.count(str(folder)) == 2


def test_retention_beside_a_read_is_no_loss_of_the_log(folder: Path) -> None:
    """The oldest segments go, one name after the other, while readers begin at the start that there is."""
    done, failures = threading.Event(), list[str]()

    def keep_reading() -> None:
        while not done.is_set():
            try:
                with open_log(folder) as log:
                    seen = offsets(log)
                if seen != list(range(220 - len(seen), 220)):
                    failures.append(f"{seen[:3]}, {len(seen)}")
            except DataLossError as error:
                if "its log does not" in str(error):
                    failures.append(str(error))

    copy = shutil.copytree(folder, folder.parent / "copy")
    reader = threading.Thread(target=keep_reading)
    reader.start()
    for _ in range(15):
        for base in (100, 130, 160):
            for suffix in (".log", ".index", ".timeindex"):
                file(folder, base, suffix).rename(file(folder, base, f"{suffix}.deleted"))
        for path in folder.glob("*.deleted"):
            path.unlink()
        for base in (160, 130, 100):
            for suffix in (".timeindex", ".index", ".log"):
                shutil.copy(file(copy, base, suffix), file(folder, base, f"{suffix}.new"))
            for suffix in (".log", ".index", ".timeindex"):
                file(folder, base, f"{suffix}.new").rename(file(folder, base, suffix))
    done.set()
    reader.join()
    assert failures == []
