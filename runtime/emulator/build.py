"""Compiles printed kernels with the host's C++ compiler, once each."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from os import cpu_count
from pathlib import Path

from treadle.runtime.cache import cache_directory, cached_file
from treadle.runtime.emulator.compiler import (
    filling_flags,
    host_compiler,
    linker_flags,
    run_compiler,
    version_of,
)
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
_RUNTIME = ("asynchronous.cpp", "emulator.cpp")
"""Two translation units, for two processors; the longer one first."""
_RUNTIME_FLAGS = ("-O1",)
"""As fast as `-O2`, and compiled in two thirds of the time."""
_KERNEL_FLAGS = ("-shared", "-DTREADLE_EMULATOR", "-w")
_LEVELS = {True: "-O0", False: "-O1"}
"""With checks the time is that of the runtime, which looks at every access; kernels then compile in half the time."""
_FIRST = "first.h"
"""The header that every translation unit begins with."""
_BOUNDS = re.compile(r"__launch_bounds__\(\d+(?:, *(\d+))?\)\s+(\w+)\(")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def compile_kernels(source: str, kernels: Sequence[str], *, checks: bool, name: str) -> Path:
    """The shared library of these kernels, from the cache if they were compiled before
    (CompileFailure, EmulatorUnavailable)."""
    command = host_compiler()
    filling = filling_flags(command) if checks else ()
    flags = (*_FLAGS, _LEVELS[checks], *filling, *_KERNEL_FLAGS, f"-DTREADLE_CHECKS={int(checks)}")
    text = _translation_unit(source, kernels, name)
    key = _digest(*command, version_of(command), *flags, _runtime_digest(), text)

    def make(target: Path) -> None:
        unit, folder = target.with_suffix(".cpp"), cache_directory() / "emulator"
        unit.write_text(text, encoding="utf-8")
        with ThreadPoolExecutor(cpu_count()) as pool:  # the first time each takes seconds
            runtime = [pool.submit(_runtime, command, part, folder) for part in _RUNTIME]
            first = pool.submit(_precompiled, command, flags, folder)
        objects, ready = [str(part.result()) for part in runtime], first.result()
        rest = [f"-I{ready}", f"-I{_HERE}", "-include", _FIRST, str(unit), *objects, "-o", str(target)]
        try:
            run_compiler([*command, *flags, *linker_flags(), *rest])
        except CompileFailure:  # perhaps of a linker that this compiler does not take
            if not linker_flags():
                raise
            run_compiler([*command, *flags, *rest])

    return cached_file(cache_directory() / "emulator" / f"{key}.so", make)


def _translation_unit(source: str, kernels: Sequence[str], name: str) -> str:
    """The printed file, under its own name and line numbers, then one entry point a kernel."""
    for kernel in kernels:
        if not _IDENTIFIER.fullmatch(kernel):
            raise ValueError(f"not a kernel's name: {kernel!r}; it must be a C identifier")
    shown = re.sub(r'["\\\x00-\x1f\x7f]', "_", name)
    resident = {name: blocks for blocks, name in _BOUNDS.findall(source)}
    entries = "".join(f"TREADLE_KERNEL({kernel}, {resident.get(kernel) or 1})\n" for kernel in kernels)
    end = "" if source.endswith("\n") else "\n"
    return f'#include "emulator.h"\n#line 1 "{shown}"\n{source}{end}#line 1 "kernels"\n{entries}'


def _runtime(command: tuple[str, ...], part: str, folder: Path) -> Path:
    """A translation unit of the runtime as an object file, to be linked into each kernel's library."""
    flags = (*_FLAGS, *_RUNTIME_FLAGS)
    key = _digest(*command, version_of(command), *flags, _runtime_digest())

    def make(target: Path) -> None:
        try:
            run_compiler([*command, *flags, "-c", str(_HERE / part), "-o", str(target)])
        except CompileFailure as error:  # our own text, which compiles elsewhere
            raise EmulatorUnavailable(f"{shlex.join(command)} does not compile the emulator: {error}") from error
        if not target.exists():
            raise EmulatorUnavailable(f"{shlex.join(command)} compiles nothing: is it a C++ compiler?")

    return cached_file(folder / f"runtime-{Path(part).stem}-{key}.o", make)


@cache
def _precompiled(command: tuple[str, ...], flags: tuple[str, ...], folder: Path) -> Path:
    """The folder of what the compiler made of first.h, which it takes in the place of that wherever it finds both:
    reading emulator.h again would be a third of what a kernel takes to compile. Once a process, for finding out whether
    so large a file is whole takes its time, too; if it is gone when it is needed, the header itself is read."""
    place = folder / f"first-{_digest(*command, version_of(command), *flags, _runtime_digest())}"

    def make(target: Path) -> None:
        run_compiler([*command, *flags, "-x", "c++-header", str(_HERE / _FIRST), "-o", str(target)])

    return cached_file(place / f"{_FIRST}.gch", make).parent


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
