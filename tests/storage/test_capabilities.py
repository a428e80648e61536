"""What cannot be written to is refused at the door, by name."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.storage.base import Capabilities
from sparklog.storage.local import LocalStorage
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.recover import RecoverOptions, recover_directory
from sparklog.topic.write.target import find_target
from sparklog.write.partition import LogWriter
from tests.places import directory_at, location_of

WHOLE = LocalWritableStorage.capabilities
REASONS = {
    "can_lock": "it has no locks",
    "can_rename": "it cannot rename a file in one step",
    "can_overwrite": "it cannot change bytes within a file",
    "can_append": "it cannot add to a file that is there",
}


class Limited(LocalWritableStorage):
    """Storage of this machine that says it can do less."""

    def __init__(self, capabilities: Capabilities) -> None:
        object.__setattr__(self, "capabilities", capabilities)


def test_each_capability_has_a_reason() -> None:
    assert REASONS.keys() == {field.name for field in fields(Capabilities)} - {"is_remote"}


@pytest.mark.parametrize(("missing", "reason"), REASONS.items())
def test_storage_that_lacks_something_is_not_written_to(tmp_path: Path, missing: str, reason: str) -> None:
    with LogWriter.open(tmp_path / "logs" / "events-0") as log:
        log.append(pa.table({"value": [b"x"]}))
    before = sorted(tmp_path.rglob("*"))
    storage = Limited(replace(WHOLE, **{missing: False}))
    message = rf"cannot be written to in the storage of 'file:': {reason}"
    with pytest.raises(InvalidOptionError, match=message):
        LogWriter.open(tmp_path / "logs" / "events-0", storage=storage)
    with pytest.raises(InvalidOptionError, match=message):
        LogWriter.open(tmp_path / "new" / "events-0", storage=storage)
    with pytest.raises(InvalidOptionError, match=message):
        find_target(location_of(tmp_path / "logs", storage), "events", None, has_topic_column=False)
    with pytest.raises(InvalidOptionError, match=message):
        list(recover_directory(directory_at(tmp_path / "logs", storage), [], RecoverOptions(LogConfig(), 0), 0))
    assert sorted(tmp_path.rglob("*")) == before


def test_storage_that_only_reads_is_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="cannot be written to"):
        LogWriter.open(tmp_path / "events-0", storage=LocalStorage())
