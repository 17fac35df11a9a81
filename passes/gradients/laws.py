"""The laws of a program, and the gradients that they state."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Attribute

from treadle.compiler.laws import standard_law
from treadle.dialects.diagram import ApplyOp, LawOp, WhereOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import known_format


def law_of(op: ApplyOp, laws: Mapping[str, LawOp]) -> LawOp | None:
    """The law that is applied: the program's own of that name, else the standard one."""
    return named(op.law.string_value(), laws)


def named(name: str, laws: Mapping[str, LawOp]) -> LawOp | None:
    return laws.get(name) or standard_law(name)


def is_plain_law(law: LawOp) -> bool:
    """Whether a law neither asks a condition nor applies another law, so that its arguments say what is absent."""
    return not any(isinstance(op, WhereOp | ApplyOp) for op in law.body.walk())


def gradient_of(law: LawOp, laws: Mapping[str, LawOp]) -> LawOp | None:
    """The law that a law names as its gradient; None if there is none of that name."""
    return None if law.gradient is None else named(law.gradient.string_value(), laws)


def why_no_gradient(law: LawOp, gradient: LawOp) -> str | None:
    """Why a law cannot be the gradient of another; None if its types are those of one."""
    takes = (*law.inputs, *law.outputs, *(type for type in law.outputs if is_float(type)))
    gives = tuple(type for type in law.inputs if is_float(type))
    names = f"law @{gradient.sym_name.data} cannot be the gradient of @{law.sym_name.data}"
    if gradient.over_axes != law.over_axes:
        return f"{names}: it is over [{', '.join(gradient.over_axes)}], not over [{', '.join(law.over_axes)}]"
    if gradient.inputs != takes:
        return f"{names}: it takes {_types(gradient.inputs)}, it is given {_types(takes)}"
    if gradient.outputs != gives:
        return f"{names}: it gives {_types(gradient.outputs)}, the arguments are {_types(gives)}"
    return None


def is_float(type: Attribute) -> bool:
    """Whether an array or a scalar holds floats, which have gradients."""
    known = known_format(format_of(type))
    return known is not None and known.is_float


def _types(types: tuple[Attribute, ...]) -> str:
    return f"({', '.join(str(type) for type in types)})"
