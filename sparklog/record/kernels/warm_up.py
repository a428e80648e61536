"""Compiles all kernels early, for container images and for machines whose first query should not wait."""

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

__all__ = ["kernel_count", "kernels_folder", "load_kernels", "warm"]


def kernel_count() -> int:
    """Return the number of kernels."""
    return len(KERNELS)


def warm(names: Iterable[str]) -> None:
    """Compile some kernels, in the order of the given names, unless they are compiled."""
    for name in names:
        KERNELS[name]()


def load_kernels() -> Iterator[str]:
    """Compile the kernels that are not compiled yet; yield the name of each kernel once it is loaded."""
    for name, load in KERNELS.items():
        load()
        yield name
