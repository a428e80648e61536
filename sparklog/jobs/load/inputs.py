"""Finds the files to load, and their order.

A source is a file, a pattern, or a folder with all files below it. Files come in the order of their names, sources in
the order of the arguments, and a file counts once, however often it is named. Names that begin with ``_`` or ``.`` are
skipped, such as ``_SUCCESS`` and ``_seglog``. Every other file of a folder must be of a known kind, since a file that
is skipped silently would be lost.

Folders that are named ``column=value`` give their files a column of text, as in Hive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from sparklog.errors import InvalidOptionError, PathNotFoundError, StorageError
from sparklog.log.files import META_PROPERTIES, parse_offset_file
from sparklog.log.places import join_path, split_path
from sparklog.storage.base import Entry, Storage
from sparklog.storage.registry import Location, expand, is_pattern

PARQUET, ARROW, CSV, JSON = "parquet", "arrow", "csv", "json"
INPUT_FORMATS: Final = (PARQUET, ARROW, CSV, JSON)
_FORMAT_OF_SUFFIX: Final[Mapping[str, str]] = MappingProxyType(
    {
        "parquet": PARQUET,
        "arrow": ARROW,
        "arrows": ARROW,
        "feather": ARROW,
        "ipc": ARROW,
        "csv": CSV,
        "json": JSON,
        "jsonl": JSON,
        "ndjson": JSON,
    }
)
_CODEC_OF_SUFFIX: Final[Mapping[str, str]] = MappingProxyType({"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"})
_PASSED_OVER: Final = ("_", ".")
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to load, as it was when it was found.

    Attributes
    ----------
    codec : str or None
        The compression of the whole file, by pyarrow's name for it; None for none.
    columns : tuple of (str, str or None)
        The columns that the names of its folders give, with their values.
    """

    storage: Storage
    path: str
    format: str
    codec: str | None
    size_bytes: int
    modified_ns: int
    columns: tuple[tuple[str, str | None], ...] = ()

    @property
    def name(self) -> str:
        """The name of the file in ledgers and errors: its path, with the scheme if it is not on this machine."""
        return str(Location(self.storage, self.path))


def find_files(sources: Sequence[Location], given_format: str | None = None) -> list[InputFile]:
    """Return the files of some sources, in their order.

    Parameters
    ----------
    given_format : str, optional
        The format of all files, one of `INPUT_FORMATS`; by default the names of the files tell.

    Raises
    ------
    InvalidOptionError
        A file is of an unknown kind.
    PathNotFoundError
        A source does not exist, or has no file.
    """
    found: dict[str, InputFile] = {}
    for source in sources:
        of_source = [file for place in _places(source) for file in _files_at(place, given_format)]
        if not of_source:
            raise PathNotFoundError(f"no file to load in {source.path}")
        found.update((each.name, each) for each in of_source if each.name not in found)
    return list(found.values())


def _places(located: Location) -> list[Location]:
    """Return the paths that a source stands for; a pattern omits the names that a folder would omit."""
    places = expand(located)
    if not is_pattern(located):
        return places
    return [place for place in places if not split_path(place.path)[1].startswith(_PASSED_OVER)]


def _files_at(place: Location, given_format: str | None) -> Iterator[InputFile]:
    storage, path = place
    if not storage.is_folder(path):
        yield _input_file(storage, path, given_format)
        return
    yield from _files_in(storage, path, given_format, {storage.identity(path)})


def _files_in(
    storage: Storage, folder: str, given_format: str | None, above: set[tuple[int, int] | None]
) -> Iterator[InputFile]:
    entries = storage.entries(folder)
    _refuse_logs(folder, entries)
    for entry in entries:
        path = join_path(folder, entry.name)
        if entry.name.startswith(_PASSED_OVER):
            continue
        if entry.is_folder:
            identity = storage.identity(path)
            if identity in above:
                raise StorageError(f"cannot walk {path}: its links lead round in a circle; remove the link")
            yield from _files_in(storage, path, given_format, above | {identity})
        elif entry.is_file:
            yield _input_file(storage, path, given_format)
        else:
            raise StorageError(f"cannot load {path}: it is {entry.special}, and not a file; take it out of the folder")


def _refuse_logs(folder: str, entries: Sequence[Entry]) -> None:
    """Raise `InvalidOptionError` for a folder that Kafka has written: an error about its first file would not help."""
    if any(entry.name == META_PROPERTIES or parse_offset_file(entry.name) for entry in entries):
        raise InvalidOptionError(
            f"{folder} has logs of Kafka, and files of rows are loaded: `sparklog copy` moves logs to logs"
        )


def _input_file(storage: Storage, path: str, given_format: str | None) -> InputFile:
    # A missing file is reported first, whatever its name.
    with storage.open(path) as file:
        kind, codec = _kind_of(path, given_format)
        return InputFile(storage, path, kind, codec, file.size_bytes(), file.modified_ns(), _columns_of(path))


def _kind_of(path: str, given_format: str | None) -> tuple[str, str | None]:
    found_format, codec = _kind(split_path(path)[1])
    kind = given_format or found_format
    if kind is None:
        known, codecs = (", ".join(f".{each}" for each in of) for of in (_FORMAT_OF_SUFFIX, _CODEC_OF_SUFFIX))
        raise InvalidOptionError(
            f"{path} is of an unknown kind: names end with {known}, those of text also with {codecs} after "
            f"that. Give its format, choose other files by a pattern, or make its name begin with _ to skip it"
        )
    if codec is not None and kind not in (CSV, JSON):
        raise InvalidOptionError(f"{path} is compressed as a whole, and is to be {kind}: decompress it first")
    return kind, codec


def _kind(name: str) -> tuple[str | None, str | None]:
    """Return the format and the compression of a file, by the end of its name."""
    stem, _, last = name.lower().rpartition(".")
    codec = _CODEC_OF_SUFFIX.get(last) if stem else None
    if codec is not None:
        last = stem.rpartition(".")[2]
    return _FORMAT_OF_SUFFIX.get(last), codec


def _columns_of(path: str) -> tuple[tuple[str, str | None], ...]:
    columns: dict[str, str | None] = {}
    folder = split_path(path)[0]
    while folder != "/":
        folder, name = split_path(folder)
        column, is_column, value = name.partition("=")
        if is_column and column:
            columns.setdefault(unquote(column), None if value == _HIVE_NULL else unquote(value))
    return tuple(reversed(columns.items()))
