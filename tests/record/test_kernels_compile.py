"""The parts of numba that are not its public interface, and on which the loading of kernels rests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit, types
from numba.core import caching
from numba.core.codegen import get_host_cpu_features

from sparklog.record import kernels_compile

SIGNATURE = types.int64(types.int64)


def doubled(number: Any) -> Any:
    return number * 2


def test_private_interface_of_numba_is_there() -> None:
    assert callable(caching.FunctionCache._load_overload), "numba has changed how it loads code: see kernels_compile"
    assert hasattr(njit(doubled), "_cache"), "numba has changed where a function keeps its cache: see kernels_compile"
    assert isinstance(kernels_compile.NUMBA.CACHE_DIR, str)
    features: Any = get_host_cpu_features
    assert isinstance(features(), str)


def test_compiled_kernel_is_loaded_again_and_not_compiled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_compile, "_CACHE_FOLDER", str(tmp_path))
    before = kernels_compile.NUMBA.CACHE_DIR
    first = kernels_compile._compiled(doubled, [SIGNATURE])
    assert sum(first.stats.cache_misses.values()) == 1
    again = kernels_compile._compiled(doubled, [SIGNATURE])
    assert sum(again.stats.cache_hits.values()) == 1
    assert first(np.int64(21)) == again(np.int64(21)) == 42
    assert list(tmp_path.rglob("*.nbc"))
    assert before == kernels_compile.NUMBA.CACHE_DIR
