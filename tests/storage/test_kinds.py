"""What stands under a name that is no regular file and no folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sparklog.errors import PathNotFoundError
from sparklog.storage.kinds import special_kind, special_names


def test_every_kind_is_told_without_opening_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    links = {"to-file": "file", "to-folder": "folder", "to-pipe": "pipe", "to-nothing": "x", "one": "two", "two": "one"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "to-device").symlink_to("/dev/null")
    circle = "a symbolic link that leads in a circle"
    expected = {
        "pipe": "a FIFO",
        "socket": "a socket",
        "to-pipe": "a FIFO",
        "to-nothing": "a symbolic link that leads nowhere",
        "one": circle,
        "two": circle,
        "to-device": "a device",
    }
    assert special_names(str(tmp_path)) == expected
    for name in (*links, "file", "folder", "pipe", "socket", "to-device", "absent"):
        assert special_kind(str(tmp_path / name)) == expected.get(name)


def test_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError):
        special_names(str(tmp_path / "absent"))
