"""Reads the small files that options name, and writes small files for programs that take paths."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.storage.base import Storage
from sparklog.storage.registry import PathText, locate

_FOLDERS_DEEP_MAX: Final = 8


def read_file(path: PathText, argument: str = "path") -> bytes:
    """Return the content of a file; `PathNotFoundError` where there is none."""
    storage, place = locate(path, argument)
    data = storage.read_small(place)
    if data is None:
        raise PathNotFoundError(f"no such file: {place}")
    return data


def read_files(path: PathText, argument: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Read a file, or the wanted files in a folder.

    Parameters
    ----------
    path : str or PathLike
        A file of any name, or a folder. In a folder, names that begin with a dot are left out.
    argument : str
        The name of the user's option or argument, for errors.
    wanted : callable
        Takes a file's name and returns whether to read the file. The name of a file in a subfolder has the
        subfolder's name and a slash before it.

    Returns
    -------
    dict of str to bytes
        The contents by file name, sorted by name.

    Raises
    ------
    PathNotFoundError
        There is nothing at the path.
    InvalidOptionError
        No file of the folder is wanted.
    """
    storage, place = locate(path, argument)
    parent, _, own_name = place.rpartition("/")
    names = [own_name]
    if storage.is_folder(place):
        parent = place
        visible = sorted(_visible(storage, place, "", 0))
        names = [name for name in visible if wanted(name)]
        if not names:
            there = f"such as {visible[0]!r}" if visible else "and there is none"
            raise InvalidOptionError(
                f"{argument} is the folder {place}, where no file has a name that is read, {there}"
            )
    contents = {name: storage.read_small(f"{parent}/{name}") for name in names}
    missing = [name for name, content in contents.items() if content is None]
    if missing:
        raise PathNotFoundError(f"{argument} is {parent}/{missing[0]}, and no file is there")
    return {name: content for name, content in contents.items() if content is not None}


def _visible(storage: Storage, folder: str, within: str, depth: int) -> Iterator[str]:
    """Yield the names of the files in a folder and its subfolders, a few levels deep."""
    for each in storage.names(f"{folder}/{within}" if within else folder):
        if each.name.startswith("."):
            continue
        if not each.is_folder:
            yield f"{within}{each.name}"
        elif depth < _FOLDERS_DEEP_MAX:
            yield from _visible(storage, folder, f"{within}{each.name}/", depth + 1)


@contextmanager
def scratch_folder(files: Mapping[str, bytes]) -> Iterator[str]:
    """Make a folder with some files in it, which lasts as long as the ``with`` block, and return its path.

    Names may have folders, which are made too; raise `InvalidOptionError` if a name leads out of the folder.
    """
    with tempfile.TemporaryDirectory(prefix="sparklog-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            if ".." in path.parts or not path.is_relative_to(folder) or path == Path(folder):
                raise InvalidOptionError(f"{name!r} is no name of a file in a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield folder
