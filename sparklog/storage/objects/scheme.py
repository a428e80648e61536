"""The URLs of object stores.

``s3://bucket/key`` (also ``s3a``, ``s3n``), ``gs://bucket/key``, ``az://container/key``,
``abfss://container@account.dfs.core.windows.net/key`` (also ``abfs``), ``hdfs://host:port/path`` or
``hdfs://nameservice/path``, ``http(s)://host/path`` of a WebDAV server, and ``memory://name/key``, which lasts as long
as the process. Names in them are taken as they are written, without escapes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.storage.base import Storage
from sparklog.storage.objects.storage import ObjectStorage
from sparklog.storage.objects.stores import OPTION_NAMES
from sparklog.storage.registry import Scheme, StorageOptions, Url

_SAME: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "azure": "az", "gcs": "gs"}
"""Other spellings of a scheme, and the one that paths have."""


def _root(name: str, url: Url) -> str:
    return f"{_SAME.get(name, name)}://{url.host}"


def _storage(name: str, url: Url, options: StorageOptions) -> Storage:
    known = OPTION_NAMES[_SAME.get(name, name)]
    return ObjectStorage(_root(name, url), tuple(sorted((key, text) for key, text in options.items() if key in known)))


def _path(name: str, url: Url, argument: str, text: str) -> str:
    if not url.host:
        raise InvalidOptionError(f"{argument} names no bucket: {text!r}; write {name}://bucket/path")
    if any(sign in url.host for sign in "*?["):
        raise InvalidOptionError(f"{argument} has a pattern for the bucket: {text!r}; buckets are named one by one")
    return f"{_root(name, url)}{url.path}"


SCHEMES: Final = {
    name: Scheme(partial(_storage, name), partial(_path, name), OPTION_NAMES[_SAME.get(name, name)])
    for name in (*OPTION_NAMES, *_SAME)
}
