"""Reads the credentials of a profile of AWS, as its tools do, which `obstore` does not.

Profiles are in ``~/.aws/credentials`` and ``~/.aws/config`` (or where ``AWS_SHARED_CREDENTIALS_FILE`` and
``AWS_CONFIG_FILE`` say). Only profiles with keys are read; others, of single sign-on say, are to be put into the
environment first:
``aws configure export-credentials --format env``.
"""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.storage.process import environment_value

_FILES: Final = (
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", ""),
    ("AWS_CONFIG_FILE", "~/.aws/config", "profile "),
)
_KEYS: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
}


def profile_credentials(profile: str | None) -> dict[str, str]:
    """Return the keys and the region of a profile; empty if none is named and the environment has keys.

    Parameters
    ----------
    profile : str or None
        Its name; by default that in ``AWS_PROFILE``, then ``default``.

    Raises
    ------
    InvalidOptionError
        The named profile has no keys.
    """
    if profile is None and environment_value("AWS_ACCESS_KEY_ID") is not None:
        return {}
    wanted = profile or environment_value("AWS_PROFILE")
    found: dict[str, str] = {}
    for variable, usual, prefix in _FILES:
        name = wanted or "default"
        section = name if not prefix or name == "default" else f"{prefix}{name}"
        found = _section(environment_value(variable) or usual, section) | found
    if wanted is not None and "access_key_id" not in found:
        raise InvalidOptionError(
            f"the profile {wanted!r} of AWS has no access key in its files: put its credentials into the environment, "
            f"by 'aws configure export-credentials --profile {wanted} --format env'"
        )
    return found if "access_key_id" in found or wanted is not None else {}


def _section(path: str, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(Path(path).expanduser(), encoding="utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError):
        return {}
    if not parser.has_section(section):
        return {}
    return {ours: parser[section][theirs] for theirs, ours in _KEYS.items() if theirs in parser[section]}
