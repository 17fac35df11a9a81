"""Programs differentiated, and written as a person writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import describe
from treadle.compiler.pipeline import run_passes
from treadle.compiler.sizes import check_axes, check_defaults
from treadle.dialects.diagram.array import is_array
from treadle.dialects.hierarchy.schedule import derivation_of

PASS = "diagram-differentiate"


def gradient_of(module: ModuleOp, of: Sequence[str]) -> ModuleOp:
    """Turn the functions of a module into those of their gradients (TreadleError)."""
    try:
        for function in _functions(module):
            check_axes(function)
            check_defaults(function)
    except Exception as error:
        raise describe(error, module) from error
    run_passes(module, [ArgSpec(PASS, {"of": tuple(of)} if of else {})])
    return module


def readable(module: ModuleOp) -> str:
    """The text of a module of diagrams: its types named after values, its derivation as comments."""
    plain = module.clone()
    steps = [step.texts() for function in _functions(plain) for step in derivation_of(function.attributes)]
    for function in _functions(plain):
        function.attributes.pop("derivation", None)
    text = "\n".join(line.removeprefix("  ") for line in str(plain).strip().splitlines()[1:-1])
    names = _names(plain)
    for type, name in names.items():
        text = text.replace(type, name)
    notes = [f"//   {subject}: {law}{f' ({reason})' if reason else ''}" for _, subject, law, reason in steps]
    aliases = [f"{name} = {type}" for type, name in names.items()]
    head = ["// Derived by diagram-differentiate:", *notes, ""] if notes else []
    return "\n".join([*head, *aliases, "", text, ""])


def _functions(module: ModuleOp) -> Iterator[FuncOp]:
    return (op for op in module.body.block.ops if isinstance(op, FuncOp) and not op.is_declaration)


def _names(module: ModuleOp) -> dict[str, str]:
    """A name for each type of an array: that of its first value."""
    names: dict[str, str] = {}
    for function in _functions(module):
        for value in _values(function):
            if is_array(value.type) and _text(value.type) not in names:
                names[_text(value.type)] = _unused(value.name_hint or "array", set(names.values()))
    return names


def _values(function: FuncOp) -> Iterator[SSAValue]:
    yield from function.body.block.args
    for op in function.body.block.ops:
        yield from op.results


def _text(type: Attribute) -> str:
    return str(type)


def _unused(name: str, taken: set[str]) -> str:
    root = re.sub(r"\W", "_", name)
    names = (f"!{root}{count or ''}" for count in range(len(taken) + 1))
    return next(each for each in names if each not in taken)
