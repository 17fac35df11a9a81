"""`diagram-raise-swaps`: reads that only swap neighbouring blocks of what a product gave."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.passes._decisions import decide
from treadle.passes._functions import diagrams, fresh_hint, label, note
from treadle.passes.swaps.fastest import Way, fastest_way, joins_of, write
from treadle.passes.swaps.found import Swapped, swapped_in
from treadle.passes.swaps.joined import Apart

PASS = "diagram-raise-swaps"
LAW = "a read at positions that a permutation gives is one"
NONE = "none"
"""In place of products: what a derivation says where none are swapped."""


@dataclass(frozen=True)
class DiagramRaiseSwapsPass(ModulePass):
    """Write reads of a product that swap neighbouring blocks along an axis as `diagram.swap`, where that saves time: a
    read needs memory, a swap other registers. So what rotates queries and keys is in the kernel of the product that
    makes them.

    With `products` these are swapped so, whatever the model says, by name; with `products=none` none are. With `join=0`
    axes stay as they are, with 1 that of the blocks is one with those within it, and with each number more also with
    one around it.

    Before:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<64x32xf16, #diagram.array<[i, d]>>
    !P = tensor<?x32xf32, #diagram.array<[t, d]>>
    !at = tensor<32xi32, #diagram.array<[d]>>
    func.func @f(%X: !X, %W: !W) -> !P {
      %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
      %d = diagram.index -> !at
      %other = diagram.map (%p = %d : !at) -> !at {
        %half = arith.constant 16 : i32
        %turned = arith.xori %p, %half : i32
        diagram.yield %turned : i32
      }
      %R = diagram.read %P at "t, other[d]" padded with (other = %other : !at) : !P -> !P
      %Y = diagram.map (%p = %P : !P, %r = %R : !P) -> !P {
        %y = arith.subf %p, %r : f32
        diagram.yield %y : f32
      }
      func.return %Y : !P
    }
    ```

    After `diagram-raise-swaps{products=P}`:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<64x32xf16, #diagram.array<[i, d]>>
    !P = tensor<?x32xf32, #diagram.array<[t, d]>>
    func.func @f(%X: !X, %W: !W) -> !P {
      %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
      %P_swapped = diagram.swap %P along d by 16 : !P -> !P
      %Y = diagram.map (%p = %P : !P, %r = %P_swapped : !P) -> !P {
        %y = arith.subf %p, %r : f32
        diagram.yield %y : f32
      }
      func.return %Y : !P
    }
    ```

    Legal, because a swap gives the same elements. All of a product may be read so: at positions that are computed of
    positions (`(d + 64) % 128`), or turned round along an axis of two (`1 - r`). Or maps along an axis of two read both
    halves and choose by position: at 0 the half 1 is what is swapped, at 1 it is what is there.

    Columns of a product lie along one axis. So axes beside that of the blocks become one with it
    (`diagram-merge-free-axes`); what has one of them alone is read for each position along both. The model times all
    kernels of the function in each of these ways."""

    name = PASS

    products: tuple[str, ...] = ()
    join: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in diagrams(op):
            found = swapped_in(function.body.block)
            seen |= {each.product.name_hint or "" for each in found}
            if self.products:
                self._asked(function, [each for each in found if each.product.name_hint in self.products])
            elif found:
                _where_it_pays(op, function, found)
        if missing := [name for name in self.products if name not in seen and name != NONE]:
            raise Refusal(
                op,
                f"%{missing[0]} is no product of which reads swap neighbouring blocks along an axis of a static size",
            )

    def _asked(self, function: func.FuncOp, found: list[Swapped]) -> None:
        if found:
            ways = joins_of(found)
            try:
                _write(
                    function, Way(tuple(found), ways[min(self.join or 0, len(ways) - 1)]), self.join or 0, "asked for"
                )
            except Apart as reason:
                raise Refusal(function, f"axes beside those of the blocks do not become one: {reason}") from reason


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: list[Swapped]) -> None:
    way, why = fastest_way(module, function, found, PASS)
    if way is None:
        names = ", ".join(label(each.product) for each in found)
        note(function, f"decline {PASS}", names, "time must be saved", why)
        decide(function, products=(NONE,))
        return
    _write(function, way, joins_of(found).index(way.joins), why)


def _write(function: func.FuncOp, way: Way, number: int, why: str) -> None:
    for each in way.found:  # a derivation says which by name
        each.product.name_hint = each.product.name_hint or fresh_hint(each.product, "product")
    names = tuple(each.product.name_hint for each in way.found if each.product.name_hint)
    decide(function, products=names, join=number)
    for each in way.found:
        note(function, PASS, f"{label(each.product)} along {each.axis} by {each.block}", LAW, why)
    write(function, way, PASS)


__all__ = ["DiagramRaiseSwapsPass"]
