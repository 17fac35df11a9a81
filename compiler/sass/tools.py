"""Runs NVIDIA's disassemblers."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from treadle.compiler.sass.listing import Function, parse_listing

_PROGRAMS = {"cuobjdump": ("-sass",), "nvdisasm": ("-c",)}


class DisassemblerUnavailable(Exception):
    """There is no program that reads machine code, or it does not read this."""


@cache
def find_disassembler() -> tuple[str, ...] | None:
    """The command that lists a cubin: from the path, the CUDA toolkit, or NVIDIA's packages from PyPI."""
    for program, options in _PROGRAMS.items():
        if found := shutil.which(program) or shutil.which(f"/usr/local/cuda/bin/{program}") or _from_pypi(program):
            return found, *options
    return None


def _from_pypi(program: str) -> str | None:
    """`nvidia-cuda-cuobjdump` and `nvidia-cuda-nvdisasm` hold the programs."""
    nvidia = find_spec("nvidia")
    folders = [Path(each) for each in (nvidia.submodule_search_locations or ())] if nvidia else []
    for folder in (*folders, Path(sysconfig.get_path("purelib")) / "nvidia"):
        for found in sorted(folder.glob(f"*/bin/{program}")):
            if found.is_file():
                return str(found)
    return None


def disassemble(cubin: Path) -> tuple[Function, ...]:
    """The functions of a cubin (DisassemblerUnavailable)."""
    command = find_disassembler()
    if command is None:
        raise DisassemblerUnavailable(
            "cuobjdump was not found: install the CUDA toolkit, "
            "or 'pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm'"
        )
    result = subprocess.run([*command, str(cubin)], capture_output=True, text=True, check=False)
    functions = parse_listing(result.stdout)
    if result.returncode != 0 or not functions:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise DisassemblerUnavailable(f"{Path(command[0]).name}: {said[0] if said else 'lists no code'}")
    return functions
