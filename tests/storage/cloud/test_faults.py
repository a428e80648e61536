"""A server or a wire that fails: the right rows, each once, or a typed error that names the URL; never a hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import SeglogError, StorageError
from sparklog.storage.objects.failures import ObjectReplacedError
from sparklog.storage.registry import locate
from tests.storage.cloud.conftest import DATA, Golden
from tests.storage.servers.buckets import in_environment, put_folder_into
from tests.storage.servers.proxy import Answer, Asked, Proxy

LOG = "v2-records/logs/headers-none-0"
QUICK = {"max_retries": "2", "retry_timeout_seconds": "5"}


@pytest.fixture(scope="module")
def large(s3: Golden, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table]:
    """A log of 24 MB, and its records."""
    folder = tmp_path_factory.mktemp("large") / "events-0"
    config = sparklog.LogConfig(compression_type="uncompressed", segment_bytes=16 << 20)
    with sparklog.PartitionLog.open(folder, config) as log:
        for start in range(0, 240_000, 10_000):
            log.append(pa.table({"value": [b"%0100d" % number for number in range(start, start + 10_000)]}))
    with sparklog.open_log(folder) as log:
        table = log.read()
    return put_folder_into(s3.server, s3.url.rpartition("/")[0], folder, "large/events-0"), table


def read(url: str) -> pa.Table:
    with sparklog.open_log(url) as log:
        return log.read()


def bodies(kind: str, change: Callable[[Answer], None], times: int) -> Callable[[Asked, Answer], None]:
    """Return a fault of the first answers of a kind."""
    left = [times]

    def spoil(asked: Asked, answer: Answer) -> None:
        if asked.kind == kind and left[0] and answer.status < 300:
            left[0] -= 1
            change(answer)

    return spoil


def cut(answer: Answer) -> None:
    answer.cut_after = len(answer.body) // 2


def shorten(answer: Answer) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


def to_page(answer: Answer) -> None:
    answer.headers, answer.body = {"Content-Type": "text/html"}, b"<html><body>Please log in</body></html>"


def refused(status: int, code: str, times: int) -> Callable[[Asked], Answer | None]:
    left = [times]

    def refuse(_: Asked) -> Answer | None:
        left[0] -= 1
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        return Answer(status, {"Content-Type": "application/xml"}, body) if left[0] >= 0 else None

    return refuse


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (429, "TooManyRequests"), (500, "InternalError")])
def test_refusal_that_passes_costs_time_only(proxy: Proxy, s3: Golden, status: int, code: str) -> None:
    proxy.refuse = refused(status, code, 2)
    assert read(f"{s3.url}/{LOG}") == read(str(DATA / LOG))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", [cut, shorten])
def test_body_that_breaks_off_gives_every_row_once_or_an_error(
    proxy: Proxy, large: tuple[str, pa.Table], fault: Callable[[Answer], None], times: int
) -> None:
    url, table = large
    proxy.spoil = bodies("get", fault, times)
    if fault is shorten:
        with pytest.raises(StorageError, match=r"s3://.*: \d+ bytes came of the \d+ at position \d+"):
            read(url)
        proxy.reset()
    assert read(url) == table


def test_refusals_without_end_are_an_error_in_time(proxy: Proxy, s3: Golden) -> None:
    proxy.refuse = refused(503, "SlowDown", 10_000)
    storage, path = locate(f"{s3.url}/{LOG}", options=QUICK)
    with pytest.raises(StorageError, match=r"cannot list s3://.*: the store is overloaded"):
        storage.names(path)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "may not do that"),
        (403, "InvalidAccessKeyId", "credentials are not accepted"),
        (403, "SignatureDoesNotMatch", "credentials are not accepted"),
        (403, "RequestTimeTooSkewed", "set the clock"),
        (400, "ExpiredToken", "have expired"),
        (400, "AuthorizationHeaderMalformed", "another region"),
        (404, "NoSuchBucket", "no such bucket"),
    ],
)
def test_each_refusal_is_one_clear_sentence(proxy: Proxy, s3: Golden, status: int, code: str, words: str) -> None:
    proxy.refuse = refused(status, code, 10_000)
    with pytest.raises(StorageError, match=words) as caught:
        read(f"{s3.url}/{LOG}")
    assert "our-secret" not in str(caught.value)
    assert f"{s3.url}/{LOG}" in str(caught.value)


def test_credentials_that_may_nothing_are_an_error_that_says_so(s3: Golden) -> None:
    theirs = {**s3.server.environment, "AWS_ACCESS_KEY_ID": "their-key", "AWS_SECRET_ACCESS_KEY": "their-secret"}
    with in_environment(theirs), pytest.raises(StorageError, match="may not do that"):
        read(f"{s3.url}/{LOG}")
    with (
        in_environment({**theirs, "AWS_SECRET_ACCESS_KEY": "wrong"}),
        pytest.raises(StorageError, match="not accepted"),
    ):
        read(f"{s3.url}/{LOG}")


@pytest.mark.parametrize("kind", ["list", "get"])
def test_page_of_a_login_instead_of_an_answer_is_an_error(proxy: Proxy, s3: Golden, kind: str) -> None:
    proxy.spoil = bodies(kind, to_page, 100)
    with pytest.raises(SeglogError):
        read(f"{s3.url}/{LOG}")


def test_object_that_is_replaced_between_two_requests_is_an_error(
    proxy: Proxy, s3: Golden, large: tuple[str, pa.Table], tmp_path: Path
) -> None:
    url, table = large
    other = tmp_path / "events-0"
    with sparklog.PartitionLog.open(other, sparklog.LogConfig(compression_type="uncompressed")) as log:
        log.append(pa.table({"value": [b"%0100d" % -number for number in range(100_000)]}))
    with in_environment(s3.server.environment):
        put_folder_into(s3.server, s3.url.rpartition("/")[0], other, "replaced/events-0")
    bucket = s3.url.rpartition("/")[0]
    with sparklog.open_log(f"{bucket}/replaced/events-0") as log:
        batches = log.batches()
        next(batches)
        with in_environment(s3.server.environment):
            first = next(path for path in (DATA / LOG).iterdir() if path.suffix == ".log")
            put_folder_into(s3.server, bucket, first.parent, "replaced/events-0")
        with (
            in_environment(s3.server.environment_by(proxy.port)),
            pytest.raises(ObjectReplacedError, match="Read again"),
        ):
            list(log.batches())
    assert read(url) == table


def test_listing_that_names_an_object_which_is_gone_is_an_error(proxy: Proxy, s3: Golden) -> None:
    def lag(asked: Asked, answer: Answer) -> None:
        if asked.kind == "get" and ".log" in asked.path:
            answer.status, answer.body = 404, b"<Error><Code>NoSuchKey</Code></Error>"

    proxy.spoil = lag
    with pytest.raises(SeglogError, match=r"s3://.*\.log"):
        read(f"{s3.url}/{LOG}")


def test_reads_by_the_proxy_send_few_requests(proxy: Proxy, large: tuple[str, pa.Table]) -> None:
    url, table = large
    assert read(url) == table
    # The listing of the folder and of the one above, two segments in pieces, and the small reads that lead to them.
    assert proxy.seen["list"] <= 2, [each for each in proxy.paths if "list-type" in each]
    assert proxy.seen["head"] == 0
    assert proxy.count() <= 22
