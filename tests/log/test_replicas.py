"""Replicas of one partition, merged to one log: what agrees, what is cut, and where it ends."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidOptionError
from tests.build import Record, v2_batch
from tests.log.replicas import FOLDER, Copy, expected, merged, run, written


def test_partition_in_two_directories_is_refused_unless_replicas_are_merged(tmp_path: Path) -> None:
    directories = written(tmp_path, Copy(run(0, 9)), Copy(run(0, 9)))
    with pytest.raises(InvalidOptionError, match=r"events-0 is in two places, .*set replicas to merge"):
        sparklog.open_topic(directories)
    assert merged(directories) == expected((0, 9, 0))


def test_replica_that_is_behind_adds_nothing(tmp_path: Path) -> None:
    assert merged(written(tmp_path, Copy(run(0, 6)), Copy(run(0, 9)), Copy([]))) == expected((0, 9, 0))


def test_divergent_end_is_cut_where_the_next_leader_began(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # The leader of epoch 0 took [6, 12) and died; the next leader had only [0, 6).
    old = Copy(run(0, 12), ((0, 0),))
    new = Copy(run(0, 6) + run(6, 9, 2), ((0, 0), (2, 6)))
    directories = written(tmp_path, old, new)
    assert merged(directories) == expected((0, 6, 0), (6, 9, 2))
    (warning,) = caplog.messages
    assert f"offsets [6, 12) of {directories[0] / FOLDER}" in warning
    with sparklog.open_topic(directories, replicas="merge") as topic:
        rows = topic.replicas.to_pylist()
    assert [(row["directory"], row["agreed_offset"], row["end_offset"]) for row in rows] == [
        (str(directories[1]), 9, 9),
        (str(directories[0]), 6, 12),
    ]


def test_epoch_that_the_leader_never_saw_is_cut_at_the_last_common_one(tmp_path: Path) -> None:
    # KIP-279: fast changes of leaders; epochs 1 and 2 were each on one replica only.
    one = Copy(run(0, 6) + run(6, 15, 1), ((0, 0), (1, 6)))
    two = Copy(run(0, 9) + run(9, 12, 2), ((0, 0), (2, 9)))
    assert merged(written(tmp_path, one, two)) == expected((0, 9, 0), (9, 12, 2))


def test_leader_that_was_elected_and_wrote_nothing_still_cuts_the_others(tmp_path: Path) -> None:
    longer, elected = Copy(run(0, 12)), Copy(run(0, 6), ((0, 0), (3, 6)))
    assert merged(written(tmp_path, longer, elected)) == expected((0, 6, 0))


def test_end_that_the_leader_lost_in_a_power_cut_is_read_from_a_follower(tmp_path: Path) -> None:
    # The checkpoint was synced, the records were not: epoch 3 began at 9, and the leader has [0, 6) left.
    follower, leader = Copy(run(0, 12)), Copy(run(0, 6), ((0, 0), (3, 9)))
    assert merged(written(tmp_path, follower, leader)) == expected((0, 9, 0))


@pytest.mark.parametrize("epochs", [None, ((0, 0), (1, 6), (4, 7)), ((0, 0),), ((5, 3), (2, 9))])
def test_checkpoint_that_is_missing_or_wrong_is_replaced_by_the_epochs_of_batches(
    tmp_path: Path, epochs: tuple[tuple[int, int], ...] | None
) -> None:
    right = run(0, 6) + run(6, 12, 2)
    other = Copy(run(0, 15), ((0, 0),))
    assert merged(written(tmp_path, Copy(right, epochs, segment_bytes=1500), other)) == expected((0, 6, 0), (6, 12, 2))


def test_log_ends_at_the_highest_high_watermark_that_agrees(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copies = (
        Copy(run(0, 15), high_watermark=3),
        Copy(run(0, 12), high_watermark=9),
        Copy(run(0, 6) + run(6, 12, 0), high_watermark=6),
    )
    directories = written(tmp_path, *copies)
    assert merged(directories) == expected((0, 9, 0))
    assert "offsets [9, 15)" in caplog.text
    assert merged(directories, 1) == expected((0, 15, 0))
    assert merged(directories, 2) == merged(directories, 3) == expected((0, 12, 0))


def test_high_watermark_of_a_lineage_that_was_given_up_proves_nothing(tmp_path: Path) -> None:
    lost = Copy(run(0, 12), high_watermark=12)
    unclean = Copy(run(0, 6) + run(6, 15, 1), ((0, 0), (1, 6)), high_watermark=3)
    assert merged(written(tmp_path, lost, unclean)) == expected((0, 6, 0))


def test_more_replicas_are_asked_for_than_there_are(tmp_path: Path) -> None:
    directories = written(tmp_path, Copy(run(0, 3)), Copy(run(0, 3)))
    with pytest.raises(InvalidOptionError, match=r"minimum of replicas is 3, and events-0 is in 2 of the directories"):
        merged(directories, 3)
    with pytest.raises(InvalidOptionError, match="replicas_min is 2, and replicas are not merged"):
        sparklog.open_topic(directories, replicas_min=2)
    for wrong in (1.5, 0, 2**70):
        with pytest.raises(InvalidOptionError):
            merged(directories, wrong)  # type: ignore[arg-type]


def test_topic_that_was_made_again_is_not_merged_with_the_old_one(tmp_path: Path) -> None:
    other_id = "AAAAVrXaSDWPZ5lUZtm3Jg"
    directories = written(tmp_path, Copy(run(0, 9)), Copy(run(0, 3), topic_id=other_id))
    with pytest.raises(InvalidOptionError, match=f"Q2TYVrXaSDWPZ5lUZtm3Jg, and .*{other_id}: the topic was deleted"):
        merged(directories)


def test_replica_of_before_topic_ids_is_merged(tmp_path: Path) -> None:
    assert merged(written(tmp_path, Copy(run(0, 9)), Copy(run(0, 12), topic_id=None))) == expected((0, 12, 0))


def test_logs_of_two_clusters_with_one_name_are_no_replicas(tmp_path: Path) -> None:
    theirs = [v2_batch([Record(row, value=b"other") for row in range(3)], base_offset=n) for n in (0, 3, 6)]
    directories = written(tmp_path, Copy(run(0, 9), topic_id=None), Copy(theirs, topic_id=None))
    with pytest.raises(InvalidOptionError, match="are no replicas of one log"):
        merged(directories)


def test_log_starts_where_the_leader_does(tmp_path: Path) -> None:
    retained = Copy(run(6, 15), ((0, 6),), base_offset=6)
    behind = Copy(run(0, 12), segment_bytes=1500)
    assert merged(written(tmp_path, behind, retained)) == expected((6, 15, 0))


def test_first_segment_that_the_leader_lost_is_read_from_another_replica(tmp_path: Path) -> None:
    leader, other = Copy(run(0, 15), segment_bytes=1500), Copy(run(0, 12), segment_bytes=1500)
    directories = written(tmp_path, leader, other)
    (directories[0] / FOLDER / f"{0:020d}.log").unlink()
    (directories[0] / FOLDER / f"{0:020d}.index").unlink()
    (directories[0] / FOLDER / f"{0:020d}.timeindex").unlink()
    assert merged(directories) == expected((0, 15, 0))


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    directories = written(tmp_path, Copy(run(0, 15), log_start=7), Copy(run(0, 12)))
    assert merged(directories) == expected((7, 15, 0))


def test_value_that_is_shown_pickles_with_its_folders(tmp_path: Path) -> None:
    directories = written(tmp_path, Copy(run(0, 9), high_watermark=9), Copy(run(0, 6)))
    with sparklog.open_topic(directories, replicas="merge") as topic:
        (log,) = topic.logs.values()
    assert [each.log.folder.directory.path for each in log.replicas] == [str(each) for each in directories]
    folder = log._layout.folder
    assert pickle.loads(pickle.dumps(folder)) == folder
    assert [copy.directory.path for copy in folder.copies] == [str(each) for each in directories]
