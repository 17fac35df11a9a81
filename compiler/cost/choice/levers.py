"""What would move the time of a kernel: the sizes are chosen again on a machine that has more of one thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from treadle.compiler.cost.choice.choose import choose
from treadle.compiler.cost.choice.formats import as_f8, as_tf32
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.cost.timing.time import Estimate
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine

NOTEWORTHY = 0.02
"""What moves the time by less is not said: estimates this near to each other say nothing."""


@dataclass(frozen=True)
class Lever:
    """Something to change, and the time after it."""

    what: str
    time_us: float


def levers(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], now: float) -> list[Lever]:
    """What would make a kernel that takes `now` microseconds noticeably faster, the most helpful first."""
    found = [Lever(what, time) for what, time in _tried(sketch, machine, sizes) if time < (1 - NOTEWORTHY) * now]
    return sorted(found, key=lambda lever: lever.time_us)


def _tried(sketch: Sketch, machine: Machine, sizes: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    for what, other in _machines(machine):
        if (found := _time(sketch, other, sizes)) is not None:
            yield what, found.time_us
    for what, format, other in (
        ("16-bit numbers as f8", "f8", as_f8(sketch)),
        ("products of f32 as tf32, on tensor cores", "tf32", as_tf32(sketch)),
    ):
        if other is None or format not in machine.rates.tensor:
            continue
        if (found := _time(other, machine, sizes)) is not None:
            yield what, found.time_us


def _time(sketch: Sketch, machine: Machine, sizes: Mapping[str, int]) -> Estimate | None:
    try:
        return choose(sketch, machine, sizes, {}).estimate
    except TreadleError:
        return None


def _machines(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """The same machine with twice as much of one thing."""
    limits, levels, rates = machine.limits, machine.levels, machine.rates
    shared = replace(levels["shared"], capacity=2 * levels["shared"].capacity)
    yield (
        "twice the shared memory",
        replace(
            machine,
            levels={**levels, "shared": shared},
            limits=replace(limits, shared_per_block=2 * limits.shared_per_block),
        ),
    )
    registers = replace(levels["register"], capacity=2 * levels["register"].capacity)
    yield (
        "twice the registers (of an SM and of a thread)",
        replace(
            machine,
            levels={**levels, "register": registers},
            limits=replace(
                limits,
                registers_per_sm=2 * limits.registers_per_sm,
                registers_per_thread=2 * limits.registers_per_thread,
            ),
        ),
    )
    larger = replace(levels["l2"], capacity=2 * levels["l2"].capacity)
    yield "twice the L2 cache", replace(machine, levels={**levels, "l2": larger})
    for name, what in (("device", "device memory"), ("l2", "L2"), ("shared", "shared memory")):
        faster = replace(levels[name], bandwidth=2 * levels[name].bandwidth)
        yield f"twice the bandwidth of {what}", replace(machine, levels={**levels, name: faster})
    tensor = {format: 2 * rate for format, rate in rates.tensor.items()}
    yield "twice the rate of products", replace(machine, rates=replace(rates, tensor=tensor))
    yield "twice the rate of special functions", replace(machine, rates=replace(rates, special=2 * rates.special))
    yield "twice the rate of f32 arithmetic", replace(machine, rates=replace(rates, float=2 * rates.float))
