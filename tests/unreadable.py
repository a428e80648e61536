"""Files and folders that cannot be read, also by root: calls of the system fail for them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

Kind = Literal["folder", "file", "disk"]
KINDS: tuple[Kind, ...] = ("folder", "file", "disk")


def make_unreadable(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: Kind, from_position: int = 0) -> None:
    """Refuse to list a partition's folder or to open its log, or fail to read what the log has from a position on."""
    log = str(folder / f"{0:020d}.log")

    def fails(call: Callable[..., Any], is_meant: Callable[..., bool], number: int) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if is_meant(*args):
                raise OSError(number, os.strerror(number))
            return call(*args, **kwargs)

        return wrapped

    def is_bad_block(descriptor: int, _: Any, position: int) -> bool:
        return position >= from_position and str(Path(f"/proc/self/fd/{descriptor}").readlink()) == log

    if kind == "folder":
        monkeypatch.setattr(os, "scandir", fails(os.scandir, lambda path=".": str(path) == str(folder), errno.EACCES))
    elif kind == "file":
        monkeypatch.setattr(os, "open", fails(os.open, lambda path, *_: str(path) == log, errno.EACCES))
    else:
        for name in ("pread", "preadv"):
            monkeypatch.setattr(os, name, fails(getattr(os, name), is_bad_block, errno.EIO))
