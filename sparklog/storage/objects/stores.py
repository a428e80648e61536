"""The object stores that this process has opened, one for each bucket and set of options.

A store holds connections and credentials; it is made in each process from the names and options in a place, and never
pickled. Credentials come from the options; otherwise from the environment, from a profile of AWS, and from the role of
the machine or the container, in this order.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from sparklog.errors import InvalidOptionError
from sparklog.storage.objects.backend import Backend, ObjectBackend
from sparklog.storage.objects.hdfs import HdfsBackend
from sparklog.storage.objects.profiles import profile_credentials
from sparklog.storage.objects.wire import library
from sparklog.storage.process import ProcessState
from sparklog.storage.secret_values import SECRET_PREFIX as SECRET
from sparklog.storage.secret_values import looked_up

Options = tuple[tuple[str, str], ...]
"""Names and values, sorted, so that a storage can be compared and hashed."""

_CLIENT: Final = ("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url", "user_agent")
_RETRIES: Final = ("max_retries", "retry_timeout_seconds")
_COMMON: Final = frozenset({*_CLIENT, *_RETRIES, "skip_signature"})
_S3: Final = _COMMON | {
    *("region", "endpoint", "virtual_hosted_style_request", "imdsv1_fallback", "request_payer", "s3_express"),
    *("unsigned_payload", "role_arn", "role_session_name", "web_identity_token_file", "sts_endpoint", "profile"),
    *(f"{SECRET}access_key_id", f"{SECRET}secret_access_key", f"{SECRET}session_token"),
}
_GCS: Final = _COMMON | {
    *("endpoint", "service_account_path", "application_credentials"),
    f"{SECRET}service_account_key",
}
_AZURE: Final = _COMMON | {
    *("account_name", "endpoint", "tenant_id", "client_id", "federated_token_file", "use_azure_cli", "use_emulator"),
    *(f"{SECRET}account_key", f"{SECRET}sas_key", f"{SECRET}client_secret", f"{SECRET}token"),
}
OPTION_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "s3": _S3,
    "gs": _GCS,
    "az": _AZURE,
    "abfss": _AZURE,
    "http": frozenset({*_CLIENT, *_RETRIES}),
    "https": frozenset({*_CLIENT, *_RETRIES}),
    "memory": frozenset(),
    "hdfs": frozenset(),
}
"""The options of each kind of store."""

_ROOT: Final = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<host>[^/]*)")
_opened: dict[tuple[str, Options], Backend] = {}
_process: Final = ProcessState(threading.Lock, _opened)


def store_of(root: str, options: Options) -> Backend:
    """Return the store of a root, such as ``s3://bucket``, and its options.

    Raises
    ------
    InvalidOptionError
        An option has a value that the library does not take; the value is not shown.
    """
    with _process.lock:
        found = _opened.get((root, options))
        if found is None:
            found = _opened[root, options] = _made(root, {name: looked_up(name, text) for name, text in options})
        return found


def _made(root: str, options: dict[str, str]) -> Backend:
    if root.startswith("hdfs:"):
        return HdfsBackend(root)
    return ObjectBackend(root, _store(root, options))


def _store(root: str, options: dict[str, str]) -> Any:
    stores, parts = library().store, _ROOT.fullmatch(root)
    if parts is None:
        raise AssertionError(f"the root of a store, and not {root!r}")
    scheme, host = parts["scheme"], parts["host"]
    client: dict[str, Any] = {name: options.pop(name) for name in _CLIENT if name in options}
    settings: dict[str, Any] = {"client_options": client or None, "retry_config": _retries(options)}
    config: dict[str, Any] = {name.removeprefix(SECRET): value for name, value in options.items()}
    try:
        if scheme == "s3":
            return _s3(stores, host, config, settings)
        if scheme == "gs":
            return stores.GCSStore(host, config=config, **settings)
        if scheme in ("az", "abfss"):
            container, _, account_host = host.partition("@")
            if account_host:
                config.setdefault("account_name", account_host.split(".")[0])
            return stores.AzureStore(container, config=config, **settings)
        if scheme == "memory":
            return stores.MemoryStore()
        if scheme == "http":
            settings["client_options"] = {"allow_http": True, **client}
        return stores.HTTPStore.from_url(root, **settings)
    except Exception as error:
        # The library's text may show the value.
        raise InvalidOptionError(
            f"the store {root} cannot be opened with these options ({', '.join(sorted(config) or ['none'])}): "
            f"{type(error).__name__}"
        ) from None


def _s3(stores: Any, bucket: str, config: dict[str, Any], settings: dict[str, Any]) -> Any:
    profile = config.pop("profile", None)
    if "access_key_id" not in config and "skip_signature" not in config:
        config |= {name: value for name, value in profile_credentials(profile).items() if name not in config}
    return stores.S3Store(bucket, config=config, **settings)


def _retries(options: dict[str, str]) -> dict[str, Any]:
    """Take the options about retries; the library's own limits are 10 tries within 3 minutes."""
    tries, seconds = (options.pop(name, None) for name in _RETRIES)
    try:
        return {
            "max_retries": 6 if tries is None else int(tries),
            "retry_timeout": timedelta(seconds=60 if seconds is None else float(seconds)),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=8), "base": 2},
        }
    except (ValueError, OverflowError):
        raise InvalidOptionError("storage.max_retries and storage.retry_timeout_seconds are numbers") from None
