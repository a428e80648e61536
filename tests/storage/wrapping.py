"""A storage that hands every call on to another one: what doubles are made from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Self

from sparklog.storage.base import (
    Capabilities,
    Entry,
    HeldLock,
    Name,
    ReadableFile,
    Stamp,
    WritableFile,
    WritableStorage,
)
from sparklog.storage.local_writing import LocalWritableStorage


class WrappedFile:
    """An open file of another storage."""

    def __init__(self, file: WritableFile) -> None:
        self.file = file

    @property
    def path(self) -> str:
        return self.file.path

    def size_bytes(self) -> int:
        return self.file.size_bytes()

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self.file.append(data)

    def append_from(self, path: str, position: int, length_bytes: int) -> None:
        self.file.append_from(path, position, length_bytes)

    def write_at(self, position: int, data: bytes) -> None:
        self.file.write_at(position, data)

    def truncate(self, size_bytes: int) -> None:
        self.file.truncate(size_bytes)

    def preallocate(self, size_bytes: int) -> None:
        self.file.preallocate(size_bytes)

    def begin_sync(self, position: int) -> None:
        self.file.begin_sync(position)

    def sync(self) -> None:
        self.file.sync()

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class WrappedStorage:
    """Another storage; by default that of this machine."""

    def __init__(self, inner: WritableStorage | None = None) -> None:
        self.inner: WritableStorage = LocalWritableStorage() if inner is None else inner

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def entries(self, path: str, wanted: Callable[[str], bool] | None = None) -> list[Entry]:
        return self.inner.entries(path, wanted)

    def names(self, path: str) -> list[Name]:
        return self.inner.names(path)

    def is_folder(self, path: str) -> bool:
        return self.inner.is_folder(path)

    def open(self, path: str) -> ReadableFile:
        return self.inner.open(path)

    def read_small(self, path: str) -> bytes | None:
        return self.inner.read_small(path)

    def absolute(self, path: str) -> str:
        return self.inner.absolute(path)

    def real(self, path: str) -> str:
        return self.inner.real(path)

    def is_link(self, path: str) -> bool:
        return self.inner.is_link(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        return self.inner.identity(path)

    def stamp(self, path: str) -> Stamp | None:
        return self.inner.stamp(path)

    def foresee(self, path: str, names: Sequence[str]) -> None:
        self.inner.foresee(path, names)

    def pinned(self, folders: Collection[str]) -> Self:  # noqa: ARG002
        return self

    def beneath(self, path: str) -> Self:  # noqa: ARG002
        # Doubles are told what they do after they were handed out.
        return self

    def open_for_append(self, path: str) -> WritableFile:
        return self.inner.open_for_append(path)

    def create(self, path: str, like: str = "") -> WritableFile:
        return self.inner.create(path, like)

    def keeps_owner(self, path: str) -> bool:
        return self.inner.keeps_owner(path)

    def rename(self, path: str, new_path: str) -> None:
        self.inner.rename(path, new_path)

    def remove(self, path: str) -> None:
        self.inner.remove(path)

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self.inner.set_modified_ns(path, modified_ns)

    def make_folder(self, path: str) -> None:
        self.inner.make_folder(path)

    def remove_folder(self, path: str) -> None:
        self.inner.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        self.inner.sync_folder(path)

    def sync_files(self, paths: Collection[str]) -> None:
        self.inner.sync_files(paths)

    def sync_folders(self, paths: Collection[str]) -> None:
        self.inner.sync_folders(paths)

    def lock(self, path: str, timeout_seconds: float, *, is_shared: bool = False, queue: str | None = None) -> HeldLock:
        return self.inner.lock(path, timeout_seconds, is_shared=is_shared, queue=queue)

    def claim(self, path: str, spelling: str) -> HeldLock:
        return self.inner.claim(path, spelling)

    def claimed_as(self, path: str) -> str | None:
        return self.inner.claimed_as(path)
