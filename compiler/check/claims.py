"""What a law claims, as things that can be tried on one case.

Over the rationals results must be equal. Where an operation leaves the rationals both sides run in float64 and
may differ by rounding only. Where the meaning itself is not a number (a division by nothing) no claim is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.check.cases import Case, Tree
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.interpreter.arrays import AnyArray
from treadle.runtime.interpreter.law_run import LawRun, State

ROUNDING = 1e-9
"""What float64 may lose, of the largest number in sight."""


@dataclass(frozen=True)
class Mismatch:
    """A case in which the stream of a law is not what its meaning says."""

    case: Case
    meaning: tuple[AnyArray, ...]
    stream: tuple[AnyArray, ...]


Claim: TypeAlias = Callable[[LawRun, Case], "tuple[AnyArray, ...]"]
"""The results by the stream, in one way of feeding it."""


def one_piece(run: LawRun, case: Case) -> tuple[AnyArray, ...]:
    """The axis in one piece; an empty axis in none."""
    whole = slice(0, case.sizes[run.axis])
    return _streamed(run, [whole] if whole.stop else [])


def in_pieces(run: LawRun, case: Case) -> tuple[AnyArray, ...]:
    """The axis in pieces, one after another."""
    return _streamed(run, case.pieces(run.axis))


def merged(run: LawRun, case: Case) -> tuple[AnyArray, ...]:
    """The axis in parts, each fed to a stream of its own, and their states merged in some order."""
    parts = [_fed(run, [piece]) for piece in case.pieces(run.axis)]
    state = _merge(run, case.tree, [state for state, _ in parts])
    return _ordered(run, run.finish(state), [results for _, made in parts for results in made])


def mismatch(module: ModuleOp, law: LawOp, claim: Claim, case: Case, exact: bool) -> Mismatch | None:
    """Whether a claim fails on a case (NotRational where `exact` is too much to ask)."""
    inputs = case.inputs if exact else tuple(_floats(array) for array in case.inputs)
    run = LawRun(module, law, inputs, case.sizes, exact)
    meaning, stream = run.meaning(), claim(run, case)
    scale = max([1.0, *(float(np.abs(_floats(array)).max(initial=0)) for array in inputs)])
    if all(_same(m, s, exact, scale) for m, s in zip(meaning, stream, strict=True)):
        return None
    return Mismatch(case, meaning, stream)


def _fed(run: LawRun, pieces: Sequence[slice]) -> tuple[State, list[tuple[AnyArray, ...]]]:
    state, made = run.initialise(), list[tuple[AnyArray, ...]]()
    for piece in pieces:
        state, results = run.step(state, piece)
        made.append(results)
    return state, made


def _streamed(run: LawRun, pieces: Sequence[slice]) -> tuple[AnyArray, ...]:
    state, made = _fed(run, pieces)
    return _ordered(run, run.finish(state), made)


def _merge(run: LawRun, tree: Tree, states: Sequence[State]) -> State:
    if isinstance(tree, int):
        return states[tree]
    return run.merge(_merge(run, tree[0], states), _merge(run, tree[1], states))


def _ordered(run: LawRun, finished: Sequence[AnyArray], made: Sequence[tuple[AnyArray, ...]]) -> tuple[AnyArray, ...]:
    """All results as the law declares them: those that have the axis from their pieces."""
    last, pieces = iter(finished), 0
    results: list[AnyArray] = []
    for type in run.law.outputs:
        axes = axes_of(type)
        if run.axis not in axes:
            results.append(next(last))
            continue
        shape = tuple(0 if axis == run.axis else run.sizes[axis] for axis in axes)
        parts = [np.zeros(shape), *(step[pieces] for step in made)]
        results.append(np.concatenate(parts, axes.index(run.axis)))
        pieces += 1
    return tuple(results)


def _floats(array: AnyArray) -> AnyArray:
    return array.astype(np.float64) if array.dtype.kind == "O" else array


def _same(meaning: AnyArray, stream: AnyArray, exact: bool, scale: float) -> bool:
    if meaning.shape != stream.shape:
        return False
    meant, made = _floats(meaning), _floats(stream)
    asked = np.isfinite(meant) | np.isinf(meant)
    equal: Any = meaning == stream
    if not exact:
        with np.errstate(all="ignore"):
            largest = np.abs(np.where(np.isfinite(meant), meant, 0)).max(initial=scale * scale)
            equal |= np.abs(meant - made) <= ROUNDING * largest
    return bool(np.all(equal | ~asked))
