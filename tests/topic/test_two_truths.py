"""What a group has committed stands in two places, which change in any order: the later commit counts, whoever asks.

A model has what each place says: the log of a broker, ``seglog.offsets``, and a transaction that is decided and not
carried out. Both places are lost, restored from older copies, and written to again; topics are made anew.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import sparklog
from sparklog import views
from sparklog.errors import InvalidOptionError
from sparklog.log.files import GROUP_OFFSETS, GROUP_OFFSETS_JOURNAL, JOURNAL, TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.log.journal import Journal
from sparklog.topic.internal.groups import committed_by_groups
from sparklog.topic.internal.set_offsets import Goal, OffsetRequest, set_group_offsets
from sparklog.topic.log_manager import LogManager
from sparklog.write.group_offsets import commit_group_offsets, next_transaction
from sparklog.write.journal import apply_journal, write_journal
from tests.places import directory_at
from tests.system.logs import Put
from tests.topic.groups import commits

GROUPS = ("g", "h")
TOPICS = ("events", "orders")
OURS, THEIRS = "seglog.offsets", "__consumer_offsets"
STEPS = 30
_FILES = (GROUP_OFFSETS, GROUP_OFFSETS_JOURNAL)

Key = tuple[str, TopicPartition]


class Commit(NamedTuple):
    time_ms: int
    offset: int
    topic_id: str


Place = dict[Key, Commit]


class Truths:
    """A log directory, and what the model knows of it."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path, self.rng, self.now_ms = path, rng, 1_700_000_000_000
        self.directory, self.manager = directory_at(path), LogManager(path, clock=lambda: self.now_ms)
        self.ids: dict[str, str] = {}
        self.ours, self.theirs = Place(), Place()
        self.decided: Place | None = None
        self.copies: list[tuple[Path, Place]] = []
        self.log_copies: list[tuple[Path, Place]] = []
        for topic in TOPICS:
            self._make(topic)
        self._append([])

    def _make(self, topic: str) -> None:
        self.ids[topic] = f"{self.now_ms:022d}"[:21] + "A"
        self.manager.create_topic(topic, 2, topic_id=self.ids[topic])

    def _append(self, puts: list[Put]) -> None:
        """Append to the broker's log as a broker does, who knows nothing of a journal."""
        journal, aside = self.path / JOURNAL, self.path.parent / JOURNAL
        if journal.exists():
            journal.rename(aside)
        with sparklog.PartitionLog.open(self.path / f"{THEIRS}-0") as log:
            if puts:
                log.append({"key": [each.key for each in puts], "value": [each.value for each in puts]})
        if aside.exists():
            aside.rename(journal)

    def _drawn(self) -> tuple[str, dict[TopicPartition, int], Place]:
        group, partitions = self.rng.choice(GROUPS), [TopicPartition(topic, n) for topic in TOPICS for n in range(2)]
        offsets = {at: self.rng.randrange(90) for at in self.rng.sample(partitions, self.rng.randrange(1, 4))}
        made = {(group, at): Commit(self.now_ms, offset, self.ids[at.topic]) for at, offset in offsets.items()}
        return group, offsets, made

    def commit_here(self) -> None:
        group, offsets, made = self._drawn()
        given = {at: OffsetCommit(offset, "", self.now_ms) for at, offset in offsets.items()}
        commit_group_offsets(self.directory, group, given)
        self._here(made)
        for key in made:
            if self.decided is not None:
                self.decided.pop(key, None)

    def _here(self, made: Place) -> None:
        """Put commits over ours, and forget those of topics that were others when they were committed."""
        topics = {at.topic for _, at in made}
        kept = {
            key: each
            for key, each in self.ours.items()
            if key[1].topic not in topics or each.topic_id == self.ids[key[1].topic]
        }
        self.ours = {**kept, **made}

    def commit_there(self) -> None:
        group, offsets, made = self._drawn()
        self._append(commits(group, {(*at,): offset for at, offset in offsets.items()}, time_ms=self.now_ms))
        self.theirs |= made

    def set_offsets(self) -> None:
        group, offsets, _ = self._drawn()
        request = OffsetRequest(group, {}, Goal(offsets=offsets))
        done = set_group_offsets([self.path], request, executes=True, clock=lambda: self.now_ms)
        self._finish()
        for change in done.changes:
            at = change.topic_partition
            self.theirs[group, at] = Commit(self.now_ms, change.new_offset, self.ids[at.topic])

    def decide(self) -> None:
        self._finish()
        apply_journal(self.directory)
        group, offsets, self.decided = self._drawn()
        given = {at: OffsetCommit(offset, "", self.now_ms) for at, offset in offsets.items()}
        offered = next_transaction(self.directory, {group: given})
        write_journal(self.directory, Journal(f"{self.now_ms:013x}", {}, (), offsets=offered))

    def carry_out(self) -> None:
        apply_journal(self.directory)
        self._finish()

    def _finish(self) -> None:
        """Whoever writes to the logs carries out what was decided."""
        if self.decided is not None:
            self._here(self.decided)
        self.decided = None

    def make_anew(self) -> None:
        """Delete a topic and make another of its name, here or as a broker does, of whose commits nothing stays."""
        topic = self.rng.choice(TOPICS)
        self.carry_out()
        if self.rng.random() < 0.5:
            self.manager.delete_topic(topic)
            gone = {key for place in (self.ours, self.theirs) for key in place if key[1].topic == topic}
            self._append([Put(put.key, None) for group, at in gone for put in commits(group, {at: 0})])
        else:
            for number in range(2):
                shutil.rmtree(self.path / f"{topic}-{number}")
            gone = {key for key in self.theirs if key[1].topic == topic}
            self._append([Put(put.key, None) for group, at in gone for put in commits(group, {at: 0})])
        self.theirs = {key: each for key, each in self.theirs.items() if key[1].topic != topic}
        self.ours = {key: each for key, each in self.ours.items() if key[1].topic != topic}
        self.now_ms += 1
        self._make(topic)

    def copy(self) -> None:
        self.carry_out()
        target = self.path.parent / f"copy-{len(self.copies)}"
        if (self.path / GROUP_OFFSETS).exists():
            target.mkdir()
            for name in _FILES:
                if (self.path / name).exists():
                    shutil.copy(self.path / name, target)
            self.copies.append((target, dict(self.ours)))
        target = self.path.parent / f"log-{len(self.log_copies)}"
        shutil.copytree(self.path / f"{THEIRS}-0", target)
        self.log_copies.append((target, dict(self.theirs)))

    def restore_ours(self) -> None:
        if self.copies:
            source, self.ours = self.rng.choice(self.copies)
            self.ours = dict(self.ours)
            (self.path / GROUP_OFFSETS_JOURNAL).unlink(missing_ok=True)
            shutil.copytree(source, self.path, dirs_exist_ok=True)

    def lose_ours(self) -> None:
        (self.path / GROUP_OFFSETS).unlink(missing_ok=True)
        self.ours = {}

    def restore_theirs(self) -> None:
        if self.log_copies:
            source, self.theirs = self.rng.choice(self.log_copies)
            self.theirs = dict(self.theirs)
            shutil.rmtree(self.path / f"{THEIRS}-0")
            shutil.copytree(source, self.path / f"{THEIRS}-0")

    def truth(self, ours: Place) -> dict[Key, tuple[int, str]]:
        """Return the later commit of each key, and where it is; ours only of topics that are still the same."""
        here = {key: each for key, each in ours.items() if each.topic_id == self.ids[key[1].topic]}
        found: dict[Key, tuple[int, str]] = {}
        for key in {*here, *self.theirs}:
            times = [
                (place[key].time_ms, name) for place, name in ((here, OURS), (self.theirs, THEIRS)) if key in place
            ]
            place = max(times)[1]
            found[key] = ((here if place == OURS else self.theirs)[key].offset, place)
        return found

    def check(self) -> None:
        """Ask all who read."""
        expected = self.truth(self.ours)
        names = ["group", "topic", "partition", "offset", "committed_in"]
        rows = views.read(self.path, "consumer_offsets").select(names).to_pylist()
        assert _by_key(rows, "offset") == expected
        assert _by_key(views.lag(self.path).to_pylist(), "current_offset") == expected
        assert {row["group"] for row in views.read(self.path, "consumer_groups").to_pylist()} == {
            g for g, _ in expected
        }
        begins = {key: offset for key, (offset, _) in self.truth({**self.ours, **(self.decided or {})}).items()}
        for group in GROUPS:
            told = {at: offset for (name, at), (offset, _) in expected.items() if name == group}
            if told:
                assert committed_by_groups([group], [self.directory]) == {group: told}
            else:
                with pytest.raises(InvalidOptionError):
                    committed_by_groups([group], [self.directory])
            with sparklog.Consumer(self.path, group_id=group, enable_auto_commit=False) as consumer:
                partitions = [TopicPartition(topic, n) for topic in TOPICS for n in range(2)]
                assert {at: consumer.committed(at) for at in partitions if consumer.committed(at) is not None} == told
                consumer.assign(partitions)
                assert {at: consumer.position(at) for at in partitions} == {
                    at: begins.get((group, at), 0) for at in partitions
                }


def _by_key(rows: list[dict[str, object]], name: str) -> dict[object, tuple[object, object]]:
    return {
        (row["group"], (row["topic"], row["partition"])): (row[name], row["committed_in"])
        for row in rows
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_no_reader_is_behind_the_later_truth(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    truths = Truths(tmp_path / "logs", rng)
    often: list[Callable[[], None]] = [truths.commit_here, truths.commit_there]
    others = [
        truths.set_offsets, truths.decide, truths.carry_out, truths.make_anew, truths.copy, truths.copy,
        truths.restore_ours, truths.restore_theirs, truths.lose_ours,
    ]  # fmt: skip
    done = []
    for _ in range(STEPS):
        truths.now_ms += 1000
        action = rng.choice([*often * 4, *others])
        action()
        done.append(action.__name__)
        try:
            truths.check()
        except AssertionError as error:
            error.add_note(f"after {', '.join(done)}")
            raise
