"""`treadle doctor`: what of the tools that treadle uses is here, what works, and what each absence means."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from treadle import __version__
from treadle.compiler.errors import TreadleError
from treadle.runtime.backend import choose_backend
from treadle.runtime.cache import cache_directory, entries, limit
from treadle.runtime.emulator.compiler import host_compiler, version_of
from treadle.runtime.emulator.errors import EmulatorUnavailable
from treadle.runtime.gpu import device_count
from treadle.runtime.gpu_facts import Gpu, driver_facts, gpus
from treadle.runtime.nvcc import find_nvcc
from treadle.runtime.processes import run_process

LEAST_CAPABILITY = (8, 0)
"""What the kernels that treadle prints need at least: products of m16n8k16, asynchronous copies."""

WIDTH = 110
"""Columns that lines are broken at."""

HOST_PROGRAM = "#include <cstdint>\n#include <vector>\nint64_t f() { return std::vector<int64_t>(3).size(); }\n"
KERNEL = "#include <cuda_fp16.h>\n__global__ void f(__half *a) { a[threadIdx.x] = __float2half(1.0f); }\n"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: what it is, and where that is not as it should be, what follows from it."""

    name: str
    found: str
    means: str = ""


def command(_arguments: Namespace) -> int:
    """Print what is here; 0 whatever it is, for nothing of it is an error of this command's."""
    print(f"treadle {__version__}")
    for look in LOOKS:
        for finding in look():
            print(_told(f"{finding.name:<14} ", finding.found))
            if finding.means:
                print(_told(f"{'':<14} -> ", finding.means))
    print(_told("programs run in ", _place(), margin=""))
    return 0


def _told(head: str, text: str, margin: str = "  ") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=margin + head,
        subsequent_indent=" " * len(margin + head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place() -> str:
    choice = choose_backend("auto")
    if choice.backend == "emulator" and host()[0].means:
        return "no place until the C++ compiler works, but for '--backend interpreter'"
    return f"the {choice.backend} ({choice.reason})" if choice.reason else f"the {choice.backend}"


def python() -> Sequence[Finding]:
    found = f"{platform.python_version()}, {sys.executable}"
    return [Finding("Python", found, "" if sys.version_info >= (3, 11) else "treadle needs 3.11 or newer")]


def xdsl() -> Sequence[Finding]:
    installed, wanted = version("xdsl"), _wanted("xdsl")
    right = wanted is None or installed.startswith(wanted)
    means = f"treadle is made for {wanted}*: other versions have other interfaces; pip install 'xdsl=={wanted}*'"
    return [Finding("xdsl", installed, "" if right else means)]


def _wanted(package: str) -> str | None:
    """`0.74.` where treadle was installed with the requirement `package==0.74.*`."""
    try:
        found = (re.fullmatch(rf"{package}==([\d.]+)\*", each.strip()) for each in requires("treadle") or ())
    except PackageNotFoundError:  # imported from its folder, not installed
        return None
    return next((match[1] for match in found if match), None)


def host() -> Sequence[Finding]:
    name = "C++ compiler"
    without = "no emulator: kernels are not run without a GPU, programs run in the interpreter, which is slow"
    try:
        compiler = host_compiler()
        said = version_of(compiler).splitlines()[0]
    except EmulatorUnavailable as error:
        return [Finding(name, f"none: {error}", without)]
    found = f"{' '.join(compiler)}: {said}"
    problem = _problem([*compiler, "-std=c++17", "-shared", "-fPIC"], HOST_PROGRAM, "f.cpp")
    return [Finding(name, f"{found}, but it does not work: {problem}", without) if problem else Finding(name, found)]


def nvcc() -> Sequence[Finding]:
    without = (
        "CUDA C is printed, but there is no machine code (--cubin, registers), and nothing runs on a GPU or by "
        "'--backend ptx'"
    )
    path, chosen = find_nvcc(), os.environ.get("CUDACXX")
    if path is None and chosen:
        return [Finding("nvcc", f"none: $CUDACXX = {chosen!r} was not found", f"{without}; put it right or unset it")]
    if path is None:
        advice = "pip install 'treadle[nvcc]', or install the CUDA toolkit, or set CUDACXX"
        return [Finding("nvcc", "none", f"{without}; {advice}")]
    try:
        release = re.search(r"release [\d.]+, V([\d.]+)", run_process([path, "--version"]).stdout)
    except OSError as error:
        return [Finding("nvcc", f"{path}, but it cannot be started: {error.strerror}", without)]
    if release is None:
        return [Finding("nvcc", f"{path}, but it does not tell its version", without)]
    found = f"{release[1]}, {path}"
    if problem := _problem([path, "-arch=sm_80", "-cubin"], KERNEL, "f.cu"):
        return [Finding("nvcc", f"{found}, but it does not work: {problem}", without)]
    return [Finding("nvcc", found, _too_new(release[1]))]


def _too_new(nvcc_version: str) -> str:
    """A driver loads machine code of its own major version of CUDA and of older ones (CUDA compatibility guide)."""
    facts = driver_facts()
    if facts is None or int(nvcc_version.split(".")[0]) <= facts.cuda[0]:
        return ""
    return f"the driver is of CUDA {facts.cuda[0]}.{facts.cuda[1]}: it may not load this nvcc's machine code; update it"


def gpu() -> Sequence[Finding]:
    facts = driver_facts()
    count, reason = device_count()
    if facts is None:
        absent = "no GPU is used: kernels run in the emulator, which verifies them and says nothing of their speed"
        return [Finding("GPU driver", "none", absent), Finding("GPU", reason.removeprefix("no GPU: "))]
    driver = Finding("GPU driver", f"{facts.release or 'of unknown release'}, CUDA {facts.cuda[0]}.{facts.cuda[1]}")
    if count == 0:
        return [driver, Finding("GPU", "none", f"{reason.removeprefix('no GPU: ')}; kernels run in the emulator")]
    return [driver, *(_gpu(each) for each in gpus())]


def _gpu(found: Gpu) -> Finding:
    major, minor = found.capability
    text = f"{found.name}, compute capability {major}.{minor}, {found.memory / 2**30:.0f} GiB"
    least = ".".join(map(str, LEAST_CAPABILITY))
    old = f"it is too old: treadle's kernels need {least} or newer; use '--backend emulator'"
    return Finding("GPU", text, "" if found.capability >= LEAST_CAPABILITY else old)


def pycuda() -> Sequence[Finding]:
    without = (
        "kernels run by cuda-bindings alone, if that is here; pip install 'treadle[gpu]' (it compiles PyCUDA, with the "
        "CUDA toolkit's headers)"
    )
    return [_package("PyCUDA", "pycuda", "pycuda.driver", without)]


def cuda_bindings() -> Sequence[Finding]:
    without = (
        "with PyCUDA alone slower kernels run on sm_90, with neither nothing runs on a GPU; pip install 'treadle[gpu]'"
    )
    return [_package("cuda-bindings", "cuda-bindings", "cuda.bindings.driver", without)]


def pytorch() -> Sequence[Finding]:
    without = "no torch.compile(backend='treadle') and no torch tensors; numpy arrays do; pip install 'treadle[torch]'"
    return [_package("PyTorch", "torch", "torch", without)]


def _package(name: str, distribution: str, module: str, without: str) -> Finding:
    """A package counts as there if it can be imported, which is when a library that it needs is missed."""
    try:
        installed = version(distribution)
    except PackageNotFoundError:
        return Finding(name, "none", without)
    try:
        import_module(module)
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return Finding(name, f"{installed}, but it cannot be imported: {said}", without)
    return Finding(name, installed)


def cache() -> Sequence[Finding]:
    try:
        folder = cache_directory()
        held = sum(size for _, size, _ in entries())
        return [Finding("cache", f"{folder}: {held:,} bytes of at most {limit():,}")]
    except TreadleError as error:
        return [Finding("cache", "cannot be used", str(error))]


def _problem(compiler: Sequence[str], text: str, name: str) -> str:
    """Why a compiler does not compile a few lines; empty if it does."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        unit = Path(folder) / name
        unit.write_text(text, encoding="utf-8")
        result = run_process([*compiler, str(unit), "-o", str(unit.with_suffix(".out"))])
    if result.returncode == 0:
        return ""
    lines = (result.stderr + result.stdout).strip().splitlines()
    return next((line.strip() for line in lines if "error" in line), lines[0] if lines else "it says nothing")


LOOKS: tuple[Callable[[], Sequence[Finding]], ...] = (
    python,
    xdsl,
    host,
    nvcc,
    gpu,
    pycuda,
    cuda_bindings,
    pytorch,
    cache,
)
