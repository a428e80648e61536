"""The text of a path: schemes, home folders, patterns, and what each of them stands for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.storage import registry
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.storage.registry import Location, Scheme, expand, expand_one, locate, paths_of, register_scheme


def matched(pattern: Path | str) -> list[str]:
    return [found.path for found in expand(locate(pattern))]


@pytest.fixture
def nowhere() -> Iterator[None]:
    """Have URLs of nowhere: understood."""
    register_scheme("nowhere", Scheme(lambda *_: LocalWritableStorage(), lambda url, *_: f"/{url.host}{url.path}"))
    yield
    del registry._schemes["nowhere"]


@pytest.mark.parametrize("path", ["dbfs:/logs", "oss://bucket/logs", "webhdfs://host:80/l", "OSS:logs", "dbfs:logs"])
def test_scheme_that_nobody_knows_is_an_error_that_names_those_there_are(path: str) -> None:
    with pytest.raises(InvalidOptionError, match=rf"no storage for '{path.split(':')[0].lower()}:' .* file:"):
        locate(path)


@pytest.mark.usefixtures("nowhere")
def test_scheme_is_registered() -> None:
    assert locate("nowhere://there/logs").path == "/there/logs"
    with pytest.raises(InvalidOptionError, match=r"file:, .*nowhere:.* or no scheme"):
        locate("dbfs:/logs")


@dataclass(frozen=True)
class Elsewhere(LocalWritableStorage):
    """A storage of another scheme, which needs more than a path."""

    token: str = "secret"
    scheme = "elsewhere"


def test_place_is_itself_wherever_a_path_is_given_and_keeps_its_storage() -> None:
    place = pickle.loads(pickle.dumps(Location(Elsewhere(), "/logs")))
    assert locate(place) == place == Location(Elsewhere("", "secret"), "/logs")
    assert paths_of(place) == [place]
    assert str(place) == "elsewhere:/logs"
    assert len(pickle.dumps(locate("/logs"))) < 200


def test_relative_path_with_a_colon_is_written_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("./a:b").path == f"{tmp_path}/a:b"
    assert locate(Path("a:b")).path == f"{tmp_path}/a:b"


def test_home_folder_is_where_a_tilde_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert locate("~/logs").path == locate(Path("~/logs")).path == "/home/me/logs"
    assert locate("~").path == "/home/me"
    assert locate("/logs/~x").path == "/logs/~x"


def test_text_of_a_path_is_the_same_wherever_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("logs", "file:///logs/a%20b", "/logs/a*"):
        assert str(locate(str(locate(text)))) == str(locate(text)) == locate(text).path


def test_pattern_stands_for_the_names_that_are_there(tmp_path: Path) -> None:
    for name in ("a/events-0", "a/events-1", "b/events-2", "b/other-0", ".hidden/events-3"):
        (tmp_path / name).mkdir(parents=True)
    assert matched(tmp_path / "a" / "ev*") == [f"{tmp_path}/a/events-0", f"{tmp_path}/a/events-1"]
    assert matched(tmp_path / "*" / "events-[12]") == [f"{tmp_path}/a/events-1", f"{tmp_path}/b/events-2"]
    assert matched(tmp_path / "?" / "topic") == [f"{tmp_path}/a/topic", f"{tmp_path}/b/topic"]
    assert matched(f"file://{tmp_path}/a/*-0") == [f"{tmp_path}/a/events-0"]


def test_name_with_a_bracket_that_is_there_is_itself(tmp_path: Path) -> None:
    for name in ("logs[1]", "logs1"):
        (tmp_path / name / "events-0").mkdir(parents=True)
    assert matched(tmp_path / "logs[1]") == [f"{tmp_path}/logs[1]"]
    assert matched(tmp_path / "logs[1]" / "events") == [f"{tmp_path}/logs[1]/events"]
    assert matched(tmp_path / "logs[1]" / "*") == [f"{tmp_path}/logs[1]/events-0"]
    assert matched(tmp_path / "logs[12]") == [f"{tmp_path}/logs1"]


def test_pattern_that_nothing_matches_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for pattern in ("ev*", "no*/such", "file/*"):
        with pytest.raises(PathNotFoundError, match="nothing matches .*" + pattern.replace("*", r"\*")):
            matched(tmp_path / pattern)


def test_pattern_is_to_match_one_thing_where_one_is_wanted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert expand_one(locate(tmp_path / "[a]")).path == f"{tmp_path}/a"
    with pytest.raises(InvalidOptionError, match=r"path is to be one path, and 2 match .*/\?"):
        expand_one(locate(tmp_path / "?"))
