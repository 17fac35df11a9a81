"""Compiles printed CUDA C with nvcc, once for each text, options and version."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from treadle.runtime.cache import cache_directory, cached_file
from treadle.runtime.nvidia_packages import program_of_package
from treadle.runtime.processes import run_process, trouble_around

LANGUAGE = ("-std=c++17", "-O3", "-fmad=false")
"""No fast-math: what a kernel approximates, it approximates by name; and where a product and a sum are one operation,
it says `fmaf`, so that it computes on a device what it does in the emulator."""

OPTIONS = (*LANGUAGE, "-cubin", "-Xptxas", "-v", "-lineinfo")

_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_LINES_SHOWN = 8
_NO_ARCH = re.compile(r"Value '\w+' is not defined for option|Unsupported gpu architecture")
"""What nvcc says of an architecture that it does not know, by its age."""

FIRST_RELEASES = {"sm_80": "11.0", "sm_86": "11.1", "sm_89": "11.8", "sm_90": "11.8", "sm_90a": "12.0"}
"""The toolkits that were the first to make code for an architecture (release notes of the CUDA toolkit)."""


class NvccUnavailable(Exception):
    """There is no nvcc, or it cannot work here."""


class NvccFailure(Exception):
    """nvcc refused the printed kernel."""


@dataclass(frozen=True)
class Resources:
    """What ptxas says that one kernel uses, a thread (registers, spills) or a block (shared)."""

    kernel: str
    registers: int
    spilled_bytes: int
    shared_bytes: int
    """Static only; what a launch adds is not known to ptxas."""
    product_notes: int = 0
    """Lines C75xx: products of warpgroups that ptxas serialises, or fences and waits that it injects."""

    def __str__(self) -> str:
        return (
            f"{self.kernel}: {self.registers} registers, {self.spilled_bytes} bytes spilled, "
            f"{self.shared_bytes} bytes of static shared memory"
        )


@dataclass(frozen=True)
class Cubin:
    """A compiled file, and what ptxas said about it."""

    path: Path
    log: str

    @property
    def image(self) -> bytes:
        return self.path.read_bytes()

    @property
    def resources(self) -> tuple[Resources, ...]:
        return parse_resources(self.log)


def find_nvcc() -> str | None:
    """`$CUDACXX`, else nvcc on the path, else where NVIDIA's installers put it, else that of the extra `[nvcc]`."""
    if chosen := os.environ.get("CUDACXX"):
        return shutil.which(chosen)
    if found := shutil.which("nvcc"):
        return found
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root and (found := shutil.which(str(Path(root) / "bin" / "nvcc"))):
            return found
    return program_of_package("nvcc")


def compile_cubin(source: str, arch: str, options: Sequence[str] = ()) -> Cubin:
    """Machine code of a printed file, from the cache if it was compiled before (NvccUnavailable,
    NvccFailure)."""
    nvcc = _nvcc_for(arch)
    command = [nvcc, *OPTIONS, f"-arch={arch}", *options]
    key = cache_key(source, command[1:], _version(nvcc))
    target = cache_directory() / "cubin" / f"{key}.cubin"
    log = target.with_suffix(".log")

    def make(path: Path) -> None:
        unit = path.with_suffix(".cu")
        unit.write_text(source, encoding="utf-8")
        said = _run([*command, str(unit), "-o", str(path)], arch)
        # The log first: a cubin that is there has its log.
        partial = path.with_suffix(".log")
        partial.write_text(said, encoding="utf-8")
        partial.replace(log)

    if not log.exists():
        target.unlink(missing_ok=True)
    cubin = cached_file(target, make)
    return Cubin(cubin, log.read_text(encoding="utf-8"))


def compile_ptx(source: str, arch: str) -> str:
    """The PTX that `compile_cubin` gives to ptxas, from the cache if it was made before (NvccUnavailable,
    NvccFailure)."""
    nvcc = _nvcc_for(arch)
    command = [nvcc, *LANGUAGE, "-ptx", "-lineinfo", f"-arch={arch}"]
    target = cache_directory() / "ptx" / f"{cache_key(source, command[1:], _version(nvcc))}.ptx"

    def make(path: Path) -> None:
        unit = path.with_suffix(".cu")
        unit.write_text(source, encoding="utf-8")
        _run([*command, str(unit), "-o", str(path)], arch)

    return cached_file(target, make).read_text(encoding="utf-8")


def _nvcc_for(arch: str) -> str:
    """nvcc (NvccUnavailable), of an architecture that may be one (ValueError)."""
    if not _ARCH.fullmatch(arch):
        raise ValueError(f"not an architecture of nvcc: {arch!r}; expected one like sm_80 or sm_90a")
    nvcc = find_nvcc()
    if nvcc is None:
        raise NvccUnavailable(
            "nvcc was not found: pip install 'treadle[nvcc]', or install the CUDA toolkit and put its bin folder on "
            "the path, or set CUDACXX to nvcc"
        )
    return nvcc


def cache_key(source: str, options: Sequence[str], version: str) -> str:
    """Different for any two compilations that could differ."""
    digest = hashlib.sha256()
    for part in (*options, version, source):
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:32]


def parse_resources(log: str) -> tuple[Resources, ...]:
    """The kernels that `ptxas -v` tells of, in its order."""
    found: list[Resources] = []
    for part in log.split("Compiling entry function ")[1:]:
        kernel = re.match(r"'([^']*)'", part)
        registers = re.search(r"Used (\d+) registers", part)
        if kernel is None or registers is None:
            continue
        spilled = sum(int(number) for number in re.findall(r"(\d+) bytes spill", part))
        shared = re.search(r"(\d+) bytes smem", part)
        notes = len(re.findall(rf"\(C75\d\d\)[^\n]*'{re.escape(kernel[1])}'", log))
        found.append(Resources(kernel[1], int(registers[1]), spilled, int(shared[1]) if shared else 0, notes))
    return tuple(found)


@cache
def _version(nvcc: str) -> str:
    result = run_process([nvcc, "--version"])
    if result.returncode != 0 or "nvcc" not in result.stdout:
        raise NvccUnavailable(f"{nvcc} is no nvcc, by what it answers to --version: set CUDACXX to nvcc, or unset it")
    return result.stdout


def release_of(nvcc: str) -> str:
    """The toolkit that an nvcc is of, as 12.4; "" if it does not say (NvccUnavailable if it is no nvcc)."""
    found = re.search(r"release (\d+\.\d+)", _version(nvcc))
    return found[1] if found else ""


def _why_no_code(nvcc: str, arch: str) -> str:
    """What to do where nvcc does not know the architecture."""
    release = release_of(nvcc)
    first = f"CUDA {FIRST_RELEASES[arch]} or newer does" if arch in FIRST_RELEASES else "another toolkit may"
    return (
        f"{nvcc}{f' of CUDA {release}' if release else ''} makes no code for {arch}, {first}: put another nvcc on the "
        "path, set CUDACXX to it, or pip install 'treadle[nvcc]'; --arch sm_80 asks for code that older ones make"
    )


def _run(command: Sequence[str], arch: str) -> str:
    """What the command said on either stream (NvccFailure, NvccUnavailable)."""
    result = run_process(command)
    if result.returncode != 0 and _NO_ARCH.search(result.stderr + result.stdout):
        raise NvccUnavailable(_why_no_code(command[0], arch))
    if (trouble := trouble_around(result)) is not None:
        raise NvccUnavailable(f"nvcc cannot compile here: {trouble}")
    said = result.stdout + result.stderr
    if result.returncode != 0:
        errors = [line for line in said.splitlines() if re.search(r"\b(error|fatal)\b", line)]
        raise NvccFailure("\n".join((errors or said.strip().splitlines())[:_LINES_SHOWN]) or "nvcc failed")
    return said
