"""`diagram-split-orders`: the first few of an order are those of its parts' first few, where that saves time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.orders import order_of
from treadle.passes._decisions import decide
from treadle.passes._functions import diagrams, fresh_hint, label, note, unite_equal
from treadle.passes.orders.fastest import named, part_of, pays
from treadle.passes.orders.found import First, firsts_in
from treadle.passes.orders.parts import LAW, split

PASS = "diagram-split-orders"


@dataclass(frozen=True)
class DiagramSplitOrdersPass(ModulePass):
    """Find the first few elements of an order (`tl.topk`) in each part of a long axis, and then among these. Each of an
    order is a maximum of what those before it leave: a group that holds all of an axis asks its elements for each, but
    one that is fed the axis is fed it again for each. Parts that groups hold need be read once.

    With `lengths` parts have so many elements, whatever the model says: one number for all, or one for each order in
    that of the program, 0 where there are to be no parts.

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
      %is_second = diagram.map (%s = %left : !S, %m = %second : !r, %i = %at : !x,
                               %taken = %place : !p) -> !P {
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

    After `diagram-split-orders{lengths=256}` the same is asked of `256 * x_part + x_in` for each of 16 parts, and of
    the 32 elements that these give:

    ```
    !S = tensor<?x4096xf32, #diagram.array<[q, x]>>
    !r = tensor<?xf32, #diagram.array<[q]>>
    !p = tensor<?xi32, #diagram.array<[q]>>
    !x = tensor<4096xi32, #diagram.array<[x]>>
    !S_in = tensor<?x16x256xf32, #diagram.array<[q, x_part, x_in]>>
    !P_in = tensor<?x16x256xi32, #diagram.array<[q, x_part, x_in]>>
    !r_part = tensor<?x16xf32, #diagram.array<[q, x_part]>>
    !p_part = tensor<?x16xi32, #diagram.array<[q, x_part]>>
    !in = tensor<256xi32, #diagram.array<[x_in]>>
    !part = tensor<16xi32, #diagram.array<[x_part]>>
    !rank = tensor<2xi32, #diagram.array<[x_rank]>>
    !r_rank = tensor<?x16x2xf32, #diagram.array<[q, x_part, x_rank]>>
    !p_rank = tensor<?x16x2xi32, #diagram.array<[q, x_part, x_rank]>>
    !found = tensor<?x32xf32, #diagram.array<[q, x_found]>>
    !place = tensor<?x32xi32, #diagram.array<[q, x_found]>>
    func.func @f(%S: !S) -> (!r, !p, !r, !p) {
      %at = diagram.index -> !x
      %S_b = diagram.read %S at "q, 256 * x_part + x_in" : !S -> !S_in
      %0 = diagram.index -> !in
      %first_b = diagram.reduce max %S_b over [x_in] : !S_in -> !r_part
      %is_first_b = diagram.map (%s = %S_b : !S_in, %m = %first_b : !r_part, %i = %0 : !in) -> !P_in {
        %nowhere = arith.constant 2147483647 : i32
        %is = arith.cmpf oeq, %s, %m : f32
        %p = arith.select %is, %i, %nowhere : i32
        diagram.yield %p : i32
      }
      %place_b = diagram.reduce min %is_first_b over [x_in] : !P_in -> !p_part
      %left_b = diagram.map (%s = %S_b : !S_in, %i = %0 : !in, %taken = %place_b : !p_part) -> !S_in {
        %none = arith.constant 0xff800000 : f32
        %is = arith.cmpi eq, %i, %taken : i32
        %l = arith.select %is, %none, %s : f32
        diagram.yield %l : f32
      }
      %second_b = diagram.reduce max %left_b over [x_in] : !S_in -> !r_part
      %is_second_b = diagram.map (%s = %left_b : !S_in, %m = %second_b : !r_part, %i = %0 : !in,
                                  %taken = %place_b : !p_part) -> !P_in {
        %nowhere = arith.constant 2147483647 : i32
        %is = arith.cmpf oeq, %s, %m : f32
        %is_left = arith.cmpi ne, %i, %taken : i32
        %both = arith.andi %is, %is_left : i1
        %p = arith.select %both, %i, %nowhere : i32
        diagram.yield %p : i32
      }
      %second_place_b = diagram.reduce min %is_second_b over [x_in] : !P_in -> !p_part
      %1 = diagram.index -> !part
      %place_c = diagram.map (%2 = %place_b : !p_part, %3 = %1 : !part) -> !p_part {
        %4 = arith.constant 256 : i32
        %5 = arith.constant 2147483647 : i32
        %6 = arith.muli %3, %4 : i32
        %7 = arith.addi %6, %2 : i32
        %8 = arith.cmpi eq, %2, %5 : i32
        %9 = arith.select %8, %2, %7 : i32
        diagram.yield %9 : i32
      }
      %2 = diagram.index -> !part
      %second_place_c = diagram.map (%3 = %second_place_b : !p_part, %4 = %2 : !part) -> !p_part {
        %5 = arith.constant 256 : i32
        %6 = arith.constant 2147483647 : i32
        %7 = arith.muli %4, %5 : i32
        %8 = arith.addi %7, %3 : i32
        %9 = arith.cmpi eq, %3, %6 : i32
        %10 = arith.select %9, %3, %8 : i32
        diagram.yield %10 : i32
      }
      %3 = diagram.index -> !rank
      %first_of_parts = diagram.map (%4 = %first_b : !r_part, %5 = %second_b : !r_part, %6 = %3 : !rank) -> !r_rank {
        %7 = arith.constant 0 : i32
        %8 = arith.cmpi eq, %6, %7 : i32
        %9 = arith.select %8, %4, %5 : f32
        diagram.yield %9 : f32
      }
      %first_of_all = diagram.collapse %first_of_parts [x_part, x_rank] as x_found : !r_rank -> !found
      %4 = diagram.index -> !rank
      %place_of_parts = diagram.map (%5 = %place_c : !p_part, %6 = %second_place_c : !p_part,
                                     %7 = %4 : !rank) -> !p_rank {
        %8 = arith.constant 0 : i32
        %9 = arith.cmpi eq, %7, %8 : i32
        %10 = arith.select %9, %5, %6 : i32
        diagram.yield %10 : i32
      }
      %place_of_all = diagram.collapse %place_of_parts [x_part, x_rank] as x_found : !p_rank -> !place
      %first = diagram.reduce max %first_of_all over [x_found] : !found -> !r
      %is_first_c = diagram.map (%s = %first_of_all : !found, %m = %first : !r, %i = %place_of_all : !place) -> !place {
        %nowhere = arith.constant 2147483647 : i32
        %is = arith.cmpf oeq, %s, %m : f32
        %p = arith.select %is, %i, %nowhere : i32
        diagram.yield %p : i32
      }
      %place = diagram.reduce min %is_first_c over [x_found] : !place -> !p
      %left_c = diagram.map (%s = %first_of_all : !found, %i = %place_of_all : !place, %taken = %place : !p) -> !found {
        %none = arith.constant 0xff800000 : f32
        %is = arith.cmpi eq, %i, %taken : i32
        %l = arith.select %is, %none, %s : f32
        diagram.yield %l : f32
      }
      %second = diagram.reduce max %left_c over [x_found] : !found -> !r
      %is_second_c = diagram.map (%s = %left_c : !found, %m = %second : !r, %i = %place_of_all : !place,
                                  %taken = %place : !p) -> !place {
        %nowhere = arith.constant 2147483647 : i32
        %is = arith.cmpf oeq, %s, %m : f32
        %is_left = arith.cmpi ne, %i, %taken : i32
        %both = arith.andi %is, %is_left : i1
        %p = arith.select %both, %i, %nowhere : i32
        diagram.yield %p : i32
      }
      %second_place = diagram.reduce min %is_second_c over [x_found] : !place -> !p
      func.return %first, %place, %second, %second_place : !r, !p, !r, !p
    }
    ```

    Legal, for of those that come before an element in its part, none comes behind it in the whole; equal ones keep
    the order of their places. What conditions leave out (`diagram.where`) is asked in each part, where its elements
    lie in the row; of what is not there a part has the last place of all. Nothing is there past the end of the axis,
    which the last part may pass (`256 * x_part + x_in < x`). Parts have as many elements as divide the axis, at most
    256 where products make them, as groups hold beside those, else 1024; as many as that, where nothing divides it or
    only the launch tells how long it is. Of an axis of fixed size there are two at least. Where no group holds all of
    one (more than 32768 without products), parts are taken without a question. Else the model times all kernels of
    the function both ways: a tenth must be saved at the sizes that the program states, and (but for a little, see
    `kernels.by_time`) no time lost where axes known only at launch are long."""

    name = PASS

    lengths: tuple[int, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in diagrams(op):
            names = [_name(first) for first in _found_in(function.body.block)]
            if self.lengths:
                _asked(function, names, self.lengths)
            elif names:
                decide(function, lengths=tuple(_where_it_pays(op, function, name) for name in names))


def _found_in(block: Block) -> list[First]:
    """Those of a function in which what is found twice is found once, as elements and their places may be."""
    if not any(isinstance(op, ReduceOp) and order_of(op) for op in block.ops):
        return []
    unite_equal(block)
    return firsts_in(block)


def _name(first: First) -> str:
    result = first.values[0].result
    result.name_hint = first.name or fresh_hint(result, "first")
    return first.name


def _asked(function: func.FuncOp, names: Sequence[str], lengths: Sequence[int]) -> None:
    if len(lengths) not in (1, len(names)):
        raise Refusal(function, f"{len(lengths)} lengths for {len(names)} orders: say one for all, or one for each")
    for name, length in zip(names, lengths if len(lengths) == len(names) else [*lengths] * len(names), strict=True):
        for first in named(function, name) if length else ():
            if length < 0 or (first.length != DYNAMIC and first.length < 2 * length):
                said = f"'{first.axis}' of {label(first.values[0].result)} has {first.length} elements"
                raise Refusal(first.values[0], f"there are no two parts of {length}: {said}")
            split(function, first, length, PASS, "asked for")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, name: str) -> int:
    """How long the parts are that an order is found in; 0 where there are none."""
    for first in named(function, name):
        if not (length := part_of(first)):
            return 0
        does, why = pays(module, function, first, length, PASS)
        if does:
            split(function, first, length, PASS, why)
            return length
        note(function, f"decline {PASS}", f"{label(first.values[0].result)} along {first.axis}", LAW, why)
    return 0


__all__ = ["DiagramSplitOrdersPass"]
