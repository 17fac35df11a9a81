"""Scalar arithmetic of map bodies as C expressions."""

from __future__ import annotations

import math as m
import re
import struct
from collections.abc import Callable, Mapping

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, f32, i1, i8, i32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import DiagnosticException

from treadle.compiler.errors import Refusal
from treadle.dialects.cuda import IndexOp
from treadle.dialects.diagram import MapOp, YieldOp
from treadle.dialects.diagram.approximations import constant_of, is_by_reciprocal
from treadle.dialects.diagram.array import Number, format_of
from treadle.dialects.diagram.formats import NARROW, NUMBER_FORMATS
from treadle.dialects.diagram.random import RandomOp

C_TYPES = {**{name: each.c_type for name, each in NUMBER_FORMATS.items()}, "i1": "bool", "index": "int64_t"}

LOG2_E = 1.4426950408889634

BINARY = {
    "arith.addf": "+",
    "arith.subf": "-",
    "arith.mulf": "*",
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.andi": "&",
    "arith.ori": "|",
    "arith.xori": "^",
}

WRAPPED = {"arith.addi": "wrapped_sum", "arith.subi": "wrapped_difference", "arith.muli": "wrapped_product"}
"""Device primitives for i32, unless the operation says that it does not overflow, or is known not to."""

CALLS = {
    "arith.maxnumf": "fmaxf",
    "arith.minnumf": "fminf",
    "math.exp2": "exp2_approx",
    "math.log": "logf",
    "math.log2": "log2f",
    "math.log10": "log10f",
    "math.log1p": "log1pf",
    "math.expm1": "expm1f",
    "math.sqrt": "sqrtf",
    "math.rsqrt": "rsqrtf",
    "math.cbrt": "cbrtf",
    "math.sin": "sinf",
    "math.cos": "cosf",
    "math.tan": "tanf",
    "math.asin": "asinf",
    "math.acos": "acosf",
    "math.atan": "atanf",
    "math.atan2": "atan2f",
    "math.sinh": "sinhf",
    "math.cosh": "coshf",
    "math.tanh": "tanhf",
    "math.asinh": "asinhf",
    "math.acosh": "acoshf",
    "math.atanh": "atanhf",
    "math.erf": "erff",
    "math.absf": "fabsf",
    "math.copysign": "copysignf",
    "math.floor": "floorf",
    "math.ceil": "ceilf",
    "math.trunc": "truncf",
    "math.round": "roundf",
    "math.roundeven": "rintf",
    "math.powf": "powf",
    "math.fma": "fmaf",
    "arith.divsi": "quotient",
    "arith.remsi": "remainder_of",
    "arith.floordivsi": "floored_quotient",
    "arith.shli": "shifted_left",
    "arith.shrsi": "shifted_right",
    "arith.shrui": "shifted_right_unsigned",
    "arith.fptosi": "to_integer",
}

OF_INTEGERS = (
    "quotient",
    "remainder_of",
    "floored_quotient",
    "shifted_left",
    "shifted_right",
    "shifted_right_unsigned",
)
"""Device primitives for i32 alone."""
PRIMITIVES = ("exp2_approx", "to_integer", *OF_INTEGERS)
"""Those of `CALLS` that are device primitives."""

NAMES_OPERANDS = (arith.MaxSIOp, arith.MinSIOp)
"""Operations whose operands C has to write more than once."""
TWICE = (6, 7, 8, 14)
"""Predicates of `arith.cmpf` whose operands C has to write more than once."""

_NAME_OR_NUMBER = re.compile(r"-?[\w.\[\]]+")

FLOAT_PREDICATES = {
    1: "==",
    2: ">",
    3: ">=",
    4: "<",
    5: "<=",
    6: "!=",
}
INTEGER_PREDICATES = ("==", "!=", "<", "<=", ">", ">=")


def c_type(type: Attribute) -> str:
    """The C type of a scalar."""
    return C_TYPES[str(format_of(type))]


def literal(value: Number, uses: set[str]) -> str:
    """A constant, as the nearest C literal; narrow constants are converted where they stand, by a primitive, which
    `uses` then has."""
    if isinstance(value, IntegerAttr):
        number = value.value.data
        if str(value.type) == "i1":
            return "true" if number else "false"
        return "(-2147483647 - 1)" if number == -(2**31) else str(number)
    text = float_literal(value.value.data)
    if str(value.type) not in NARROW:
        return text
    uses.add("from_float")
    return f"from_float<{c_type(value.type)}>({text})"


def float_literal(number: float) -> str:
    if m.isnan(number):
        return "NAN"
    if m.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return f"{shortest(number)}f"


def shortest(number: float) -> str:
    """The shortest decimal that rounds to the same float."""
    single = struct.pack("f", number)
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    text = next((text for text in texts if struct.pack("f", float(text)) == single), repr(number))
    return text if any(c in text for c in ".e") else f"{text}.0"


class ScalarPrinter:
    """Turns the body of a map into statements and one expression.

    A value used once stands where it is used; one used more often becomes a constant of its own, through `declare(type,
    name hint, expression) -> name`. `uses` collects the primitives that were called."""

    def __init__(self, uses: set[str], declare: Callable[[str, str | None, str], str]):
        self.uses = uses
        self.declare = declare
        self.texts: dict[SSAValue, str] = {}

    def body(self, block: Block, arguments: Mapping[SSAValue, str]) -> str:
        """The expression that the body yields, given the expressions of its arguments."""
        self.texts |= arguments
        for op in block.ops:
            if isinstance(op, YieldOp):
                return self.texts[op.operands[0]]
            self._operation(op)
        raise DiagnosticException("the body of a map yields nothing")

    def root(self, block: Block, arguments: Mapping[SSAValue, str]) -> str:
        """The expression of which the body yields the square, given those of its arguments."""
        self.texts |= arguments
        assert block.last_op is not None
        square = block.last_op.operands[0].owner
        assert isinstance(square, arith.MulfOp)
        for op in block.ops:
            if op is not square and op is not block.last_op:
                self._operation(op)
        return self._named(self.texts[square.lhs], square.lhs)

    def value(self, value: SSAValue, block: Block, given: Mapping[SSAValue, str]) -> str:
        """The expression of a value of the body, given those of its arguments and of what else it is made of."""
        self.texts |= given
        needed = {value}
        for op in reversed(list(block.ops)):
            if op.results and op.results[0] in needed and op.results[0] not in given:
                needed |= set(op.operands)
        for op in block.ops:
            if op.results and op.results[0] in needed and op.results[0] not in given:
                self._operation(op)
        return self.texts[value]

    def _operation(self, op: Operation) -> None:
        text = self._expression(op)
        result = op.results[0]
        if len(list(result.uses)) > 1 and not isinstance(op, arith.ConstantOp):
            text = self.declare(c_type(result.type), result.name_hint, text)
        self.texts[result] = text

    def _expression(self, op: Operation) -> str:
        if isinstance(op, arith.ConstantOp):
            return literal(_number(op), self.uses)
        operands = [self._operand(operand) for operand in op.operands]
        if isinstance(op, NAMES_OPERANDS) or (isinstance(op, arith.CmpfOp) and op.predicate.value.data in TWICE):
            operands = [self._named(text, operand) for text, operand in zip(operands, op.operands, strict=True)]
        if isinstance(op, arith.SelectOp):
            # A quotient is computed either way: behind a branch of `?:` all quotients would be alive twice.
            parts = zip(operands, op.operands, strict=True)
            operands = [
                self._named(text, each) if isinstance(each.owner, arith.DivfOp) else text for text, each in parts
            ]
        text = self._compute(op, operands)
        result = str(op.results[0].type)
        if result in NARROW and not isinstance(op, arith.TruncFOp):
            self.uses.add("from_float")
            return f"from_float<{C_TYPES[result]}>({_bare(text)})"
        return text

    def _operand(self, value: SSAValue) -> str:
        """An operand as arithmetic takes it: narrow numbers compute as float and round once, which is their own
        arithmetic."""
        if str(value.type) in NARROW:
            self.uses.add("to_float")
            return f"to_float({_bare(self.texts[value])})"
        return self.texts[value]

    def _named(self, text: str, value: SSAValue) -> str:
        """The name of an operand that is written more than once."""
        if _NAME_OR_NUMBER.fullmatch(text):
            return text
        type = "float" if str(value.type) in NARROW else c_type(value.type)
        return self.declare(type, value.name_hint, text)

    def _compute(self, op: Operation, operands: list[str]) -> str:
        for compute in (self._by_name, self._of_floats, self._of_integers, self._converted):
            if (text := compute(op, operands)) is not None:
                return text
        raise Refusal(op, f"'{op.name}' in the body of a map has no CUDA C: use another operation, or add it")

    def _call(self, name: str, *operands: str) -> str:
        """A call of a primitive, which is then printed, too."""
        self.uses.add(name)
        return f"{name}({', '.join(_bare(operand) for operand in operands)})"

    def _by_name(self, op: Operation, operands: list[str]) -> str | None:
        """What tables tell."""
        if op.name in WRAPPED and op.results[0].type == i32 and not _stays_in_32_bits(op):
            return self._call(WRAPPED[op.name], *operands)
        if op.name in BINARY:
            return f"({operands[0]} {BINARY[op.name]} {operands[1]})"
        if (name := CALLS.get(op.name)) is None:
            return None
        if name == "floored_quotient" and op.results[0].type == IndexType():
            return self._call("floored_quotient_wide", *operands)
        if name in OF_INTEGERS and op.results[0].type != i32:
            raise Refusal(op, f"'{op.name}' in the body of a map computes in i32, not in {op.results[0].type}")
        if name in PRIMITIVES:
            return self._call(name, *operands)
        return f"{name}({', '.join(_bare(operand) for operand in operands)})"

    def _of_floats(self, op: Operation, operands: list[str]) -> str | None:
        match op:
            case arith.DivfOp() if (number := _reciprocals(op)) is not None:
                reciprocal = self._call("rcp_approx", operands[1])
                return reciprocal if number == 1 else f"({operands[0]} * {reciprocal})"
            case arith.DivfOp():
                return self._call("divide", *operands)
            case math.ExpOp():
                self.uses.add("exp2_approx")
                return f"exp2_approx({operands[0]} * {float_literal(LOG2_E)})"
            case arith.NegfOp():
                negative = operands[0].startswith("-")  # two signs would be a decrement
                return f"(-({operands[0]}))" if negative else f"(-{operands[0]})"
            case arith.MaximumfOp() | arith.MinimumfOp():
                return self._call("maximum" if isinstance(op, arith.MaximumfOp) else "minimum", *operands)
            case arith.CmpfOp():
                return self._compare_floats(op, operands)
            case _:
                return None

    def _of_integers(self, op: Operation, operands: list[str]) -> str | None:
        """And choices, of either."""
        match op:
            case arith.MaxSIOp() | arith.MinSIOp():
                sign = ">" if isinstance(op, arith.MaxSIOp) else "<"
                return f"({operands[0]} {sign} {operands[1]} ? {operands[0]} : {operands[1]})"
            case RandomOp():
                return self._call("random_bits" if op.are_shared else "random_word", *operands)
            case arith.SelectOp():
                return f"({operands[0]} ? {operands[1]} : {operands[2]})"
            case arith.CmpiOp() if (predicate := op.predicate.value.data) < len(INTEGER_PREDICATES):
                return f"({operands[0]} {INTEGER_PREDICATES[predicate]} {operands[1]})"
            case _:
                return None

    def _converted(self, op: Operation, operands: list[str]) -> str | None:
        match op:
            case arith.ExtFOp():
                return operands[0]
            case arith.ExtSIOp() if op.input.type == i1:
                return f"(-int32_t({_bare(operands[0])}))"
            case arith.ExtSIOp() | arith.ExtUIOp() if op.input.type != i1:
                return f"int32_t({_bare(operands[0])})"
            case arith.TruncIOp() if op.result.type == i8:
                return f"int8_t({_bare(operands[0])})"
            case arith.TruncFOp():
                self.uses.add("from_float")
                return f"from_float<{c_type(op.result.type)}>({_bare(operands[0])})"
            case arith.IndexCastOp():
                return f"{c_type(op.result.type)}({_bare(operands[0])})"
            case arith.SIToFPOp() if op.input.type == i1:  # one bit, which is the sign
                return f"(-float({_bare(operands[0])}))"
            case arith.SIToFPOp() | arith.UIToFPOp() if op.input.type != i1:
                return f"float({_bare(operands[0])})"
            case _:
                return None

    def _compare_floats(self, op: arith.CmpfOp, operands: list[str]) -> str:
        """C's comparisons are ordered, but for `!=`; an unordered one is the negation of the opposite."""
        predicate = op.predicate.value.data
        left, right = operands
        if predicate in (0, 15):
            return "false" if predicate == 0 else "true"
        if predicate == 6:
            return f"({left} < {right} || {left} > {right})"
        if predicate == 7:
            return f"({left} == {left} && {right} == {right})"
        if predicate == 14:
            return f"({left} != {left} || {right} != {right})"
        if predicate < 6:
            return f"({left} {FLOAT_PREDICATES[predicate]} {right})"
        if predicate == 13:
            return f"({left} != {right})"
        opposite = {8: "!=", 9: "<=", 10: "<", 11: ">=", 12: ">"}
        if predicate == 8:
            return f"!({left} < {right} || {left} > {right})"
        return f"!({left} {opposite[predicate]} {right})"


def _reciprocals(op: arith.DivfOp) -> float | None:
    """How many reciprocals a quotient is that the machine's own stands for."""
    return constant_of(op.lhs) if is_by_reciprocal(op) and op.result.type == f32 else None


def _stays_in_32_bits(op: Operation) -> bool:
    """Whether an operation says that it does not overflow, or is the difference of two positions."""
    flags = op.properties.get("overflowFlags")
    if isinstance(flags, arith.IntegerOverflowAttr) and arith.IntegerOverflowFlag.NSW in flags.data:
        return True
    return isinstance(op, arith.SubiOp) and all(_is_position(operand) for operand in op.operands)


def _is_position(value: SSAValue) -> bool:
    if not isinstance(value, BlockArgument):
        return False
    map = value.block.parent_op()
    return isinstance(map, MapOp) and isinstance(map.inputs[value.index].owner, IndexOp)


def _number(op: arith.ConstantOp) -> Number:
    value = op.value
    if not isinstance(value, FloatAttr | IntegerAttr):
        raise Refusal(op, f"a constant of type {op.result.type} has no CUDA C")
    return value


def _bare(text: str) -> str:
    """Without the outer parentheses, where the place has its own."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]


bare = _bare

_LOOSE = re.compile(r" (?:\?|[<>]=?|[!=]=|&&?|\|\|?) ")
"""What binds looser than a sum."""


def term(text: str) -> str:
    """Without the outer parentheses, where the place is that of a term of a sum or of a comparison; a choice keeps
    them."""
    inside = _bare(text)
    return text if _LOOSE.search(inside) else inside
