"""Compiles all kernels ahead, for images and for machines whose first query should not wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Kernels are known once their modules are imported.
from sparklog.record.kernels import (  # noqa: F401
    convert,
    digest,
    encode,
    filter,  # noqa: A004
    hash,  # noqa: A004
    legacy,
    match,
    offset_map,
    rewrite,
    scan,
    search,
    spans,
    streams,
    v2,
)
from sparklog.record.kernels.compile import KERNELS, kernels_folder

__all__ = ["kernel_count", "kernels_folder", "load", "load_kernels"]


def kernel_count() -> int:
    """Return how many kernels there are."""
    return len(KERNELS)


def load(names: Iterable[str]) -> None:
    """Compile some kernels, in the order of their names here, unless they are compiled."""
    for name in names:
        KERNELS[name]()


def load_kernels() -> Iterator[str]:
    """Compile every kernel that is not compiled yet, and yield the name of each when it is there."""
    for name, load in KERNELS.items():
        load()
        yield name
