"""The options of storages: names, secrets, and how they get from every door to the storage of a path."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sparklog
from sparklog import views
from sparklog.cli.commands.main import app
from sparklog.errors import InvalidOptionError
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.write import WriteOptions
from sparklog.storage import registry
from sparklog.storage.base import Storage
from sparklog.storage.given_options import parse_storage_options, place
from sparklog.storage.objects.storage import ObjectStorage
from sparklog.storage.registry import Location, StorageOptions, Url, locate
from sparklog.storage.secret_values import Secret, looked_up
from tests.golden import DATA, EXAMPLES
from tests.storage import options as with_options

MARKED = "MARKED-do-not-show"
INTERNAL = DATA / "v2-internal" / "logs"


@pytest.fixture(autouse=True)
def opts() -> Iterator[None]:
    with with_options.registered():
        yield


def options_of(location: Location) -> dict[str, str]:
    assert isinstance(location.storage, with_options.WithOptions | ObjectStorage)
    return dict(location.storage.options)


def test_place_gets_the_options_that_its_storage_knows() -> None:
    found = place("opts://h/logs", {"storage.endpoint": "http://a", "Region": "eu"})
    assert options_of(found) == {"endpoint": "http://a", "region": "eu"}
    assert found.path == "/logs"


def test_options_end_with_their_block_and_a_place_keeps_its_own() -> None:
    with parse_storage_options({"region": "eu"}).in_force():
        kept = locate("opts://h/logs")
    assert options_of(locate("opts://h/logs")) == {}
    with parse_storage_options({"region": "us"}).in_force():
        assert options_of(locate(kept)) == {"region": "eu"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("storage.regoin", "no option 'storage.regoin' of a storage: did you mean 'region'?"),
        ("storage.account_key", "give it as storage.secret.account_key"),
        ("account_key", "give it as storage.secret.account_key"),
        ("storage.service_account_key", "give it as storage.secret.service_account_key"),
        ("storage.aws_secret_access_key", "give it as storage.secret.secret_access_key"),
        ("storage.sas_token", "give it as storage.secret.sas_key"),
        ("fs.s3a.path.style.access", "must be true or false"),
        ("fs.s3a.aws.credentials.provider", "known are .*SimpleAWSCredentialsProvider"),
        ("fs.s3a.attempts.maximum", "must be a whole number"),
        ("fs.s3a.connection.timeout", "must be a time"),
    ],
)
def test_wrong_name_or_value_is_refused_by_name_and_the_value_is_not_shown(name: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message) as raised:
        parse_storage_options({name: MARKED})
    assert MARKED not in str(raised.value)


def test_two_spellings_that_differ_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="given twice"):
        parse_storage_options({"storage.secret.sas_token": "one", "storage.secret.sas_key": "two"})


@pytest.mark.parametrize("value", [None, b"x", ["x"]])
def test_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidOptionError, match="must be text"):
        parse_storage_options({"region": value})


def test_secret_is_in_no_text_of_what_holds_it() -> None:
    options = parse_storage_options({"secret.access_key_id": MARKED, "region": "eu"})
    with options.in_force():
        found = locate("opts://h/logs")
        bucket = locate("s3://bucket/logs")
    secret = options_of(found)["secret.access_key_id"]
    shown = [repr(options), str(options), repr(found), str(found), repr(bucket), repr(bucket.storage), f"{secret}"]
    shown += [repr(secret), str(secret), f"{secret:>40}", "%s" % secret, repr(options_of(found))]  # noqa: UP031
    assert MARKED not in "".join(shown)
    assert looked_up("secret.access_key_id", secret) == MARKED
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert MARKED not in repr(options_of(again))


def test_reference_travels_and_the_secret_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", MARKED)
    (tmp_path / "key").write_text(f"{MARKED}\n")
    for reference in ("env:MY_KEY", f"file:{tmp_path}/key"):
        with parse_storage_options({"secret.account_key": reference}).in_force():
            found = locate("opts://h/logs")
        assert MARKED.encode() not in pickle.dumps(found)
        assert looked_up("secret.account_key", options_of(found)["secret.account_key"]) == MARKED


def test_reference_to_nothing_names_option_and_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(InvalidOptionError, match=r"secret\.account_key is in the variable MY_KEY, which is not"):
        looked_up("secret.account_key", "env:MY_KEY")
    for name, content, message in (
        ("none", None, "cannot read"),
        ("empty", b" \n", "empty"),
        ("large", b"x" * 70_000, "more than 65536"),
        ("binary", b"\xff\xfe", "not UTF-8"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidOptionError, match=message):
            looked_up("secret.account_key", f"file:{path}")
    assert looked_up("endpoint", "env:MY_KEY") == "env:MY_KEY"


def test_settings_of_s3a_are_options_of_s3_alone() -> None:
    options = parse_storage_options(
        {
            "fs.s3a.access.key": MARKED,
            "fs.s3a.secret.key": "env:KEY",
            "fs.s3a.endpoint": "store:9000",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint.region": "eu",
            "fs.s3a.connection.timeout": "30000",
            "fs.s3a.attempts.maximum": 3,
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "fs.s3a.bucket.my.logs.endpoint.region": "us",
        }
    )
    with options.in_force():
        assert options_of(locate("s3a://other/x")) == {
            "secret.access_key_id": Secret(MARKED),
            "secret.secret_access_key": "env:KEY",
            "endpoint": "http://store:9000",
            "allow_http": "true",
            "virtual_hosted_style_request": "false",
            "region": "eu",
            "timeout": "30000ms",
            "max_retries": "3",
        }
        assert options_of(locate("s3://my.logs/x"))["region"] == "us"
        assert options_of(locate("opts://h/x")) == {}


def test_anonymous_provider_means_no_signature() -> None:
    name = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    with parse_storage_options({"fs.s3a.aws.credentials.provider": name}).in_force():
        assert options_of(locate("s3://b/x")) == {"skip_signature": "true"}


def test_option_of_a_storage_goes_before_a_setting_of_s3a() -> None:
    with parse_storage_options({"storage.region": "us", "fs.s3a.endpoint.region": "eu"}).in_force():
        assert options_of(locate("s3://b/x")) == {"region": "us"}


def test_setting_of_s3a_without_effect_is_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parse_storage_options({"fs.s3a.fast.upload": MARKED, "fs.s3a.acces.key": MARKED})
    assert [record.getMessage() for record in caplog.records] == [
        "the option fs.s3a.fast.upload does nothing here",
        "the option fs.s3a.acces.key does nothing here; did you mean fs.s3a.access.key?",
    ]


Door = Callable[[str, Path, dict[str, Any]], Any]
DOORS: dict[str, Door] = {
    "open_log": lambda path, _, options: sparklog.open_log(f"{path}/shop-events-0", **options),
    "open_topic": lambda path, _, options: sparklog.open_topic([path], **options),
    "describe": lambda path, _, options: list(sparklog.describe(path, **options, processes=1)),
    "verify": lambda path, _, options: list(sparklog.verify([path], **options, processes=1)),
    "diff": lambda path, _, options: list(sparklog.diff(path, INTERNAL, **options, processes=1)),
    "export": lambda path, out, options: sparklog.export(path, out, **options, processes=1),
    "copy": lambda path, out, options: sparklog.copy(path, out, **options, processes=1),
    "salvage": lambda path, out, options: sparklog.salvage(path, out, **options, processes=1),
    "backup": lambda path, out, options: sparklog.backup(path, out, **options, processes=1),
    "mirror": lambda path, out, options: sparklog.mirror(path, out, **options, processes=1),
    "view": lambda path, _, options: views.read(path, "consumer_offsets", **options),
    "lag": lambda path, _, options: views.lag(path, **options),
    "place": lambda path, _, options: sparklog.open_topic(sparklog.place(path, *options.values())),
    "place of a consumer": lambda path, _, options: sparklog.Consumer(place(path, *options.values())).close(),
}
OF_INTERNAL_TOPICS = ("view", "lag")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The options of every storage that is made."""
    found: list[dict[str, str]] = []
    scheme = with_options.SCHEME

    def recorded(url: Url, options: StorageOptions) -> Storage:
        found.append(dict(options))
        return scheme.open_storage(url, options)

    monkeypatch.setitem(registry._schemes, "opts", scheme._replace(open_storage=recorded))
    return found


def through(door: str, prefix: str, out: Path, options: dict[str, Any]) -> None:
    logs = INTERNAL if door in OF_INTERNAL_TOPICS else EXAMPLES
    out.mkdir()
    DOORS[door](f"{prefix}{logs}", out, {"storage_options": options})


@pytest.mark.parametrize("door", DOORS)
def test_options_reach_the_storage_from_every_door(
    door: str, made: list[dict[str, str]], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    through(door, "opts://h", tmp_path / "out", {"region": "eu"})
    assert made
    assert all(each == {"region": "eu"} for each in made)
    assert not caplog.records


@pytest.mark.parametrize("door", DOORS)
def test_option_that_no_path_uses_is_named_in_a_warning(
    door: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        through(door, "", tmp_path / "out", {"region": MARKED})
    assert [record.getMessage() for record in caplog.records] == [
        "no path is in a storage with such an option, so these do nothing: region"
    ]


def test_options_are_read_and_written_by_spark_in_any_case() -> None:
    read = SeglogOptions.parse({"path": "opts://h/logs", "Storage.Region": "eu", "paths": '["opts://h/more"]'})
    assert [options_of(each) for each in read.all_paths] == [{"region": "eu"}] * 2
    assert options_of(WriteOptions.parse({"path": "opts://h/logs", "STORAGE.REGION": "eu"}).path) == {"region": "eu"}
    for parse in (SeglogOptions.parse, SeglogOptions.parse_stream, WriteOptions.parse):
        with pytest.raises(InvalidOptionError, match=r"give it as storage\.secret\.account_key") as raised:
            parse({"path": "opts://h/logs", "storage.account_key": MARKED})
        assert MARKED not in str(raised.value)


COMMANDS = (["describe"], ["verify"], ["dump", "--limit", "1"], ["describe", "--partitions", "--processes", "2"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_options_reach_the_storage_from_the_terminal(command: list[str], made: list[dict[str, str]]) -> None:
    path = f"opts://h{EXAMPLES}/shop-events-0"
    result = CliRunner().invoke(app, [*command, "--storage", "region=eu", "--storage", "storage.endpoint=x", path])
    assert result.exit_code == 0, result.output
    assert made
    assert all(each == {"region": "eu", "endpoint": "x"} for each in made)
    assert options_of(locate("opts://h/x")) == {}


@pytest.mark.parametrize("text", [f"secret.access_key_id={MARKED}", f"account_key={MARKED}", MARKED, f"={MARKED}"])
def test_literal_secret_is_refused_at_the_terminal_and_not_shown(text: str) -> None:
    result = CliRunner().invoke(app, ["describe", "--storage", text, str(EXAMPLES)])
    assert result.exit_code == 2
    assert "error: [SEGLOG_INVALID_OPTION]" in result.output
    assert MARKED not in result.output
