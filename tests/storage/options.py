"""A storage with options, for tests of how these reach it: the disk, under URLs of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from sparklog.storage import registry
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.storage.registry import Scheme, StorageOptions, Url, register_scheme

NAMES: Final = frozenset({"endpoint", "region", "secret.access_key_id", "secret.account_key"})


@dataclass(frozen=True)
class WithOptions(LocalWritableStorage):
    """The disk, with the options that it was given."""

    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def _storage(_: Url, options: StorageOptions) -> WithOptions:
    return WithOptions(options=tuple(sorted(options.items())))


SCHEME: Final = Scheme(_storage, lambda url, *_: url.path, NAMES)


@contextmanager
def registered() -> Iterator[None]:
    """Have URLs of opts: understood by this process."""
    register_scheme("opts", SCHEME)
    try:
        yield
    finally:
        sys.modules[registry.__name__]._schemes.pop("opts")
