"""`diagram-split-orders`: the first few of an order are those of its parts' first few, where that saves time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.orders import order_of
from treadle.passes._decisions import decide
from treadle.passes._functions import fresh_hint, functions, kernels, label, note, unite_equal
from treadle.passes.orders.fastest import named, part_of, pays
from treadle.passes.orders.found import First, firsts_in
from treadle.passes.orders.parts import LAW, split

PASS = "diagram-split-orders"


@dataclass(frozen=True)
class DiagramSplitOrdersPass(ModulePass):
    """Find the first few elements of an order (`tl.topk`) in each part of a long axis, and then among these. Each of an
    order is a maximum of what those before it leave: a group that holds all of an axis asks its elements for each, but
    one that is fed the axis is fed it again for each. Parts that groups hold need be read once.

    With `length` parts have so many elements, whatever the model says; with `length=0` there are none.

    Before:

    ```
    !S = tensor<?x4096xf32, #diagram.array<[q, x]>>
    !P = tensor<?x4096xi32, #diagram.array<[q, x]>>
    !r = tensor<?xf32, #diagram.array<[q]>>
    !p = tensor<?xi32, #diagram.array<[q]>>
    !x = tensor<4096xi32, #diagram.array<[x]>>
    func.func @f(%S: !S) -> (!r, !p, !r, !p) {
      %at = diagram.index -> !x
      %first = diagram.reduce max %S over [x] : !S -> !r
      %is_first = diagram.map (%s = %S : !S, %m = %first : !r, %i = %at : !x) -> !P {
        %nowhere = arith.constant 2147483647 : i32
        %is = arith.cmpf oeq, %s, %m : f32
        %p = arith.select %is, %i, %nowhere : i32
        diagram.yield %p : i32
      }
      %place = diagram.reduce min %is_first over [x] : !P -> !p
      %left = diagram.map (%s = %S : !S, %i = %at : !x, %taken = %place : !p) -> !S {
        %none = arith.constant 0xFF800000 : f32
        %is = arith.cmpi eq, %i, %taken : i32
        %l = arith.select %is, %none, %s : f32
        diagram.yield %l : f32
      }
      %second = diagram.reduce max %left over [x] : !S -> !r
      %is_second = diagram.map (%s = %left : !S, %m = %second : !r, %i = %at : !x, %taken = %place : !p) -> !P {
        %nowhere = arith.constant 2147483647 : i32
        %is = arith.cmpf oeq, %s, %m : f32
        %is_left = arith.cmpi ne, %i, %taken : i32
        %both = arith.andi %is, %is_left : i1
        %p = arith.select %both, %i, %nowhere : i32
        diagram.yield %p : i32
      }
      %second_place = diagram.reduce min %is_second over [x] : !P -> !p
      func.return %first, %place, %second, %second_place : !r, !p, !r, !p
    }
    ```

    After `diagram-split-orders{length=256}` the same is asked of `256 * x_part + x_in` for each of 16 parts, and of
    the 32 elements that these give, in their order.

    Legal, for of those that come before an element in its part, none comes behind it in the whole; equal ones keep the
    order of their places. The axis has a fixed size, and two parts at least. These have as many elements as divide it,
    at most 256 where products make them, as groups hold beside those, else 1024. Where no group holds all of the axis
    (more than 32768 without products), parts are taken without a question. Else the model times all kernels of the
    function both ways: a tenth must be saved at the sizes that the program states, and no time lost where axes known
    only at launch are long."""

    name = PASS

    length: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            for first in _found_in(function.body.block):
                result = first.values[0].result
                result.name_hint = first.name or fresh_hint(result, "first")
                if self.length is None:
                    _where_it_pays(op, function, first.name)
                elif self.length:
                    _asked(function, first.name, self.length)


def _found_in(block: Block) -> list[First]:
    """Those of a function in which what is found twice is found once, as elements and their places may be."""
    if not any(isinstance(op, ReduceOp) and order_of(op) for op in block.ops):
        return []
    unite_equal(block)
    return firsts_in(block)


def _asked(function: func.FuncOp, name: str, length: int) -> None:
    for first in named(function, name):
        if length < 0 or first.length < 2 * length or first.length % length:
            said = f"'{first.axis}' of {label(first.values[0].result)} has {first.length} elements"
            raise Refusal(first.values[0], f"parts of {length} do not divide it in two or more: {said}")
        split(function, first, length, PASS, "asked for")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, name: str) -> None:
    for first in named(function, name):
        if not (length := part_of(first)):
            continue
        does, why = pays(module, function, first, length, PASS)
        if does:
            split(function, first, length, PASS, why)
        else:
            note(function, f"decline {PASS}", f"{label(first.values[0].result)} along {first.axis}", LAW, why)
        decide(function, length=length if does else 0)


__all__ = ["DiagramSplitOrdersPass"]
