"""Runs NVIDIA's disassemblers."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from treadle.compiler.sass.listing import Function, parse_listing
from treadle.runtime.nvidia_packages import program_of_package

_PROGRAMS = {"cuobjdump": ("-sass",), "nvdisasm": ("-c",)}


class DisassemblerUnavailable(Exception):
    """There is no program that reads machine code, or it does not read this."""


@cache
def find_disassembler() -> tuple[str, ...] | None:
    """The command that lists a cubin: from the path, the CUDA toolkit, or NVIDIA's packages from PyPI."""
    for program, options in _PROGRAMS.items():
        if (
            found := shutil.which(program)
            or shutil.which(f"/usr/local/cuda/bin/{program}")
            or program_of_package(program)
        ):
            return found, *options
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
