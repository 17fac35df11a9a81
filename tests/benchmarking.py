"""Modules of `benchmarks/`, which is no package, for the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """`benchmarks/NAME.py`, imported."""
    qualified = f"treadle_benchmarks_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]
