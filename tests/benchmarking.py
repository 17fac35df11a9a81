"""Modules of `benchmarks/`, which is no package, for the tests."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from treadle.runtime import gpu as runtime_gpu
from treadle.runtime import gpu_facts

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


def told(script: str) -> list[str]:
    """A command."""
    return [sys.executable, "-c", script]


def run_of(
    commands: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *given: str,
    suites: dict[str, list[str]] | None = None,
    only: str = "tests",
) -> tuple[int, Any]:
    """What `benchmarks/gpu.py` gives, and writes, as if there were a GPU; these commands are its tests, and its suites
    of modules; `only` is the part that runs, where nothing else is said."""
    gpu = benchmark("gpu")
    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: None)
    monkeypatch.setattr(gpu_facts, "gpus", lambda: (gpu_facts.Gpu("NVIDIA H100", (9, 0), 2**36),))
    monkeypatch.setattr(gpu_facts, "driver_facts", lambda: None)
    monkeypatch.setattr(sys.modules["checks"], "test_commands", lambda machines: commands)
    monkeypatch.setattr(sys.modules["checks"], "suite_commands", lambda *_: suites or {})
    monkeypatch.setattr(sys.modules["results"], "RESULTS", folder)
    code = gpu.main([*given] if "--only" in given or not only else ["--only", only, *given])
    (path,) = folder.glob("gpu-*.json")
    return code, json.loads(path.read_text(encoding="utf-8"))
