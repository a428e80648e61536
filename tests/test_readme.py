"""What README.md and docs/ tell users to run is run; what they say of options, targets and tests is true."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.cli.commands.main import run as run_sparklog
from tests import tables
from tests.spark.trigger_limits import HAS_LIMITS

ROOT = Path(__file__).parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def linked_pages() -> list[Path]:
    """Return the pages of docs/ in the order in which their index names them."""
    named = [DOCS / target.partition("#")[0] for target in LINK.findall((DOCS / "index.md").read_text())]
    return [path for path in dict.fromkeys(named) if path.parent == DOCS]


# The order is that in which snippets run: some go on with what others leave.
PAGES = [README, DOCS / "index.md", *linked_pages()]
BLOCKS = [block for page in PAGES for block in FENCED.findall(page.read_text())]
SHELL_LINES = [line.split("  #")[0].strip() for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
WRITTEN = "/tmp/sparklog-readme/"
"""What the pages write has paths that begin so; here they begin with a folder of the tests."""
IN_BUCKET = "s3://backups"
"""The bucket of docs/storage.md, whose lines are run by tests/storage/cloud/test_pages.py."""
RUN_ELSEWHERE = ("pip install ", "make ", "eval ")  # by make test-install, by .ci/run, and by a test of its own
NO_TASK = {"options", "guarantees", "performance", "architecture"}
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("pages")) + "/"


@pytest.fixture(scope="module")
def snippets(written: str) -> subprocess.CompletedProcess[str]:
    """Run the Python of all pages, all of it in one process; some commands go on with what it leaves."""
    found = [
        text for kind, text in BLOCKS if kind == "python" and "/var/lib/kafka" not in text and IN_BUCKET not in text
    ]
    assert len(found) >= 20
    if not HAS_LIMITS:
        found = [re.sub(r"\n *\.option\(\"max\w+PerTrigger\", \d+\)", "", text) for text in found]
    program = "\n".join(found).replace(WRITTEN, written)
    return run(sys.executable, "-W", "error::DeprecationWarning:sparklog", "-c", program)


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Return what starts processes that have the commands imported already, which takes longer than most of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sparklog.cli.commands.main", __name__])
    return context


def run_command(arguments: list[str], said: Path, errors: Path) -> None:
    """Be the ``sparklog`` of the terminal, in a process of its own."""
    os.chdir(ROOT)
    os.environ.update(ENVIRONMENT)
    sys.argv = ["sparklog", *arguments]
    for stream, path in ((1, said), (2, errors)):
        with path.open("w") as file:
            os.dup2(file.fileno(), stream)
    run_sparklog()


def test_python_snippets_run_one_after_the_other(snippets: subprocess.CompletedProcess[str]) -> None:
    assert snippets.returncode == 0, snippets.stderr
    assert "user-" in snippets.stdout


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in dict.fromkeys(SHELL_LINES)
        if line and not line.startswith(RUN_ELSEWHERE) and IN_BUCKET not in line
    ],
)
@pytest.mark.usefixtures("snippets")
def test_command_line_runs(line: str, written: str, processes: ForkServerContext, tmp_path: Path) -> None:
    if "/checkpoint" in line:
        make_checkpoint(Path(written, "checkpoint"))
    said, errors, command = tmp_path / "said", tmp_path / "errors", line.replace(WRITTEN, written)
    if line.startswith("sparklog ") and not set("|<>;$`*&\\") & set(re.sub(r"'[^']*'|\"[^\"$`]*\"", "", line)):
        process = processes.Process(target=run_command, args=(shlex.split(command)[1:], said, errors))
        process.start()
        process.join(300)
        process.kill()
        status = process.exitcode
    else:
        done = run("bash", "-c", command)
        status = done.returncode
        said.write_text(done.stdout)
        errors.write_text(done.stderr)
    assert status == 0, errors.read_text()
    assert said.read_text() or ">" in line


def make_checkpoint(path: Path) -> None:
    """Make what a query leaves that has read some of a topic."""
    for name, text in (("offsets", 'v1\n{}\n{"shop-events": {"0": 100, "1": 0}}'), ("commits", "v1\n{}")):
        (path / name).mkdir(parents=True, exist_ok=True)
        (path / name / "0").write_text(text)


def test_shell_completes_commands_with_the_line_for_its_start() -> None:
    (line,) = [line for line in SHELL_LINES if line.startswith("eval ")]
    ask = "COMP_WORDS=(sparklog ver); COMP_CWORD=1; _sparklog_completion sparklog; echo ${COMPREPLY[@]}"
    done = run("bash", "--norc", "-c", f"{line}; complete -p sparklog; {ask}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["complete -o default -F _sparklog_completion sparklog", "verify"]


def test_make_targets_exist_and_ci_runs_them() -> None:
    named = {line.split()[1] for line in SHELL_LINES if line.startswith("make ")} | {"test-kafka"}
    assert named >= {"demo", "test"}
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert re.search(rf"^make {target}$", ci, re.MULTILINE)


def test_every_page_is_in_the_index() -> None:
    assert sorted(linked_pages()) == sorted(set(DOCS.glob("*.md")) - {DOCS / "index.md"})


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def anchors(page: Path) -> set[str]:
    """Return the names that links may give for the headings of a page, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_first_screen_of_a_page_that_explains_a_task_is_an_example() -> None:
    for page in linked_pages():
        if page.stem not in NO_TASK:
            before, fence, _ = page.read_text().partition("\n```")
            assert fence, page
            assert len(before.splitlines()) <= 15, page


def test_front_page_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


def test_tables_of_options_are_those_that_the_declarations_make() -> None:
    for name, (heading, declaring) in tables.TABLES.items():
        made = f"<!-- options: {name} -->\n{tables.table(heading, declaring)}<!-- end -->\n"
        assert sum(made in page.read_text() for page in tables.pages()) == 1, "make tables"
    for page in tables.pages():
        assert tables.with_tables(page.read_text()) == page.read_text(), "make tables"


def test_table_of_options_has_every_option_with_its_default_and_meaning() -> None:
    for _, declaring in tables.TABLES.values():
        rows = tables.table("", declaring).splitlines()[2:]
        assert len(rows) == len(tables.options(declaring))
        assert all(
            row.startswith(f"| `{each.name}` | ") for row, each in zip(rows, tables.options(declaring), strict=True)
        )


def test_quickstart_prints_records_an_aggregation_and_where_time_went() -> None:
    done = run(sys.executable, "examples/quickstart.py")
    assert done.returncode == 0, done.stderr
    for expected in ("user-", "page_view", "committed", "orders-by-customer", "where time went"):
        assert expected in done.stdout


def test_every_argument_of_a_function_with_a_table_is_in_it() -> None:
    functions = [declaring for _, declaring in tables.TABLES.values() if not isinstance(declaring, type)]
    for function in functions:
        told = [name for each in tables.options(function) for name in each.name.split("`, `")]
        assert told == list(inspect.signature(function).parameters)


def test_the_nightly_load_moves_only_what_is_new(tmp_path: Path) -> None:
    command = (sys.executable, "examples/bulk_load.py", "examples/data", str(tmp_path / "table"))
    first, second = run(*command), run(*command)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    told = [int(number) for each in (first, second) for number in re.findall(r": (\d+) records", each.stdout)]
    moved = sum(told[:1])
    assert moved > 2000
    assert told == [moved, moved, 0, moved]


def test_the_live_pipeline_adds_up_what_is_written_beside_it(tmp_path: Path) -> None:
    program = (ROOT / "examples" / "stream.py").read_text()
    assert "args=(20,)" in program
    done = run(sys.executable, "-c", program.replace("args=(20,)", "args=(6,)"), str(tmp_path / "stream"))
    assert done.returncode == 0, done.stderr
    sold, told = (line.partition(": ")[2] for line in done.stdout.splitlines()[-2:])
    assert sold == told
    assert "beans" in sold
    assert "behind" in done.stdout


def test_the_lag_of_every_group_is_printed() -> None:
    done = run(sys.executable, "examples/lag.py")
    assert done.returncode == 0, done.stderr
    totals = re.findall(r"^(\S+) +(\d+) left to read$", done.stdout, re.MULTILINE)
    assert totals == [("dashboard", "773"), ("fraud-check", "128"), ("order-mailer", "0")]


def test_a_killed_producer_loses_nothing_that_a_consumer_would_get(tmp_path: Path) -> None:
    done = run(sys.executable, "examples/producer.py", str(tmp_path / "logs"))
    assert done.returncode == 0, done.stderr
    assert "the producer ended with -9" in done.stdout
    assert "are there: True" in done.stdout
    assert "the consumer got 3000 records, 3000 of them different" in done.stdout


def test_the_erased_customer_is_proven_absent() -> None:
    done = run(sys.executable, "examples/erase.py")
    assert done.returncode == 0, done.stderr
    assert "shop-events-0: 44 records erased" in done.stdout
    assert "0 errors" in done.stdout


def test_broken_directory_is_salvaged_and_its_losses_are_printed(tmp_path: Path) -> None:
    done = run(sys.executable, "examples/salvage.py", str(tmp_path / "salvage"))
    assert done.returncode == 0, done.stderr
    kept = re.findall(r"^(\S+): (\d+) records kept, (\d+) offsets lost$", done.stdout, re.MULTILINE)
    assert [lost for _, _, lost in kept] == ["0", "81", "19", "317", "2", "0"]
    assert "shop-events-2/00000000000000000000.log, position 0, 0 bytes: the indexes of the segment" in done.stdout
    assert "0 errors in the salvaged directory" in done.stdout


def promises(page: Path) -> list[str]:
    """Return the guarantees and limits of a page, which are the items of its lists, by their first lines."""
    return re.findall(r"^- (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)


def promised() -> dict[Path, list[tuple[str, str]]]:
    """Return the first words of the promises of each page, and the tests that hold them, by docs/guarantees.md."""
    text = (DOCS / "guarantees.md").read_text()
    sections = re.split(r"^### .*\]\((\S+)\)$", text, flags=re.MULTILINE)[1:]
    row = re.compile(r"^\| (?!the page says|---)(.*?) \| (.*) \|$", re.MULTILINE)
    return {DOCS / page: row.findall(rows) for page, rows in zip(sections[::2], sections[1::2], strict=True)}


@pytest.mark.parametrize(
    "page", [page for page in PAGES[2:] if page.stem != "architecture"], ids=lambda page: page.stem
)
def test_every_guarantee_and_limit_names_a_test_that_is_there(page: Path) -> None:
    sentences, rows = promises(page), promised().get(page, [])
    for sentence in sentences:
        assert any(sentence.startswith(words) for words, _ in rows), f"no test is named for: {sentence}"
    for words, tests in rows:
        assert any(sentence.startswith(words) for sentence in sentences), f"{page.name} does not say: {words}"
        for path, name in re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", tests) or [("", words)]:
            assert re.search(rf"^def {name}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE), f"{path}::{name}"


def test_front_page_promises_nothing_that_no_page_does() -> None:
    leads = re.findall(r"^- (\*\*.*?\*\*)", README.read_text(), re.MULTILINE)
    assert len(leads) >= 10
    held = [words for rows in promised().values() for words, _ in rows]
    assert sum(map(len, promised().values())) > 100
    for lead in leads:
        assert any(words.startswith(lead) for words in held), f"no page says: {lead}"
