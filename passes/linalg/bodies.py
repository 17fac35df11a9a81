"""What the body of a structured operation does: the scalar part of raising."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, linalg
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, i1, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from treadle.dialects.diagram import YieldOp
from treadle.dialects.diagram.array import FORMAT_NAMES, FORMATS, Number
from treadle.dialects.diagram.formats import EIGHT_BIT, number_format
from treadle.dialects.diagram.map import computed_in_8_bits
from treadle.passes.linalg.structured import Stays, Structured, argument_of, needed, outside

KINDS: dict[type[Operation], str] = {
    arith.AddfOp: "add",
    arith.AddiOp: "add",
    arith.MulfOp: "mul",
    arith.MuliOp: "mul",
    arith.MaximumfOp: "max",
    arith.MaxSIOp: "max",
    arith.MinimumfOp: "min",
    arith.MinSIOp: "min",
}
"""What combines elements along an axis. `maxnumf` is not here: it passes over NaN, a reduction keeps it."""

WIDENS = (arith.ExtFOp, arith.ExtSIOp)
POSITIONS = (arith.AddiOp, arith.SubiOp, arith.CmpiOp, arith.SelectOp, arith.ConstantOp, arith.MaxSIOp, arith.MinSIOp)
"""What may be computed of positions: nothing that could leave 32 bits, since sizes do not."""


@dataclass(frozen=True)
class Combined:
    """One result of a reduction: `kind` combines what `value` is for each element."""

    kind: str
    value: SSAValue
    format: Attribute


def combined(structured: Structured, number: int) -> Combined:
    """How result `number` is combined along the reduced loops (Stays)."""
    yielded = structured.yielded[number]
    start = structured.body.args[structured.inputs + number]
    op = yielded.owner
    if not isinstance(op, Operation) or type(op) not in KINDS:
        name = op.name if isinstance(op, Operation) else "nothing"
        known = ", ".join(dict.fromkeys(kind.name for kind in KINDS))
        raise Stays(f"elements are combined by {name}, which is no reduction (one of {known})")
    if start not in op.operands or op.operands[0] is op.operands[1]:
        raise Stays(f"{op.name} does not combine an element with what was combined before")
    value = next(operand for operand in op.operands if operand is not start)
    starts = structured.body.args[structured.inputs :]  # of the other results too: they change from turn to turn
    if any(each in starts for each in outside(value, structured.body)):
        raise Stays("an element depends on what was combined before")
    return Combined(KINDS[type(op)], value, yielded.type)


def neutral(kind: str, number: Number) -> bool:
    """Whether combining with this number changes nothing."""
    value = number.value.data
    if isinstance(number, IntegerAttr):
        return value == {"add": 0, "mul": 1, "max": -(2**31), "min": 2**31 - 1}[kind]
    return value == {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[kind]


def widened(value: SSAValue) -> SSAValue:
    """What a scalar was before it was widened, which is exact."""
    return value.owner.operands[0] if isinstance(value.owner, WIDENS) else value


def factors(structured: Structured, value: SSAValue, format: Attribute) -> tuple[int, int] | None:
    """The two operands whose exact product in `format` a scalar is; None if it is another function."""
    op = value.owner
    if not isinstance(op, arith.MulfOp | arith.MuliOp) or op.parent is not structured.body or value.type != format:
        return None
    left, right = (argument_of(widened(operand), structured.body) for operand in op.operands)
    if left is None or right is None or left == right:
        return None
    types = {structured.body.args[left].type, structured.body.args[right].type}
    return (left, right) if len(types) == 1 and types <= set(FORMATS) else None


def check_scalars(structured: Structured, value: SSAValue) -> None:
    """Refuse what the body of a map may not hold (Stays)."""
    for op in needed(value, structured.body):
        if isinstance(op, linalg.ops.IndexOp):
            continue
        if op.dialect_name() not in ("arith", "math"):
            raise Stays(f"its body holds {op.name}: only arith and math can be raised")
        types = [*op.operand_types, *op.result_types]
        if isinstance(op, arith.TruncFOp) and str(op.result.type) in EIGHT_BIT and not _is_clipped(op):
            raise Stays(f"{op.name} to {op.result.type} does not saturate, and a cast of a diagram does")
        if any(isinstance(type, IndexType) for type in types) and not isinstance(op, (*POSITIONS, arith.IndexCastOp)):
            raise Stays(f"{op.name} on positions could leave 32 bits")
        if (narrow := computed_in_8_bits(op)) is not None:
            wide = "f32" if str(narrow) in EIGHT_BIT else "i32"
            raise Stays(f"{op.name} computes in {narrow} (a diagram widens to {wide}, computes, and casts)")
        for type in types:
            if type not in (*FORMATS, i1) and not isinstance(type, IndexType):
                raise Stays(f"{op.name} computes in {type} (a diagram has {FORMAT_NAMES})")


def _is_clipped(op: arith.TruncFOp) -> bool:
    """Whether what is rounded was clipped to the range of the format, so that it makes no difference what is beyond."""
    largest = number_format(op.result.type).largest
    upper = op.input.owner
    lower = upper.lhs.owner if isinstance(upper, arith.MinimumfOp) else None
    if not isinstance(upper, arith.MinimumfOp) or not isinstance(lower, arith.MaximumfOp):
        return False
    low, high = (_float_of(bound.rhs) for bound in (lower, upper))
    return low is not None and high is not None and -largest <= low <= high <= largest


def _float_of(value: SSAValue) -> float | None:
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, FloatAttr):
        return None
    return owner.value.value.data


def body_of_map(structured: Structured, value: SSAValue, inputs: Sequence[SSAValue]) -> Region:
    """The region of a map that computes a scalar of the body. `inputs` are what its arguments stand for: arguments of
    the body, results of linalg.index, and scalars of the function around. Positions become i32."""
    block = Block(arg_types=[_i32(each.type) for each in inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for old, new in values.items():
        new.name_hint = old.name_hint
    for op in needed(value, structured.body):
        if isinstance(op, linalg.ops.IndexOp):
            continue
        if isinstance(op, arith.IndexCastOp):
            values[op.result] = values[op.operands[0]]
            continue
        for operand in op.operands:
            _take_constant(operand, values, block)
        block.add_op(_cloned(op, values))
    _take_constant(value, values, block)
    block.add_op(YieldOp(values[value]))
    return Region(block)


def _take_constant(value: SSAValue, values: dict[SSAValue, SSAValue], block: Block) -> None:
    if value not in values and isinstance(value.owner, arith.ConstantOp):
        block.add_op(_cloned(value.owner, values))


def _cloned(op: Operation, values: dict[SSAValue, SSAValue]) -> Operation:
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) and isinstance(op.result.type, IndexType):
        new: Operation = arith.ConstantOp(IntegerAttr(op.value.value.data, i32))
        new.results[0].name_hint = op.result.name_hint
        values[op.result] = new.results[0]
        return new
    new = op.clone(values)
    for old, result in zip(op.results, new.results, strict=True):
        if isinstance(old.type, IndexType):
            result = _retyped(new, old)
        values[old] = result
    return new


def _retyped(new: Operation, old: SSAValue) -> SSAValue:
    from xdsl.rewriter import Rewriter

    return Rewriter.replace_value_with_new_type(new.results[0], _i32(old.type))


def _i32(type: Attribute) -> Attribute:
    return i32 if isinstance(type, IndexType) else type
