"""Whether a sum of 8-bit products needs to be promoted to f32, and what promoting it costs by the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import machine_of
from treadle.dialects.cuda.sums import UNIT_OF_TENSOR_CORES, growth, promoted_growth
from treadle.dialects.diagram import CastOp, ContractOp
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes._functions import function_of
from treadle.passes.kernels.trial import alone

LAW = "associativity of the sum"
STEP = "promoted, a sum is awaited in its own step"
MOST = 1.5
"""So many times as long a kernel may take for its sums to be those of f32."""


@dataclass(frozen=True)
class Reason:
    law: str
    fact: str
    is_told: bool = True
    """Whether a derivation says it: not where there is nothing to decide."""


def why_not_needed(op: ContractOp, axis: str, every: int) -> Reason | None:
    """Why a sum along an axis is near enough; None if tensor cores may lose more of it than rounding does."""
    length, format = _length(op, axis), _rounded_to(op)
    if length <= every:
        return Reason(LAW, f"{length:g} products are no more than {every}", is_told=False)
    if growth(length, UNIT_OF_TENSOR_CORES) > NUMBER_FORMATS[format].unit:
        return None
    return Reason("what rounds more than a sum loses hides it", lost(op, axis, every))


def lost(op: ContractOp, axis: str, every: int) -> str:
    """What tensor cores may lose of a sum, and what is lost where it is promoted."""
    length, format = _length(op, axis), _rounded_to(op)
    if length == inf:
        return f"tensor cores keep 14 bits of a sum, however long it is; f32 adds up those of {every} products"
    plain, promoted = _percent(growth(length, UNIT_OF_TENSOR_CORES)), _percent(promoted_growth(length, every))
    return (
        f"tensor cores keep 14 bits: of {length:g} products at most {plain} of the largest partial sum is lost, "
        f"{promoted} where f32 adds up sums of {every}; {format} rounds by {_percent(NUMBER_FORMATS[format].unit)}"
    )


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if 100 * part < 100 else f"{100 * part:.0f} %"


def is_worth_it(ctx: Context, module: ModuleOp, kernel: KernelOp, promote: Mapping[str, int]) -> Reason | None:
    """Why a kernel had better not promote sums: what the model says of its time."""
    plain, promoted = _time(ctx, module, kernel, {}), _time(ctx, module, kernel, promote)
    if promoted == inf and plain < inf:
        return Reason("registers hold the sums on their way", "no sizes fit the machine beside them")
    if promoted <= MOST * plain:
        return None
    return Reason(f"at most {MOST:g} times as long", f"estimated {plain:.3g} us, {promoted:.3g} us with promoted sums")


def _time(ctx: Context, module: ModuleOp, kernel: KernelOp, promote: Mapping[str, int]) -> float:
    """In microseconds, as the model chooses sizes; infinite if none fit the machine."""
    # imported here, for they come later in the pipeline
    from treadle.passes.hierarchy_choose_sizes import choice_for

    copy = kernel.clone()
    assert copy.schedule is not None
    schedule: ScheduleAttr = copy.schedule.but(promote=promote)
    copy.properties["schedule"] = schedule
    apart, _ = alone(module, function_of(kernel), copy)
    try:
        choice = choice_for(copy, schedule, machine_of(apart))
    except (PassFailedException, TreadleError):
        return inf
    return choice.estimate.time_us


def _length(op: ContractOp, axis: str) -> float:
    """Along an axis; infinite where only a launch knows it."""
    size = (sizes_of(op.lhs.type) | sizes_of(op.rhs.type))[axis]
    return inf if size == DYNAMIC else size


def _rounded_to(op: ContractOp) -> str:
    """The finest format that a sum is rounded to where all who read it round it; else its own."""
    users = [use.operation for use in op.result.uses]
    casts = [str(format_of(user.result.type)) for user in users if isinstance(user, CastOp)]
    if not casts or len(casts) < len(users):
        return str(format_of(op.result.type))
    return min(casts, key=lambda format: NUMBER_FORMATS[format].unit)
