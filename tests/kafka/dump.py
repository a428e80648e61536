"""``kafka-dump-log``: Kafka's own reader of its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.kafka.jars import NEWEST_TOOLS, is_zookeeper
from tests.kafka.jvm import run_java


def dump_log(
    files: Sequence[Path | str],
    *,
    deep: bool = True,
    print_data: bool = False,
    verify_index_only: bool = False,
    index_sanity_check: bool = False,
    options: Sequence[str] = (),
    root: Path | None = None,
    version: str = NEWEST_TOOLS,
) -> str:
    """Run ``kafka-dump-log`` over files and return what it printed.

    Parameters
    ----------
    files : sequence of Path
        Any of ``.log``, ``.index``, ``.timeindex``, ``.txnindex``, ``.snapshot``.
    deep : bool
        Go into the records (``--deep-iteration``), not only over the batches.
    print_data : bool
        Print keys, values and headers as well (``--print-data-log``).
    verify_index_only, index_sanity_check : bool
        Check indexes against their log, or only their own sanity, and print no content.
    options : sequence of str
        Further options, as the command takes them (``--offsets-decoder``, ``--cluster-metadata-decoder``, ...).
    root : Path, optional
        Work in this directory, and name the files relative to it; that is how the output then names them.
    version : str
        The release whose tool runs.

    Raises
    ------
    HarnessError
        The tool failed. Mismatches that it found are not failures: they are in the text.
    """
    main = "kafka.tools.DumpLogSegments" if is_zookeeper(version) else "org.apache.kafka.tools.DumpLogSegments"
    switches = {
        "--deep-iteration": deep,
        "--print-data-log": print_data,
        "--verify-index-only": verify_index_only,
        "--index-sanity-check": index_sanity_check,
    }
    root = Path.cwd() if root is None else root
    names = [str(Path(file).relative_to(root) if Path(file).is_absolute() else file) for file in files]
    arguments = [switch for switch, wanted in switches.items() if wanted]
    return run_java(version, [main, *arguments, *options, "--files", ",".join(names)], root)
