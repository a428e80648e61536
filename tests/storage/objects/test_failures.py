"""Errors of stores: one sentence about the cause, the URL, and no secret."""

from __future__ import annotations

import pytest

from sparklog.errors import PathNotFoundError, StorageError
from sparklog.storage.objects.failures import ObjectReplacedError, answered, to_error

URL = "s3://bucket/logs/events-0"


class GenericError(Exception):
    """Named like the library's."""


class PermissionDeniedError(Exception):
    """Named like the library's."""


class PreconditionError(Exception):
    """Named like the library's."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("Object at location x not found: ... <Code>NoSuchBucket</Code>"), "there is no such bucket"),
        (GenericError("Server returned: <Code>RequestTimeTooSkewed</Code>"), "set the clock"),
        (GenericError("status 400 Bad Request: <Code>ExpiredToken</Code>"), "its credentials have expired"),
        (GenericError("<Code>AuthorizationHeaderMalformed</Code> the region 'x' is wrong"), "another region"),
        (GenericError("Received redirect without LOCATION, this normally indicates an incorrectly"), "another region"),
        (PermissionDeniedError("<Code>InvalidAccessKeyId</Code>"), "credentials are not accepted"),
        (PermissionDeniedError("The operation lacked the necessary privileges"), "may not do that"),
        (GenericError("after 6 retries, status: 503 <Code>SlowDown</Code>"), "overloaded"),
        (GenericError("error sending request: dns error: failed to lookup address"), "its host is not found"),
        (GenericError("tcp connect error: Connection refused (os error 111)"), "its server does not answer"),
        (TimeoutError(), "did not answer in time"),
    ],
)
def test_error_of_a_store_is_one_sentence_with_the_cause(error: Exception, words: str) -> None:
    found = to_error(error, URL, "list")
    assert isinstance(found, StorageError)
    assert f"cannot list {URL}: " in str(found)
    assert words in str(found)


def test_missing_object_and_replaced_object_have_types_of_their_own() -> None:
    assert isinstance(to_error(FileNotFoundError("Object at location x not found"), URL), PathNotFoundError)
    assert isinstance(to_error(PreconditionError("412"), URL), ObjectReplacedError)


def test_keys_in_queries_are_not_shown() -> None:
    text = "Error performing GET https://a.blob.core.windows.net/c/k?sv=1&sig=SECRET%3D in 3ms - unknown"
    assert "SECRET" not in str(to_error(GenericError(text), URL))
    assert len(str(to_error(GenericError("x" * 10_000), URL))) < 500


def test_answer_that_breaks_off_is_repeated_and_a_refusal_is_not() -> None:
    asked = []

    def cut() -> str:
        asked.append(1)
        if len(asked) < 3:
            raise GenericError("HTTP error: error decoding response body")
        return "whole"

    assert (answered(cut, URL), len(asked)) == ("whole", 3)

    def refused() -> str:
        asked.append(1)
        raise PermissionDeniedError("AccessDenied")

    with pytest.raises(StorageError, match="may not do that") as caught:
        answered(refused, URL)
    assert len(asked) == 4
    assert caught.value.__suppress_context__


def test_answer_that_repeats_what_was_signed_is_not_shown() -> None:
    body = "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>MINE</AWSAccessKeyId></Error>"
    text = str(to_error(PermissionDeniedError(f"Server returned 403 Forbidden: {body}"), URL))
    assert "(PermissionDeniedError: Server returned 403 Forbidden: SignatureDoesNotMatch)" in text
    assert "MINE" not in text
