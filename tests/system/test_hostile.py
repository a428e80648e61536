"""Every view over records of random and of damaged bytes: rows, bytes or an error of ours, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparklog.errors import MessageDecodeError
from sparklog.system.messages import message
from sparklog.system.records import Undecodable
from sparklog.system.views import VIEWS, View
from tests.system.logs import Put, encode_framed, write_log
from tests.system.plain import definitions, make

ROUNDS = 5
RECORDS = 60


def some_record(topic: str, dice: random.Random) -> Put:
    """Make a record of the topic by a definition, and damage most of them."""
    if topic in ("__remote_log_metadata", "__cluster_metadata"):
        kinds = [each for each in definitions() if each["type"] == "metadata"]
        kind = dice.choice(kinds)
        put = Put(None, encode_framed(message(kind["name"]), 0, make(kind, 0, dice).fields))
    else:
        keys = {each["name"]: each for each in definitions() if each["type"] == "coordinator-key"}
        name = dice.choice(sorted(keys)).removesuffix("Key")
        value = next(each for each in definitions() if each["name"] == f"{name}Value")
        version = dice.choice(message(f"{name}Value").versions)
        key = keys[f"{name}Key"]["apiKey"].to_bytes(2, "big") + make(keys[f"{name}Key"], 0, dice).data
        put = Put(key, version.to_bytes(2, "big") + make(value, version, dice).data)
    return Put(damaged(put.key, dice), damaged(put.value, dice))


def damaged(data: bytes | None, dice: random.Random) -> bytes | None:
    way = dice.random()
    if data is None or way < 0.5:
        return data
    if way < 0.6:
        return None
    if way < 0.75:
        return data[: dice.randrange(len(data) + 1)]
    changed = bytearray(data or b"\0")
    for _ in range(dice.choice([1, 3])):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_damaged_records_are_rows_or_bytes_or_an_error_of_ours(tmp_path: Path, view: View) -> None:
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        steps = [some_record(view.topic, dice) for _ in range(RECORDS)]
        log, unreadable = write_log(tmp_path / f"{seed}-0", steps), Undecodable()
        try:
            for batch in view.batches(log, unreadable, history=False):
                batch.validate(full=True)
        except MessageDecodeError:
            # The state of a cluster cannot be told behind a record that is not understood.
            assert view.topic == "__cluster_metadata"
        for batch in view.batches(log, unreadable, history=True):
            batch.validate(full=True)
        assert unreadable.count
