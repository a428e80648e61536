"""What has been written on behalf of applications, so that a rerun of the same batch writes nothing.

``seglog.ledger`` lies in the log directory, one JSON object; a commit replaces it together with everything else:

    version        1
    applications   by txnAppId: the highest txnVersion that was committed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.errors import CorruptCheckpointError
from sparklog.log.files import TXN_VERSIONS
from sparklog.log.places import LogDirectory

_VERSION: Final = 1


class TxnVersion(NamedTuple):
    """One batch of an application: Delta Lake's ``txnAppId`` and ``txnVersion``."""

    application: str
    version: int


def read_ledger(directory: LogDirectory) -> dict[str, int]:
    """Return the highest version of each application; none where there is no ledger.

    Raises
    ------
    CorruptCheckpointError
        The ledger cannot be read. Nothing may be written then, since it might be written twice.
    """
    path = directory.file(TXN_VERSIONS)
    data = directory.storage.read_small(path)
    return {} if data is None else _parsed(data, path)


def _parsed(data: bytes, path: str) -> dict[str, int]:
    try:
        found = json.loads(data)
        if found["version"] == _VERSION:
            return {str(application): int(version) for application, version in found["applications"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(f"not a ledger of writes: {error!r}", path=path) from error
    raise CorruptCheckpointError(f"unknown version {found['version']!r} of a ledger of writes", path=path)


def encode_ledger(applications: Mapping[str, int]) -> bytes:
    """Return the bytes of a ledger."""
    return json.dumps({"version": _VERSION, "applications": dict(applications)}).encode()
