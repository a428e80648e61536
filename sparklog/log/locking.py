"""Who may change the logs of a directory.

Kafka's own lock, ``.lock``, keeps a broker out while we write, and us out while a broker runs: there is no use in
waiting for one. Before it, writers of ours wait for each other by a lock that no broker knows, ``seglog.lock``.

POSIX gives these locks to a process, and takes them from it when it closes the file once, wherever: nothing may open
them but the storage's ``lock``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.errors import BrokerRunningError, LockedError
from sparklog.storage.writing import WritableStorage

BROKER_LOCK: Final = ".lock"
WRITERS_LOCK: Final = "seglog.lock"

_BROKER_TIMEOUT_SECONDS: Final = 0.5


@contextmanager
def hold(
    storage: WritableStorage, directory: str, timeout_seconds: float, *, is_shared: bool = False
) -> Iterator[None]:
    """Keep brokers and other writers out of a log directory.

    Parameters
    ----------
    directory : str
        The log directory.
    timeout_seconds : float
        How long to wait for other writers of ours.
    is_shared : bool
        Let others of this process in who ask for the same.

    Raises
    ------
    BrokerRunningError
        A broker runs on the directory.
    LockedError
        Other writers took longer than that.
    """
    refuse_running_broker(storage, directory)
    try:
        ours = storage.lock(f"{directory}/{WRITERS_LOCK}", timeout_seconds, is_shared=is_shared)
    except LockedError as error:
        raise LockedError(
            f"another writer holds {directory}, and did not finish in {timeout_seconds:g} s. Nothing was written; "
            f"repeat it, or wait longer for the lock"
        ) from error
    with ours, _brokers(storage, directory, is_shared):
        yield


def refuse_running_broker(storage: WritableStorage, directory: str) -> None:
    """Raise `BrokerRunningError` if a broker runs on a log directory, and leave no trace in it.

    Where another writer of ours holds it there is no broker.
    """
    names = {entry.name for entry in storage.entries(directory)}
    if BROKER_LOCK in names and WRITERS_LOCK not in names:
        with _brokers(storage, directory, is_shared=True):
            pass
    elif BROKER_LOCK in names:
        try:
            ours = storage.lock(f"{directory}/{WRITERS_LOCK}", timeout_seconds=0.0, is_shared=True)
        except LockedError:
            return
        with ours, _brokers(storage, directory, is_shared=True):
            pass


@contextmanager
def _brokers(storage: WritableStorage, directory: str, is_shared: bool) -> Iterator[None]:
    try:
        held = storage.lock(f"{directory}/{BROKER_LOCK}", _BROKER_TIMEOUT_SECONDS, is_shared=is_shared)
    except LockedError as error:
        raise BrokerRunningError(
            f"a broker runs on {directory}: it holds {BROKER_LOCK}. Nothing was written; stop it first"
        ) from error
    with held:
        yield
