"""Whether the unchecked accesses of compiled code can be held to their bounds, as the fuzz run relies on."""

import os
import subprocess
import sys

ACCESSES = """
import numpy as np
from numba import njit
from sparklog.record.kernels.memory import COPY_STEP_BYTES, big_endian_32, copy_step, item, load_64, memcpy, set_item

@njit
def read(kind, array, index):
    if kind == 0:
        return np.int64(item(array, index))
    if kind == 1:
        return np.int64(load_64(array, index))
    return np.int64(big_endian_32(array, index))

@njit
def write(kind, array, index, source):
    if kind == 0:
        set_item(array, index, 1)
    elif kind == 1:
        copy_step(array, index, source, 0)
    else:
        memcpy(array, index, source, 0, 5)

array, source = np.zeros(64, np.uint8), np.zeros(COPY_STEP_BYTES, np.uint8)
for access, widths in ((lambda *at: read(*at), (1, 8, 4)), (lambda *at: write(*at, source), (1, COPY_STEP_BYTES, 5))):
    for kind, width in enumerate(widths):
        access(kind, array, 0)
        access(kind, array, 64 - width)
        for index in (-1, 65 - width, 64, 1 << 40):
            try:
                access(kind, array, index)
            except IndexError:
                continue
            raise SystemExit(f"access {kind} of {width} bytes at {index} was let through")
"""


def test_accesses_outside_an_array_are_refused_when_bounds_are_checked() -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ACCESSES], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
