"""Runs printed CUDA C on the host: threads as fibres, every access watched. See docs/emulator.md."""

from __future__ import annotations

from treadle.runtime.emulator.arrays import Array, MappedArray
from treadle.runtime.emulator.errors import (
    CompileFailure,
    EmulationError,
    EmulatorUnavailable,
    Fault,
)
from treadle.runtime.emulator.module import (
    EmulatedModule,
    LaunchReport,
    OperationCount,
    Scalar,
    compile_source,
)

__all__ = [
    "Array",
    "CompileFailure",
    "EmulatedModule",
    "EmulationError",
    "EmulatorUnavailable",
    "Fault",
    "LaunchReport",
    "MappedArray",
    "OperationCount",
    "Scalar",
    "compile_source",
]
