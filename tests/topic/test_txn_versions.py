"""What has been written on behalf of applications."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.errors import CorruptCheckpointError
from sparklog.log.files import TXN_VERSIONS
from sparklog.topic.txn_versions import encode_ledger, read_ledger
from tests.places import directory_at


def test_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_ledger(directory_at(tmp_path)) == {}
    (tmp_path / TXN_VERSIONS).write_bytes(encode_ledger({"a": 1, "ü": 1 << 40}))
    assert read_ledger(directory_at(tmp_path)) == {"a": 1, "ü": 1 << 40}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"5", b'{"version": 2, "applications": {}}', b'{"version": 1}'])
def test_ledger_that_cannot_be_read_stops_the_write(tmp_path: Path, data: bytes) -> None:
    (tmp_path / TXN_VERSIONS).write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="ledger of writes"):
        read_ledger(directory_at(tmp_path))
