"""`hierarchy-subloop`: walk what a group holds of a summed axis in smaller pieces, so that registers hold less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.cost.kernel.issue import depth_of_instruction
from treadle.compiler.cost.kernel.operands import left_operand, stays_in_registers
from treadle.compiler.cost.kernel.roles import scheduled_row
from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ContractOp
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes._decisions import decide
from treadle.passes._functions import kernels_named, label, note
from treadle.passes._parts import part_of_kernel

PASS = "hierarchy-subloop"


@dataclass(frozen=True)
class HierarchySubloopPass(ModulePass):
    """Let contractions over `axis` walk the piece of it that a group holds in pieces of `size`, in the kernel named
    `kernel` or in all that sum over it; without `size` in the smallest that their instruction takes. Nothing is
    done unless it is asked for: unrolled whole, a product overlaps better.

    Before:

    ```
    !A = tensor<64x256xf16, #diagram.array<[m, k]>>
    !B = tensor<256x64xf16, #diagram.array<[k, n]>>
    !Ad = tensor<64x256xf16, #diagram.array<[m, k], level = device>>
    !Bd = tensor<256x64xf16, #diagram.array<[k, n], level = device>>
    !C = tensor<64x64xf32, #diagram.array<[m, n]>>
    !Cr = tensor<64x64xf32, #diagram.array<[m, n], level = register>>
    func.func @product(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
          schedule #hierarchy.schedule<group = [m = 64, n = 64], stream = [k = 128], warps = [m = 4]> {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    After `hierarchy-subloop{axis=k size=32}`:

    ```
    !A = tensor<64x256xf16, #diagram.array<[m, k]>>
    !B = tensor<256x64xf16, #diagram.array<[k, n]>>
    !Ad = tensor<64x256xf16, #diagram.array<[m, k], level = device>>
    !Bd = tensor<256x64xf16, #diagram.array<[k, n], level = device>>
    !C = tensor<64x64xf32, #diagram.array<[m, n]>>
    !Cr = tensor<64x64xf32, #diagram.array<[m, n], level = register>>
    func.func @product(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
          schedule #hierarchy.schedule<group = [m = 64, n = 64], stream = [k = 128], warps = [m = 4],
                                       subloop = [k = 32]> {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    Legal: a contraction is linear, so the sums of the pieces of its axis add up to that of the whole. Refused where
    nothing sums products over the axis, where the pieces do not cover what a group holds evenly or are no multiple of
    what the instruction takes at once, and where a left operand is made in registers, at which no loop can point.
    """

    name = PASS

    axis: str = ""
    kernel: str = ""
    size: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not self.axis:
            if self.kernel or self.size:
                raise Refusal(op, "a subloop walks an axis: say which, as in hierarchy-subloop{axis=d}")
            return
        named = kernels_named(op, self.kernel)
        if not named:
            raise Refusal(op, "there is no kernel: fusion makes them")
        for _, kernel in named:
            if kernel.is_expanded:
                raise Refusal(kernel, f"the streams of {_at(kernel)} are explicit already: ask for a subloop before")
        chosen = [pair for pair in named if _products_over(pair[1], self.axis)]
        if not chosen:
            reasons = "; ".join(_nothing_sums(kernel, self.axis) for _, kernel in named)
            raise Refusal(named[0][1], f"axis '{self.axis}' cannot be walked by a subloop: {reasons}")
        for function, kernel in chosen:
            _decorate(function, kernel, self.axis, self.size)


def _decorate(function: func.FuncOp, kernel: KernelOp, axis: str, size: int) -> None:
    schedule = _decided(kernel)
    held = schedule.tile_sizes().get(axis)
    products = _products_over(kernel, axis)
    for product in products:
        if (problem := _why_not(kernel, schedule, product, axis)) is not None:
            raise Refusal(product, f"axis '{axis}' of {_at(kernel)} cannot be walked by a subloop: {problem}")
    assert held is not None
    deepest = max(products, key=depth_of_instruction)
    size = size or _smallest(held, depth_of_instruction(deepest))
    if (problem := _why_not_of(size, held, deepest)) is not None:
        raise Refusal(deepest, f"axis '{axis}' of {_at(kernel)} cannot be walked in pieces of {size}: {problem}")
    if schedule.subloop.as_dict().get(axis) != size:
        decide(kernel, axis=axis, size=size)
    kernel.properties["schedule"] = schedule.but(subloop={**schedule.subloop.as_dict(), axis: size})
    for product in products:
        subject = f"{label(product.result)} of {_at(kernel)} along {axis}"
        reason = f"{held // size} pieces of {size} add up; registers hold {size} of {held} at once"
        note(function, PASS, subject, "linearity of the contraction", reason)


def _decided(kernel: KernelOp) -> ScheduleAttr:
    if kernel.schedule is None or not kernel.schedule.is_decided:
        raise Refusal(kernel, f"the sizes of {_at(kernel)} are not chosen yet: run hierarchy-choose-sizes first")
    return kernel.schedule


def _products_over(kernel: KernelOp, axis: str) -> list[ContractOp]:
    return [op for op in part_of_kernel(kernel).reducing if isinstance(op, ContractOp) and axis in op.over_axes]


def _nothing_sums(kernel: KernelOp, axis: str) -> str:
    """Why no contraction of a kernel can walk an axis."""
    part = part_of_kernel(kernel)
    if axis not in part.sizes:
        return f"{_at(kernel)} has no axis '{axis}' (there is {', '.join(part.sizes)})"
    over = [label(op.result) for op in part.reducing if axis in op.over_axes]
    if over:
        return f"in {_at(kernel)} only {', '.join(over)} is reduced over it, of elements that are in registers already"
    return f"no contraction of {_at(kernel)} sums over it"


def _why_not(kernel: KernelOp, schedule: ScheduleAttr, product: ContractOp, axis: str) -> str | None:
    name, tiles = label(product.result), schedule.tile_sizes()
    if axis not in tiles:
        return f"the schedule does not say how much of it a group holds, so {name} has no piece to walk"
    wide = [other for other in product.over_axes if tiles.get(other) != 1]
    if axis not in wide:
        return f"a step holds one position of it, so there is nothing for {name} to walk"
    row = scheduled_row(kernel, schedule)
    left = left_operand(product, row)
    if left not in kernel.body.block.args and stays_in_registers(product, left, row):
        return f"{label(left)}, the left operand of {name}, is made in registers, at which no loop can point"
    return None


def _why_not_of(size: int, held: int, product: ContractOp) -> str | None:
    name, depth = label(product.result), depth_of_instruction(product)
    if size < 1:
        return "write a number from 1 on"
    if size % depth:
        return f"{name} is multiplied {depth} deep at a time: write a multiple of {depth}"
    if size >= held or held % size:
        return f"a group holds {held} of it, which smaller pieces must cover evenly: {_choices(held, depth)}"
    return None


def _smallest(held: int, depth: int) -> int:
    return min(_fitting(held, depth), default=depth)


def _choices(held: int, depth: int) -> str:
    fitting = _fitting(held, depth)
    return f"choose one of {', '.join(map(str, fitting))}" if fitting else f"no multiple of {depth} does"


def _fitting(held: int, depth: int) -> Sequence[int]:
    return [size for size in range(depth, held, depth) if held % size == 0]


def _at(kernel: KernelOp) -> str:
    return f"@{kernel.kernel_name.data}"
