"""The public cuts of a log: what is stored for its topic counts, under what their caller says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.topic.cutting import plan_deletion, plan_truncation
from sparklog.write.partition import LogWriter
from tests.cleaner.logs import ALL, logs, values, write

AT_ONCE = sparklog.LogConfig.from_properties({"file.delete.delay.ms": "0"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "events-0")
    return tmp_path / "events-0"


def store(folder: Path, delay: object) -> None:
    (folder.parent / "topics.properties").write_text(f"events/file.delete.delay.ms={delay}\n")


def kept(folder: Path) -> list[str]:
    """Return the names of the logs of segments that went, and whose files stay for a while."""
    return sorted(path.name[:20] for path in folder.glob("*.log.deleted"))


def test_stored_delay_counts_where_the_caller_says_none(folder: Path) -> None:
    store(folder, 0)
    assert sparklog.delete_records(folder, before_offset=47).start_offset == 47
    assert sparklog.truncate_to(folder, 75).end_offset == 70
    assert (logs(folder), kept(folder)) == ([40, 60], [])
    assert values(folder) == ALL[47:70]


def test_delay_that_the_caller_says_is_over_the_stored_one(folder: Path) -> None:
    store(folder, 60_000)
    sparklog.delete_records(folder, before_offset=47, config=AT_ONCE)
    sparklog.truncate_to(folder, 75, config=AT_ONCE)
    assert (logs(folder), kept(folder)) == ([40, 60], [])


def test_files_stay_for_a_while_where_nobody_says_anything(folder: Path) -> None:
    sparklog.delete_records(folder, before_offset=47)
    sparklog.truncate_to(folder, 75)
    assert kept(folder) == [f"{base:020}" for base in (0, 20, 80, 100)]


def test_planned_cuts_take_what_they_say_by_the_stored_delay(folder: Path) -> None:
    store(folder, 0)
    for plan in (partial(plan_deletion, folder, before_offset=47), partial(plan_truncation, folder, 75)):
        planned = plan()
        assert (planned.folder.topic, planned.folder.partition) == ("events", 0)
        assert planned.make() == planned.cut.after
    assert (logs(folder), kept(folder)) == ([40, 60], [])


def test_log_that_grew_since_a_truncation_was_planned_is_not_cut(folder: Path) -> None:
    truncation, deletion = plan_truncation(folder, 75), plan_deletion(folder, before_offset=-1)
    with LogWriter.open(folder) as log:
        log.append({"value": [b"new"]})
    with pytest.raises(InvalidOptionError, match="look at it again"):
        truncation.make()
    assert values(folder) == [*ALL, b"new"]
    # What lies before an offset is the same.
    deletion.make()
    assert values(folder) == [b"new"]


def test_wrong_stored_property_is_told_and_nothing_is_cut(folder: Path) -> None:
    store(folder, "soon")
    cuts: tuple[Callable[[], object], ...] = (
        lambda: sparklog.delete_records(folder, before_offset=47),
        lambda: sparklog.truncate_to(folder, 75),
        plan_deletion(folder, before_offset=47).make,
        plan_truncation(folder, 75).make,
    )
    for cut in cuts:
        with pytest.raises(InvalidOptionError, match=r"file\.delete\.delay\.ms.*topics\.properties"):
            cut()
    assert values(folder) == ALL


def test_folder_of_no_partition_is_refused(folder: Path) -> None:
    for cut in (
        lambda: sparklog.delete_records(folder.parent, before_offset=47),
        lambda: sparklog.truncate_to(folder.parent, 75),
        lambda: plan_truncation(folder.parent, 75),
    ):
        with pytest.raises(SeglogError, match="not named as a partition's folder"):
            cut()
