"""The parts of numba that are not its public interface, and on which the loading of kernels rests."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit, types
from numba.core import caching
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler import CompileResult

from sparklog.record.kernels import compile as kernels_compile
from sparklog.record.kernels import warm_up
from sparklog.record.kernels.steps import StepLibrary

SIGNATURE = types.int64(types.int64)


def doubled(number: Any) -> Any:
    return number * 2


@pytest.fixture
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have kernels kept in a folder of the test's own, in a process that has not said anything yet."""
    monkeypatch.setattr(kernels_compile, "_found_folders", lambda: ([tmp_path], None))
    kernels_compile._announce.cache_clear()
    return tmp_path


def test_private_interface_of_numba_is_there() -> None:
    assert {"load_overload", "save_overload"} <= set(dir(caching.NullCache)), "numba's caches: see kernels_cache"
    assert {"_reduce", "_rebuild"} <= set(dir(CompileResult)), "what numba keeps of a function: see kernels_cache"
    assert hasattr(njit(doubled), "_cache"), "numba has changed where a function keeps its cache: see kernels_compile"
    features: Any = get_host_cpu_features
    assert isinstance(features(), str)


def test_step_is_taken_in_by_its_kernel_and_is_no_machine_code_of_its_own(kept_in: Path) -> None:
    twice = kernels_compile.step(doubled)

    def fourfold(number: Any) -> Any:
        return twice(twice(number))

    kernel = kernels_compile._compiled(fourfold, [SIGNATURE])
    (of_step,), (of_kernel,) = twice.overloads.values(), kernel.overloads.values()
    engine = of_kernel.library.codegen._engine
    assert kernel(np.int64(3)) == 12
    assert engine.is_symbol_defined(of_kernel.fndesc.llvm_cpython_wrapper_name)
    assert isinstance(of_step.library, StepLibrary), "numba has changed who makes a library: see kernels_steps"
    assert not engine.is_symbol_defined(of_step.fndesc.mangled_name), "numba has compiled a step: see kernels_steps"


def test_only_a_step_that_is_kept_apart_is_still_called_by_its_kernel(kept_in: Path) -> None:
    apart, step = kernels_compile.apart(doubled), kernels_compile.step(doubled)

    def calling(number: Any) -> Any:
        return apart(number) + 1

    def taking_in(number: Any) -> Any:
        return step(number) + 1

    for function, is_called in ((calling, True), (taking_in, False)):
        kernel = kernels_compile._compiled(function, [SIGNATURE])
        assert kernel(np.int64(3)) == 7
        assert bool(re.search(r"call .*doubled", kernel.inspect_llvm(SIGNATURE.args))) == is_called


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_is_collected_after_a_kernel_as_it_was_before(kept_in: Path, *, is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        kernels_compile._compiled(doubled, [SIGNATURE])
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_compiled_kernel_is_loaded_again_and_not_compiled_twice(
    kept_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = kernels_compile._compiled(doubled, [SIGNATURE])
    assert sum(first.stats.cache_misses.values()) == 1
    assert capsys.readouterr().err == "sparklog: compiling kernels, once for this machine\n"
    kernels_compile._announce.cache_clear()
    again = kernels_compile._compiled(doubled, [SIGNATURE])
    assert sum(again.stats.cache_hits.values()) == 1
    assert capsys.readouterr().err == ""
    assert first(np.int64(21)) == again(np.int64(21)) == 42
    assert len([path for path in kept_in.iterdir() if path.stat().st_size]) == 1


def test_that_kernels_are_compiled_is_said_once_however_many_are(
    kept_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for signature in (SIGNATURE, types.float64(types.float64)):
        kernels_compile._compiled(doubled, [signature])
    assert capsys.readouterr().err.count("\n") == 1


def test_process_without_stderr_compiles_all_the_same(kept_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert kernels_compile._compiled(doubled, [SIGNATURE])(4) == 8


@pytest.mark.parametrize("content", [b"", b"x", bytes(16), bytes(500)])
def test_damaged_file_is_compiled_again(kept_in: Path, content: bytes) -> None:
    kernels_compile._compiled(doubled, [SIGNATURE])
    (file,) = (path for path in kept_in.iterdir() if path.stat().st_size)
    sound = file.read_bytes()
    file.write_bytes(content or sound[:-1])
    again = kernels_compile._compiled(doubled, [SIGNATURE])
    assert again(3) == 6
    assert sum(again.stats.cache_misses.values()) == 1
    assert sum(kernels_compile._compiled(doubled, [SIGNATURE]).stats.cache_hits.values()) == 1


def test_first_read_of_two_processes_compiles_each_kernel_once_and_only_those_it_needs(tmp_path: Path) -> None:
    code = (
        "import sparklog.record.kernels.cache as cache; saved = []; save = cache.KernelCache.save_overload\n"
        "cache.KernelCache.save_overload = lambda self, sig, data: (saved.append(self._name), save(self, sig, data))\n"
        "from sparklog.record.kernels.scan import capacity; import numpy as np\n"
        "capacity(np.zeros((1, 32), np.int64), 0, 0, 1, 1); print(*saved)"
    )
    environment = {"SPARKLOG_CACHE_DIR": str(tmp_path / "kept"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert sorted(out.strip() for out, _ in outputs) == ["", "sparklog.record.kernels.scan.capacity"], outputs
    assert sorted(err for _, err in outputs) == ["", "sparklog: compiling kernels, once for this machine\n"]
    assert not (tmp_path / ".cache").exists()


def test_warming_up_compiles_every_kernel_that_the_sources_have() -> None:
    here = Path(kernels_compile.__file__).parent
    declared = [
        name
        for path in here.glob("*.py")
        for name in re.findall(r"^@kernel\(.*\)\ndef (\w+)", path.read_text(), re.MULTILINE)
    ]
    decoders = {"decode_records", "decode_messages"}
    assert sorted(warm_up.load_kernels()) == sorted([*declared, *(f"{name}.program" for name in decoders)])
    assert warm_up.kernel_count() == len(declared) + len(decoders) >= 10


def test_kernel_is_compiled_for_a_number_of_arguments_when_it_is_first_called_with_so_many(
    kept_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_compile, "KERNELS", {})

    def added(number: Any, other: Any = None) -> Any:
        return number if other is None else number + other

    kernel = kernels_compile.kernel(SIGNATURE, types.int64(types.int64, types.int64))(added)

    def kept() -> list[str]:
        return sorted(
            path.name.rpartition(".")[2].rpartition("-")[0] for path in kept_in.iterdir() if path.stat().st_size
        )

    assert (kept(), sorted(kernels_compile.KERNELS)) == ([], ["added", "added.other"])
    assert (kernel(np.int64(3)), kept()) == (3, ["added"])
    assert (kernel(np.int64(3), np.int64(4)), kept()) == (7, ["added", "other"])
