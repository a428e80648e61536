"""Object stores in memory for tests, with directories of this machine put into them; counts the requests."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest

from sparklog.storage.objects import wire
from sparklog.storage.objects.stores import store_of

_numbers = itertools.count()


def new_root() -> str:
    """Return the URL of an empty store of this process."""
    return f"memory://store-{next(_numbers)}"


def put(root: str, key: str, data: bytes) -> None:
    obstore.put(store_of(root, ()).store, key, data)  # type: ignore[attr-defined]


def put_folder(root: str, folder: Path, prefix: str) -> str:
    """Put the files of a folder into a store, and return the URL of the folder there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            put(root, f"{prefix}/{path.relative_to(folder)}", path.read_bytes())
    return f"{root}/{prefix}"


class Requests:
    """Counts what is sent, and waits before each answer."""

    def __init__(self) -> None:
        self.count = 0
        self.delay_seconds = 0.0
        self.before: Callable[[int], None] = lambda _: None


@contextmanager
def counted() -> Iterator[Requests]:
    """Count the requests of a ``with`` block."""
    requests, original = Requests(), wire._within_time

    def within_time(ask: Callable[[], Any]) -> Any:
        requests.count += 1
        requests.before(requests.count)
        time.sleep(requests.delay_seconds)
        return original(ask)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire, "_within_time", within_time)
        yield requests
