"""Translates the settings of Hadoop's S3A, ``fs.s3a.*``, to options of a storage.

Settings of one bucket, ``fs.s3a.bucket.NAME.*``, apply to that bucket only. A setting that has no counterpart here is
named in a warning, because most of the hundred are about how Hadoop itself works; so is one that is misspelt.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from sparklog.errors import InvalidOptionError, nearest

SETTINGS_PREFIX: Final = "fs.s3a."
_BUCKET: Final = "bucket."
_SSL: Final = "connection.ssl.enabled"
_PROVIDERS: Final = "aws.credentials.provider"
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
# Credentials are looked for in all these places anyway.
_KNOWN_PROVIDERS: Final = frozenset(
    {
        *("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider", _ANONYMOUS),
        *("EnvironmentVariableCredentialsProvider", "ProfileCredentialsProvider", "DefaultCredentialsProvider"),
        *("DefaultAWSCredentialsProviderChain", "IAMInstanceCredentialsProvider", "InstanceProfileCredentialsProvider"),
        *("ContainerCredentialsProvider", "EC2ContainerCredentialsProviderWrapper"),
    }
)
_log = logging.getLogger("sparklog")


class TranslatedOption(NamedTuple):
    """An option of a storage that comes from a setting.

    Attributes
    ----------
    given : str
        The setting's name, as the user gives it.
    bucket : str
        The only bucket that it applies to; empty for all.
    """

    given: str
    name: str
    value: str
    bucket: str


def _same(text: str, _: str) -> str:
    return text


def _not(text: str, given: str) -> str:
    return "false" if _is_true(text, given) else "true"


def _is_true(text: str, given: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidOptionError(f"{given} must be true or false; its value is not shown here")
    return text.strip().lower() == "true"


def _time(text: str, given: str) -> str:
    found = re.fullmatch(r"\s*([0-9]{1,12})\s*(ms|s|m|h)?\s*", text)
    if found is None:
        raise InvalidOptionError(f"{given} must be a time, ms or such as 30s; its value is not shown here")
    return f"{found[1]}{found[2] or 'ms'}"


def _number(text: str, given: str) -> str:
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", text) is None:
        raise InvalidOptionError(f"{given} must be a whole number; its value is not shown here")
    return text.strip()


_NAMES: Final[Mapping[str, tuple[str, Callable[[str, str], str]]]] = {
    "access.key": ("secret.access_key_id", _same),
    "secret.key": ("secret.secret_access_key", _same),
    "session.token": ("secret.session_token", _same),
    "endpoint": ("endpoint", _same),
    "endpoint.region": ("region", _same),
    "path.style.access": ("virtual_hosted_style_request", _not),
    "attempts.maximum": ("max_retries", _number),
    "connection.timeout": ("timeout", _time),
}
SETTINGS: Final = (*_NAMES, _SSL, _PROVIDERS)
"""The settings that have a counterpart here, without their prefix."""


def translate_settings(given: Mapping[str, str]) -> list[TranslatedOption]:
    """Translate settings, with names in lower case that begin with `SETTINGS_PREFIX`; warn about names without effect.

    Raises
    ------
    InvalidOptionError
        A setting has a value that S3A does not take, or names a provider of credentials that is not known here. The
        value is not shown.
    """
    by_bucket: dict[str, dict[str, str]] = {}
    for name, text in given.items():
        bucket, setting = _parts(name)
        if setting in SETTINGS:
            by_bucket.setdefault(bucket, {})[setting] = text
        else:
            likely = nearest(setting, SETTINGS, cutoff=0.8)
            hint = f"; did you mean {name[: len(name) - len(setting)]}{likely[0]}?" if likely else ""
            _log.warning("the option %s does nothing here%s", name, hint)
    of_all = by_bucket.get("", {})
    return [
        option
        for bucket, settings in by_bucket.items()
        for option in _translated(bucket, settings, of_all.get(_SSL) if _SSL not in settings else settings[_SSL])
    ]


def _parts(name: str) -> tuple[str, str]:
    """Split a name into its bucket, which may have dots and is empty for all buckets, and the setting."""
    setting = name.removeprefix(SETTINGS_PREFIX)
    if not setting.startswith(_BUCKET):
        return "", setting
    within = setting.removeprefix(_BUCKET)
    known = max((each for each in SETTINGS if within.endswith(f".{each}")), key=len, default="")
    bucket, _, rest = within.partition(".")
    return (within[: -len(known) - 1], known) if known else (bucket, rest)


def _translated(bucket: str, settings: Mapping[str, str], ssl: str | None) -> Iterator[TranslatedOption]:
    prefix = f"{SETTINGS_PREFIX}{_BUCKET}{bucket}." if bucket else SETTINGS_PREFIX
    has_ssl = ssl is None or _is_true(ssl, prefix + _SSL)
    for setting, text in settings.items():
        given = prefix + setting
        if setting == _PROVIDERS:
            if _is_anonymous(text, given):
                yield TranslatedOption(given, "skip_signature", "true", bucket)
        elif setting == "endpoint":
            url = text if "://" in text else f"{'https' if has_ssl else 'http'}://{text}"
            yield TranslatedOption(given, "endpoint", url, bucket)
            if url.lower().startswith("http:"):
                yield TranslatedOption(given, "allow_http", "true", bucket)
        elif setting != _SSL:
            name, convert = _NAMES[setting]
            yield TranslatedOption(given, name, convert(text, given), bucket)


def _is_anonymous(text: str, given: str) -> bool:
    """Return whether a list of providers of credentials is only the one for none; refuse an unknown one."""
    classes = [each.strip().rpartition(".")[2] for each in text.replace("\n", ",").split(",") if each.strip()]
    if not set(classes) <= _KNOWN_PROVIDERS:
        raise InvalidOptionError(
            f"{given} has a class that cannot run without Hadoop; known are {', '.join(sorted(_KNOWN_PROVIDERS))}. "
            f"With other providers, put the credentials into the environment, or give them as fs.s3a.access.key, "
            f"fs.s3a.secret.key and fs.s3a.session.token"
        )
    return classes == [_ANONYMOUS]
