"""What a machine is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.dialects.cuda.kernel import MOST_IN_CLUSTER

DEFAULT_MACHINE = "a100"
"""The machine of a module that names none: what is made for it also runs on every newer one."""

ARCHS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a")
"""The targets of nvcc that a machine may have; `a` is for code that runs on that very version."""
FIRST_WITH_ASYNCHRONOUS_COPIES = 80
"""`cp.async` exists from sm_80 on (PTX ISA 9.7.9.25.3.1)."""
FIRST_OF_WARPGROUPS = 90
"""The capability from which on 8 bits are multiplied by warpgroups alone."""
FIRST_WITH_CLUSTERS = 90
"""The capability from which on blocks run in clusters (PTX ISA 5.1)."""
WARP = 32
"""Threads of a warp, on every machine."""
SUB_PARTITIONS = 4
"""A warp uses the units of its quarter of an SM, which issues one instruction a clock."""


@dataclass(frozen=True)
class Level:
    """A memory: one of the machine, or one of each SM."""

    name: str
    scope: str
    capacity: int
    """Bytes of one such memory."""
    bandwidth: float = inf
    """Bytes a second of one such memory; of registers without limit, for they are read as fast as they are used."""
    latency: int = 0
    """Clocks until the first byte of a load from device memory arrives, or of one from L2; of that 0 where a file does
    not say it, and then as from device memory."""
    coalesced: float = 1.0
    """Of L2, the part of what blocks read alike and at a time that it is asked for: the rest is coalesced before. It is
    no rate, and counts whichever rates are asked for."""


@dataclass(frozen=True)
class Limits:
    """What a block may have, what an SM can hold, and how large a grid may be."""

    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_block: int
    shared_reserved: int
    registers_per_sm: int
    registers_per_thread: int
    register_granularity: int
    register_partitions: int
    grid: int
    """Blocks of a launch, which all lie along x."""


@dataclass(frozen=True)
class Rates:
    """What the units of one SM do in a clock."""

    float: float
    """f32 results."""
    special: float
    """Results of exp2, reciprocals, square roots ..."""
    tensor: Mapping[str, float]
    """FLOP of dense products, by the format of the operands."""
    single_warps: float = 1.0
    """The part of those rates that products of single warps reach, where warpgroups reach all of it."""
    additions: float = 1.0
    """Atomic additions at one address of device memory, of the whole machine: "one operation per clock" (NVIDIA Kepler
    GK110 white paper, 2012). No later paper states another number, so that a file need not."""

    def products(self, format: str) -> float:
        """FLOP of dense products of operands in a format. Tensor cores that lack 8-bit formats multiply such operands
        as f16, which they become without a rounding (`diagram-widen-operands`)."""
        return self.tensor["f16"] if format == "f8" and "f8" not in self.tensor else self.tensor[format]


@dataclass(frozen=True)
class Sustained:
    """What was measured to last, of the whole machine; what nobody measured is not here."""

    device: float | None = None
    """Bytes a second of device memory, reads and writes together."""
    l2: float | None = None
    """Bytes a second that all SMs read from L2."""
    special: float | None = None
    """Results of exp2 a second."""
    launch: float | None = None
    """Seconds from one kernel of a stream to the next."""
    clock: float | None = None
    """Clocks a second that its multiprocessors hold."""
    clock_of_products: float | None = None
    """The same while tensor cores multiply all the time: they draw so much power that it falls."""
    memory_power: float | None = None
    """The part of what they draw then that device memory draws while it works all the time."""
    single_warps: float | None = None
    """The part of the rates of products that products of single warps reach."""
    tensor: Mapping[str, float] = field(default_factory=dict[str, float])
    """FLOP a second of dense products, by the format of the operands."""


@dataclass(frozen=True)
class Machine:
    """A GPU as the cost model sees it: what its datasheet says, and apart from that what lasts."""

    name: str
    arch: str
    sms: int
    clock: float
    """Clocks a second."""
    launch: float
    """Seconds from the end of one kernel of a stream to the start of the next, launches in flight."""
    levels: Mapping[str, Level]
    limits: Limits
    rates: Rates
    sustained: Sustained = Sustained()
    gpcs: int = 0
    """Clusters of processors; 0 where that is not known."""
    loaded_clock: float = 0.0
    """Clocks a second while tensor cores multiply all the time; 0 where it is `clock`."""
    memory_power: float = 0.0
    """The part of the power of such products that device memory takes while it works all the time."""
    counts_ends: bool = False
    """Whether a time holds all that blocks begin and end with (`cost/timing/between.py`): where rates are those that
    last. Sizes are chosen by the datasheet's, without."""
    counts_queues: bool = False
    """Whether it holds what tiles wait between device memory and processors that both are busy
    (`cost/timing/tiles_in_flight.py`): where rates are those that last, but not where sizes are compared by them."""

    def blocks_at_a_time(self, cluster: int) -> int:
        """Blocks that run at a time, one on an SM, in clusters of so many: each lies within one GPC, which hold pairs
        of SMs (TPCs), as many each as there are, or one pair more."""
        if cluster == 1 or not self.gpcs:
            return self.sms // cluster * cluster
        pairs, larger = divmod(self.sms // 2, self.gpcs)
        sizes = (2 * (pairs + (number < larger)) for number in range(self.gpcs))
        return max(cluster, sum(size // cluster * cluster for size in sizes))

    @property
    def capability(self) -> int:
        """`90` for `sm_90a`."""
        return int(self.arch.removeprefix("sm_").removesuffix("a"))

    @property
    def most_in_cluster(self) -> int:
        """Blocks of the largest cluster that every device of the architecture takes; 1 where there are no clusters (PTX
        ISA 5.1)."""
        return MOST_IN_CLUSTER if self.capability >= FIRST_WITH_CLUSTERS else 1

    @property
    def has_warpgroups(self) -> bool:
        """Whether code for it may use warpgroups: their products and the moving of registers are of that very
        architecture, `sm_90a`, and not of `sm_90` (PTX ISA 9.7.15, wgmma, and 9.7.19.5, setmaxnreg)."""
        return self.arch == "sm_90a"

    def bytes_per_clock(self, level: str) -> float:
        """Of one memory of that level."""
        return self.levels[level].bandwidth / self.clock

    def tensor_flops(self, format: str) -> float:
        """FLOP a second while nothing else is done: of the datasheet, or of `as_sustained`."""
        return self.sms * (self.loaded_clock or self.clock) * self.rates.products(format)

    def products_of_single_warps(self, format: str) -> float:
        """FLOP a clock of one SM that `mma` of single warps reach. On Hopper only warpgroups multiply 8 bits: of single
        warps each such product is two in f16 (`compiler/primitives/eight_bit.cuh`)."""
        multiplied = "f16" if format == "f8" and self.capability >= FIRST_OF_WARPGROUPS else format
        return self.rates.products(multiplied) * self.rates.single_warps

    def as_sustained(self) -> Machine:
        """The same machine with the rates that last, where they are known; the datasheet's elsewhere."""
        found, rates = self.sustained, self.rates
        lasting = self.at_clock(found.clock or self.clock)
        loaded = found.clock_of_products or 0.0
        levels = dict(lasting.levels)
        for name, bandwidth in (("device", found.device), ("l2", found.l2)):
            levels[name] = replace(levels[name], bandwidth=bandwidth or levels[name].bandwidth)
        tensor = {format: rate / (self.sms * (loaded or lasting.clock)) for format, rate in found.tensor.items()}
        special = rates.special if found.special is None else found.special / (self.sms * lasting.clock)
        single_warps = found.single_warps or rates.single_warps
        per_clock = Rates(rates.float, special, {**rates.tensor, **tensor}, single_warps, rates.additions)
        launch = found.launch or self.launch
        return replace(
            lasting,
            launch=launch,
            levels=levels,
            rates=per_clock,
            loaded_clock=loaded,
            memory_power=found.memory_power or 0.0,
            counts_ends=True,
            counts_queues=True,
        )

    def at_clock(self, clock: float) -> Machine:
        """The same whose multiprocessors and L2 do all that they do at another clock. Device memory has its own."""
        near = dict(self.levels)
        for name in ("l2", "shared"):
            near[name] = replace(near[name], bandwidth=near[name].bandwidth * clock / self.clock)
        return replace(self, clock=clock, levels=near)

    def with_endless(self, level: str) -> Machine:
        """The same with a memory that gives all at once what it is asked for, after its latency."""
        return replace(self, levels={**self.levels, level: replace(self.levels[level], bandwidth=inf)})

    def under_load(self, products: float, memory: float = 0.0) -> Machine:
        """The same while its tensor cores multiply, and device memory works, for these parts of the time. Voltage goes
        with the clock, so that products draw power in proportion to its third power: at the limit they have what memory
        leaves. Less than that lets the clock rise, up to the one that the machine has without load."""
        if not self.loaded_clock or products <= 0:
            return self
        left = (1 - self.memory_power * memory) / products
        return self.at_clock(min(self.clock, self.loaded_clock * left ** (1 / 3)))

    def shared_of_block(self, resident: Amount) -> Amount:
        """Bytes of shared memory that each of so many blocks on an SM may have."""
        room = self.levels["shared"].capacity // most(resident, 1) - self.limits.shared_reserved
        return least(room, self.limits.shared_per_block)

    def blocks_on_sm(self, warps: Amount, registers_per_thread: Amount, shared_bytes: Amount) -> Amount:
        """How many blocks an SM holds at once; 0 where not even one fits."""
        limits = self.limits
        threads = warps * WARP
        fits = (
            (registers_per_thread > 0)  # none is left where a block has more threads than an SM has registers for
            & (threads <= limits.threads_per_block)
            & (registers_per_thread <= limits.registers_per_thread)
            & (shared_bytes <= limits.shared_per_block)
        )
        unit = limits.register_granularity
        warp_registers = ceil_div(most(registers_per_thread, 1) * WARP, unit) * unit
        # The register file is split, and a warp takes all of its registers from one part.
        warps_of_part = limits.registers_per_sm // limits.register_partitions // warp_registers
        by_registers = warps_of_part * limits.register_partitions // warps
        by_shared = self.levels["shared"].capacity // (shared_bytes + limits.shared_reserved)
        return choice(fits, least(limits.blocks_per_sm, limits.threads_per_sm // threads, by_registers, by_shared), 0)
