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
    """Take a recurrence in chunks of its positions, where that saves time. Each position waits for the one before, so
    that a row takes as long as all its steps, however idle the machine is. But steps that are affine in the state,
    `S -> M S + b`, are one such step together, whatever M and b are made of: linear attention with gates, the delta
    rule (`S + k (v - k . S)`), state spaces, and the gradients of these.

    With `recurrences` these are made so, by the names of their first results, whatever the model says; with
    `recurrences=none` none are. Chunks have `length` positions, or as many as the model finds best.

    Before:

    ```
    !X = tensor<?x4096xf32, #diagram.array<[b, t]>>
    !s = tensor<?xf32, #diagram.array<[b]>>
    func.func @f(%G: !X, %X: !X, %S0: !s) -> !X {
      %S, %Y = diagram.recurrence over t (%s = %S0 : !s) each (%g = %G : !X, %x = %X : !X) -> (!s, !X) {
        %a = diagram.map (%p = %s : !s, %q = %g : !s, %r = %x : !s) -> !s {
          %u = arith.mulf %p, %q : f32
          %v = arith.addf %u, %r : f32
          diagram.yield %v : f32
        }
        diagram.yield %a, %a : !s, !s
      }
      func.return %Y : !X
    }
    ```

    After `diagram-chunk-recurrences{recurrences=S length=64}`:

    ```
    !X = tensor<?x4096xf32, #diagram.array<[b, t]>>
    !C = tensor<?x64x64xf32, #diagram.array<[b, t_chunk, t_in]>>
    !c = tensor<?x64xf32, #diagram.array<[b, t_chunk]>>
    !S = tensor<64x?xf32, #diagram.array<[t_chunk, b]>>
    !s = tensor<?xf32, #diagram.array<[b]>>
    func.func @f(%G: !X, %X: !X, %S0: !s) -> !X {
      %Gc = diagram.read %G at "b, 64 * t_chunk + t_in" : !X -> !C
      %Xc = diagram.read %X at "b, 64 * t_chunk + t_in" : !X -> !C
      %one = diagram.fill 1.0 : f32 -> !S
      %factor = diagram.recurrence over t_in (%s = %one : !S) each (%g = %Gc : !C) -> (!S) {
        %a = diagram.map (%p = %s : !S, %q = %g : !c) -> !S {
          %u = arith.mulf %p, %q : f32
          diagram.yield %u : f32
        }
        diagram.yield %a : !S
      }
      %none = diagram.fill 0.0 : f32 -> !S
      %part = diagram.recurrence over t_in (%s = %none : !S) each (%g = %Gc : !C, %x = %Xc : !C) -> (!S) {
        %a = diagram.map (%p = %s : !S, %q = %g : !c, %r = %x : !c) -> !S {
          %u = arith.mulf %p, %q : f32
          %v = arith.addf %u, %r : f32
          diagram.yield %v : f32
        }
        diagram.yield %a : !S
      }
      %S, %before = diagram.recurrence over t_chunk (%s = %S0 : !s) each (%f = %factor : !S, %p = %part : !S)
          -> (!s, !S) {
        %a = diagram.map (%x = %f : !s, %y = %s : !s, %z = %p : !s) -> !s {
          %u = arith.mulf %x, %y : f32
          %v = arith.addf %u, %z : f32
          diagram.yield %v : f32
        }
        diagram.yield %a, %s : !s, !s
      }
      %last, %Yc = diagram.recurrence over t_in (%s = %before : !S) each (%g = %Gc : !C, %x = %Xc : !C) -> (!S, !C) {
        %a = diagram.map (%p = %s : !S, %q = %g : !c, %r = %x : !c) -> !S {
          %u = arith.mulf %p, %q : f32
          %v = arith.addf %u, %r : f32
          diagram.yield %v : f32
        }
        diagram.yield %a, %a : !S, !S
      }
      %Y = diagram.collapse %Yc [t_chunk, t_in] as t : !C -> !X
      func.return %Y : !X
    }
    ```

    Legal because affine steps compose: `M' (M S + b) + b' = (M' M) S + (M' b + b')`. What a chunk multiplies a state by
    is made by the step itself, of which only what multiplies the state is left, from one (or ones along a diagonal,
    where the step lets elements of the state meet); what it adds is made by the step of no state. So nothing is
    divided, gates may be zero or negative, and each chunk rounds as the recurrence does. Axes along which the step
    treats all elements alike are left out of the first. Then the states before each chunk are taken from chunk to
    chunk, and what the program makes of each position is made of these, of all chunks at once. Positions that a last
    chunk lacks leave a state as it is.

    A step is affine if each state that it makes is a sum, of which each term has one factor of that state, or none:
    sums, differences, products, contractions with something else, quotients by it, choices that do not ask the state,
    and axes under other names. What is rounded to less than f32 on the way stays, and so does a state that is made of
    another one; what is made of a position for the result may be any function. Axes along which elements of a state
    meet have sizes that are known.

    About three times as much is computed, of many chunks at once. So it is tried where there are eight chunks at least;
    the model times all kernels of the function both ways: a tenth must be saved at the sizes that the program states,
    and no time lost where axes known only at launch are long."""

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
        lengths = {self.names(each): each.length for each in chosen}
        for names, length in lengths.items():
            for other in [other for other in self.candidates(function.body.block) if self.names(other) == names]:
                self.make(function, with_fields(other, length=length), why)

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
