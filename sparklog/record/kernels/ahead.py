"""Compiles the kernels of a read early, in a separate process, unless they are compiled for this user and machine.

Spark takes seconds from its first look at a read to the first record that a task decodes, and only then would the tasks
begin to compile. The process compiles the slowest kernels first, and tasks begin with the fastest ones: they meet. No
kernel is compiled twice, since one process compiles it while others wait: see `sparklog.record.kernels.cache`. If the
process fails or is killed, tasks compile the remaining kernels.

It runs on the machine that plans a read. If tasks run on other machines, each of these compiles when it first reads.
"""

from __future__ import annotations

import fcntl
import functools
import subprocess
import sys
from contextlib import suppress
from typing import Final

from sparklog.record.kernels.folders import can_be_written, file_within, find_folders, is_kept, opened

READING: Final = (
    "v2.decode_records",
    "scan.first_wrong_crc",
    "scan.capacity",
    "scan.summary",
    "scan.set_lowest_offsets",
    "scan.scan",
)
"""The kernels that a read of v2 batches needs, in the reverse order of their first use."""

_PROGRAM: Final = "import sys; sys.path[:] = {path}; from sparklog.record.kernels.warm_up import warm; warm({names})"


@functools.cache
def compile_for_reading() -> subprocess.Popen[bytes] | None:
    """Start compiling the kernels of a read, once in a process, unless all are saved or another process compiles them.

    Returns
    -------
    subprocess.Popen or None
        The process, which the caller need not wait for; None if there is nothing to do, or nowhere to save kernels.
    """
    folders, _ = find_folders()
    if not folders or not can_be_written(folders[-1]):
        return None
    if all(is_kept(folders, f"sparklog.record.kernels.{kernel}") for kernel in READING):
        return None
    program = _PROGRAM.format(path=sys.path, names=[kernel.rpartition(".")[2] for kernel in READING])
    with suppress(OSError), opened(folders[-1]) as within, file_within(within, "ahead.turn") as turn:
        # The process inherits this kind of lock, which ends with it.
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[turn.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return None
