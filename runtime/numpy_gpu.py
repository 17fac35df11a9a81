"""Kernels on numpy's arrays with a GPU: they are copied there, and results back.

What the first call with arrays of a geometry did is kept. Later ones make one allocation for all arrays, in which each
has the alignment that it had, copy, launch, and copy back: nothing is asked of the program again."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.cuda_driver import DriverFailure, is_installed
from treadle.runtime.gpu import ALIGNMENT, GpuBackend, GpuFailure, bytes_at, extent_of, misalignment_of
from treadle.runtime.host import execute
from treadle.runtime.replay import Plan, Tracer

GEOMETRIES = 64
"""For how many geometries of its arguments a kernel keeps what it does."""

Key: TypeAlias = tuple[Any, ...]


def geometry(arguments: Sequence[Any]) -> Key | None:
    """All that a host function may ask of arrays, and numbers themselves; None where there is something else among
    them, or what is not taken as it lies: conditions, which become bytes, and elements that begin at odd addresses. An
    array that is no view lies at the beginning of an allocation; how far another lies from there is asked, too."""
    key: list[Any] = []
    for each in arguments:
        if type(each) is np.ndarray:
            array: NDArray[Any] = each
            whole = array.base is None and array.flags.c_contiguous
            if array.dtype == np.bool_ or not array.flags.aligned:
                return None
            key.append((array.shape, array.strides, array.dtype, 0 if whole or not array.size else _shift(array)))
        elif type(each) in (int, float):
            key.append((type(each), each))
        else:
            return None
    return tuple(key)


def _shift(array: NDArray[Any]) -> int:
    """What `misalignment_of` says, of rows without gaps from two addresses alone."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if array.flags.c_contiguous and owner.flags.c_contiguous:
        return (array.ctypes.data - owner.ctypes.data) % ALIGNMENT
    return misalignment_of(array)


class HostReplay:
    """What a kernel does for arrays of one geometry, ready to be done again."""

    def __init__(self, plan: Plan, arguments: Sequence[Any], backend: GpuBackend):
        self._backend = backend
        self._launches = [backend.functions.prepared(launch).again for launch in plan.launches]
        self._lock = Lock()
        self._nbytes = 0
        self._offsets: list[int] = []
        """Of the first elements of all arrays, in the allocation."""
        self._given: list[tuple[int, int, bool]] = []
        """Of arguments that are copied: the number, where their memory begins, and whether they have no gaps."""
        self._offsets += [self._place(number, argument) for number, argument in enumerate(arguments)]
        self._offsets += [self._room(prod(shape) * dtype.itemsize) for shape, dtype in plan.allocations]
        made, shapes = len(arguments), dict(plan.shapes)
        allocated = [(array, *plan.allocations[array - made]) for array in plan.results]
        self._results = [
            (array, shapes.get(number, shape), dtype) for number, (array, shape, dtype) in enumerate(allocated)
        ]

    def __call__(self, arguments: Sequence[Any]) -> tuple[NDArray[Any], ...]:
        """The results (GpuFailure)."""
        backend = self._backend
        memory = backend.memory(self._nbytes)
        base = int(memory)
        for number, begin, whole in self._given:
            array = arguments[number]
            backend.copy_in(base + begin, array if whole else bytes_at(extent_of(array)))
        addresses = [base + offset for offset in self._offsets]
        try:
            with self._lock:
                for launch in self._launches:
                    launch(addresses, 0)
        except DriverFailure as error:
            raise GpuFailure(f"the kernels cannot be launched: {error}") from error
        results: list[NDArray[Any]] = []
        for array, shape, dtype in self._results:
            results.append(np.empty(shape, dtype))
            if results[-1].size:
                backend.copy_out(results[-1], addresses[array])
        return tuple(results)

    def _place(self, number: int, argument: Any) -> int:
        """Where it will lie; a number nowhere."""
        if isinstance(argument, int | float):
            return 0
        array: NDArray[Any] = argument
        extent, shift = extent_of(array), misalignment_of(array) if array.size else 0
        begin = self._room(extent.nbytes + shift) + shift
        if extent.nbytes:
            self._given.append((number, begin, array.flags.c_contiguous))
        return begin + extent.offset

    def _room(self, nbytes: int) -> int:
        begin = self._nbytes
        self._nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return begin


def run_and_keep(kernel: Any, key: Key | None, arrays: Sequence[Any], backend: GpuBackend) -> tuple[Any, ...]:
    """Results of the host function; what it did is kept under the key (GpuFailure)."""
    if key is None or not is_installed():
        return execute(kernel.module, arrays, backend)
    tracer = Tracer(backend, arrays)
    results = execute(kernel.module, arrays, tracer)
    plan = tracer.plan()
    if plan is not None and all(number >= len(arrays) for number in plan.results):
        replays: dict[Key, HostReplay] = kernel.host_replays
        replays[key] = HostReplay(plan, arrays, backend)
        if len(replays) > GEOMETRIES:
            del replays[next(iter(replays))]
    return results


__all__ = ["GEOMETRIES", "HostReplay", "geometry", "run_and_keep"]
