"""The scalar body of a map as one line of mathematics."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import MapOp

INFIX = {
    "addf": ("+", 1),
    "addi": ("+", 1),
    "subf": ("−", 1),
    "subi": ("−", 1),
    "mulf": (" · ", 2),
    "muli": (" · ", 2),
    "divf": (" / ", 2),
    "divsi": (" / ", 2),
    "divui": (" / ", 2),
    "remsi": (" mod ", 2),
    "shli": ("≪", 0),
    "shrsi": ("≫", 0),
    "shrui": ("≫", 0),
    "andi": ("&", 0),
    "ori": ("|", 0),
    "xori": ("⊕", 0),
}
"""The sign and how tightly it binds."""

NAMES = {"maximumf": "max", "minimumf": "min", "maxnumf": "max", "minnumf": "min", "powf": "pow", "absf": "abs"}

SAME = ("extf", "truncf", "sitofp", "index_cast", "extsi", "extui", "uitofp", "trunci")
"""Changes of format, which over the real numbers are nothing."""

COMPARED = {
    **dict.fromkeys(("oeq", "ueq", "eq"), "="),
    **dict.fromkeys(("olt", "ult", "slt"), "<"),
    **dict.fromkeys(("ole", "ule", "sle"), "≤"),
    **dict.fromkeys(("ogt", "ugt", "sgt"), ">"),
    **dict.fromkeys(("oge", "uge", "sge"), "≥"),
    **dict.fromkeys(("one", "une", "ne"), "≠"),
}

_ATOM = 9


def expression_of(op: MapOp, names: Mapping[SSAValue, str] | None = None) -> str:
    """`exp(0.125 · s − m)`, in the names of the body's arguments or those given."""
    return _text(op.yielded, names or {})[0]


def _text(value: SSAValue, names: Mapping[SSAValue, str]) -> tuple[str, int]:
    if value in names:
        return names[value], _ATOM
    if not isinstance(value.owner, Operation):
        return value.name_hint or "·", _ATOM
    return _of(value.owner, names)


def _of(op: Operation, names: Mapping[SSAValue, str]) -> tuple[str, int]:
    kind = op.name.rpartition(".")[2]
    parts = [_text(operand, names) for operand in op.operands]
    if isinstance(op, arith.ConstantOp):
        return number_text(op.value), _ATOM
    if kind in SAME:
        return parts[0]
    if kind == "negf":
        return f"−{_bound(parts[0], 3)}", 2
    if kind in INFIX:
        sign, binds = INFIX[kind]
        inner = max(binds, 1)  # one of bits within another is never without parentheses
        left, right = _bound(parts[0], inner), _bound(parts[1], inner + (sign.strip() in ("−", "/", "mod")))
        return f"{left}{sign}{right}" if binds == 2 else f"{left} {sign} {right}", binds
    if kind == "floordivsi":
        return f"⌊{_bound(parts[0], 2)} / {_bound(parts[1], 3)}⌋", _ATOM
    if kind in ("cmpf", "cmpi"):
        predicate = getattr(op, "predicate", None)
        name = COMPARED.get(_predicate(kind, predicate), "?")
        return f"{parts[0][0]} {name} {parts[1][0]}", 0
    if kind == "select":
        return f"{parts[1][0]} if {parts[0][0]} else {parts[2][0]}", 0
    return f"{NAMES.get(kind, kind)}({', '.join(text for text, _ in parts)})", _ATOM


def _predicate(kind: str, predicate: object) -> str:
    table = arith.CMPF_COMPARISON_OPERATIONS if kind == "cmpf" else arith.CMPI_COMPARISON_OPERATIONS
    return table[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""


def _bound(part: tuple[str, int], binds: int) -> str:
    text, own = part
    return text if own >= binds else f"({text})"


def number_text(attribute: object) -> str:
    """`0.125`, `−∞`."""
    if not isinstance(attribute, FloatAttr | IntegerAttr):
        return str(attribute)
    value = attribute.value.data
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")
