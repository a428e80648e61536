"""What has been written on behalf of applications."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.errors import CommitError, CorruptCheckpointError
from sparklog.log.files import TXN_VERSIONS
from sparklog.topic.write.txn_versions import RowsDigest, TxnLedger, TxnVersion, read_txn_versions
from tests.places import directory_at

ROWS, OTHERS, MORE = RowsDigest(10, 1 << 63), RowsDigest(10, 7), RowsDigest(12, 1 << 63)


def ledger_of(*batches: TxnVersion) -> TxnLedger:
    ledger = TxnLedger()
    for batch in batches:
        assert not ledger.has(batch, "/logs")
        ledger = ledger.after(batch)
    return ledger


def stream(number: int, digest: RowsDigest = ROWS, *, first: int = 0) -> TxnVersion:
    return TxnVersion("q", first + number, digest, first_version=first)


def test_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_txn_versions(directory_at(tmp_path)) == TxnLedger()
    written = ledger_of(TxnVersion("a", 1, ROWS), TxnVersion("ü", 1 << 40, OTHERS), TxnVersion("a", 4, MORE))
    (tmp_path / TXN_VERSIONS).write_bytes(written.encode())
    assert read_txn_versions(directory_at(tmp_path)) == written
    assert written.applications == {"a": 4, "ü": 1 << 40}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"5", b'{"version": 2, "applications": {}}', b'{"version": 1}',
        b'{"version": 1, "applications": {"a": -1}}', b'{"version": 1, "applications": {"a": 1e400}}',
        b'{"version": 1, "applications": {"a": true}}',
        b'{"version": 1, "applications": {}, "batches": {"a": [[1, 2]]}}',
        b'{"version": 1, "applications": {}, "batches": {"a": [[1, 2, 3]]}}',
        b'{"version": 1, "applications": {}, "batches": {"a": [["1", 2, "00"]]}}',
        b'{"version": 1, "applications": {}, "batches": null}',
    ],
)  # fmt: skip
def test_ledger_that_cannot_be_read_stops_the_write(tmp_path: Path, data: bytes) -> None:
    (tmp_path / TXN_VERSIONS).write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="ledger of writes"):
        read_txn_versions(directory_at(tmp_path))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_repetition_with_the_same_rows_is_written_already(number: int) -> None:
    assert ledger_of(stream(0), stream(1), stream(2)).has(stream(number), "/logs")


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("digest", "said"), [(OTHERS, "with 10 rows that differ from these"), (MORE, "with 10 rows and not 12")]
)
def test_repetition_with_other_rows_is_an_error(
    caplog: pytest.LogCaptureFixture, number: int, digest: RowsDigest, said: str
) -> None:
    ledger, again = ledger_of(stream(0), stream(1), stream(2)), stream(number, digest)
    with pytest.raises(CommitError, match=rf"batch {number} of q has been written before, {said} \(/logs has 2 as"):
        ledger.has(again, "/logs")
    assert ledger.has(replace(again, skips_replays=True), "/logs")
    assert caplog.messages == [f"batch {number} of q has been written before, {said}: writing nothing"]


@pytest.mark.parametrize(
    ("written", "number", "missing"), [(0, 4, "batches 0 to 3"), (3, 4, "batch 3"), (2, 9, "2 to 8")]
)
def test_number_of_a_stream_that_leaves_some_out_says_which(
    caplog: pytest.LogCaptureFixture, written: int, number: int, missing: str
) -> None:
    ledger, batch = ledger_of(*(stream(each) for each in range(written))), stream(number)
    with pytest.raises(
        CommitError, match=rf"the stream q is at batch {number}, .* the rows of .*{missing} are missing"
    ):
        ledger.has(batch, "/logs")
    assert not ledger.has(replace(batch, fails_on_loss=False), "/logs")
    assert "going on without the rows of " in caplog.messages[-1]


def test_versions_of_a_stream_count_from_the_one_that_was_given() -> None:
    ledger = ledger_of(stream(0, first=10), stream(1, first=10))
    with pytest.raises(CommitError, match="the rows of batches 12 to 14 are missing"):
        ledger.has(stream(5, first=10), "/logs")
    with pytest.raises(CommitError, match="the rows of batches 20 to 21 are missing"):
        ledger.has(stream(2, first=20), "/logs")
    # A new checkpoint begins with its batch 0, whatever its version is.
    assert not ledger.has(stream(0, first=20), "/logs")


def test_versions_of_batch_writes_need_not_follow_one_another(caplog: pytest.LogCaptureFixture) -> None:
    ledger = ledger_of(TxnVersion("loader", 7, ROWS), TxnVersion("loader", 20, ROWS))
    assert ledger.has(TxnVersion("loader", 7, ROWS), "/logs")
    with pytest.raises(CommitError, match="it is not known any more with which rows"):
        ledger.has(TxnVersion("loader", 8, ROWS), "/logs")


def test_last_batch_of_an_old_ledger_is_taken_for_written_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / TXN_VERSIONS).write_text(json.dumps({"version": 1, "applications": {"q": 4}}))
    ledger = read_txn_versions(directory_at(tmp_path))
    with caplog.at_level(logging.WARNING, "sparklog"):
        assert ledger.has(stream(4), "/logs")
    assert "not known any more with which rows: writing nothing" in caplog.text
    with pytest.raises(CommitError, match="batch 3 of q has been written before, and it is not known"):
        ledger.has(stream(3), "/logs")
    assert not ledger.has(stream(5), "/logs")


def test_what_is_kept_does_not_grow() -> None:
    ledger = TxnLedger()
    for number in range(1000):
        for name in ("a", "b"):
            ledger = ledger.after(TxnVersion(name, number, ROWS))
    assert len(ledger.encode()) < 10_000
    assert ledger.has(TxnVersion("a", 950, ROWS), "/logs")
    for number in range(20):
        ledger = ledger.after(TxnVersion(f"other {number}", 0, ROWS))
    # Of who has not written for long the last batch is known.
    assert {name: list(ledger.batches[name]) for name in ("a", "b")} == {"a": [999], "b": [999]}
    assert ledger.has(TxnVersion("a", 999, ROWS), "/logs")
    with pytest.raises(CommitError, match="with 10 rows that differ from these"):
        ledger.has(TxnVersion("b", 999, OTHERS), "/logs")
