"""The host's C++ compiler: which it is, whether it works, and what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from functools import cache

from treadle.runtime.emulator.errors import CompileFailure, EmulatorUnavailable
from treadle.runtime.processes import run_process, trouble_around

CANDIDATES = ("g++", "clang++", "c++")
LINKERS = ("mold", "lld", "gold")
"""Those that take a third of the time of the usual one, which is a third of the time that a small kernel takes."""
_ADVICE = "set it to g++ or clang++, or unset it"
_ERRORS_SHOWN = 5


def host_compiler() -> tuple[str, ...]:
    """`$CXX` if it is set, else the first C++ compiler found, as the beginning of a command (EmulatorUnavailable)."""
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        return _chosen(chosen)
    for candidate in CANDIDATES:
        if found := shutil.which(candidate):
            return (found,)
    raise EmulatorUnavailable(
        f"the emulator needs a C++ compiler, and {', '.join(CANDIDATES[:-1])} and {CANDIDATES[-1]} were not found; "
        "install one (Debian, Ubuntu: apt install g++; macOS: xcode-select --install) or set $CXX"
    )


def has_host_compiler() -> bool:
    """Whether a C++ compiler was chosen, rightly or not, or can be found."""
    return bool(os.environ.get("CXX", "").strip()) or any(shutil.which(name) for name in CANDIDATES)


def _chosen(chosen: str) -> tuple[str, ...]:
    """`$CXX` is a path, which may hold spaces, or a command with options, quoted as in a shell."""
    if shutil.which(chosen):
        return (chosen,)
    try:
        command = tuple(shlex.split(chosen))
    except ValueError as error:
        raise _unusable(chosen, f"it cannot be read as a command ({str(error).lower()})") from error
    if not command or shutil.which(command[0]) is None:
        raise _unusable(chosen, "it was not found")
    return command


def _unusable(chosen: str, why: str) -> EmulatorUnavailable:
    return EmulatorUnavailable(f"the C++ compiler of the emulator, $CXX = {chosen!r}, cannot be used: {why}; {_ADVICE}")


@cache
def version_of(command: tuple[str, ...]) -> str:
    """What the compiler says of itself (EmulatorUnavailable if it says nothing)."""
    try:
        result = run_process([*command, "--version"])
    except OSError as error:
        raise _unusable(shlex.join(command), f"it cannot be started ({error.strerror})") from error
    if result.returncode != 0 or not result.stdout.strip():
        raise _unusable(shlex.join(command), "it does not answer to --version, so it is no C++ compiler")
    return result.stdout


@cache
def linker_flags() -> tuple[str, ...]:
    """What lets the compiler take a fast linker, if there is one."""
    return next(((f"-fuse-ld={name}",) for name in LINKERS if shutil.which(f"ld.{name}")), ())


_FILLING = ("-ftrivial-auto-var-init=pattern",)
_FILL_SINCE = ((r"Apple clang version (\d+)", 11), (r"clang version (\d+)", 8), (r"\) (\d+)\.\d+", 12))


def filling_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """What makes the compiler fill variables that a kernel does not initialise with numbers far from all others: on a
    device, too, nobody knows what they are. Nothing for compilers that cannot, by the version that they tell."""
    version = version_of(command).splitlines()[0]
    for pattern, since in _FILL_SINCE:
        if found := re.search(pattern, version):
            return _FILLING if int(found[1]) >= since else ()
    return ()


def run_compiler(command: Sequence[str]) -> None:
    """Run the compiler (CompileFailure with the lines that say what is wrong; EmulatorUnavailable where that is the
    place and not the text: a full disk, say)."""
    result = run_process(command)
    if (trouble := trouble_around(result)) is not None:
        raise EmulatorUnavailable(f"{command[0]} cannot compile the kernels here: {trouble}")
    if result.returncode != 0:
        raise CompileFailure(first_errors(result.stderr) or f"{command[0]} failed, silently")


def first_errors(output: str) -> str:
    """The lines that say what is wrong; all the output if none does."""
    lines = [line for line in output.splitlines() if re.search(r"\berror\b|undefined", line)]
    if not lines:
        return output.strip()
    shown = lines[:_ERRORS_SHOWN]
    rest = len(lines) - len(shown)
    return "\n".join([*shown, f"and {rest} more errors"] if rest else shown)
