"""Tools of the CUDA toolkit, wherever they are, for the tests."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path


def find_cuobjdump() -> str | None:
    """The path of `cuobjdump`: that of the shell's path, else the one that the wheel from PyPI carries."""
    if found := shutil.which("cuobjdump"):
        return found
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    found_files = (file for place in places for file in Path(place).glob("*/bin/cuobjdump"))
    return next((str(file) for file in found_files), None)
