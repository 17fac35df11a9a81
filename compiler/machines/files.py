"""The file of a machine, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines.machine import ARCHS, WARP, Level, Limits, Machine, Rates, Sustained
from treadle.compiler.machines.tables import Table

FOLDER = Path(__file__).parent

LEVELS = ("device", "l2", "shared", "register")
SCOPES = ("machine", "sm")
TENSOR_FORMATS = ("f16", "bf16", "tf32", "f8", "i8")
MOST_ABOVE = 1.2
"""What is measured may be so many times the datasheet's rate, and no more."""
LAUNCH = (1e-8, 1e-3)
"""Between which a launch may cost, in seconds."""
PART = (0.01, 1.0, "a part of the rates of rates.tensor")


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
    except ValueError as error:  # no TOML, no UTF-8, or an integer of thousands of digits
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
    root = Table(source, "", data)
    clock = root.number("clock", 1e8, 1e11, "clocks a second, as in 1.41e9")
    machine = Machine(
        name=root.text("name", r"[A-Za-z][\w.-]*", "a name, as in a100"),
        arch=root.text("arch", "|".join(ARCHS), f"one of {', '.join(ARCHS)}"),
        sms=root.whole("sms", 1, 100_000),
        gpcs=root.whole("gpcs", 1, 1000) if root.has("gpcs") else 0,
        clock=clock,
        launch=root.number("launch", *LAUNCH, "seconds from one kernel of a stream to the next, as in 0.9e-6"),
        levels=_levels(root.table("levels"), clock),
        limits=_limits(root.table("limits")),
        rates=_rates(root.table("rates")),
        sustained=_sustained(root.table("sustained")) if root.has("sustained") else Sustained(),
    )
    root.close()
    _check_together(root, machine)
    return machine


def _levels(table: Table, clock: float) -> dict[str, Level]:
    levels = {name: _level(table.table(name), name, clock) for name in LEVELS}
    table.close()
    return levels


def _level(table: Table, name: str, clock: float) -> Level:
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


def _limits(table: Table) -> Limits:
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


def _rates(table: Table) -> Rates:
    tensor = table.table("tensor")
    rates = Rates(
        float=table.number("float", 1, 1e6, "results a clock of one SM"),
        special=table.number("special", 1, 1e6, "results a clock of one SM"),
        tensor={
            format: tensor.number(format, 1, 1e8, "FLOP a clock of one SM")
            for format in TENSOR_FORMATS
            if format in ("f16", "bf16", "tf32") or tensor.has(format)
        },
        single_warps=table.number("single_warps", *PART) if table.has("single_warps") else 1.0,
    )
    tensor.close()
    table.close()
    return rates


def _sustained(table: Table) -> Sustained:
    tensor = table.table("tensor") if table.has("tensor") else Table(table.source, "sustained.tensor", {})

    def given(key: str, low: float, high: float, what: str) -> float | None:
        return table.number(key, low, high, what) if table.has(key) else None

    sustained = Sustained(
        device=given("device", 1e6, 1e18, "bytes a second"),
        l2=given("l2", 1e6, 1e18, "bytes a second"),
        special=given("special", 1e6, 1e18, "results a second"),
        launch=given("launch", *LAUNCH, "seconds from one kernel of a stream to the next"),
        single_warps=given("single_warps", *PART),
        tensor={
            format: tensor.number(format, 1e9, 1e20, "FLOP a second") for format in TENSOR_FORMATS if tensor.has(format)
        },
    )
    tensor.close()
    table.close()
    return sustained


def _check_together(root: Table, machine: Machine) -> None:
    """What one number alone does not show."""
    limits, levels = machine.limits, machine.levels
    if levels["l2"].capacity >= levels["device"].capacity:
        raise root.error("levels.l2.capacity", "is not smaller than levels.device.capacity")
    if levels["device"].bandwidth > levels["l2"].bandwidth:
        raise root.error(
            "levels.device.bandwidth",
            f"is {levels['device'].bandwidth:g} bytes a second, more than levels.l2 passes on "
            f"({levels['l2'].bandwidth:g})",
        )
    for name, level in levels.items():
        if level.granularity & (level.granularity - 1):
            raise root.error(f"levels.{name}.granularity", f"is {level.granularity}: expected a power of two")
    if limits.shared_per_block > levels["shared"].capacity:
        raise root.error("limits.shared_per_block", "is more than levels.shared.capacity")
    if limits.shared_per_block + limits.shared_reserved > levels["shared"].capacity:
        raise root.error(
            "limits.shared_reserved",
            f"is {limits.shared_reserved}: with limits.shared_per_block it is more than levels.shared.capacity, so no "
            "such block fits an SM",
        )
    if limits.registers_per_sm % (limits.register_partitions * limits.register_granularity):
        raise root.error(
            "limits.register_partitions",
            f"is {limits.register_partitions}: limits.registers_per_sm = {limits.registers_per_sm} registers are not "
            f"so many equal parts of whole units of limits.register_granularity = {limits.register_granularity}",
        )
    if levels["register"].capacity != 4 * limits.registers_per_sm:
        raise root.error(
            "levels.register.capacity",
            f"is {levels['register'].capacity}: limits.registers_per_sm = {limits.registers_per_sm} "
            f"registers of 4 bytes are {4 * limits.registers_per_sm}",
        )
    if machine.gpcs > machine.sms:
        raise root.error("gpcs", f"is {machine.gpcs}: there are only sms = {machine.sms} to be shared by them")
    _check_sustained(root, machine)
    if limits.threads_per_block > limits.threads_per_sm:
        raise root.error("limits.threads_per_block", "is more than limits.threads_per_sm")
    if limits.threads_per_block % WARP or limits.threads_per_sm % WARP:
        raise root.error("limits.threads_per_block", f"and threads_per_sm are not multiples of {WARP}")


def _check_sustained(root: Table, machine: Machine) -> None:
    """Nothing lasts that is much more than the datasheet has: a clock may run above the one it states."""
    found, most = machine.sustained, machine.levels["device"].bandwidth
    if found.device is not None and found.device > MOST_ABOVE * most:
        raise root.error("sustained.device", f"is {found.device:g}, more than levels.device.bandwidth ({most:g})")
    special = machine.rates.special * machine.sms * machine.clock
    if found.special is not None and found.special > MOST_ABOVE * special:
        raise root.error("sustained.special", f"is {found.special:g}, more than rates.special gives ({special:g})")
    for format, rate in found.tensor.items():
        if format not in machine.rates.tensor:
            raise root.error(f"sustained.tensor.{format}", "has no rate of the datasheet in rates.tensor")
        if rate > MOST_ABOVE * machine.tensor_flops(format):
            raise root.error(
                f"sustained.tensor.{format}",
                f"is {rate:g} FLOP a second, more than rates.tensor gives ({machine.tensor_flops(format):g})",
            )
