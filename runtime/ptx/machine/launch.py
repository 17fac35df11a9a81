"""A launch of an entry: what the driver would check, and its parameters as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from treadle.runtime.clusters import why_no_cluster
from treadle.runtime.cuda_driver import EncodedMap
from treadle.runtime.gpu import DeviceArray
from treadle.runtime.parameters import Scalar
from treadle.runtime.ptx.machine.machine import Machine
from treadle.runtime.ptx.machine.memory import Allocation, GlobalMemory, allocate
from treadle.runtime.ptx.machine.schedule import run
from treadle.runtime.ptx.text.module import Entry
from treadle.runtime.ptx.types import Triple

MAX_THREADS = 1024
MAX_SHARED_BYTES = 227 * 1024
_MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)


def launch(
    entry: Entry,
    grid: Triple,
    block: Triple,
    shared_bytes: int,
    arguments: Sequence[Any],
    *,
    cluster: int = 1,
    seed: int = 0,
) -> None:
    """Runs an entry on arrays, ctypes scalars and tensor maps to its end; the arrays have what it wrote then (PtxFault,
    PtxUnknown; ValueError for a launch that the driver would refuse)."""
    _check_shape(entry, grid, block, shared_bytes, cluster)
    parameters = pack(entry, arguments)
    if 0 in grid:
        return
    mapped = [each.array for each in arguments if isinstance(each, EncodedMap)]
    arrays = [each for each in (*arguments, *mapped) if isinstance(each, DeviceArray)]
    own = _variables(entry)
    given = [each.allocation for each in arrays if isinstance(each.allocation, Allocation)]
    memory = GlobalMemory([*given, *own.values()])
    addresses = {name: each.address for name, each in own.items()}
    machine = Machine(
        entry, memory, parameters, grid, block, shared_bytes, cluster=cluster, seed=seed, addresses=addresses
    )
    run(machine)
    memory.check_reads()
    memory.copy_back()


def _variables(entry: Entry) -> dict[str, Allocation]:
    """The file's variables in global memory, as they begin: what a launch leaves in them is not kept."""
    made: dict[str, Allocation] = {}
    for each in entry.module_variables:
        if each.space == "global" and each.nbytes is not None:
            made[each.name] = allocate(each.nbytes, writable=True)
            made[each.name].data[:] = 0
            made[each.name].data[: len(each.data)] = np.frombuffer(each.data, np.uint8)
    return made


def pack(entry: Entry, arguments: Sequence[Any]) -> bytes:
    """The parameters of an entry as bytes (TypeError for what does not fit)."""
    last = entry.parameters[-1] if entry.parameters else None
    made = bytearray(0 if last is None else last.offset + last.nbytes)
    if len(arguments) != len(entry.parameters):
        raise TypeError(f"kernel {entry.name} has {len(entry.parameters)} parameters, given were {len(arguments)}")
    for parameter, argument in zip(entry.parameters, arguments, strict=True):
        value = _bytes(argument)
        if len(value) != parameter.nbytes:
            raise TypeError(f"parameter {parameter.name} takes {parameter.nbytes} bytes, given were {len(value)}")
        made[parameter.offset : parameter.offset + parameter.nbytes] = value
    return bytes(made)


def _bytes(argument: Any) -> bytes:
    if isinstance(argument, EncodedMap):
        return argument.image
    value = ctypes.c_uint64(argument.pointer) if isinstance(argument, DeviceArray) else argument
    if not isinstance(value, Scalar):
        raise TypeError(
            f"an argument is a {type(argument).__name__}: expected an array, a ctypes scalar or a tensor map"
        )
    return bytes(value)


def _check_shape(entry: Entry, grid: Triple, block: Triple, shared_bytes: int, cluster: int) -> None:
    if min(*grid, *block) < 0 or min(block) < 1:
        raise ValueError(f"a grid of {grid} blocks of {block} threads")
    if any(size > most for size, most in zip(grid, _MAX_GRID, strict=True)):
        raise ValueError(f"a grid of {grid} blocks; at most {_MAX_GRID}")
    most = prod(entry.directives.get("maxntid", (MAX_THREADS,)))
    if prod(block) > min(most, MAX_THREADS):
        raise ValueError(f"a block of {prod(block)} threads; {entry.name} takes at most {most}")
    if not 0 <= shared_bytes <= MAX_SHARED_BYTES:
        raise ValueError(f"{shared_bytes} bytes of shared memory; a block has at most {MAX_SHARED_BYTES}")
    if (problem := why_no_cluster(cluster, grid[0])) is not None:
        raise ValueError(problem)
