"""Finds the storage of a path: the only module that parses the text of a path.

A path is text, a `pathlib.Path`, or a URL. Without a scheme it is a path of this machine, and so is ``file:``; ``~``
and ``~user`` at its beginning are home folders. ``*``, ``?`` and ``[...]`` stand for existing names, as in a shell,
unless something has that very name. Text that looks like a scheme is one: write a relative path with a colon in its
first name as ``./name:rest``.

Every process finds a scheme by its name: in the table here, or among the entry points ``sparklog.storages`` of all
installed packages, each a `Scheme`. In a storage that is not this machine's, a path is a whole URL,
``s3://bucket/logs``, so that errors name it as its users do; and ``s3://bucket`` is its root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import translate
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, NamedTuple, cast
from urllib.parse import unquote

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.storage.base import Storage
from sparklog.storage.local_writing import LocalWritableStorage

_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(//(?P<host>[^/]*))?")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*")
_NOT_UNICODE: Final = re.compile(r"[\x00\ud800-\udfff]")
_PATTERN: Final = re.compile(r"[*?\[]")
_LOCAL: Final = "file"
_MAY_BE_PACKED: Final = re.compile(r"\.(tar|tgz|tzst|zip|gz|zst)(/|$)", re.IGNORECASE)
_ENTRY_POINTS: Final = "sparklog.storages"


class Location(NamedTuple):
    """A place: a path, absolute and without a scheme, and its storage, with all that the storage needs.

    It is made once, where the text of a path comes in, and passed from there to all code that reads or writes, tasks
    included. Its pickle is small.
    """

    storage: Storage
    path: str

    def __str__(self) -> str:
        """Return text that stands for the same place wherever we run, and that `locate` understands."""
        is_url = self.storage.scheme == _LOCAL or _URL.match(self.path) is not None
        return self.path if is_url else f"{self.storage.scheme}:{self.path}"


PathText = str | os.PathLike[str] | Location
"""A path as a user gives it; a place stands for itself."""


class Url(NamedTuple):
    """The parts of a URL, as written."""

    host: str
    path: str


StorageOptions = Mapping[str, str]
"""Options of a storage by name, such as ``endpoint``; see `sparklog.storage.given_options`."""


class Scheme(NamedTuple):
    """Reads the URLs of one scheme.

    Attributes
    ----------
    open_storage : callable
        Makes the storage of a URL with the options of its user, and sends no request.
    plain_path : callable
        Returns the path of a URL as the storage names it. ``argument`` and the given ``text`` are for errors.
    option_names : frozenset of str
        The names of the options that the storage understands.
    """

    open_storage: Callable[[Url, StorageOptions], Storage]
    plain_path: Callable[[Url, str, str], str]
    option_names: frozenset[str] = frozenset()


OptionsOf = Callable[[str, str, frozenset[str]], StorageOptions]
"""Returns the options for a place by its scheme, its host, and the names that the scheme knows."""

_options_of: ContextVar[OptionsOf] = ContextVar("options_of", default=lambda _scheme, _host, _known: {})


@contextmanager
def options_in_force(options_of: OptionsOf) -> Iterator[None]:
    """Give options to every place that `locate` makes within the ``with`` block, in this thread."""
    token = _options_of.set(options_of)
    try:
        yield
    finally:
        _options_of.reset(token)


def _local_storage(_url: Url, _options: StorageOptions) -> Storage:
    return LocalWritableStorage()


def _local_path(url: Url, argument: str, text: str) -> str:
    if url.host.lower() not in ("", "localhost"):
        raise InvalidOptionError(
            f"{argument} is a URL of the host {url.host!r}: {text!r}; a file of this machine is file:///path"
        )
    return unquote(url.path, errors="surrogateescape")


_schemes: dict[str, Scheme] = {_LOCAL: Scheme(_local_storage, _local_path)}
_OBJECTS: Final = ("s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "abfs", "abfss", "http", "https", "memory", "hdfs")
_BUILT_IN: Final[Mapping[str, str]] = dict.fromkeys(_OBJECTS, "sparklog.storage.objects.scheme")
"""The modules of further schemes, each with a table ``SCHEMES``; they are imported when a path first has the scheme."""


def register_scheme(name: str, scheme: Scheme) -> None:
    """Have URLs of one more scheme understood in this process."""
    _schemes[name.lower()] = scheme


def scheme_named(name: str) -> Scheme | None:
    """Return the scheme of a name, in lower case; None if no storage has it."""
    if name not in _schemes:
        if name in _BUILT_IN:
            _schemes[name] = import_module(_BUILT_IN[name]).SCHEMES[name]
        for found in entry_points(group=_ENTRY_POINTS, name=name):
            _schemes.setdefault(name, found.load())
    return _schemes.get(name)


def known_schemes() -> list[str]:
    """Return the names of all schemes, sorted."""
    return sorted({*_schemes, *_BUILT_IN, *entry_points(group=_ENTRY_POINTS).names})


def paths_of(given: PathText | Sequence[PathText]) -> list[PathText]:
    """Return one or several paths as a list."""
    is_one = isinstance(given, str | Location) or not isinstance(given, Sequence)
    return [cast(PathText, given)] if is_one else list(cast(Sequence[PathText], given))


def locate(path: PathText, argument: str = "path", options: StorageOptions | None = None) -> Location:
    """Return the storage for a path or URL, and the path as that storage names it; a pattern stays one.

    The storage gets its part of the options in force, see `options_in_force`; a place keeps its own.

    Parameters
    ----------
    path : str, PathLike or Location
        Relative to the current directory, unless absolute.
    argument : str
        The name of the user's option or argument, for errors.
    options : mapping of str to str, optional
        The options of the storage, instead of the options in force; names that it does not know have no effect.

    Raises
    ------
    InvalidOptionError
        The path is empty, or no file can have it, or no storage here has its scheme or host.
    """
    if isinstance(path, Location):
        return path
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidOptionError(f"{argument} must be text or a Path, got {path!r}")
    found = _SCHEME.match(text) if isinstance(path, str) else None
    name = _LOCAL if found is None else found["scheme"].lower()
    scheme = scheme_named(name)
    if scheme is None:
        known = ", ".join(f"{each}:" for each in known_schemes())
        raise InvalidOptionError(
            f"no storage for '{name}:' paths: {argument} is {text!r}; supported are {known} or no scheme "
            f"(a relative path with a colon in its first name begins with './')"
        )
    url = Url("", _with_home(text)) if found is None else _url(text, found)
    plain = url.path if found is None else scheme.plain_path(url, argument, text)
    if not plain.strip():
        raise InvalidOptionError(f"{argument} is empty: {text!r}; to say the folder that this runs in, write '.'")
    if _NOT_UNICODE.search(plain):
        raise InvalidOptionError(f"{argument} has a character that no path may have, NUL or invalid Unicode: {text!r}")
    if options is None:
        options = _options_of.get()(name, url.host, scheme.option_names)
    storage = scheme.open_storage(url, options)
    plain = storage.absolute(plain)
    return Location(_packed(storage, plain) or storage, plain)


def _packed(storage: Storage, path: str) -> Storage | None:
    """Return the archive that a path leads to or into, as a storage; None if none of its names is an archive's."""
    if not _MAY_BE_PACKED.search(path):
        return None
    # Compression is not needed for other paths.
    from sparklog.storage.packed.storage import packed_at

    return packed_at(storage, path)


def expand(location: Location) -> list[Location]:
    """Return the locations that match a pattern, sorted; a path without a pattern matches itself.

    A part of the path is a pattern if it has ``*``, ``?`` or ``[`` in it and nothing has that very name. The parts
    after the last pattern need not exist: a topic's path without a partition number is no folder.

    Raises
    ------
    PathNotFoundError
        Nothing matches.
    """
    storage, path = location
    if not is_pattern(location):
        return [location]
    root, parts = _parts(path)
    found = sorted(set(_matches(storage, root, parts)))
    if not found:
        raise PathNotFoundError(f"nothing matches {path}")
    return [Location(_packed(storage, each) or storage, each) for each in found]


def expand_one(location: Location, argument: str = "path") -> Location:
    """Return the only location that a path matches.

    Raises
    ------
    PathNotFoundError
        It is a pattern, and nothing matches.
    InvalidOptionError
        It is a pattern, and more than one thing matches.
    """
    found = expand(location)
    if len(found) > 1:
        raise InvalidOptionError(
            f"{argument} is to be one path, and {len(found)} match {location.path}, such as {found[0].path} and "
            f"{found[1].path}"
        )
    return found[0]


def is_pattern(location: Location) -> bool:
    """Return whether a path is a pattern."""
    storage, path = location
    return _PATTERN.search(path) is not None and storage.identity(path) is None and _first_pattern(storage, path) >= 0


def _first_pattern(storage: Storage, path: str) -> int:
    """Return the index of the first part of a path that is a pattern; -1 if none is."""
    root, parts = _parts(path)
    for row, part in enumerate(parts):
        if _PATTERN.search(part) and storage.identity("/".join((root, *parts[: row + 1]))) is None:
            return row
    return -1


def _parts(path: str) -> tuple[str, list[str]]:
    """Split a path into its root, without the slash at its end, and the names from there on."""
    found = _URL.match(path)
    root = "" if found is None else found[0]
    return root, path[len(root) :].strip("/").split("/")


def _matches(storage: Storage, parent: str, parts: list[str]) -> Iterator[str]:
    """Yield the paths below an existing folder that match the parts of a path."""
    part, rest = parts[0], parts[1:]
    path = f"{parent}/{part}"
    if not _PATTERN.search(part) or storage.identity(path) is not None:
        if not rest:
            yield path
        elif not any(_PATTERN.search(each) for each in rest):
            yield "/".join((path, *rest))
        elif storage.is_folder(path):
            yield from _matches(storage, path, rest)
        return
    matches = re.compile(translate(part)).fullmatch
    for each in storage.names(parent or "/"):
        if not matches(each.name) or (each.name.startswith(".") and not part.startswith(".")):
            continue
        if not rest:
            yield f"{parent}/{each.name}"
        elif each.is_folder:
            yield from _matches(storage, f"{parent}/{each.name}", rest)


def _with_home(text: str) -> str:
    return os.path.expanduser(text) if text.startswith("~") else text  # noqa: PTH111 - Path would drop the dots


def _url(text: str, found: re.Match[str]) -> Url:
    return Url(found["host"] or "", text[found.end() :])
