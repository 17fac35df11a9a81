"""A machine as an attribute of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from math import inf
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines.files import load_machine, machine_from
from treadle.compiler.machines.machine import DEFAULT_MACHINE, Machine

MACHINE = "machine"
"""Name of the attribute of a module that holds its machine."""

OF_SUSTAINED = ("loaded_clock", "memory_power", "counts_ends", "counts_queues")
"""What a machine has of the rates that last alone (`Machine.as_sustained`), which a module has beside it."""


def write_machine(module: ModuleOp, machine: Machine) -> None:
    data = asdict(machine)
    for name, level in data["levels"].items():
        if level["coalesced"] == 1:
            del level["coalesced"]
        # The key says the name already; what a level has no number of it does not say.
        data["levels"][name] = {key: value for key, value in level.items() if key != "name" and value not in (0, inf)}
    for name in OF_SUSTAINED:
        del data[name]
    if machine.rates.additions == 1:
        del data["rates"]["additions"]
    if not machine.gpcs:
        del data["gpcs"]
    data["sustained"] = {key: value for key, value in data["sustained"].items() if value}
    module.attributes[MACHINE] = _attribute(data)


def machine_of(module: ModuleOp) -> Machine:
    """The machine written in the module; the default where there is none (TreadleError if it is no
    machine)."""
    attribute = module.attributes.get(MACHINE)
    if attribute is None:
        return load_machine(DEFAULT_MACHINE)
    return _machine_of(attribute)


@lru_cache(maxsize=64)
def _machine_of(attribute: Attribute) -> Machine:
    """Every pass asks for the machine, of one attribute, which does not change."""
    data = _value(attribute)
    if not isinstance(data, dict):
        raise TreadleError(f"the module's attribute '{MACHINE}' is {attribute}: expected a dictionary")
    return machine_from(cast(dict[str, Any], data), f"the module's attribute '{MACHINE}'")


def _attribute(value: object) -> Attribute:
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, int):
        return IntegerAttr(value, i64)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    if isinstance(value, Mapping):
        items = cast(Mapping[str, object], value)
        return DictionaryAttr({key: _attribute(item) for key, item in items.items()})
    assert isinstance(value, Sequence)
    return ArrayAttr(_attribute(item) for item in cast(Sequence[object], value))


def _value(attribute: Attribute) -> object:
    """The inverse of `_attribute`; what it does not know stays an attribute, and is refused as a value."""
    if isinstance(attribute, StringAttr):
        return attribute.data
    if isinstance(attribute, IntegerAttr | FloatAttr):
        return cast("IntegerAttr | FloatAttr", attribute).value.data
    if isinstance(attribute, DictionaryAttr):
        return {key: _value(item) for key, item in attribute.data.items()}
    if isinstance(attribute, ArrayAttr):
        return [_value(item) for item in cast(ArrayAttr[Attribute], attribute)]
    return attribute
