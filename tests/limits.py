"""Runs a function in a process of its own that may have few files open, and counts open files."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any


def with_open_files(limit: int, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function of a module in a new process with this ``ulimit -n``; fail if it raises."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(limit, function, arguments))
    process.start()
    process.join(600)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0


def _run(limit: int, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    function(*arguments)


def descriptors_beneath(directory: Path) -> int:
    """How many files and folders of a directory this process has open."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            found += path.readlink().is_relative_to(directory)
        except FileNotFoundError:
            continue
    return found
