"""URLs of object stores, their options and credentials."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.storage.objects.profiles import profile_credentials
from sparklog.storage.objects.stores import store_of
from sparklog.storage.registry import known_schemes, locate, scheme_named


@pytest.mark.parametrize(
    ("url", "path", "scheme"),
    [
        ("s3://bucket/logs/events-0/", "s3://bucket/logs/events-0", "s3"),
        ("S3A://bucket/a//b/./c/../d", "s3://bucket/a/b/d", "s3"),
        ("s3://bucket", "s3://bucket", "s3"),
        ("gs://bucket/a%20b", "gs://bucket/a%20b", "gs"),
        ("az://container/logs", "az://container/logs", "az"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x", "abfss"),
        ("s3://bucket/../../etc", "s3://bucket/etc", "s3"),
    ],
)
def test_url_is_the_path_in_one_spelling(url: str, path: str, scheme: str) -> None:
    place = locate(url)
    assert (place.path, place.storage.scheme, str(place)) == (path, scheme, path)
    assert locate(str(place)) == pickle.loads(pickle.dumps(place)) == place


@pytest.mark.parametrize("url", ["s3:///logs", "s3:logs", "s3://buck*t/logs"])
def test_url_without_one_bucket_is_an_error(url: str) -> None:
    with pytest.raises(InvalidOptionError, match="bucket"):
        locate(url)


def test_every_scheme_is_found_by_its_name() -> None:
    assert {"s3", "s3a", "gs", "az", "abfss", "http", "https", "memory", "file", "hdfs"} <= set(known_schemes())
    assert all(scheme_named(name) is not None for name in known_schemes())


def test_option_that_the_library_does_not_take_is_an_error_without_the_value() -> None:
    with pytest.raises(InvalidOptionError, match=r"s3://bucket cannot be opened .*region") as caught:
        store_of("s3://bucket", (("region", "eu"), ("skip_signature", "hush-hush"), ("timeout", "hush")))
    assert "hush" not in str(caught.value)
    with pytest.raises(InvalidOptionError, match=r"storage\.max_retries"):
        store_of("s3://bucket", (("max_retries", "many"),))


def test_options_are_in_no_repr() -> None:
    assert "hush" not in repr(locate("s3://bucket/logs", options={"secret.access_key_id": "hush"}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n[other]\naws_access_key_id = C\n"
        "aws_secret_access_key = D\naws_session_token = E\n"
    )
    (tmp_path / "config").write_text(
        "[default]\nregion = r1\n[profile other]\nregion = r2\n[profile sso]\nregion = r3\n"
    )
    return tmp_path


def test_profile_is_read_as_other_tools_of_aws_read_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert profile_credentials(None) == {"access_key_id": "A", "secret_access_key": "B", "region": "r1"}
    other = {"access_key_id": "C", "secret_access_key": "D", "session_token": "E", "region": "r2"}
    assert profile_credentials("other") == other
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert profile_credentials(None) == other
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    assert profile_credentials(None) == {}
    with pytest.raises(InvalidOptionError, match=r"profile 'sso' of AWS has no access key .* --format env"):
        profile_credentials("sso")


def test_without_profiles_nothing_is_known(home: Path) -> None:
    (home / "credentials").unlink()
    assert profile_credentials(None) == {}
    (home / "credentials").write_bytes(b"\xff[broken")
    assert profile_credentials(None) == {}
