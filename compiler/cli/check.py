"""`treadle check`: try the laws of a file, stated and derived, and say which hold."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.configuration import set_hypothesis_home_dir
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.check.cases import Tree
from treadle.compiler.check.claims import Mismatch
from treadle.compiler.check.derive import Derived, derive_laws, derive_stream, laws_in
from treadle.compiler.check.gradients import check_gradient
from treadle.compiler.check.verdict import Trial, Verdict
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.progress import progress
from treadle.compiler.source import load_module
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.cache import cache_directory


def command(arguments: Namespace) -> int:
    set_hypothesis_home_dir(cache_directory() / "hypothesis")  # else it makes a folder wherever the user is
    module = load_module(arguments.file)
    functions = [op for op in module.walk() if isinstance(op, FuncOp) and not op.is_declaration]
    stated = laws_in(module)
    if not functions and not stated:
        raise TreadleError("there is neither a diagram.law nor a func.func with a body to check", arguments.file)
    holds = True
    for law in stated:
        holds &= law.gradient is None or _check_gradient(module, law, arguments)
        holds &= _check_stated(module, law, arguments)
    for function in functions:
        holds &= _check_derived(module, function.sym_name.data, derive_laws(module, function), arguments)
    return 0 if holds else 1


def _check_stated(module: ModuleOp, law: LawOp, arguments: Namespace) -> bool:
    if not law.stream:
        return _check_derived(module, law.sym_name.data, derive_stream(module, law), arguments)
    try:
        derived = derive_stream(module, law).laws
    except InternalError:
        raise
    except TreadleError:
        derived = ()  # what cannot be derived is what a person states
    return _tell(module, law, "stated", arguments, derived)


def _check_derived(module: ModuleOp, name: str, derived: Derived, arguments: Namespace) -> bool:
    if not derived.laws:
        print(f"@{name}: no stream to check: {derived.refused}")
        return True
    verdicts = [_tell(module, law, f"derived for @{name}", arguments) for law in derived.laws]
    return all(verdicts)


def _tell(module: ModuleOp, law: LawOp, origin: str, arguments: Namespace, derived: tuple[LawOp, ...] = ()) -> bool:
    if arguments.print:
        print(law)
    with progress(f"trying @{law.sym_name.data}"):
        verdict = Trial(module, law, arguments.cases, arguments.seed).verdict(derived)
    print("\n".join(_lines(law, origin, verdict)))
    return not verdict.wrong


def _check_gradient(module: ModuleOp, law: LawOp, arguments: Namespace) -> bool:
    verdict = check_gradient(module, law, arguments.cases, arguments.seed)
    subject = f"@{verdict.gradient} (gradient of @{verdict.law})"
    if (found := verdict.found) is None:
        print(f"holds: {subject}: gradient = differences on {verdict.tried} cases; in float64, up to the step")
        return True
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    print(f"WRONG: {subject}: by {found.argument} at {sizes}")
    print(f"  along a random direction differences say {found.differences:.6g}, the gradient {found.gradient:.6g}")
    return False


def _lines(law: LawOp, origin: str, verdict: Verdict) -> Iterator[str]:
    how = "exactly, over the rationals" if verdict.exact else "in float64, up to rounding"
    subject = f"@{verdict.law} over [{law.over_axes[0]}] ({origin})"
    if verdict.found is None:
        feeds = "in one piece, in pieces and merged" if "merge" in law.parts else "in one piece and in pieces"
        yield f"holds: {subject}: law = meaning on {verdict.tried} cases, {feeds}; {how}"
        return
    yield f"WRONG: {subject}: {verdict.wrong}"
    yield from _counterexample(law, verdict.found)


def _counterexample(law: LawOp, found: Mismatch) -> Iterator[str]:
    case, axis = found.case, law.over_axes[0]
    sizes = ", ".join(f"{name} = {size}" for name, size in case.sizes.items())
    pieces = ", ".join(f"[{piece.start}, {piece.stop})" for piece in case.pieces(axis))
    yield f"  at {sizes}; pieces of {axis}: {pieces}; merged as {_spell(case.tree)}"
    for argument, type, value in zip(law.body.block.args, law.inputs, case.inputs, strict=True):
        yield f"  %{argument.name_hint or argument.index}[{', '.join(axes_of(type))}] = {_numbers(value)}"
    for i, (meant, made) in enumerate(zip(found.meaning, found.stream, strict=True)):
        yield f"  result {i}: the meaning gives {_numbers(meant)}, the stream {_numbers(made)}"


def _spell(tree: Tree) -> str:
    return str(tree + 1) if isinstance(tree, int) else f"({_spell(tree[0])} {_spell(tree[1])})"


def _numbers(array: Any) -> str:
    """Numbers as a person writes them: 1/3, not Fraction(1, 3)."""
    if array.ndim == 0:
        value = array.item()
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"[{', '.join(_numbers(np.asarray(part, array.dtype)) for part in array)}]"
