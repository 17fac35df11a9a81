"""Compiles printed kernels with the host's C++ compiler, once each."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from treadle.runtime.cache import cache_directory, cached_file
from treadle.runtime.emulator.errors import CompileFailure, EmulatorUnavailable

_HERE = Path(__file__).parent
# Contraction is off so that results do not depend on whether the host fuses multiply and add.
_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fno-exceptions",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fvisibility=hidden",
)
_RUNTIME_FLAGS = ("-O2",)
_KERNEL_FLAGS = ("-O1", "-shared", "-DTREADLE_EMULATOR", "-w")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ERRORS_SHOWN = 5


def compile_kernels(source: str, kernels: Sequence[str], *, checks: bool, name: str) -> Path:
    """The shared library of these kernels, from the cache if they were compiled before."""
    command = _compiler()
    flags = (*_FLAGS, *_KERNEL_FLAGS, f"-DTREADLE_CHECKS={int(checks)}")
    text = _translation_unit(source, kernels, name)
    key = _digest(*command, _version(command), *flags, _runtime_digest(), text)
    runtime = _runtime(command)

    def make(target: Path) -> None:
        unit = target.with_suffix(".cpp")
        unit.write_text(text, encoding="utf-8")
        _run([*command, *flags, f"-I{_HERE}", str(unit), str(runtime), "-o", str(target)])

    return cached_file(cache_directory() / "emulator" / f"{key}.so", make)


def _translation_unit(source: str, kernels: Sequence[str], name: str) -> str:
    """The printed file, under its own name and line numbers, then one entry point a kernel."""
    for kernel in kernels:
        if not _IDENTIFIER.fullmatch(kernel):
            raise ValueError(f"not a kernel's name: {kernel!r}; it must be a C identifier")
    shown = re.sub(r'["\\\x00-\x1f\x7f]', "_", name)
    entries = "".join(f"TREADLE_KERNEL({kernel})\n" for kernel in kernels)
    end = "" if source.endswith("\n") else "\n"
    return f'#include "emulator.h"\n#line 1 "{shown}"\n{source}{end}#line 1 "kernels"\n{entries}'


def _runtime(command: tuple[str, ...]) -> Path:
    """emulator.cpp as an object file, to be linked into each kernel's library."""
    flags = (*_FLAGS, *_RUNTIME_FLAGS)
    key = _digest(*command, _version(command), *flags, _runtime_digest())

    def make(target: Path) -> None:
        _run([*command, *flags, "-c", str(_HERE / "emulator.cpp"), "-o", str(target)])

    return cached_file(cache_directory() / "emulator" / f"runtime-{key}.o", make)


@cache
def _runtime_digest() -> str:
    files = sorted(path for path in _HERE.iterdir() if path.suffix in {".h", ".hpp", ".cpp"})
    return _digest(*(text for file in files for text in (file.name, file.read_text("utf-8"))))


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:32]


def _compiler() -> tuple[str, ...]:
    """`$CXX` if it is set, else the first C++ compiler found."""
    if chosen := os.environ.get("CXX"):
        command = tuple(shlex.split(chosen))
        if command and shutil.which(command[0]):
            return command
        raise EmulatorUnavailable(f"the emulator's C++ compiler, $CXX = {chosen!r}, was not found")
    for candidate in ("g++", "clang++", "c++"):
        if found := shutil.which(candidate):
            return (found,)
    raise EmulatorUnavailable(
        "the emulator needs a C++ compiler, and g++, clang++ and c++ were not found; install one "
        "(Debian, Ubuntu: apt install g++; macOS: xcode-select --install) or set $CXX"
    )


@cache
def _version(command: tuple[str, ...]) -> str:
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return result.stdout


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise CompileFailure(_first_errors(result.stderr) or f"{command[0]} failed, silently")


def _first_errors(output: str) -> str:
    """The lines that say what is wrong; all the output if none does."""
    lines = [line for line in output.splitlines() if re.search(r"\berror\b|undefined", line)]
    if not lines:
        return output.strip()
    shown = lines[:_ERRORS_SHOWN]
    rest = len(lines) - len(shown)
    return "\n".join([*shown, f"and {rest} more errors"] if rest else shown)
