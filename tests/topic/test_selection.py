from __future__ import annotations

import re
from typing import Any

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.files import TopicPartition
from sparklog.log.properties import options_of, taken
from sparklog.topic.places.discovery import discover
from sparklog.topic.selection import Selection, SelectionArguments
from tests.golden import EXAMPLES

TOPICS = {"topics": "shop-orders", "topic_pattern": "shop-o.*", "partitions": [("shop-events", 0)]}


def test_what_callers_give_and_what_is_declared_have_the_same_names() -> None:
    assert list(SelectionArguments.__annotations__) == list(options_of(Selection))


@pytest.mark.parametrize(("name", "wanted"), [
    ("topics", ["shop-orders-0", "shop-orders-1"]),
    ("topic_pattern", ["shop-orders-0", "shop-orders-1"]),
    ("partitions", ["shop-events-0"]),
])  # fmt: skip
def test_one_of_the_three_chooses_partitions(name: str, wanted: list[str]) -> None:
    chosen = discover([EXAMPLES]).select(taken(Selection, {name: TOPICS[name]}))
    assert [folder.name for folder in chosen] == wanted


@pytest.mark.parametrize("left_out", TOPICS)
def test_two_of_the_three_are_refused_by_name(left_out: str) -> None:
    given = {name: value for name, value in TOPICS.items() if name != left_out}
    with pytest.raises(InvalidOptionError, match=f"{' and '.join(given)} are given: give one of them"):
        taken(Selection, given)


@pytest.mark.parametrize("side", ["start", "end"])
def test_two_bounds_of_a_side_are_refused_by_name(side: str) -> None:
    given = {f"{side}_offsets": {("shop-orders", 0): 1}, f"{side}_group": "g"}
    with pytest.raises(InvalidOptionError, match=f"{side}_offsets and {side}_group are given"):
        taken(Selection, given)


def test_what_may_come_later_is_no_error_and_comes() -> None:
    found = discover([EXAMPLES])
    both = ["shop-orders-0", "shop-orders-1"]
    for wanted in (
        Selection(topics=("shop-orders", "later")),
        Selection(partitions=(*(TopicPartition("shop-orders", n) for n in (0, 1)), TopicPartition("later", 0))),
    ):
        assert [folder.name for folder in found.select(wanted, may_come_later=True)] == both
    assert found.select(Selection(topic_pattern=re.compile("later")), may_come_later=True) == []


@pytest.mark.parametrize(("given", "message"), [
    ({"topic_pattern": "("}, r"no regular expression: '\('"),
    ({"isolation_level": "all"}, "isolation_level is 'all', and must be read_committed or read_uncommitted"),
    ({"start_offsets": {0: 1}}, "start_offsets has 0: it is given by topic and partition"),
])  # fmt: skip
def test_value_that_an_argument_does_not_take_is_refused_with_its_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        taken(Selection, given)
