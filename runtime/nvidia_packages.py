"""Programs that NVIDIA's packages on PyPI install, outside of the shell's path."""

from __future__ import annotations

import os
import re
import sysconfig
from importlib.util import find_spec
from pathlib import Path


def program_of_package(program: str) -> str | None:
    """The path of a program in one of NVIDIA's packages in this Python's environment; of several toolkits, the newest
    (`nvidia/cu13/bin/nvcc`)."""
    nvidia = find_spec("nvidia")
    folders = {Path(each) for each in (nvidia.submodule_search_locations or ())} if nvidia else set[Path]()
    folders.add(Path(sysconfig.get_path("purelib")) / "nvidia")
    found = [path for folder in folders for path in folder.glob(f"*/bin/{program}")]
    usable = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
    return str(max(usable, key=_toolkit)) if usable else None


def _toolkit(path: Path) -> tuple[int, str]:
    """13 for `nvidia/cu13/bin/nvcc`; 0 for folders of one program, as `nvidia/cuda_nvcc`, which are older."""
    numbered = re.fullmatch(r"cu(\d+)", path.parent.parent.name)
    return int(numbered[1]) if numbered else 0, str(path)
