"""What CuTe says of its own layouts: a program with its headers, compiled for the host alone; the lines it prints."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


def printed_with_cute(text: str) -> list[str]:
    """The lines that the program prints; the test is skipped where it cannot be compiled. They are kept beside compiled
    kernels, for the program and the version of CUTLASS: the compiler takes up to fifteen seconds for each worker."""
    spec = importlib.util.find_spec("cutlass_library")
    if shutil.which("nvcc") is None or spec is None or spec.origin is None:
        pytest.skip("nvcc and nvidia-cutlass are not both installed")
    name = hashlib.sha256(f"{version('nvidia-cutlass')}\n{text}".encode()).hexdigest()[:16]
    kept = Path(os.environ["TREADLE_CACHE"]) / "cute" / f"{name}.txt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryDirectory(dir=kept.parent) as folder:
            Path(folder, "show.cu").write_text(text)
            include = Path(spec.origin).parent / "source" / "include"
            command = ["nvcc", "-x", "c++", "-std=c++17", f"-I{include}", "show.cu", "-o", "show"]  # no device code
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            shown = subprocess.run([Path(folder, "show")], check=True, capture_output=True, text=True).stdout
            Path(folder, "shown").write_text(shown)
            Path(folder, "shown").replace(kept)
    return kept.read_text().splitlines()
