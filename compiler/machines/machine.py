"""What a machine is, and how its file is read and checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from treadle.compiler.errors import TreadleError

FOLDER = Path(__file__).parent

DEFAULT_MACHINE = "a100"
"""The machine of a module that names none: what is made for it also runs on every newer one."""

LEVELS = ("device", "l2", "shared", "register")
SCOPES = ("machine", "sm")
TENSOR_FORMATS = ("f16", "bf16", "tf32", "f8", "i8")
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


@dataclass(frozen=True)
class Machine:
    """A GPU as the cost model sees it."""

    name: str
    arch: str
    sms: int
    clock: float
    """Clocks a second."""
    levels: Mapping[str, Level]
    limits: Limits
    rates: Rates

    @property
    def capability(self) -> int:
        """`90` for `sm_90a`."""
        return int(self.arch.removeprefix("sm_").removesuffix("a"))

    def bytes_per_clock(self, level: str) -> float:
        """Of one memory of that level."""
        return self.levels[level].bandwidth / self.clock

    def blocks_on_sm(self, warps: int, registers_per_thread: int, shared_bytes: int) -> int:
        """How many blocks an SM holds at once; 0 where not even one fits."""
        limits = self.limits
        threads = warps * WARP
        if (
            threads > limits.threads_per_block
            or registers_per_thread > limits.registers_per_thread
            or shared_bytes > limits.shared_per_block
        ):
            return 0
        unit = limits.register_granularity
        warp_registers = -(-registers_per_thread * WARP // unit) * unit
        # The register file is split, and a warp takes all of its registers from one part.
        warps_of_part = limits.registers_per_sm // limits.register_partitions // warp_registers
        by_registers = warps_of_part * limits.register_partitions // warps
        by_shared = self.levels["shared"].capacity // (shared_bytes + limits.shared_reserved)
        return min(limits.blocks_per_sm, limits.threads_per_sm // threads, by_registers, by_shared)


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
    return machine_from(data, str(path))


def machine_from(data: Mapping[str, Any], source: str) -> Machine:
    """The machine that nested data describes; `source` says in errors where the data comes from."""
    root = _Table(source, "", data)
    clock = root.number("clock", 1e8, 1e11, "clocks a second, as in 1.41e9")
    machine = Machine(
        name=root.text("name", r"[A-Za-z][\w.-]*", "a name, as in a100"),
        arch=root.text("arch", r"sm_\d+a?", "a target of nvcc, as in sm_80 or sm_90a"),
        sms=root.whole("sms", 1, 100_000),
        clock=clock,
        levels=_levels(root.table("levels"), clock),
        limits=_limits(root.table("limits")),
        rates=_rates(root.table("rates")),
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
    )
    tensor.close()
    table.close()
    return rates


def _check_together(root: _Table, machine: Machine) -> None:
    """What one number alone does not show."""
    limits, levels = machine.limits, machine.levels
    capability = machine.capability
    if capability < 80:
        raise root.error("arch", f"is {machine.arch}: treadle makes code for sm_80 and newer")
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
    if limits.threads_per_block > limits.threads_per_sm:
        raise root.error("limits.threads_per_block", "is more than limits.threads_per_sm")
    if limits.threads_per_block % WARP or limits.threads_per_sm % WARP:
        raise root.error("limits.threads_per_block", f"and threads_per_sm are not multiples of {WARP}")


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
