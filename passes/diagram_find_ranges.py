"""`diagram-find-ranges`: between which positions data leave something is found once, not by every group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from treadle.dialects.diagram import WhereOp
from treadle.passes.conditions.found import EndsWriter
from treadle.passes.conditions.sought import sought_along
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.kernels.where_faster import WhereFaster


@dataclass(frozen=True)
class DiagramFindRangesPass(WhereFaster[str]):
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

    name = "diagram-find-ranges"
    option = "axes"

    axes: tuple[str, ...] = ()

    def found_in(self, function: func.FuncOp) -> Sequence[str]:
        return list(sought_along(function.body.block))

    def names(self, each: str) -> Sequence[str]:
        return (each,)

    def rewrite(self, function: func.FuncOp, chosen: Sequence[str], why: str) -> None:
        writer = EndsWriter(function, self.name)
        along = sought_along(function.body.block)
        for op in dict.fromkeys(op for axis in chosen for op in along[axis]):
            writer.tell(op, [axis for axis in chosen if op in along[axis]], why)

    def fastest(self, trial: FunctionTrial, found: Sequence[str]) -> tuple[Sequence[str], str]:
        def times(chosen: Sequence[str]) -> Times:
            taken = self.times(trial, chosen, is_meant=_are_found_before)
            is_made.append(taken[0] < inf and bool(chosen))
            return taken

        is_made: list[bool] = []
        chosen, why = fastest_of(found, times, trial.longer)
        return chosen, why if any(is_made) else "no kernel of their own would find them, but every group all the same"

    def subject(self, found: Sequence[str]) -> str:
        return f"ranges along {', '.join(found)}"

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        what = f"compares data along axis '{name}', which is summed, with what differs from row to row"
        there = f"there are some along {', '.join(known)}" if known else "there are none"
        return f"no condition {what}: {there}"


def _are_found_before(module: ModuleOp) -> bool:
    """Whether no kernel finds for itself what is told of its conditions."""
    told = [op for op in module.walk() if isinstance(op, WhereOp) and op.within is not None]
    known = [value for op in told for value in op.inputs if all(value is not each for each in op.asked.values())]
    return all(isinstance(value.owner, Block) for value in known)


__all__ = ["DiagramFindRangesPass"]
