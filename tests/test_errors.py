"""The errors: each of them crosses from a task to the driver with all that it carries."""

from __future__ import annotations

import inspect
import pickle

import pytest

from sparklog import errors
from sparklog.errors import NOTHING_VISIBLE, CorruptLogError, SeglogError

FOUND = inspect.getmembers(errors, inspect.isclass)
# KafkaError is another name of SeglogError.
KINDS = [kind for name, kind in FOUND if issubclass(kind, SeglogError) and name == kind.__name__]
OTHERS = [kind for kind in KINDS if not issubclass(kind, CorruptLogError)]
CORRUPT = [kind for kind in KINDS if issubclass(kind, CorruptLogError)]


def assert_same_after_pickling(error: SeglogError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is type(error)
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_every_error_of_ours_is_looked_at() -> None:
    assert len(OTHERS) >= 12
    assert len(CORRUPT) >= 4
    assert len({kind.code for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("outcome", ["", NOTHING_VISIBLE])
def test_errors_pickle(kind: type[SeglogError], outcome: str) -> None:
    error = kind("what is wrong")
    error.outcome = outcome
    assert_same_after_pickling(error)
    assert str(error).startswith(f"[{kind.code}] what is wrong")


@pytest.mark.parametrize("kind", CORRUPT)
@pytest.mark.parametrize(
    "places",
    [{}, {"path": "/logs/a-0/0.log"}, {"path": "/logs/a-0/0.log", "position": 0, "offset": 1 << 62, "hint": "do this"}],
)
def test_errors_of_damage_pickle_with_their_places(kind: type[CorruptLogError], places: dict[str, object]) -> None:
    error = kind("the length is wrong", **places)  # type: ignore[arg-type]
    error.outcome = NOTHING_VISIBLE
    assert_same_after_pickling(error)
    assert vars(error).items() >= places.items()
    assert_same_after_pickling(error.located(path="elsewhere", position=5).hinted("another"))
