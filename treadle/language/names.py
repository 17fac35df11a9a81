"""Names of the values that a program under construction has: those of the variables of a traced function, else of the
operations. They depend on the program alone, so that programs that are alike are one text, and one compilation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from string import ascii_lowercase
from typing import Any

from xdsl.dialects.arith import SelectOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    FillOp,
    IndexOp,
    MapOp,
    ReadOp,
    RecurrenceOp,
    ReduceOp,
    RenameOp,
    ScatterOp,
    WhereOp,
)
from treadle.dialects.diagram.array import axes_of, format_of

REDUCTIONS = {"add": "sum", "mul": "product"}
"""What a reduction gives, where it is called otherwise than the operation that it repeats."""

SCALARS = {"math.absf": "abs", "math.powf": "power", "math.roundeven": "round", "arith.fptosi": "whole"}
"""What an operation of one element gives, where that is not its name without a format."""


def variables_of(function: Callable[..., Any]) -> Callable[[Callable[[Any], SSAValue | None]], None]:
    """What looks up the variables of a function while it runs, and names the values without a name that they hold;
    it is told which value an object is, if any.

    A variable is bound after the operation was written down, so this is asked before each one."""
    code = getattr(unwrap(function), "__code__", None)

    def look(value_of: Callable[[Any], SSAValue | None]) -> None:
        frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]  # the one way to ask for a caller's variables
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        for name, each in () if frame is None else list(frame.f_locals.items()):
            value = value_of(each)
            if value is not None and value.name_hint is None and (plain := _plain(name)):
                value.name_hint = plain

    return look


def name_values(block: Block, results: Sequence[SSAValue]) -> None:
    """Give every value of a program's body one name of its own; `results` are what the program returns."""
    returned = {value: f"result{i}" for i, value in reversed(list(enumerate(results)))}
    taken = {argument.name_hint for argument in block.args} | {*returned.values()}
    for op in block.ops:
        for result in op.results:
            name = returned.get(result) or _free(result.name_hint or _said(op), taken)
            result.name_hint = name
            taken.add(name)


def _said(op: Operation) -> str:
    """What an operation gives, in a word."""
    match op:
        case ContractOp():
            return "product"
        case ReduceOp():
            return REDUCTIONS.get(op.kind.data, op.kind.data)
        case ApplyOp():
            return _plain(op.law.root_reference.data) or "law"
        case IndexOp():
            return f"{axes_of(op.results[0].type)[0]}_index"
        case ScatterOp():
            return f"{op.operand.name_hint or 'array'}_sums"
        case ReadOp() | RenameOp():
            return f"{op.operand.name_hint or 'array'}_read"
        case RecurrenceOp():
            return "recurrence"
        case FillOp():
            return "fill"
        case WhereOp():
            return "kept"
        case CastOp():
            return f"{op.operands[0].name_hint or 'cast'}_{_format(op.results[0].type)}"
        case MapOp():
            return _of_element(op)
        case _:
            return "value"


def _of_element(op: MapOp) -> str:
    """The operation that comes last."""
    last = op.body.block.last_op
    made = last.operands[0].owner if last is not None else None
    if not isinstance(made, Operation):
        return "copy"
    if isinstance(made, SelectOp):
        return "where"
    name = made.name.partition(".")[2]
    return SCALARS.get(made.name, re.sub(r"(f|si|i)$", "", name) if made.name.startswith("arith.") else name)


def _format(type: Attribute) -> str:
    return str(format_of(type))


def _plain(name: str) -> str:
    """As IR can have it: ASCII alone, a letter first, and no number behind an underscore, which xDSL would cut off;
    empty if nothing is left."""
    found = re.sub(r"(_+\d+)+$", "", re.sub(r"\W", "_", name).strip("_"))
    return found if name.isascii() and found[:1].isalpha() else ""


def _free(base: str, taken: set[str | None]) -> str:
    return next(name for name in _names(base) if name not in taken)


def _names(base: str) -> Iterator[str]:
    """`base`, `base_b`, ..., `base_z`, `base_bb`, ..., as passes name what they make."""
    yield base
    for count in range(1, sys.maxsize):
        yield from (f"{base}_{letter * count}" for letter in ascii_lowercase[1:])


__all__ = ["name_values", "variables_of"]
