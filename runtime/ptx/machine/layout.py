"""Where the variables of an entry lie in its memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.runtime.ptx.errors import PtxUnknown
from treadle.runtime.ptx.machine.windows import SYSTEM_BYTES, LocalMemory
from treadle.runtime.ptx.text.body import Variable
from treadle.runtime.ptx.text.module import Entry


@dataclass(frozen=True)
class Placed:
    """A variable: its address in its memory; of `shared`, from the beginning of the window on."""

    space: str
    address: int


@dataclass(frozen=True)
class Layout:
    """Of all variables, by name, and the bytes of shared and local memory that they take with the launch's own."""

    variables: dict[str, Placed]
    shared_bytes: int
    local_bytes: int


def lay_out(entry: Entry, dynamic_bytes: int, addresses: Mapping[str, int]) -> Layout:
    """Static shared memory first, then what the launch adds, as the driver does it. `addresses` are those of the file's
    variables in global memory."""
    made = {name: Placed("global", address) for name, address in addresses.items()}
    made |= {each.name: Placed("param", each.offset) for each in entry.parameters}
    declared = (*entry.module_variables, *entry.body.variables)
    shared = _place(
        made, [each for each in declared if each.space == "shared" and each.nbytes is not None], SYSTEM_BYTES
    )
    dynamic = [each for each in declared if each.nbytes is None]
    if len(dynamic) > 1:
        raise PtxUnknown(f"{entry.name} has {len(dynamic)} arrays of dynamic shared memory")
    if dynamic:
        shared = -(-shared // dynamic[0].align) * dynamic[0].align
        made[dynamic[0].name] = Placed("shared", shared)
    local = _place(made, [each for each in declared if each.space == "local"], LocalMemory.BASE)
    return Layout(made, shared - SYSTEM_BYTES + dynamic_bytes, local - LocalMemory.BASE)


def _place(made: dict[str, Placed], variables: list[Variable], offset: int) -> int:
    for each in variables:
        offset = -(-offset // each.align) * each.align
        made[each.name] = Placed(each.space, offset)
        offset += each.nbytes or 0
    return offset
