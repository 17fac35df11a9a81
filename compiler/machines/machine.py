"""What a machine is, and how its file is read and checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from treadle.compiler.amounts import Amount, ceil_div, choice, least
from treadle.compiler.errors import TreadleError

FOLDER = Path(__file__).parent

DEFAULT_MACHINE = "a100"
"""The machine of a module that names none: what is made for it also runs on every newer one."""

LEVELS = ("device", "l2", "shared", "register")
SCOPES = ("machine", "sm")
TENSOR_FORMATS = ("f16", "bf16", "tf32", "f8", "i8")
MOST_ABOVE = 1.2
"""What is measured may be so many times the datasheet's rate, and no more."""
ARCHS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a")
"""The targets of nvcc that a machine may have; `a` is for code that runs on that very version."""
WARP = 32
"""Threads of a warp, on every machine."""


@dataclass(frozen=True)
class Level:
    """A memory: one of the machine, or one of each SM."""

    name: str
    scope: str
    capacity: int
    """Bytes of one such memory."""
    bandwidth: float
    """Bytes a second of one such memory."""
    granularity: int
    """Bytes that move together."""
    latency: int
    """Clocks until the first byte of a load arrives."""


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
    grid: tuple[int, int, int]


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

    def products(self, format: str) -> float:
        """FLOP of dense products of operands in a format. Tensor cores that lack 8-bit formats multiply such operands
        as f16, which they become without a rounding (`diagram-widen-operands`)."""
        return self.tensor["f16"] if format == "f8" and "f8" not in self.tensor else self.tensor[format]


@dataclass(frozen=True)
class Sustained:
    """What was measured to last, of the whole machine; what nobody measured is not here."""

    device: float | None = None
    """Bytes a second of device memory, reads and writes together."""
    special: float | None = None
    """Results of exp2 a second."""
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
    levels: Mapping[str, Level]
    limits: Limits
    rates: Rates
    sustained: Sustained = Sustained()

    @property
    def capability(self) -> int:
        """`90` for `sm_90a`."""
        return int(self.arch.removeprefix("sm_").removesuffix("a"))

    def bytes_per_clock(self, level: str) -> float:
        """Of one memory of that level."""
        return self.levels[level].bandwidth / self.clock

    def tensor_flops(self, format: str) -> float:
        """FLOP a second of the datasheet."""
        return self.sms * self.clock * self.rates.products(format)

    def as_sustained(self) -> Machine:
        """The same machine with the rates that last, where they are known; the datasheet's elsewhere."""
        a_clock = self.sms * self.clock
        device = self.levels["device"]
        tensor = {format: rate / a_clock for format, rate in self.sustained.tensor.items()}
        special = self.rates.special if self.sustained.special is None else self.sustained.special / a_clock
        levels = {**self.levels, "device": replace(device, bandwidth=self.sustained.device or device.bandwidth)}
        return replace(
            self,
            levels=levels,
            rates=replace(self.rates, special=special, tensor={**self.rates.tensor, **tensor}),
        )

    def blocks_on_sm(self, warps: Amount, registers_per_thread: Amount, shared_bytes: Amount) -> Amount:
        """How many blocks an SM holds at once; 0 where not even one fits."""
        limits = self.limits
        threads = warps * WARP
        fits = (
            (threads <= limits.threads_per_block)
            & (registers_per_thread <= limits.registers_per_thread)
            & (shared_bytes <= limits.shared_per_block)
        )
        unit = limits.register_granularity
        warp_registers = ceil_div(registers_per_thread * WARP, unit) * unit
        # The register file is split, and a warp takes all of its registers from one part.
        warps_of_part = limits.registers_per_sm // limits.register_partitions // warp_registers
        by_registers = warps_of_part * limits.register_partitions // warps
        by_shared = self.levels["shared"].capacity // (shared_bytes + limits.shared_reserved)
        return choice(fits, least(limits.blocks_per_sm, limits.threads_per_sm // threads, by_registers, by_shared), 0)


def machine_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_machine(name_or_path: str | Path) -> Machine:
    """The machine of that name (`h100`), or that a `.toml` file describes (TreadleError)."""
    text = str(name_or_path)
    if text in machine_names():
        return _read(FOLDER / f"{text}.toml")
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return _read(path)
    known = ", ".join(machine_names())
    raise TreadleError(f"unknown machine '{text}': known are {known}, or give the path of a .toml file")


def _read(path: Path) -> Machine:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TreadleError(f"cannot read the machine file: {error.strerror}", str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TreadleError(f"the machine file is not TOML: {error}", str(path)) from error
    except RecursionError:
        raise TreadleError("the machine file is nested too deeply", str(path)) from None
    return machine_from(_with_base(data, str(path)), str(path))


def _with_base(data: dict[str, Any], source: str) -> dict[str, Any]:
    """`base = "h100"`: what a file does not say is as in the file of that machine (TreadleError)."""
    if "base" not in data:
        return data
    base = data.pop("base")
    if base not in machine_names():
        known = ", ".join(machine_names())
        raise TreadleError(f"machine: 'base' is {base!r}: expected one of {known}", source)
    path = FOLDER / f"{base}.toml"
    merged = _merged(_with_base(tomllib.loads(path.read_text(encoding="utf-8")), str(path)), data)
    if "sustained" not in data:
        # What was measured on one machine says nothing about its variants.
        merged.pop("sustained", None)
    return merged


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for one, other in (("bandwidth", "bytes_per_clock"), ("bytes_per_clock", "bandwidth")):
        if one in over:
            merged.pop(other, None)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merged(cast(dict[str, Any], below), cast(Mapping[str, Any], value)) if both else value
    return merged


def machine_from(data: Mapping[str, Any], source: str) -> Machine:
    """The machine that nested data describes; `source` says in errors where the data comes from."""
    root = _Table(source, "", data)
    clock = root.number("clock", 1e8, 1e11, "clocks a second, as in 1.41e9")
    machine = Machine(
        name=root.text("name", r"[A-Za-z][\w.-]*", "a name, as in a100"),
        arch=root.text("arch", "|".join(ARCHS), f"one of {', '.join(ARCHS)}"),
        sms=root.whole("sms", 1, 100_000),
        clock=clock,
        levels=_levels(root.table("levels"), clock),
        limits=_limits(root.table("limits")),
        rates=_rates(root.table("rates")),
        sustained=_sustained(root.table("sustained")) if root.has("sustained") else Sustained(),
    )
    root.close()
    _check_together(root, machine)
    return machine


def _levels(table: _Table, clock: float) -> dict[str, Level]:
    levels = {name: _level(table.table(name), name, clock) for name in LEVELS}
    table.close()
    return levels


def _level(table: _Table, name: str, clock: float) -> Level:
    scope = table.text("scope", "|".join(SCOPES), " or ".join(SCOPES))
    wanted = "machine" if name in ("device", "l2") else "sm"
    if scope != wanted:
        raise table.error("scope", f"is '{scope}': '{name}' belongs to each {wanted}")
    if table.has("bandwidth") == table.has("bytes_per_clock"):
        raise table.error("bandwidth", "or 'bytes_per_clock' must be given, and not both")
    if table.has("bandwidth"):
        bandwidth = table.number("bandwidth", 1e6, 1e18, "bytes a second, as in 2.039e12")
    else:
        bandwidth = clock * table.number("bytes_per_clock", 1, 1e7, "bytes a clock")
    level = Level(
        name,
        scope,
        capacity=table.whole("capacity", 1, 10**15),
        bandwidth=bandwidth,
        granularity=table.whole("granularity", 1, 4096),
        latency=table.whole("latency", 0, 100_000),
    )
    table.close()
    return level


def _limits(table: _Table) -> Limits:
    limits = Limits(
        threads_per_block=table.whole("threads_per_block", WARP, 1024),
        threads_per_sm=table.whole("threads_per_sm", WARP, 10_000),
        blocks_per_sm=table.whole("blocks_per_sm", 1, 1000),
        shared_per_block=table.whole("shared_per_block", 1024, 10**9),
        shared_reserved=table.whole("shared_reserved", 0, 10**6),
        registers_per_sm=table.whole("registers_per_sm", 1024, 10**9),
        registers_per_thread=table.whole("registers_per_thread", 16, 255),
        register_granularity=table.whole("register_granularity", 1, 4096),
        register_partitions=table.whole("register_partitions", 1, 64),
        grid=table.grid("grid"),
    )
    table.close()
    return limits


def _rates(table: _Table) -> Rates:
    tensor = table.table("tensor")
    rates = Rates(
        float=table.number("float", 1, 1e6, "results a clock of one SM"),
        special=table.number("special", 1, 1e6, "results a clock of one SM"),
        tensor={
            format: tensor.number(format, 1, 1e8, "FLOP a clock of one SM")
            for format in TENSOR_FORMATS
            if format in ("f16", "bf16", "tf32") or tensor.has(format)
        },
        single_warps=table.number("single_warps", 0.01, 1, "a part of the rates of rates.tensor")
        if table.has("single_warps")
        else 1.0,
    )
    tensor.close()
    table.close()
    return rates


def _sustained(table: _Table) -> Sustained:
    tensor = table.table("tensor") if table.has("tensor") else _Table(table.source, "sustained.tensor", {})
    sustained = Sustained(
        device=table.number("device", 1e6, 1e18, "bytes a second") if table.has("device") else None,
        special=table.number("special", 1e6, 1e18, "results a second") if table.has("special") else None,
        tensor={
            format: tensor.number(format, 1e9, 1e20, "FLOP a second") for format in TENSOR_FORMATS if tensor.has(format)
        },
    )
    tensor.close()
    table.close()
    return sustained


def _check_together(root: _Table, machine: Machine) -> None:
    """What one number alone does not show."""
    limits, levels = machine.limits, machine.levels
    if levels["l2"].capacity >= levels["device"].capacity:
        raise root.error("levels.l2.capacity", "is not smaller than levels.device.capacity")
    if limits.shared_per_block > levels["shared"].capacity:
        raise root.error("limits.shared_per_block", "is more than levels.shared.capacity")
    if levels["register"].capacity != 4 * limits.registers_per_sm:
        raise root.error(
            "levels.register.capacity",
            f"is {levels['register'].capacity}: limits.registers_per_sm = {limits.registers_per_sm} "
            f"registers of 4 bytes are {4 * limits.registers_per_sm}",
        )
    _check_sustained(root, machine)
    if limits.threads_per_block > limits.threads_per_sm:
        raise root.error("limits.threads_per_block", "is more than limits.threads_per_sm")
    if limits.threads_per_block % WARP or limits.threads_per_sm % WARP:
        raise root.error("limits.threads_per_block", f"and threads_per_sm are not multiples of {WARP}")


def _check_sustained(root: _Table, machine: Machine) -> None:
    """Nothing lasts that is much more than the datasheet has: a clock may run above the one it states."""
    found, most = machine.sustained, machine.levels["device"].bandwidth
    if found.device is not None and found.device > MOST_ABOVE * most:
        raise root.error("sustained.device", f"is {found.device:g}, more than levels.device.bandwidth ({most:g})")
    for format, rate in found.tensor.items():
        if format not in machine.rates.tensor:
            raise root.error(f"sustained.tensor.{format}", "has no rate of the datasheet in rates.tensor")
        if rate > MOST_ABOVE * machine.tensor_flops(format):
            raise root.error(
                f"sustained.tensor.{format}",
                f"is {rate:g} FLOP a second, more than rates.tensor gives ({machine.tensor_flops(format):g})",
            )


class _Table:
    """A table of a machine file: hands out checked values and notices keys that nobody asked for."""

    def __init__(self, source: str, path: str, data: Mapping[str, Any]):
        self.source = source
        self.path = path
        self.data = data
        self.used: list[str] = []

    def error(self, key: str, what: str) -> TreadleError:
        return TreadleError(f"machine: '{self._full(key)}' {what}", self.source)

    def has(self, key: str) -> bool:
        if key not in self.used:
            self.used.append(key)
        return key in self.data

    def close(self) -> None:
        for key in self.data:
            if key not in self.used:
                near = get_close_matches(key, self.used, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"known here are {', '.join(self.used)}"
                raise self.error(key, f"is not a key of a machine: {hint}")

    def table(self, key: str) -> _Table:
        value = self._get(key, "a table")
        if not isinstance(value, Mapping):
            raise self.error(key, f"is {value!r}: expected a table")
        return _Table(self.source, self._full(key), cast(Mapping[str, Any], value))

    def text(self, key: str, pattern: str, expected: str) -> str:
        value = self._get(key, expected)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.error(key, f"is {value!r}: expected {expected}")
        return value

    def whole(self, key: str, low: int, high: int) -> int:
        expected = f"a whole number from {low} to {high}"
        value = self._get(key, expected)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, f"is {value!r}: expected {expected}")
        return value

    def number(self, key: str, low: float, high: float, what: str) -> float:
        expected = f"{what}, from {low:g} to {high:g}"
        value = self._get(key, expected)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, f"is {value!r}: expected {expected}")
        return float(value)

    def grid(self, key: str) -> tuple[int, int, int]:
        expected = "three whole numbers, the largest grid along x, y and z"
        value = self._get(key, expected)
        values = cast(list[Any], value) if isinstance(value, list) else []
        if len(values) != 3 or not all(type(v) is int and 1 <= v < 2**31 for v in values):
            raise self.error(key, f"is {value!r}: expected {expected}")
        return values[0], values[1], values[2]

    def _get(self, key: str, expected: str) -> object:
        if not self.has(key):
            raise self.error(key, f"is missing: expected {expected}")
        return self.data[key]

    def _full(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
