"""A compiled kernel file, and its launches."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from treadle.compiler.counting import counting
from treadle.runtime.clusters import why_no_cluster
from treadle.runtime.emulator.arrays import Arena, Array, MappedArray
from treadle.runtime.emulator.build import compile_kernels
from treadle.runtime.emulator.errors import EmulationError, Fault
from treadle.runtime.emulator.native import FaultRecord, Launch, OperationRecord, Region
from treadle.runtime.parameters import Scalar
from treadle.runtime.tensor_maps import BYTES as TENSOR_MAP_BYTES

MAX_THREADS = 1024
MAX_SHARED_BYTES = 227 * 1024
_MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)

Value = ctypes.c_void_p | ctypes.Array[ctypes.c_ubyte] | Scalar
"""What a parameter's address points to."""

# In the order of `Operation` in emulator.h. A copy_async has a row for each of its two sides there,
# and one row in the report.
_KINDS = (
    "load_global",
    "store_global",
    "load_shared",
    "store_shared",
    "copy_async",
    "copy_async",
    "load_matrix",
    "mma",
    "shuffle_xor",
    "shuffle",
    "barrier_warp",
    "barrier_block",
    "barrier_named",
    "barrier_cluster_wait",
    "mbarrier_wait",
    "tensor_load",
    "tensor_store",
    "wgmma",
    "wgmma_fence",
    "wgmma_commit",
    "wgmma_wait",
    "store_matrix",
    "elect_one",
    "registers",
    "load_cluster",
    "tensor_multicast",
    "barrier_named_arrive",
    "any_lane",
    "uniform",
    "add_global",
)
_COPY_ASYNC_SHARED = 5


@dataclass(frozen=True)
class OperationCount:
    """What one source line's operation cost over a launch.

    requests: instructions of a warp, or tensor copies; bytes: over active lanes, or of a box within its array; sectors:
    of 32 bytes, of global memory; conflicts: passes over shared memory beyond the fewest; distinct: of the sectors,
    those that differ between two barriers of a block, or among the boxes of one tile, which every way to access the
    same elements asks for.
    """

    line: int
    kind: str
    requests: int
    bytes: int
    sectors: int
    conflicts: int
    distinct: int


@dataclass(frozen=True)
class LaunchReport:
    """What a launch moved, and the output elements it left unwritten, by argument."""

    bytes_loaded: int
    bytes_stored: int
    shared_bytes_loaded: int
    shared_bytes_stored: int
    seconds: float
    operations: tuple[OperationCount, ...]
    unwritten: dict[int, int]
    cluster_bytes: int = 0
    """Between the blocks of clusters: what one reads of another, and what multicasts bring to others, as far as it lies
    within the array."""


class EmulatedModule:
    """The kernels of one printed file, ready to run on the host."""

    def __init__(self, library: Path, kernels: Sequence[str], *, checks: bool) -> None:
        self._library = ctypes.CDLL(str(library))
        self._kernels = frozenset(kernels)
        self._checks = checks
        self._lock = _lock_of(library)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Array | MappedArray | Scalar],
        *,
        seed: int = 0,
        time_limit: float = 0.0,
        cluster: int = 1,
    ) -> LaunchReport:
        """Runs a kernel to its end; raises `EmulationError` if it does anything wrong.

        The blocks of a `cluster`, so many neighbours along x, run together.

        Seed 0 runs the threads in order and lets asynchronous data arrive as late as it may; another
        seed shuffles warps and lets data arrive at any allowed moment. A launch that takes longer than
        `time_limit` seconds, if that is not 0, is given up as a fault; this needs the checks.
        """
        if kernel not in self._kernels:
            raise ValueError(f"no kernel {kernel!r} here; there are {sorted(self._kernels)}")
        _check_shape(grid, block, shared_bytes, cluster)
        self._check_parameters(kernel, arguments)
        arrays = _arrays_of(arguments)
        for i, each in arrays.items():
            if each.writable and not each.data.flags.writeable:
                raise ValueError(f"argument {i} is an output, but its numpy array is read-only")
        arena = Arena(arrays, owners=self._checks)
        if 0 in grid:
            return self._report(Launch(), [], arena)
        values = [_value(each, arena.placed[i].pointer if i in arrays else 0) for i, each in enumerate(arguments)]
        with self._lock:
            launch = self._run(kernel, grid, block, shared_bytes, values, arena, seed, time_limit, cluster)
            faults = [self._fault(kernel, i) for i in range(launch.faults_kept)]
            operations = [self._operation(i) for i in range(launch.operations)]
        arena.copy_back()
        total = launch.faults
        for i, placed in arena.placed.items():
            if placed.owners is not None and placed.array.data.size and (stray := placed.stray()):
                message = f"writes {stray} elements between those of argument {i}, a strided view"
                faults.append(Fault("out of bounds", message, kernel, (0, 0, 0), None, None))
                total += 1
        if faults:
            raise EmulationError(tuple(faults), total)
        return self._report(launch, operations, arena)

    def _run(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        values: Sequence[Value],
        arena: Arena,
        seed: int,
        time_limit: float,
        cluster: int,
    ) -> Launch:
        regions = (Region * len(arena.placed))(*(p.region(i) for i, p in arena.placed.items()))
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        launch = Launch()
        entry = getattr(self._library, f"treadle_call_{kernel}")
        launch.kernel = ctypes.cast(entry, ctypes.c_void_p).value
        launch.arguments = ctypes.addressof(addresses)
        launch.grid[:] = grid
        launch.block[:] = block
        launch.shared_bytes = shared_bytes
        launch.seed = seed & (2**64 - 1)
        launch.time_limit = time_limit
        launch.regions = ctypes.addressof(regions)
        launch.region_count = len(regions)
        launch.checks = int(self._checks)
        launch.cluster = cluster
        launch.resident = self._library[f"treadle_resident_{kernel}"]()
        with counting("blocks", prod(grid), lambda: launch.blocks_done):
            failed = self._library.treadle_launch(ctypes.byref(launch))
        if failed != 0:
            raise MemoryError(f"no room for the stacks of {block} threads")
        return launch

    def _check_parameters(self, kernel: str, arguments: Sequence[Array | MappedArray | Scalar]) -> None:
        """A kernel called with what does not fit its parameters would read beyond them."""
        room = 256
        sizes = (ctypes.c_int * room)()
        count = int(self._library[f"treadle_parameters_{kernel}"](sizes, room))
        given = [_parameter_bytes(each) for each in arguments]
        if given != sizes[:count]:
            raise TypeError(f"kernel {kernel} has parameters of {sizes[:count]} bytes, given were {given}")

    def _fault(self, kernel: str, index: int) -> Fault:
        record = FaultRecord()
        self._library.treadle_fault(index, ctypes.byref(record))
        x, y, z = record.block
        return Fault(
            record.kind.decode(),
            record.message.decode(errors="replace"),
            kernel,
            (x, y, z),
            record.thread if record.thread >= 0 else None,
            record.line if record.line > 0 else None,
        )

    def _operation(self, index: int) -> OperationRecord:
        record = OperationRecord()
        self._library.treadle_operation(index, ctypes.byref(record))
        return record

    def _report(self, launch: Launch, records: Sequence[OperationRecord], arena: Arena) -> LaunchReport:
        operations = _operation_counts(records)

        def moved(*kinds: str) -> int:
            return sum(each.bytes for each in operations if each.kind in kinds)

        return LaunchReport(
            bytes_loaded=moved("load_global", "copy_async", "tensor_load"),
            bytes_stored=moved("store_global", "tensor_store", "add_global"),
            shared_bytes_loaded=moved("load_shared", "load_matrix"),
            shared_bytes_stored=moved("store_shared")
            + sum(each.bytes for each in records if each.operation == _COPY_ASYNC_SHARED),
            seconds=launch.seconds,
            operations=operations,
            unwritten={i: placed.unwritten() for i, placed in arena.placed.items() if placed.owners is not None},
            cluster_bytes=moved("load_cluster", "tensor_multicast"),
        )


def compile_source(
    source: str, kernels: Sequence[str], *, checks: bool = True, name: str = "kernel.cu"
) -> EmulatedModule:
    """Compiles a printed file for the host. `name` is what errors call it.

    Without `checks` nothing is watched or counted, which is several times faster.
    """
    library = compile_kernels(source, kernels, checks=checks, name=name)
    return EmulatedModule(library, kernels, checks=checks)


def _arrays_of(arguments: Sequence[Array | MappedArray | Scalar]) -> dict[int, Array]:
    """The arrays among the arguments, by position."""
    plain = {i: each.array if isinstance(each, MappedArray) else each for i, each in enumerate(arguments)}
    return {i: each for i, each in plain.items() if isinstance(each, Array)}


def _value(argument: Array | MappedArray | Scalar, address: int) -> Value:
    if isinstance(argument, Array):
        return ctypes.c_void_p(address)
    if isinstance(argument, MappedArray):
        return (ctypes.c_ubyte * TENSOR_MAP_BYTES).from_buffer_copy(argument.record(address))
    return argument


def _parameter_bytes(argument: Array | MappedArray | Scalar) -> int:
    if isinstance(argument, Array):
        return 8
    return TENSOR_MAP_BYTES if isinstance(argument, MappedArray) else ctypes.sizeof(argument)


@cache
def _lock_of(library: Path) -> threading.Lock:
    """A library has one state, whoever loaded it: its launches take turns."""
    return threading.Lock()


def _check_shape(grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, cluster: int) -> None:
    """Refuses launches that a device would refuse."""
    if any(not 0 <= size <= most for size, most in zip(grid, _MAX_GRID, strict=True)):
        raise ValueError(f"a grid of {grid} blocks cannot be launched")
    if reason := why_no_cluster(cluster, grid[0]):
        raise ValueError(reason)
    threads = block[0] * block[1] * block[2]
    if min(block) < 1 or threads > MAX_THREADS:
        raise ValueError(f"a block of {block} threads cannot be launched: 1 to {MAX_THREADS}")
    if not 0 <= shared_bytes <= MAX_SHARED_BYTES:
        raise ValueError(f"{shared_bytes} bytes of shared memory: 0 to {MAX_SHARED_BYTES}")


def _operation_counts(records: Sequence[OperationRecord]) -> tuple[OperationCount, ...]:
    """One row a line and kind, in the order of lines; a copy_async's two sides become one row."""
    shared = {r.line: r.conflicts for r in records if r.operation == _COPY_ASYNC_SHARED}
    rows: list[OperationCount] = []
    for r in records:
        if r.operation == _COPY_ASYNC_SHARED:
            continue
        kind = _KINDS[r.operation]
        conflicts = shared.get(r.line, 0) if kind == "copy_async" else r.conflicts
        rows.append(OperationCount(r.line, kind, r.requests, r.bytes, r.sectors, conflicts, r.distinct))
    return tuple(sorted(rows, key=lambda row: (row.line, row.kind)))
