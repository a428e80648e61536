"""Records the batches that applications have written, so that a rerun of the same batch writes nothing.

``seglog.ledger`` in the log directory is one JSON object, which a commit replaces together with everything else:

    version        1
    applications   by txnAppId: the highest committed txnVersion
    batches        by txnAppId, the latest writer last: [txnVersion, rows, digest of the rows] of its last batches

A number alone does not prove that a batch was written: a checkpoint restored from an older copy gives old numbers to
new rows, and a sink restored from an older copy has lost the numbers of batches with their rows. So a batch is compared
with the batches on record. The digest does not depend on the order of rows; see
`sparklog.record.encode.batches.digest_records`.
Earlier versions of sparklog wrote no ``batches``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.errors import CommitError, CorruptCheckpointError
from sparklog.log.files import TXN_VERSIONS
from sparklog.log.places import LogDirectory

_log = logging.getLogger("sparklog")

_VERSION: Final = 1
_BATCHES_KEPT: Final = 100
_APPLICATIONS_KEPT: Final = 10
"""This many applications, those that wrote last, keep the digests of `_BATCHES_KEPT` batches; all others keep one."""


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """The number of rows and the sum of their hashes; the digests of parts add up to the digest of the whole."""

    rows: int = 0
    hashes: int = 0

    def __add__(self, other: RowsDigest) -> RowsDigest:
        return RowsDigest(self.rows + other.rows, (self.hashes + other.hashes) % (1 << 64))


@dataclass(frozen=True, slots=True)
class TxnVersion:
    """One batch of an application: Delta Lake's ``txnAppId`` and ``txnVersion``.

    Attributes
    ----------
    digest : RowsDigest
        The digest of the batch's rows.
    first_version : int or None
        The version of the first batch of a stream, whose versions are consecutive; None if they need not be.
    skips_replays : bool
        Whether a batch with a known number counts as written, whatever its rows.
    fails_on_loss : bool
        Whether missing batches before this one are an error.
    """

    application: str
    version: int
    digest: RowsDigest = RowsDigest()
    first_version: int | None = None
    skips_replays: bool = False
    fails_on_loss: bool = True


@dataclass(frozen=True)
class TxnLedger:
    """The ledger of the applications that have written to a log directory; see the module for the fields."""

    applications: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, Mapping[int, RowsDigest]] = field(default_factory=dict)

    def has(self, batch: TxnVersion, path: str) -> bool:
        """Return whether a batch was written before.

        Parameters
        ----------
        path : str
            The path of the log directory, for messages.

        Raises
        ------
        CommitError
            A batch with its number was written with other rows, or with rows that are no longer known; or it is a batch
            of a stream, and batches before it are missing.
        """
        last = self.applications.get(batch.application)
        if last is None or last < batch.version:
            self._refuse_gap(batch, last, path)
            return False
        written = self.batches.get(batch.application, {}).get(batch.version)
        if written == batch.digest:
            _log.warning("batch %d of %s has been written before: writing nothing", batch.version, batch.application)
        elif batch.skips_replays or (written is None and last == batch.version):
            _log.warning("%s: writing nothing", _difference(batch, written))
        else:
            raise CommitError(
                f"{_difference(batch, written)} ({path} has {last} as its last). Either a checkpoint was restored or "
                f"deleted, and these rows are new: write them with another txnAppId, or from a new checkpoint. Or the "
                f"query does not give the same rows when it is repeated: onReplay=skip takes them for written"
            )
        return True

    def _refuse_gap(self, batch: TxnVersion, last: int | None, path: str) -> None:
        if batch.first_version is None:
            return
        expected = max(batch.first_version, -1 if last is None else last + 1)
        if expected >= batch.version or batch.version == batch.first_version:
            return
        missing = f"batch {expected}" if expected == batch.version - 1 else f"batches {expected} to {batch.version - 1}"
        known = "none of its batches" if last is None else f"batch {last} as its last"
        what = f"the stream {batch.application} is at batch {batch.version}, and {path} has {known}"
        if batch.fails_on_loss:
            raise CommitError(
                f"{what}: the rows of {missing} are missing there. The directory was restored from an older copy or "
                f"made anew, or the stream wrote elsewhere before. Restore a copy that has them, or write all rows "
                f"again from a new checkpoint; failOnDataLoss=false goes on without them"
            )
        _log.warning("%s: going on without the rows of %s", what, missing)

    def after(self, batch: TxnVersion) -> TxnLedger:
        """Return the ledger after a batch is written."""
        batches = {name: known for name, known in self.batches.items() if name != batch.application}
        batches[batch.application] = {**self.batches.get(batch.application, {}), batch.version: batch.digest}
        for place, (name, known) in enumerate(reversed(batches.items())):
            kept = sorted(known)[-(_BATCHES_KEPT if place < _APPLICATIONS_KEPT else 1) :]
            batches[name] = {version: known[version] for version in kept}
        return TxnLedger({**self.applications, batch.application: batch.version}, batches)

    def encode(self) -> bytes:
        """Return the bytes of the ledger."""
        batches = {
            application: [[version, each.rows, f"{each.hashes:016x}"] for version, each in known.items()]
            for application, known in self.batches.items()
        }
        return json.dumps({"version": _VERSION, "applications": dict(self.applications), "batches": batches}).encode()


def _difference(batch: TxnVersion, written: RowsDigest | None) -> str:
    name = f"batch {batch.version} of {batch.application} has been written before"
    if written is None:
        return f"{name}, and it is not known any more with which rows"
    if written.rows == batch.digest.rows:
        return f"{name}, with {written.rows} rows that differ from these"
    return f"{name}, with {written.rows} rows and not {batch.digest.rows}"


def read_txn_versions(directory: LogDirectory) -> TxnLedger:
    """Read the ledger of a log directory; empty if there is none.

    Raises
    ------
    CorruptCheckpointError
        The ledger cannot be read. Nothing may be written then, because a batch might be written twice.
    """
    path = directory.file(TXN_VERSIONS)
    data = directory.storage.read_small(path)
    return TxnLedger() if data is None else _parsed(data, path)


def _parsed(data: bytes, path: str) -> TxnLedger:
    try:
        found = json.loads(data)
        if found["version"] == _VERSION:
            return TxnLedger(
                {application: _number(version) for application, version in found["applications"].items()},
                {
                    application: {
                        _number(version): RowsDigest(_number(rows), int(hashes, 16)) for version, rows, hashes in known
                    }
                    for application, known in found.get("batches", {}).items()
                },
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(f"not a ledger of writes: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a ledger of writes", path=path)


def _batches(found: Any) -> dict[int, RowsDigest]:
    return {_number(version): RowsDigest(_number(rows), int(hashes, 16)) for version, rows, hashes in found}


def _number(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError(f"not the number of a batch, or of rows: {found!r}")
    return found
