"""What goes wrong below the compiler, by whose fault it is. Imported when it does: each place has errors of its own."""

from __future__ import annotations


def wrong_kernel() -> tuple[type[Exception], ...]:
    from treadle.runtime.emulator import EmulationError
    from treadle.runtime.ptx.errors import PtxFault

    return EmulationError, PtxFault


def refused_kernel() -> tuple[type[Exception], ...]:
    from treadle.runtime.emulator import CompileFailure
    from treadle.runtime.nvcc import NvccFailure

    return CompileFailure, NvccFailure


def unable() -> tuple[type[Exception], ...]:
    from treadle.runtime.arguments import HostError
    from treadle.runtime.cache import CacheUnavailable
    from treadle.runtime.emulator import EmulatorUnavailable
    from treadle.runtime.gpu import GpuFailure, GpuUnavailable
    from treadle.runtime.nvcc import NvccUnavailable
    from treadle.runtime.ptx.errors import PtxUnknown

    return CacheUnavailable, EmulatorUnavailable, GpuFailure, GpuUnavailable, HostError, NvccUnavailable, PtxUnknown


__all__ = ["refused_kernel", "unable", "wrong_kernel"]
