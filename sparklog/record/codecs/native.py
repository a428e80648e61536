"""Finds the codecs' C functions in the libraries of Python packages, for compiled code to call.

A call of Python for each batch of some KiB takes the interpreter's lock twice, and threads that work side by side
then wait for each other more than they work. A kernel that calls the C function itself does not need the lock.

`lz4` and `zstandard` are extension modules around liblz4 and libzstd, whose stable functions can be looked up in them,
or in the system's library that they are linked with. Nothing depends on it: if a module was built to export no such
function, the address is 0, and streams are decompressed one by one through the packages.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

_LZ4_MODULE: Final = "lz4.block._block"
_ZSTD_MODULE: Final = "zstandard._cffi"


@lru_cache(maxsize=1)
def lz4_decompress_safe() -> int:
    """Return the address of ``LZ4_decompress_safe``; 0 if it cannot be found."""
    return _address(_library(_LZ4_MODULE), "LZ4_decompress_safe")


@lru_cache(maxsize=1)
def lz4_compress_default() -> int:
    """Return the address of ``LZ4_compress_default``; 0 if it cannot be found."""
    return _address(_library(_LZ4_MODULE), "LZ4_compress_default")


@lru_cache(maxsize=1)
def zstd_decompress() -> int:
    """Return the address of ``ZSTD_decompressDCtx``; 0 if it, or the function that makes its state, cannot be found."""
    library = _library(_ZSTD_MODULE)
    names = ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx")
    addresses = [_address(library, name) for name in names]
    return addresses[-1] if all(addresses) else 0


def zstd_state() -> int:
    """Return the address of this thread's state for decompressing zstd; 0 if there is no memory for it.

    Call it only if `zstd_decompress` is found.
    """
    if _of_thread.zstd is None:
        _of_thread.zstd = _ZstdState()
    return _of_thread.zstd.address


class _ZstdState:
    """A ``ZSTD_DCtx``, freed with the thread that made it."""

    def __init__(self) -> None:
        library = _library(_ZSTD_MODULE)
        create = ctypes.CFUNCTYPE(ctypes.c_void_p)(_address(library, "ZSTD_createDCtx"))
        self._free = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(_address(library, "ZSTD_freeDCtx"))
        self.address: int = create() or 0

    def __del__(self) -> None:
        self._free(self.address)


class _OfThread(threading.local):
    zstd: _ZstdState | None = None


_of_thread: Final = _OfThread()


@lru_cache(maxsize=4)
def _library(module: str) -> Any:
    """Load an extension module as a shared library; None if that fails."""
    try:
        spec = find_spec(module)
        return ctypes.CDLL(spec.origin) if spec is not None and spec.origin else None
    except (ImportError, OSError):
        return None


def _address(library: Any, name: str) -> int:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0
