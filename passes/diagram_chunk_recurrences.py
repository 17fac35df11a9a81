"""`diagram-chunk-recurrences`: a recurrence whose steps are affine in its states is taken in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import RecurrenceOp
from treadle.dialects.diagram.array import DYNAMIC
from treadle.passes._decisions import decide
from treadle.passes._functions import label, note, stated_sizes
from treadle.passes.kernels.function_trial import COMPOSED, FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.kernels.where_faster import NONE, ValuesWhereFaster
from treadle.passes.recurrences.affine import LAW, Affine, affine_in, why_not
from treadle.passes.recurrences.chunked import chunk

LENGTHS = (64, 256, 1024)
"""Of chunks, that are tried: short ones are many, taken one after another; long ones few, taken at once."""

LEAST = 8
"""Chunks that there are at least, where they are tried: three times as much is computed in them."""


@dataclass(frozen=True)
class DiagramChunkRecurrencesPass(ValuesWhereFaster[Affine]):
    """DOC"""

    name = "diagram-chunk-recurrences"
    option = "recurrences"
    kind = "state"
    described = "recurrence whose step is affine in its states"
    then = COMPOSED

    recurrences: tuple[str, ...] = ()
    """Only these, named by their first results, and without asking the cost model; `none` for none."""
    length: int = 0
    """Positions of a chunk; 0 for what the cost model finds best, or 256 of those that are asked for."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.length < 0:
            raise PassFailedException(f"a chunk has at least one position, not {self.length}")
        super().apply(ctx, op)

    def candidates(self, block: Block) -> Sequence[Affine]:
        return [with_fields(each, length=self.length or LENGTHS[1]) for each in affine_in(block)]

    def make(self, function: func.FuncOp, each: Affine, why: str) -> None:
        chunk(function, each, self.name, why)

    def found_in(self, function: func.FuncOp) -> Sequence[Affine]:
        """Those that are long enough for chunks, if none are asked for."""
        found = super().found_in(function)
        if self.recurrences:
            return found
        declined = set[RecurrenceOp]()
        for op in [op for op in function.body.block.ops if isinstance(op, RecurrenceOp)]:
            if (why := why_not(op) or _too_few(function, Affine(op), min(self._lengths))) is not None:
                note(function, f"decline {self.name}", label(op.results[0]), LAW, why)
                declined.add(op)
        return [each for each in found if each.op not in declined]

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Affine], why: str) -> None:
        """By name, each found anew, in chunks of the length that it was chosen with."""
        for each in chosen:
            names = self.names(each)
            for other in [other for other in self.candidates(function.body.block) if self.names(other) == names]:
                self.make(function, with_fields(other, length=each.length), why)

    def fastest(self, trial: FunctionTrial, found: Sequence[Affine]) -> tuple[Sequence[Affine], str]:
        """Which to take in chunks, all of one length, and the times."""
        known: dict[tuple[Affine, ...], Times] = {}

        def times(chosen: Sequence[Affine]) -> Times:
            key = tuple(chosen)
            if key not in known:
                known[key] = self.times(trial, chosen)
            return known[key]

        tried = [in_chunks for each in self._lengths if (in_chunks := _in_chunks(trial.function, found, each))]
        return fastest_of(min(tried, key=times), times, trial.longer)

    @property
    def _lengths(self) -> Sequence[int]:
        return [self.length] if self.length else LENGTHS

    def _where_it_pays(self, module: ModuleOp, function: func.FuncOp, found: Sequence[Affine]) -> None:
        chosen, why = self.fastest(FunctionTrial(module, function), found)
        names = [name for each in chosen for name in self.names(each)]
        length = chosen[0].length if chosen else 0
        if not chosen:
            note(function, f"decline {self.name}", self.subject(found), self.wanted, why)
        self.rewrite(function, chosen, why)
        decide(function, recurrences=tuple(names) or (NONE,), length=length)


def _in_chunks(function: func.FuncOp, found: Sequence[Affine], length: int) -> list[Affine]:
    """Those of which there are enough chunks of a length."""
    return [with_fields(each, length=length) for each in found if _too_few(function, each, length) is None]


def _too_few(function: func.FuncOp, each: Affine, length: int) -> str | None:
    """Why a recurrence is too short for chunks, if it is, as far as the program says how long it is."""
    likely = stated_sizes(function).get(each.axis, UNKNOWN_SIZE)
    count = likely if each.size == DYNAMIC else each.size
    if count >= LEAST * length:
        return None
    return f"'{each.axis}' has {count} positions, fewer than {LEAST} chunks of {length}"


__all__ = ["DiagramChunkRecurrencesPass"]
