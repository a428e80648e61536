"""Compiles the kernels of a read ahead, in a process of its own, where none of this user and machine has done so yet.

Spark takes seconds from its first look at a read to the first record that a task decodes, and only then would the tasks
begin to compile. The process compiles what takes longest first, and tasks begin with what takes least: they meet.
No kernel is compiled twice, since each is by one process while others wait: see `sparklog.record.kernels.cache`. Where
the process fails or is killed, tasks compile what it has not.

It runs where a read is planned. Where tasks run on other machines, each of those compiles when it first reads.
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
"""What a read of v2 batches needs, the other way round than it asks for them."""

_PROGRAM: Final = "import sys; sys.path[:] = {path}; from sparklog.record.kernels.warm_up import load; load({names})"


@functools.cache
def compile_for_reading() -> subprocess.Popen[bytes] | None:
    """Begin to compile what a read needs, once in a process, unless all of it is kept or another process does so.

    Returns
    -------
    subprocess.Popen or None
        The process, which nobody has to wait for; None where there is nothing to do, or nothing could be kept.
    """
    folders, _ = find_folders()
    if not folders or not can_be_written(folders[-1]):
        return None
    if all(is_kept(folders, f"sparklog.record.kernels.{kernel}") for kernel in READING):
        return None
    program = _PROGRAM.format(path=sys.path, names=[kernel.rpartition(".")[2] for kernel in READING])
    with suppress(OSError), opened(folders[-1]) as within, file_within(within, "ahead.turn") as turn:
        # Of this kind of lock, which the process inherits and which ends with it.
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[turn.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return None
