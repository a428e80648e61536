"""What has been written on behalf of applications, so that a rerun of the same batch writes nothing.

``seglog.ledger`` lies in the log directory, one JSON object; a commit replaces it together with everything else:

    version        1
    applications   by txnAppId: the highest txnVersion that was committed
    batches        by txnAppId, who wrote last at the end: [txnVersion, rows, digest of the rows] of its last batches

A number alone does not say that a batch was written: a checkpoint that was restored from an older copy gives old
numbers to new rows, and a sink that was gives none to those that are gone. So a batch is held against what is known of
those before it. The digest does not depend on the order of rows; see `sparklog.record.encode.digest`. Earlier versions
of sparklog wrote no ``batches``.
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
"""The rows are known of so many last batches of the applications that wrote last; of the others that of their last."""


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """How many rows there are, and the sum of their hashes; the digests of parts add up to that of the whole."""

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
        That of its rows.
    first_version : int or None
        The version of the first batch of a stream, whose versions follow one another; None where they need not.
    skips_replays : bool
        Whether a batch whose number was written is taken for written, whatever its rows.
    fails_on_loss : bool
        Whether it is an error that batches before this one are not there.
    """

    application: str
    version: int
    digest: RowsDigest = RowsDigest()
    first_version: int | None = None
    skips_replays: bool = False
    fails_on_loss: bool = True


@dataclass(frozen=True)
class TxnLedger:
    """What is known of the applications that have written to a log directory; see the module for the fields."""

    applications: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, Mapping[int, RowsDigest]] = field(default_factory=dict)

    def has(self, batch: TxnVersion, path: str) -> bool:
        """Tell whether a batch was written before.

        Parameters
        ----------
        path : str
            Of the log directory.

        Raises
        ------
        CommitError
            A batch with its number was, and its rows were others or are not known any more; or it is one of a stream,
            and batches before it are not there.
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
        """Return what is known once a batch is written."""
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
        return f"{name}, with {written.rows} rows that are not those of now"
    return f"{name}, with {written.rows} rows and not {batch.digest.rows}"


def read_txn_versions(directory: LogDirectory) -> TxnLedger:
    """Return what is known of each application; nothing where there is no ledger.

    Raises
    ------
    CorruptCheckpointError
        The ledger cannot be read. Nothing may be written then, since it might be written twice.
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
