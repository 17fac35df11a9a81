"""`hierarchy-join-sums`: products that are added up share an accumulator."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass

from treadle.dialects.diagram import ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import fresh_hint, function_of, functions, kernels, label, note, replace
from treadle.passes._parts import part_of_kernel
from treadle.passes.expressions.reductions import operands_of, rebuilt
from treadle.passes.expressions.scalars import Leaf, build_map, leaves, substitute
from treadle.passes.products.added import Added, added_in
from treadle.passes.streams.stages import StreamPlan

PASS = "hierarchy-join-sums"

LAW = "a sum of two sums is one sum"


@dataclass(frozen=True)
class HierarchyJoinSumsPass(ModulePass):
    """Let products that a map adds up have one accumulator: each begins with the sum of those before it, or with a
    multiple of that. So a group has room for larger pieces, and nothing is left to add.

    Before:

    ```
    !X = tensor<?x4096xf16, #diagram.array<[t, i]>>
    !W = tensor<4096x4096xf16, #diagram.array<[i, j]>>
    !L = tensor<?x16xf16, #diagram.array<[t, r]>>
    !B = tensor<16x4096xf16, #diagram.array<[r, j]>>
    !Y = tensor<?x4096xf32, #diagram.array<[t, j]>>
    !Xd = tensor<?x4096xf16, #diagram.array<[t, i], level = device>>
    !Wd = tensor<4096x4096xf16, #diagram.array<[i, j], level = device>>
    !Ld = tensor<?x16xf16, #diagram.array<[t, r], level = device>>
    !Bd = tensor<16x4096xf16, #diagram.array<[r, j], level = device>>
    !Yr = tensor<?x4096xf32, #diagram.array<[t, j], level = register>>
    func.func @lora(%X: !X, %W: !W, %L: !L, %B: !B) -> !Y {
      %Y = hierarchy.kernel @lora (%x = %X : !X as !Xd, %w = %W : !W as !Wd, %l = %L : !L as !Ld, %b = %B : !B as !Bd)
          -> (!Y) schedule #hierarchy.schedule<group = [t = ?, j = ?], stream = [i = ?], whole = [r = 16]> {
        %base = diagram.contract %x, %w over [i] accumulate f32 : !Xd, !Wd -> !Yr
        %up = diagram.contract %l, %b over [r] accumulate f32 : !Ld, !Bd -> !Yr
        %sum = diagram.map (%base_1 = %base : !Yr, %up_1 = %up : !Yr) -> !Yr {
          %scale = arith.constant 2.0 : f32
          %scaled = arith.mulf %up_1, %scale : f32
          %both = arith.addf %base_1, %scaled : f32
          diagram.yield %both : f32
        }
        hierarchy.yield %sum : !Yr
      }
      func.return %Y : !Y
    }
    ```

    After:

    ```
    !X = tensor<?x4096xf16, #diagram.array<[t, i]>>
    !W = tensor<4096x4096xf16, #diagram.array<[i, j]>>
    !L = tensor<?x16xf16, #diagram.array<[t, r]>>
    !B = tensor<16x4096xf16, #diagram.array<[r, j]>>
    !Y = tensor<?x4096xf32, #diagram.array<[t, j]>>
    !Xd = tensor<?x4096xf16, #diagram.array<[t, i], level = device>>
    !Wd = tensor<4096x4096xf16, #diagram.array<[i, j], level = device>>
    !Ld = tensor<?x16xf16, #diagram.array<[t, r], level = device>>
    !Bd = tensor<16x4096xf16, #diagram.array<[r, j], level = device>>
    !Yr = tensor<?x4096xf32, #diagram.array<[t, j], level = register>>
    func.func @lora(%X: !X, %W: !W, %L: !L, %B: !B) -> !Y {
      %Y = hierarchy.kernel @lora (%x = %X : !X as !Xd, %w = %W : !W as !Wd, %l = %L : !L as !Ld, %b = %B : !B as !Bd)
          -> (!Y) schedule #hierarchy.schedule<group = [t = ?, j = ?], stream = [i = ?], whole = [r = 16]> {
        %up = diagram.contract %l, %b over [r] accumulate f32 : !Ld, !Bd -> !Yr
        %up_scaled = diagram.map (%up_1 = %up : !Yr) -> !Yr {
          %scale = arith.constant 2.0 : f32
          %scaled = arith.mulf %up_1, %scale : f32
          diagram.yield %scaled : f32
        }
        %base = diagram.contract %x, %w over [i] accumulate f32 into %up_scaled : !Xd, !Wd -> !Yr
        hierarchy.yield %base : !Yr
      }
      func.return %Y : !Y
    }
    ```

    Legal: + is associative, so a sum of two sums is one sum. Each product is read by the map alone, is not rounded
    before, and has no absent elements. A product that a stream sums piece by piece may begin with what is known before
    the stream, or with the sum of another product over the same axis, to which each step then adds both; where the
    steps repair a sum, or conditions are on the stream, it begins with neither. It may always be what another one
    begins with, which is added when the stream is finished."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for kernel in kernels(function):
                if kernel.schedule is not None and not kernel.is_expanded:
                    _join_all(kernel)


def _join_all(kernel: KernelOp) -> None:
    """Tried on a copy first: what streams follow, they have to follow still."""
    trial = kernel.clone()
    if _joined(trial) and _streams(trial) == _streams(kernel):
        for subject, reason in _joined(kernel):
            note(function_of(kernel), PASS, subject, LAW, reason)


def _streams(kernel: KernelOp) -> list[int]:
    """How often each streamed axis is fed."""
    assert kernel.schedule is not None
    part = part_of_kernel(kernel)
    return [len(StreamPlan(part, axis).streams) for axis in kernel.schedule.stream.as_dict()]


def _joined(kernel: KernelOp) -> list[tuple[str, str]]:
    """What was rewritten, and how."""
    told: list[tuple[str, str]] = []
    for op in list(kernel.body.block.ops):
        map = op if isinstance(op, MapOp) else None
        while map is not None and (found := _found(kernel, map)) is not None:
            map, how = _join(map, found)
            subject = f"{label(found.begun.result)} and {how[0]} of @{kernel.kernel_name.data}"
            told.append((subject, f"{how[0]} begins with {how[1]}"))
    return told


def _found(kernel: KernelOp, map: MapOp) -> Added | None:
    """Two terms of which one can begin with the other. A stream that begins with what is known before it is the first
    choice: the tiles of that are free again before it ends."""
    if not (found := list(added_in(map))):
        return None
    steps = _Steps(kernel)
    admitted = [each for each in found if steps.admit(each)]
    return min(admitted, key=lambda each: not steps.are_fed(each.second), default=None)


class _Steps:
    """What the steps of a kernel sum."""

    def __init__(self, kernel: KernelOp):
        assert kernel.schedule is not None
        part = part_of_kernel(kernel)
        self.plan = next((StreamPlan(part, axis) for axis in kernel.schedule.stream.as_dict()), None)
        verdicts = () if self.plan is None else self.plan.verdicts.values()
        follows = any(verdict.repair is not None for verdict in verdicts)
        self.are_plain = not follows and not any(isinstance(op, WhereOp) for op in part.ops)

    def are_fed(self, product: ContractOp) -> bool:
        """Whether they sum a product, piece by piece."""
        return self.plan is not None and self.plan.is_state(product.result)

    def admit(self, found: Added) -> bool:
        """Whether the second product can add to the first term. Where each step adds a piece of it, the first is known
        before all of them, or is a sum to which each adds a piece, too; and nothing moves what both add to. Sums of
        threads do not begin with the registers of a product, nor does one with theirs."""
        plan, first, second = self.plan, found.begun, found.second
        if _may_be_promoted(second):
            return False
        if plan is None:
            return True
        if not self.are_fed(second):
            return not (self.are_fed(first) and _may_be_promoted(first))
        if not self.are_plain:
            return False
        if all(plan.is_fixed(leaf.value) for leaf in leaves(found.first)):
            return True
        if not isinstance(found.first, Leaf) or not self.are_fed(first) or _may_be_promoted(first):
            return False
        return plan.verdicts[first.result].stage == plan.verdicts[second.result].stage == 0


def _may_be_promoted(product: ContractOp) -> bool:
    """Whether threads may add up a sum (`hierarchy-promote-sums`), whose registers are not those of a product then."""
    return str(format_of(product.lhs.type)) in EIGHT_BIT and product.accumulate == f32


def _join(map: MapOp, found: Added) -> tuple[MapOp | None, tuple[str, str]]:
    """Let the second product begin with the first term; what is left of the map, if anything is, and the names of the
    product and of what it begins with."""
    block = map.parent_block()
    assert block is not None
    begins = _beginning(block, map, found)
    joined = rebuilt(found.second, operands_of(found.second), found.second.result.type, begins)
    block.insert_op_before(joined, map)
    joined.result.name_hint = found.second.result.name_hint
    rest = _rest(map, found, joined)
    replace(map, [rest] if isinstance(rest, MapOp) else [], rest.result)
    replace(found.second, [], joined.result)
    return rest if isinstance(rest, MapOp) else None, (label(joined.result), label(begins))


def _rest(map: MapOp, found: Added, joined: ContractOp | ReduceOp) -> MapOp | ContractOp | ReduceOp:
    """What is left of a map; the product where that is all that it gives."""
    left = substitute(found.left, lambda leaf: Leaf(joined.result) if leaf.value is found.second.result else leaf)
    if isinstance(left, Leaf) and left.value.type == map.result.type:
        return joined
    return build_map(left, map.result.type, map.result.name_hint, map.location)


def _beginning(block: Block, map: MapOp, found: Added) -> SSAValue:
    """The first term, as an array."""
    if isinstance(found.first, Leaf):
        return found.begun.result
    hint = found.begun.result.name_hint
    scaled = build_map(found.first, found.begun.result.type, None, map.location)
    block.insert_op_before(scaled, map)
    scaled.result.name_hint = fresh_hint(scaled.result, f"{hint}_scaled") if hint else None
    return scaled.result
