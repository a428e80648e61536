"""A directory that is written, cleaned, erased, cut and written again is at every step what its model says."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.cleaner.life import CODECS, KEYS, PARTITIONS, Content, Life, step

STEPS = 200
EXAMPLES_OF_FUZZ = 40

HEADERS = st.lists(st.tuples(st.sampled_from(("a", "b")), st.sampled_from((None, b"", b"x"))), max_size=2)
CONTENTS = st.lists(
    st.builds(
        Content,
        key=st.none() | st.sampled_from(KEYS),
        value=st.none() | st.binary(max_size=40),
        headers=HEADERS.map(tuple),
        age_ms=st.sampled_from((0, 1000, 60_000)),
    ),
    min_size=1,
    max_size=5,
)
NUMBERS = st.sampled_from(PARTITIONS)
SOME_KEYS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)
CRASHES = st.none() | st.integers(1, 60)
FRACTIONS = st.floats(0, 1)


class LifeMachine(RuleBasedStateMachine):
    """Does to a `Life` what hypothesis draws."""

    def __init__(self) -> None:
        super().__init__()
        self._root = Path(tempfile.mkdtemp())
        self.life = Life(self._root / "logs")

    def teardown(self) -> None:
        shutil.rmtree(self._root)

    @rule(number=NUMBERS, contents=CONTENTS, codec=st.sampled_from(CODECS))
    def append(self, number: int, contents: list[Content], codec: str) -> None:
        self.life.append(number, contents, codec)

    @rule(contents=st.dictionaries(NUMBERS, CONTENTS, min_size=1), outcome=st.sampled_from(("commit", "abort")))
    def transact(self, contents: dict[int, list[Content]], outcome: str) -> None:
        self.life.transact(contents, outcome)

    @rule(number=NUMBERS, contents=CONTENTS)
    def leave_open(self, number: int, contents: list[Content]) -> None:
        self.life.leave_open(number, contents)

    @rule()
    def end_all_transactions(self) -> None:
        self.life.end_all_transactions()

    @rule(
        crash_at=CRASHES,
        policy=st.sampled_from(("compact", "compact,delete")),
        map_bytes=st.sampled_from((24 * 14, 1 << 16)),
    )
    def compact(self, crash_at: int | None, policy: str, map_bytes: int) -> None:
        self.life.compact(crash_at, policy, map_bytes)

    @rule(keys=SOME_KEYS, crash_at=CRASHES)
    def erase(self, keys: list[bytes], crash_at: int | None) -> None:
        self.life.erase(keys, crash_at)

    @rule(keys=SOME_KEYS, by=st.sampled_from(("null", "empty")))
    def blank(self, keys: list[bytes], by: str) -> None:
        self.life.blank(keys, by)

    @rule(codec=st.sampled_from(CODECS), crash_at=CRASHES)
    def recompress(self, codec: str, crash_at: int | None) -> None:
        self.life.recompress(codec, crash_at)

    @rule(size_bytes=st.integers(0, 6000))
    def retain_bytes(self, size_bytes: int) -> None:
        self.life.retain_bytes(size_bytes)

    @rule(age_ms=st.integers(0, 500_000))
    def retain_ms(self, age_ms: int) -> None:
        self.life.retain_ms(age_ms)

    @rule(number=NUMBERS, fraction=FRACTIONS)
    def delete_records(self, number: int, fraction: float) -> None:
        self.life.delete_records(number, self._offset(number, fraction))

    @rule(number=NUMBERS, fraction=FRACTIONS)
    def truncate(self, number: int, fraction: float) -> None:
        self.life.truncate(number, self._offset(number, fraction))

    def _offset(self, number: int, fraction: float) -> int:
        model = self.life.partitions[number]
        return model.start + round(fraction * (model.end - model.start))

    @rule(number=NUMBERS, loses_indexes=st.booleans(), torn=st.sampled_from((b"", bytes(7), bytes(100))))
    def die(self, number: int, loses_indexes: bool, torn: bytes) -> None:
        self.life.lose_shutdown(number, loses_indexes=loses_indexes, torn=torn)

    @rule(number=NUMBERS)
    def reopen(self, number: int) -> None:
        self.life.open_and_close(number)

    @rule(time_ms=st.integers(1, 200_000))
    def wait(self, time_ms: int) -> None:
        self.life.now_ms += time_ms

    @invariant()
    def is_as_the_model_says(self) -> None:
        self.life.check()


def settings_of(examples: int, steps: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def test_some_lives_are_as_the_model_says() -> None:
    run_state_machine_as_test(LifeMachine, settings=settings_of(4, 20, derandomize=True))


@pytest.mark.parametrize("seed", [5, 106])
def test_a_walk_at_random_is_as_the_model_says(seed: int, tmp_path: Path) -> None:
    live(Life(tmp_path / "logs"), seed, 40)


def test_aborted_transaction_is_in_the_index_of_the_first_of_several_new_segments(tmp_path: Path) -> None:
    life = Life(tmp_path / "logs")
    life.transact({0: [Content()]}, "abort")
    for _ in range(4):
        life.append(0, [Content(value=bytes(600))], "zstd")
    before = len(life.segment_sizes(0))
    life.recompress("uncompressed")
    assert len(life.segment_sizes(0)) > before
    assert len(list(life.folder(0).glob("*.txnindex"))) == 1
    life.check()


@pytest.mark.fuzz
def test_long_lives_are_as_the_model_says() -> None:
    run_state_machine_as_test(LifeMachine, settings=settings_of(EXAMPLES_OF_FUZZ, STEPS))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 100 + EXAMPLES_OF_FUZZ))
def test_long_walks_at_random_are_as_the_model_says(seed: int, tmp_path: Path) -> None:
    live(Life(tmp_path / "logs"), seed, STEPS)


def live(life: Life, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    for _ in range(steps):
        step(life, rng)
        life.check()
