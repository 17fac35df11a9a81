"""The emulator as a place to run a host function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.emulator.arrays import Array, MappedArray, allocation_offset, leaves, view_at
from treadle.runtime.emulator.module import EmulatedModule, LaunchReport, compile_source


@dataclass(frozen=True)
class HostArray:
    """An array that kernels of the emulator work on: numpy's own memory."""

    data: NDArray[Any]
    writable: bool
    inside: NDArray[Any] | None = None
    """The array that it is a view of, if it leaves that."""

    @property
    def pointer(self) -> int:
        """Its address as far as alignment goes: from the beginning of its allocation, for that is where the emulator
        places it, and not where numpy happens to have it."""
        return allocation_offset(self.data, self.data.ctypes.data)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.data.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype


class EmulatorBackend:
    """Runs the kernels of one printed file, each compiled when it is first launched unless it was prepared; keeps the
    report of every launch in `reports`."""

    name = "emulator"

    def __init__(self, source: str, kernels: Sequence[str], *, checks: bool = True, seed: int = 0):
        self.source = source
        self.kernels = tuple(kernels)
        self.checks = checks
        self.modules: dict[str, EmulatedModule] = {}
        self.seed = seed
        self.reports: list[LaunchReport] = []
        self.variants: list[str] = []
        """What was launched, by the names that the printed file gives the variants of its kernels."""

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> HostArray:
        return HostArray(np.zeros(tuple(shape), dtype), writable=True)

    def upload(self, array: NDArray[Any]) -> HostArray:
        return HostArray(array, writable=False)

    def download(self, array: HostArray) -> NDArray[Any]:
        return array.data

    @property
    def has_tensor_maps(self) -> bool:
        return True

    def view(self, array: HostArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> HostArray:
        whole, made = array.inside, view_at(array.data, offset, shape, strides)
        whole = array.data if whole is None else whole
        return HostArray(made, writable=False, inside=whole if leaves(made, whole) else None)

    def tensor_map(self, array: HostArray, box: Sequence[int], swizzle: int) -> MappedArray:
        return MappedArray(Array(array.data, array.writable), tuple(box), swizzle)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
    ) -> LaunchReport:
        given = [
            Array(each.data, each.writable, each.inside) if isinstance(each, HostArray) else each for each in arguments
        ]
        report = self.module(kernel).launch(kernel, grid, block, shared_bytes, given, seed=self.seed, cluster=cluster)
        self.reports.append(report)
        self.variants.append(kernel)
        return report

    def module(self, kernel: str) -> EmulatedModule:
        """The compiled kernel (CompileFailure, EmulatorUnavailable; ValueError for one that the file has not)."""
        if kernel not in self.kernels:
            raise ValueError(f"no kernel {kernel!r} here; there are {sorted(self.kernels)}")
        if kernel not in self.modules:
            self._compile([kernel])
        return self.modules[kernel]

    def prepare(self, run: Callable[[EmulatorBackend], object]) -> None:
        """Compile together what a run will launch: starting a compiler and linking take longer than most kernels.
        The run is given a backend that launches nothing (CompileFailure, EmulatorUnavailable)."""
        rehearsal = _Rehearsal(self.source, self.kernels)
        run(rehearsal)
        if missing := [kernel for kernel in dict.fromkeys(rehearsal.variants) if kernel not in self.modules]:
            self._compile(missing)

    def _compile(self, kernels: Sequence[str]) -> None:
        library = compile_source(self.source, kernels, checks=self.checks)
        self.modules |= dict.fromkeys(kernels, library)


class _Rehearsal(EmulatorBackend):
    """Knows afterwards what would have been launched: that depends on sizes and addresses, never on what is in the
    arrays."""

    def launch(self, kernel: str, *_: Any, **__: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.variants.append(kernel)
