"""Print index arithmetic: constants of their own where they have a name or several uses."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from treadle.compiler.printer.scalars import bare, c_type, literal, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects.cuda.kernel import NARROW

INDEX_OPERATORS = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.divui": "/",
    "arith.divsi": "/",
    "arith.remui": "%",
    "arith.andi": "&",
    "arith.ori": "|",
    "arith.shrsi": ">>",
}
PREDICATES = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")


def print_binary(writer: KernelWriter, op: Operation) -> None:
    left, right = (writer.values[operand] for operand in op.operands)
    if (told := plain(INDEX_OPERATORS[op.name], left, right)) is not None:
        return define_index(writer, op, told)
    if op.name == "arith.remui" and right.isdigit() and int(right).bit_count() == 1 and int(right) <= 1 << 31:
        left = f"uint32_t({bare(left)})"  # whose lowest bits are all that counts
    if NARROW in op.attributes:
        left, right = (text if text.isdigit() else f"uint32_t({bare(text)})" for text in (left, right))
    text = f"({left} {INDEX_OPERATORS[op.name]} {right})"
    # What is made of a number of 32 bits may take more.
    define_index(writer, op, f"int64_t{text}" if NARROW in op.attributes and _is_inlined(op.results[0]) else text)


def plain(operator: str, left: str, right: str) -> str | None:
    """What is plain to a reader, without the arithmetic: passes write `0 + x * 1`. None for anything else."""
    if operator in NEUTRAL_RIGHT.get(right, ""):
        return left
    if operator in NEUTRAL_LEFT.get(left, ""):
        return right
    if (left == "0" and operator in "*/%") or (right, operator) in (("0", "*"), ("1", "%")):
        return "0"
    if left.isdigit() and right.isdigit() and operator in "+*":
        return str(int(left) + int(right) if operator == "+" else int(left) * int(right))
    return None


NEUTRAL_RIGHT = {"0": "+-|", "1": "*/"}
NEUTRAL_LEFT = {"0": "+|", "1": "*"}


def _is_inlined(result: SSAValue) -> bool:
    return result.name_hint is None and len(list(result.uses)) <= 1


def define_index(writer: KernelWriter, op: Operation, text: str) -> None:
    """Named or shared index arithmetic gets a constant of its own."""
    result = op.results[0]
    if _is_inlined(result):
        writer.values[result] = text
        return
    name = writer.names.fresh(result.name_hint, "index")
    writer.text.line(f"const {c_type(result.type)} {name} = {bare(text)};")
    writer.values[result] = name


def print_constant(writer: KernelWriter, op: arith.ConstantOp) -> None:
    assert isinstance(op.value, IntegerAttr)
    writer.values[op.result] = literal(op.value, writer.uses)


def print_ceiling_division(writer: KernelWriter, op: arith.CeilDivUIOp) -> None:
    left, right = (writer.values[operand] for operand in op.operands)
    if (told := plain("/", left, right)) is not None:
        return define_index(writer, op, told)
    above = str(int(right) - 1) if right.isdigit() else f"{right} - 1"
    define_index(writer, op, f"(({left} + {above}) / {right})")


def print_signed_division(writer: KernelWriter, op: arith.FloorDivSIOp | arith.CeilDivSIOp) -> None:
    """C rounds a quotient towards zero; divisors are positive here."""
    left, right = short(writer, op.lhs), short(writer, op.rhs)
    if isinstance(op, arith.FloorDivSIOp):
        text = f"{left} >= 0 ? {left} / {right} : -(({right} - 1 - {left}) / {right})"
    else:
        text = f"{left} > 0 ? ({left} + {right} - 1) / {right} : -(-{left} / {right})"
    define_index(writer, op, f"({text})")


def print_larger_or_smaller(writer: KernelWriter, op: arith.MaxSIOp | arith.MinSIOp) -> None:
    left, right = short(writer, op.lhs), short(writer, op.rhs)
    sign = ">" if isinstance(op, arith.MaxSIOp) else "<"
    define_index(writer, op, f"({left} {sign} {right} ? {left} : {right})")


def print_select(writer: KernelWriter, op: arith.SelectOp) -> None:
    condition, yes, no = (writer.values[operand] for operand in op.operands)
    define_index(writer, op, f"({condition} ? {yes} : {no})")


def print_comparison(writer: KernelWriter, op: arith.CmpiOp) -> None:
    left, right = (writer.values[operand] for operand in op.operands)
    define_index(writer, op, f"({term(left)} {PREDICATES[op.predicate.value.data]} {term(right)})")


def print_index_cast(writer: KernelWriter, op: arith.IndexCastOp) -> None:
    define_index(writer, op, f"{c_type(op.result.type)}({bare(writer.values[op.input])})")


def short(writer: KernelWriter, value: SSAValue) -> str:
    """A name or a number for a value that is written more than once."""
    text = writer.values[value]
    if text.isidentifier() or text.isdigit():
        return text
    name = writer.names.fresh(value.name_hint, "index")
    writer.text.line(f"const {c_type(value.type)} {name} = {bare(text)};")
    writer.values[value] = name
    return name
