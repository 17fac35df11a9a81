"""What a machine sustains, measured: copies through device memory, reads from L2, products of single warps (`mma.sync`)
and of warpgroups (`wgmma`), exp2, and what a launch adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from treadle.compiler.machines import Machine
from treadle.compiler.primitives import source

SOURCE = Path(__file__).with_name("rates.cu")
KERNELS = ("copy", "read_l2", "busy", "product", "exp2_rate")
OF_HOST = "busy"
OF_WARPGROUPS = "product_of_warpgroups"
PRIMITIVES = (
    "matrix_start",
    "matrix_descriptor",
    "further",
    "wgmma_fence",
    "wgmma_commit",
    "wgmma_wait",
    "wgmma_m64n256k16",
)

COPIED_BYTES = 1 << 30
"""Of the array that is copied: many times what L2 holds."""
L2_BYTES, L2_TURNS = 1 << 24, 2
"""Of the array that every block reads again and again, each from another place on: twice that fits any L2."""
TURNS = 4096
PRODUCTS, PRODUCT_FLOP = 8, 2 * 16 * 8 * 16
"""Of one turn of a warp, and of one of them."""
WARPGROUP_PRODUCTS, WARPGROUP_FLOP = 4, 2 * 64 * 256 * 16
"""Of one turn of a warpgroup, and of one of them."""
BUSY_CLOCKS, CLOCK_CLOCKS = 4_000, 1_000_000
"""Of the shorter of two kernels that do nothing else, so short that what the clock varies by is less than what a launch
costs; and of one that is long enough to tell the clock."""
BOUND_OF_CLOCK = 2e9
"""Clocks a second that no such device exceeds."""
THREADS = 256
WARPGROUP_THREADS = 128
BLOCKS_PER_SM = 4
WARPGROUPS_PER_SM = 2
"""Blocks of one warpgroup: the registers of 64 x 256 sums let an SM hold two or three."""
WARP = 32


@dataclass(frozen=True)
class Launch:
    """A kernel of `rates.cu`, on so many blocks of so many threads, with the number that it takes last."""

    kernel: str
    blocks: int
    threads: int
    number: int


Seconds = Callable[[Launch], float]
"""How long one such kernel after another takes, launches in flight."""


@dataclass(frozen=True)
class Rates:
    """Measured, of the whole machine."""

    device: float
    """Bytes a second, reads and writes together."""
    l2: float
    """Bytes a second that all SMs read."""
    tensor_f16: float
    """FLOP a second: of warpgroups, where the machine has them."""
    single_warps: float | None
    """The part of it that single warps reach; None where there is nothing else."""
    special: float
    """Results of exp2 a second."""
    launch: float
    """Seconds from one kernel of a stream to the next."""
    clock: float | None = None
    """Clocks a second of a kernel that does little; None where it was not measured."""

    def as_dict(self) -> Mapping[str, float | None]:
        return {
            "device": self.device,
            "l2": self.l2,
            "tensor_f16": self.tensor_f16,
            "single_warps": self.single_warps,
            "special": self.special,
            "launch": self.launch,
            "clock": self.clock,
        }


def with_rates(machine: Machine, rates: Rates) -> Machine:
    """The machine with rates that were measured; what its file says to last stands for what was not. L2 gives kernels
    no more a clock than its file says: that is by counters, and all blocks of `rates.cu` read one array."""
    tensor = {"f16": rates.tensor_f16, "bf16": rates.tensor_f16}
    measured = {key: value for key, value in rates.as_dict().items() if value is not None and key != "tensor_f16"}
    if rates.clock is not None:
        of_products = rates.tensor_f16 / (machine.sms * machine.rates.products("f16"))
        measured["clock_of_products"] = min(rates.clock, of_products)
    if machine.sustained.l2 is not None and machine.sustained.clock is not None:
        a_clock = machine.sustained.l2 / machine.sustained.clock
        measured["l2"] = min(rates.l2, a_clock * (rates.clock or machine.sustained.clock))
    return replace(machine, sustained=replace(machine.sustained, **measured, tensor=tensor)).as_sustained()


def kernels(machine: Machine) -> tuple[str, ...]:
    """The kernels that measure this machine."""
    return (*KERNELS, OF_WARPGROUPS) if machine.has_warpgroups else KERNELS


def clocks_of_host(seconds: float) -> int:
    """For which to keep a device busy while the host needs about so many seconds: twice as long, at any clock."""
    return int(2 * seconds * BOUND_OF_CLOCK)


def text(machine: Machine) -> str:
    """Their file."""
    needed = source(PRIMITIVES) if machine.has_warpgroups else ""
    return f"{needed}\n{SOURCE.read_text(encoding='utf-8')}"


def measured_rates(machine: Machine, seconds: Seconds) -> Rates:
    """The rates, each from the time of its kernel."""
    blocks = machine.sms * BLOCKS_PER_SM
    warps = blocks * THREADS // WARP

    def full(kernel: str, number: int) -> float:
        return seconds(Launch(kernel, blocks, THREADS, number))

    tensor = warps * TURNS * PRODUCTS * PRODUCT_FLOP / full("product", TURNS)
    single_warps = None
    if machine.has_warpgroups:
        groups = machine.sms * WARPGROUPS_PER_SM
        flop = groups * TURNS * WARPGROUP_PRODUCTS * WARPGROUP_FLOP
        of_groups = flop / seconds(Launch(OF_WARPGROUPS, groups, WARPGROUP_THREADS, TURNS))
        tensor, single_warps = of_groups, min(1.0, tensor / of_groups)
    short, long, longest = (
        seconds(Launch("busy", 1, 1, clocks)) for clocks in (BUSY_CLOCKS, 2 * BUSY_CLOCKS, CLOCK_CLOCKS)
    )
    return Rates(
        device=2 * COPIED_BYTES / full("copy", COPIED_BYTES // 16),
        l2=blocks * L2_TURNS * L2_BYTES / full("read_l2", L2_TURNS),
        tensor_f16=tensor,
        single_warps=single_warps,
        special=blocks * THREADS * TURNS * PRODUCTS / full("exp2_rate", TURNS),
        launch=max(0.0, 2 * short - long),
        clock=(CLOCK_CLOCKS - 2 * BUSY_CLOCKS) / (longest - long) if longest > long else None,
    )
