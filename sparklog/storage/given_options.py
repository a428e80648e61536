"""The options of storages that a user gives, checked, and the part of them that the storage of a path gets.

The names are in `Scheme.option_names`, such as ``endpoint``, with or without ``storage.`` before them; Spark and
property files need it. Names of secrets begin with ``secret.``, so that Spark shows none of their values in its event
log or its pages; `sparklog.storage.secret_values` has the form of the values. `sparklog.storage.hadoop_options` has
``fs.s3a.*``. A place gets the options that its storage knows. No error and no ``repr`` shows a value.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, NamedTuple

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.storage import hadoop_options
from sparklog.storage.registry import (
    Location,
    PathText,
    StorageOptions,
    known_schemes,
    locate,
    options_in_force,
    scheme_named,
)
from sparklog.storage.secret_values import SECRET_PREFIX, Secret, is_reference

OPTION_PREFIX: Final = "storage."
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
# Further names of secrets, as libraries and tools have them, and the name here.
_ALIASES: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "azure_storage_account_key": "account_key",
    "azure_storage_sas_key": "sas_key",
    "access_key": "account_key",
    "sas_token": "sas_key",
    "google_service_account_key": "service_account_key",
}
_log = logging.getLogger("sparklog")


class GivenOption(NamedTuple):
    """One option as it applies.

    Attributes
    ----------
    given : str
        Its name as the user gives it, for messages.
    schemes : frozenset of str
        The schemes that it is meant for; empty for all that know its name.
    bucket : str
        The only bucket that it is meant for; empty for all.
    """

    given: str
    name: str
    value: str
    schemes: frozenset[str] = frozenset()
    bucket: str = ""

    def __repr__(self) -> str:
        return self.given


@dataclass(frozen=True)
class GivenOptions:
    """The options of storages that a user gives, made by `parse_storage_options`; false if there are none.

    Attributes
    ----------
    options : tuple of GivenOption
        The options in order: if two apply to a place, the later one counts.
    used : set of str
        The names, as given, that a place has got; for warnings about the others.
    """

    options: tuple[GivenOption, ...] = ()
    used: set[str] = field(default_factory=set, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.options)

    def of_place(self, scheme: str, host: str, known: frozenset[str]) -> StorageOptions:
        """Return the options for a place, by name; see `sparklog.storage.registry.options_in_force`."""
        found: dict[str, str] = {}
        for each in self.options:
            is_meant = not each.schemes or scheme in each.schemes
            if each.name in known and is_meant and each.bucket in ("", host):
                found[each.name] = each.value
                self.used.add(each.given)
        return found

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Give these options to every place that is made within the ``with`` block, in this thread."""
        if not self:
            yield
            return
        with options_in_force(self.of_place):
            yield

    def warn_idle(self) -> None:
        """Warn about the options that no place has got so far."""
        idle = sorted({each.given for each in self.options} - self.used)
        if idle:
            _log.warning("no path is in a storage with such an option, so these do nothing: %s", ", ".join(idle))


def parse_storage_options(given: Mapping[str, Any], *, refuses_literals: bool = False) -> GivenOptions:
    """Check options of storages.

    Parameters
    ----------
    given : mapping of str to str
        The options; names in any case, with or without ``storage.``, or ``fs.s3a.*``.
    refuses_literals : bool
        Whether a secret must be a reference: the arguments of a command are seen by all users of its machine.

    Raises
    ------
    InvalidOptionError
        A name is unknown, or it is that of a secret without ``secret.``; or a value is not text, a number or a boolean;
        or two options that mean the same differ. No value is shown.
    """
    texts = {name.lower(): _text(name, value) for name, value in given.items()}
    hadoop = {name: text for name, text in texts.items() if name.startswith(hadoop_options.SETTINGS_PREFIX)}
    known = _known_names() if texts else frozenset()
    options = [
        GivenOption(each.given, each.name, _value(each, refuses_literals), _S3_SCHEMES, each.bucket)
        for each in sorted(hadoop_options.translate_settings(hadoop), key=lambda each: each.bucket != "")
    ]
    own: dict[str, str] = {}
    for name, text in texts.items():
        if name not in hadoop:
            option = GivenOption(name, _checked_name(name, known), text)
            if own.setdefault(option.name, text) != text:
                raise InvalidOptionError(f"{name} is given twice, under two names, and the values differ")
            options.append(option._replace(value=_value(option, refuses_literals)))
    return GivenOptions(tuple(options))


def split_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options, with names in lower case, into the options of storages and all others."""
    of_storages = {
        name: text for name, text in given.items() if name.startswith((OPTION_PREFIX, hadoop_options.SETTINGS_PREFIX))
    }
    return of_storages, {name: text for name, text in given.items() if name not in of_storages}


@contextmanager
def with_storage_options(given: Mapping[str, Any] | None) -> Iterator[None]:
    """Give options to every place that is made within the block; at its end, warn about those without effect."""
    if not given:
        yield
        return
    options = parse_storage_options(given)
    with options.in_force():
        yield
    options.warn_idle()


def place(path: PathText, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return the place of a path together with the options of its storage, for all functions that take a path.

    >>> import sparklog
    >>> logs = sparklog.place("s3://backup/logs", {"region": "eu-central-1"})  # doctest: +SKIP
    >>> sparklog.open_topic(logs)  # doctest: +SKIP

    Parameters
    ----------
    path : str or os.PathLike
        A path, a URL, or a pattern.
    storage_options : mapping of str to str, optional
        Such as ``endpoint`` and ``region``. Secrets are named ``secret.access_key_id`` and so on, with a value that
        says where to find it, ``env:VARIABLE`` or ``file:/path``, or with the secret itself.

    Raises
    ------
    InvalidOptionError
        No storage has such a path, or an option is wrong.
    """
    with with_storage_options(storage_options):
        return locate(path)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise InvalidOptionError(f"the option {name} of a storage must be text, a number or a boolean")
    return value if isinstance(value, str) else str(value)


def _known_names() -> frozenset[str]:
    schemes = [scheme_named(name) for name in known_schemes()]
    return reduce(frozenset.union, (each.option_names for each in schemes if each is not None), frozenset[str]())


def _checked_name(given: str, known: Iterable[str]) -> str:
    """Return the name of an option without its prefix, as storages have it."""
    known, name = set(known), given.removeprefix(OPTION_PREFIX)
    plain = name.removeprefix(SECRET_PREFIX)
    secret = SECRET_PREFIX + _ALIASES.get(plain, plain)
    if name in known or (name != plain and secret in known):
        return name if name in known else secret
    if secret in known:
        raise InvalidOptionError(
            f"{given} is a secret, which Spark's event log would show under this name: give it as "
            f"{OPTION_PREFIX}{secret}"
        )
    listed = f"there are {', '.join(sorted(known))}" if known else "no storage has options"
    raise InvalidOptionError(f"no option {given!r} of a storage: {did_you_mean(name, known, listed)}")


def _value(option: GivenOption | hadoop_options.TranslatedOption, refuses_literals: bool) -> str:
    if not option.name.startswith(SECRET_PREFIX):
        return option.value
    if not option.value:
        raise InvalidOptionError(f"{option.given} is empty")
    if is_reference(option.value):
        return option.value
    if refuses_literals:
        raise InvalidOptionError(
            f"{option.given} has the secret itself, which every user of this machine sees in the list of processes: "
            f"say where to find it, as env:VARIABLE or file:/path"
        )
    return Secret(option.value)
