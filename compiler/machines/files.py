"""The file of a machine, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import bounds
from treadle.compiler.machines.machine import ARCHS, WARP, Level, Limits, Machine, Rates, Sustained
from treadle.compiler.machines.tables import Bounds, Table

FOLDER = Path(__file__).parent

LEVELS = ("device", "l2", "shared", "register")
SCOPES = ("machine", "sm")
TENSOR_FORMATS = ("f16", "bf16", "tf32", "f8", "i8")
MOST_ABOVE = 1.2
"""What is measured may be so many times the datasheet's rate, and no more."""
LEAST_OF_RATE = 0.01
"""And the least part of it: less is a mistake of a unit."""


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
    known, close = ", ".join(machine_names()), get_close_matches(text.lower(), machine_names(), 1)
    meant = f"; did you mean '{close[0]}'?" if close else ""
    raise TreadleError(f"unknown machine '{text}': known are {known}, or give the path of a .toml file{meant}")


def _read(path: Path) -> Machine:
    try:
        return _parsed(path.read_text(encoding="utf-8-sig"), str(path))
    except OSError as error:
        raise TreadleError(f"cannot read the machine file: {error.strerror}", str(path)) from error
    except ValueError as error:  # no TOML, no UTF-8, or an integer of thousands of digits
        raise TreadleError(f"the machine file is not TOML: {error}", str(path)) from error
    except RecursionError:
        raise TreadleError("the machine file is nested too deeply", str(path)) from None


@lru_cache(maxsize=16)
def _parsed(text: str, source: str) -> Machine:
    """By what a file holds, which may be edited; those that it may have for its base do not change."""
    return machine_from(_with_base(tomllib.loads(text), source), source)


def _with_base(data: dict[str, Any], source: str) -> dict[str, Any]:
    """`base = "h100"`: what a file does not say is as in the file of that machine (TreadleError)."""
    if "base" not in data:
        return data
    base = data.pop("base")
    if base not in machine_names():
        known = ", ".join(machine_names())
        raise TreadleError(f"machine: 'base' is {base!r}: expected one of {known}", source)
    path = FOLDER / f"{base}.toml"
    of_base = _with_base(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    of_base.pop("sustained", None)  # what was measured on one machine says nothing about its variants
    return _merged(of_base, data)


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
    clock = root.number("clock", bounds.CLOCK)
    machine = Machine(
        name=root.text("name", r"[A-Za-z][\w.-]*", "a name, as in a100"),
        arch=root.text("arch", "|".join(ARCHS), f"one of {', '.join(ARCHS)}"),
        sms=root.whole("sms", bounds.SMS),
        gpcs=root.whole("gpcs", bounds.GPCS) if root.has("gpcs") else 0,
        clock=clock,
        launch=root.number("launch", bounds.LAUNCH),
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
    table.unread = bounds.UNREAD[name]
    scope = table.text("scope", "|".join(SCOPES), " or ".join(SCOPES))
    wanted = "machine" if name in ("device", "l2") else "sm"
    if scope != wanted:
        raise table.error("scope", f"is '{scope}': '{name}' belongs to each {wanted}")
    capacity = table.whole("capacity", bounds.CAPACITY[name])
    if name == "register":
        table.unread = {**table.unread, **dict.fromkeys(("bandwidth", "bytes_per_clock"), bounds.OF_REGISTERS)}
        level = Level(name, scope, capacity)
    else:
        has_latency = name == "device" or (name == "l2" and table.has("latency"))
        latency = table.whole("latency", bounds.LATENCY) if has_latency else 0
        has_part = name == "l2" and table.has("coalesced")
        coalesced = table.number("coalesced", bounds.COALESCED) if has_part else 1.0
        level = Level(name, scope, capacity, _bandwidth(table, bounds.BANDWIDTH[name], clock), latency, coalesced)
    table.close()
    return level


def _bandwidth(table: Table, allowed: Bounds, clock: float) -> float:
    """Bytes a second, which a file may state a clock."""
    if table.has("bandwidth") == table.has("bytes_per_clock"):
        raise table.error("bandwidth", "or 'bytes_per_clock' must be given, and not both")
    if table.has("bandwidth"):
        return table.number("bandwidth", allowed)
    a_clock = Bounds("bytes a clock", allowed.low / clock, allowed.high / clock, f"{allowed.why} at {clock:g} Hz")
    return clock * table.number("bytes_per_clock", a_clock)


def _limits(table: Table) -> Limits:
    if isinstance(table.data.get("grid"), list):
        raise table.error("grid", "has three numbers: all blocks lie along x; write the first alone")
    limits = Limits(
        threads_per_block=table.whole("threads_per_block", bounds.THREADS_OF_BLOCK),
        threads_per_sm=table.whole("threads_per_sm", bounds.THREADS_OF_SM),
        blocks_per_sm=table.whole("blocks_per_sm", bounds.BLOCKS),
        shared_per_block=table.whole("shared_per_block", bounds.SHARED_OF_BLOCK),
        shared_reserved=table.whole("shared_reserved", bounds.RESERVED),
        registers_per_sm=table.whole("registers_per_sm", bounds.REGISTERS_OF_SM),
        registers_per_thread=table.whole("registers_per_thread", bounds.REGISTERS_OF_THREAD),
        register_granularity=table.whole("register_granularity", bounds.REGISTER_UNIT),
        register_partitions=table.whole("register_partitions", bounds.PARTITIONS),
        grid=table.whole("grid", bounds.GRID),
    )
    table.close()
    return limits


def _rates(table: Table) -> Rates:
    tensor = table.table("tensor")
    tensor.unread = bounds.UNREAD_TENSOR
    rates = Rates(
        float=table.number("float", bounds.FLOAT),
        special=table.number("special", bounds.SPECIAL),
        tensor={
            format: tensor.number(format, bounds.TENSOR)
            for format in TENSOR_FORMATS
            if format in ("f16", "bf16", "tf32") or tensor.has(format)
        },
        single_warps=table.number("single_warps", bounds.PART) if table.has("single_warps") else 1.0,
        additions=table.number("additions", bounds.ADDITIONS) if table.has("additions") else 1.0,
    )
    tensor.close()
    table.close()
    return rates


def _sustained(table: Table) -> Sustained:
    tensor = table.table("tensor") if table.has("tensor") else Table(table.source, "sustained.tensor", {})
    tensor.unread = bounds.UNREAD_TENSOR

    def given(key: str, allowed: Bounds) -> float | None:
        return table.number(key, allowed) if table.has(key) else None

    sustained = Sustained(
        device=given("device", bounds.BANDWIDTH["device"]),
        l2=given("l2", bounds.BANDWIDTH["l2"]),
        special=given("special", bounds.EXP2),
        launch=given("launch", bounds.LAUNCH),
        clock=given("clock", bounds.CLOCK),
        clock_of_products=given("clock_of_products", bounds.CLOCK),
        memory_power=given("memory_power", bounds.POWER),
        single_warps=given("single_warps", bounds.PART),
        tensor={format: tensor.number(format, bounds.FLOP) for format in TENSOR_FORMATS if tensor.has(format)},
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
    """Nothing lasts that is much more than the datasheet has, for a clock may run above the one it states; and what is
    a hundredth of it was written in another unit."""
    found, levels = machine.sustained, machine.levels
    special = machine.rates.special * machine.sms * machine.clock
    measured = [
        ("device", found.device, levels["device"].bandwidth, "levels.device.bandwidth", "bytes a second"),
        ("l2", found.l2, levels["l2"].bandwidth, "the bandwidth of levels.l2", "bytes a second"),
        ("special", found.special, special, "what rates.special gives", "results a second"),
        ("clock", found.clock, machine.clock, "clock", "clocks a second"),
        ("clock_of_products", found.clock_of_products, machine.clock, "clock", "clocks a second"),
    ]
    for format, rate in found.tensor.items():
        if format not in machine.rates.tensor:
            raise root.error(f"sustained.tensor.{format}", "has no rate of the datasheet in rates.tensor")
        stated = machine.tensor_flops(format)
        measured.append((f"tensor.{format}", rate, stated, "what rates.tensor gives", "FLOP a second"))
    for key, rate, stated, whose, unit in measured:
        if rate is not None and not LEAST_OF_RATE * stated <= rate <= MOST_ABOVE * stated:
            side = "more" if rate > stated else "less"
            raise root.error(
                f"sustained.{key}",
                f"is {rate:g} {unit}, much {side} than {whose} ({stated:g}): expected {LEAST_OF_RATE:g} to "
                f"{MOST_ABOVE:g} of that",
            )
