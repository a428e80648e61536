"""Turns errors of object stores into sparklog's, each with one sentence about the cause and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from sparklog.errors import PathNotFoundError, SeglogError, StorageError

_R = TypeVar("_R")

_SHOWN_MAX: Final = 300
_TRIES_MAX: Final = 4
_QUERY: Final = re.compile(r"\?[^\s\"')]*")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_CUT: Final = re.compile(r"body|decod|connection (closed|reset)|end of file|incomplete", re.IGNORECASE)
# Words in the answers of stores, and our sentence for each; the first that fits counts.
_CAUSES: Final = (
    (r"NoSuchBucket|ContainerNotFound|bucket does not exist", "there is no such bucket: check its name in the path"),
    (
        r"RequestTimeTooSkewed|Request time too skewed",
        "this machine's clock differs from the store's by more than it allows: set the clock",
    ),
    (
        r"ExpiredToken|TokenRefreshRequired|token.{0,20}expired|AuthenticationFailed.{0,200}Signature not valid in the",
        "its credentials have expired: get new ones",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|BadRegion|received redirect|"
        r"incorrect endpoint|status 301|301 Moved",
        "its bucket is in another region: give that as storage.region (or AWS_REGION)",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|InvalidToken|UnauthenticatedError|"
        r"status: 401|Unauthenticated|authentication credentials",
        "its credentials are not accepted: check the keys, and that they belong to this store",
    ),
    (
        r"AccessDenied|PermissionDenied|lacked the necessary privileges|status: 403|Forbidden|AuthorizationFailure|"
        r"Permission denied|AccessControlException",
        "these credentials may not do that: ask for the permission to list the bucket and read its objects",
    ),
    (
        r"MissingCredentials|no credentials|instance metadata|169\.254\.169\.254|MissingAccount|credential",
        "no credentials were found in the options, the environment, a profile or an instance role",
    ),
    (
        r"SlowDown|TooManyRequests|status: 429|ServerBusy|status: 503|Service Unavailable",
        "the store is overloaded and has refused all tries: try again later, or with fewer tasks",
    ),
    (r"dns error|Name or service not known|failed to lookup", "its host is not found: check the endpoint"),
    (r"Connection refused|ConnectError|error trying to connect|tcp connect", "its server does not answer"),
)


class ObjectReplacedError(StorageError):
    """An object is no longer the version that was listed."""


def to_error(error: BaseException, url: str, what: str = "read") -> SeglogError:
    """Translate the error of a request about a URL.

    Only the store's own words are shown, without queries of URLs, in which keys may be.
    """
    name = type(error).__name__
    if isinstance(error, SeglogError):
        return error
    if name == "PreconditionError":
        return ObjectReplacedError(
            f"{url} was replaced while it was read: its bytes are of another version than those before. Read again"
        )
    text = f"{name}: {error}"
    cause = next((sentence for pattern, sentence in _CAUSES if re.search(pattern, text, re.IGNORECASE)), None)
    if isinstance(error, FileNotFoundError) and (cause is None or "bucket" not in cause):
        return PathNotFoundError(f"no such file or folder: {url}")
    if isinstance(error, TimeoutError):
        cause = "its store did not answer in time"
    plain = _plain(text)
    return StorageError(f"cannot {what} {url}: {cause} ({plain})" if cause else f"cannot {what} {url}: {plain}")


def answered(ask: Callable[[], _R], url: str, what: str = "read") -> _R:
    """Return the answer of a request that changes nothing; one whose answer breaks off is repeated.

    The library itself repeats requests that are refused or get no answer, but not answers whose body is cut.
    """
    for left in range(_TRIES_MAX - 1, -1, -1):
        try:
            return ask()
        except SeglogError:
            raise
        except Exception as error:
            if not left or not _is_cut(error):
                # The library's own text has whole requests in it, with the keys that some stores put into them.
                raise to_error(error, url, what) from None
    raise AssertionError("the last try returns or raises")


def _is_cut(error: Exception) -> bool:
    return type(error).__name__ == "GenericError" and _CUT.search(str(error)) is not None


def _plain(text: str) -> str:
    """Return the first words of an error and the store's code, without the rest of an answer and without queries.

    A refused signature is answered with all that was signed.
    """
    code = _CODE.search(text)
    first = _QUERY.sub("", text.partition("Debug source")[0].partition("<")[0])
    plain = " ".join(f"{first} {code[1] if code else ''}".split())
    return plain if len(plain) <= _SHOWN_MAX else f"{plain[:_SHOWN_MAX]}..."
