"""What is packed and published: one version, a license, and a source archive whose tests can run."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import sparklog

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_version_is_written_once_and_is_that_which_is_installed() -> None:
    version = PROJECT["project"]["version"]
    assert sparklog.__version__ == metadata.version("sparklog") == version
    assert [path.name for path in (ROOT / "sparklog").rglob("*.py") if f'"{version}"' in path.read_text()] == []


def test_package_that_is_not_installed_has_no_version_and_works(tmp_path: Path) -> None:
    """As where Spark ships it to executors as an archive."""
    (tmp_path / "sparklog").symlink_to(ROOT / "sparklog")
    code = "import sparklog; print(sparklog.__version__, sparklog.errors.SeglogError.code)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "not installed SEGLOG_ERROR\n"


def test_newest_change_is_of_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == PROJECT["project"]["version"]


def test_license_is_the_unchanged_text() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_0
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert PROJECT["project"]["license-files"] == ["LICENSE", "NOTICE"]


def test_source_archive_has_all_that_tests_need() -> None:
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    packed = set(targets["sdist"]["include"])
    assert packed > set(targets["wheel"]["include"])
    assert [path for path in packed if not (ROOT / path.lstrip("/")).exists()] == []
    needed = ("tests", "docs", "examples", "conf", "LICENSE", "NOTICE", "Makefile", ".ci")
    assert packed >= {f"/{name}" for name in needed}


def test_definitions_of_messages_are_packed_and_named_in_the_notice() -> None:
    (data,) = [path for path in (ROOT / "sparklog").rglob("*") if path.suffix == ".json"]
    name = str(data.relative_to(ROOT))
    assert name == "sparklog/system/definitions.json"
    assert name in (ROOT / "NOTICE").read_text()
    ignored = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False)
    assert ignored.returncode != 0


def test_extra_of_the_readme_is_there_and_urls_lead_nowhere_else() -> None:
    assert 'pip install "sparklog[spark]"' in (ROOT / "README.md").read_text()
    assert PROJECT["project"]["optional-dependencies"]["spark"]
    assert "urls" not in PROJECT["project"]


def test_files_that_contributing_and_the_recipes_name_are_there() -> None:
    contributing, architecture = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"
    texts = contributing.read_text(), architecture.read_text(), (ROOT / "tests" / "README.md").read_text()
    named = set(re.findall(r"(?<![\w./-])((?:sparklog|tests|conf|docs)/[\w./-]*\w)", "\n".join(texts)))
    assert len(named) >= 40
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    for question in ("Set-up", "Tests", "Where things are", "How to add something"):
        assert f"{question}.**" in texts[0]
    for question in ("codec", "storage", "option", "command", "column of a view", "export format", "new Kafka"):
        found = re.search(rf"^\*\*An? {question}( of a read or a write)?\*\*", texts[1], re.MULTILINE)
        assert found, question


def test_modules_that_the_ways_of_the_data_name_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = "|".join(path.name for path in (ROOT / "sparklog").iterdir() if path.is_dir())
    named = {
        path.rstrip(".").replace(".", "/") for path in re.findall(rf"(?<![\w/])((?:{rooms})\.(?!py)[a-z_.]+)", text)
    }
    assert len(named) >= 50
    there = {str(path.relative_to(ROOT / "sparklog").with_suffix("")) for path in (ROOT / "sparklog").rglob("*")}
    assert sorted(named - there) == []
