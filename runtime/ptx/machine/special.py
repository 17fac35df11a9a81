"""Special registers (PTX ISA section 10): what each thread reads in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.types import Array, Triple

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine


def _axis(of: Callable[[Machine], tuple[Array, ...]], name: str) -> dict[str, Callable[[Machine], Array]]:
    return {f"{name}.{letter}": (lambda machine, i=i: of(machine)[i]) for i, letter in enumerate("xyz")}


def _all(value: int, machine: Machine) -> Array:
    return np.full(machine.size, value, np.uint32)


def _alike(of: Callable[[Machine], Triple]) -> Callable[[Machine], tuple[Array, ...]]:
    return lambda machine: tuple(_all(each, machine) for each in of(machine))


def unravel(number: Array, shape: Triple) -> tuple[Array, Array, Array]:
    """Coordinates, x fastest."""
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])


def _clusters(machine: Machine) -> Triple:
    return machine.grid[0] // machine.cluster, machine.grid[1], machine.grid[2]


def _cluster_of(machine: Machine) -> tuple[Array, ...]:
    x, y, z = unravel(machine.block_index, machine.grid)
    return x // machine.cluster, y, z


SPECIAL: dict[str, Callable[[Machine], Array]] = {
    **_axis(lambda machine: unravel(machine.thread_index, machine.block), "%tid"),
    **_axis(lambda machine: unravel(machine.block_index, machine.grid), "%ctaid"),
    **_axis(_alike(lambda machine: machine.block), "%ntid"),
    **_axis(_alike(lambda machine: machine.grid), "%nctaid"),
    **_axis(_alike(lambda machine: (machine.cluster, 1, 1)), "%cluster_nctaid"),
    **_axis(_alike(_clusters), "%nclusterid"),
    **_axis(_cluster_of, "%clusterid"),
    "%cluster_ctaid.x": lambda machine: machine.rank,
    "%cluster_ctaid.y": lambda machine: _all(0, machine),
    "%cluster_ctaid.z": lambda machine: _all(0, machine),
    "%cluster_ctarank": lambda machine: machine.rank,
    "%cluster_nctarank": lambda machine: _all(machine.cluster, machine),
    "%laneid": lambda machine: machine.thread_index % 32,
    "%dynamic_smem_size": lambda machine: _all(machine.shared_bytes, machine),
}


def special_register(machine: Machine, name: str) -> Array:
    """A special register of all threads of the batch, in 32 bits."""
    if name not in machine.special:
        machine.special[name] = SPECIAL[name](machine).astype(np.uint32)
    return machine.special[name]


def is_special(name: str) -> bool:
    return name in SPECIAL
