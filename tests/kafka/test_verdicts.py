"""The table of verdicts is what Kafka's classes say now, of the cases that are made now."""

from __future__ import annotations

import pytest

from tests.kafka.verdicts import cases, judged, verdicts

pytestmark = pytest.mark.kafka


def test_the_table_is_what_kafkas_classes_say() -> None:
    table = verdicts()
    assert judged({verdict.name: verdict.data for verdict in table}) == table


def test_the_table_has_a_line_for_every_case() -> None:
    assert [verdict.name for verdict in verdicts()] == list(cases())
