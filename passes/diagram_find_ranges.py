"""`diagram-find-ranges`: between which positions data leave something is found once, not by every group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import WhereOp
from treadle.passes._decisions import decide
from treadle.passes._functions import functions, kernels, note
from treadle.passes.conditions.found import LAW, EndsWriter
from treadle.passes.conditions.sought import sought_along
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of

PASS = "diagram-find-ranges"
NONE = "none"
"""In place of axes: what a derivation says where nothing is found before."""


@dataclass(frozen=True)
class DiagramFindRangesPass(ModulePass):
    """Find once, for each row, between which positions along an axis a comparison with data holds, where that saves
    time. Else every group searches for what limits its stream, before it begins, and where warps have roles, that all
    of them must know.

    With `axes` the ranges along these are found, whatever the model says; with `axes=none` none are.

    Before:

    ```
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !m = tensor<?xf32, #diagram.array<[q]>>
    !q = tensor<?xi32, #diagram.array<[q]>>
    !x = tensor<?xi32, #diagram.array<[x]>>
    func.func @f(%S: !S, %of_q: !q, %of_x: !x) -> !m {
      %W = diagram.where %S if "of_x[x] == of_q[q]" with (of_x = %of_x : !x, of_q = %of_q : !q) : !S
      %m = diagram.reduce max %W over [x] : !S -> !m
      func.return %m : !m
    }
    ```

    After `diagram-find-ranges{axes=x}`:

    ```
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !all = tensor<?x?xi32, #diagram.array<[q, x]>>
    !m = tensor<?xf32, #diagram.array<[q]>>
    !q = tensor<?xi32, #diagram.array<[q]>>
    !x = tensor<?xi32, #diagram.array<[x]>>
    func.func @f(%S: !S, %of_q: !q, %of_x: !x) -> !m {
      %at_x = diagram.index -> !x
      %places = diagram.map (%at_x_1 = %at_x : !x) -> !all {
        diagram.yield %at_x_1 : i32
      }
      %found = diagram.where %places if "of_x[x] == of_q[q]" with (of_x = %of_x : !x, of_q = %of_q : !q) : !all
      %ones = diagram.fill 1 : i32 -> !all
      %found_b = diagram.where %ones if "of_x[x] == of_q[q]" with (of_x = %of_x : !x, of_q = %of_q : !q) : !all
      %least = diagram.reduce min %found over [x] : !all -> !q
      %most = diagram.reduce max %found over [x] : !all -> !q
      %count = diagram.reduce add %found_b over [x] : !all -> !q
      %end = diagram.map (%most_1 = %most : !q) -> !q {
        %0 = arith.constant 1 : i32
        %1 = arith.addi %most_1, %0 : i32
        %2 = arith.constant 0 : i32
        %3 = arith.maxsi %1, %2 : i32
        diagram.yield %3 : i32
      }
      %first = diagram.map (%least_1 = %least : !q, %end_1 = %end : !q) -> !q {
        %0 = arith.minsi %least_1, %end_1 : i32
        diagram.yield %0 : i32
      }
      %whole = diagram.map (%first_1 = %first : !q, %count_1 = %count : !q, %end_1 = %end : !q) -> !q {
        %0 = arith.addi %first_1, %count_1 : i32
        %1 = arith.cmpi eq, %0, %end_1 : i32
        %2 = arith.constant 0 : i32
        %3 = arith.select %1, %end_1, %2 : i32
        diagram.yield %3 : i32
      }
      %W = diagram.where %S if "of_x[x] == of_q[q]"
          within "first[q] <= x and x + 1 <= end[q]"
          throughout "first[q] <= x and x + 1 <= whole[q]"
          with (of_x = %of_x : !x, of_q = %of_q : !q, first = %first : !q, end = %end : !q, whole = %whole : !q) : !S
      %m = diagram.reduce max %W over [x] : !S -> !m
      func.return %m : !m
    }
    ```

    Legal: a condition holds between the first and the last position at which it does, and throughout if it does at as
    many as there are in between. The model times all kernels of the function both ways: a tenth must be saved at the
    sizes that the program states, and no time lost where axes known only at launch are long, and a kernel of their own
    must find them. (FlexAttention and
    kernels for sequences of varying lengths are given such tables.)"""

    name = PASS

    axes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found_along = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = sought_along(function.body.block)
            found_along |= {*found}
            if self.axes:
                _find(function, [axis for axis in self.axes if axis in found], "asked for")
            elif found:
                _where_it_pays(op, function, list(found))
        if missing := [axis for axis in self.axes if axis not in found_along and axis != NONE]:
            known = f"there are some along {', '.join(sorted(found_along))}" if found_along else "there are none"
            what = f"compares data along axis '{missing[0]}', which is summed, with what differs from row to row"
            raise Refusal(op, f"no condition {what}: {known}")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, axes: Sequence[str]) -> None:
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[str]) -> Times:
        def find(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            _find(copy, [*chosen], "tried")

        found = trial.times(find, trial.longer, _are_found_before)
        finite.append(found[0] < inf and bool(chosen))
        return found

    finite: list[bool] = []
    chosen, why = fastest_of(axes, times, trial.longer)
    if not chosen:
        why = why if any(finite) else "no kernel of their own would find them, but every group all the same"
        note(function, f"decline {PASS}", f"ranges along {', '.join(axes)}", "a tenth must be saved", why)
    _find(function, chosen, why)
    decide(function, axes=tuple(chosen) or (NONE,))


def _are_found_before(module: ModuleOp) -> bool:
    """Whether no kernel finds for itself what is told of its conditions."""
    told = [op for op in module.walk() if isinstance(op, WhereOp) and op.within is not None]
    known = [value for op in told for value in op.inputs if all(value is not each for each in op.asked.values())]
    return all(isinstance(value.owner, Block) for value in known)


def _find(function: func.FuncOp, axes: Sequence[str], why: str) -> None:
    writer = EndsWriter(function, PASS)
    along = sought_along(function.body.block)
    for op in dict.fromkeys(op for axis in axes for op in along[axis]):
        writer.tell(op, [axis for axis in axes if op in along[axis]], why)


__all__ = ["LAW", "DiagramFindRangesPass"]
