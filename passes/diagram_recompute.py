"""`diagram-recompute`: arrays that are summed along different axes are made once for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format, rated_as
from treadle.passes._functions import fresh_hint, functions, kernels, label, note
from treadle.passes._later import run_later
from treadle.passes.expressions.decisions import decides
from treadle.passes.expressions.shares import absorb_divisors
from treadle.passes.expressions.steady import is_steady
from treadle.passes.kernels.in_turn import split_products_of_products, split_sums_between
from treadle.passes.kernels.phases import Phase, phases_of, phases_reached
from treadle.passes.kernels.sums import Axes, Sums, classes_of, long_axes, summed_axes

PASS = "diagram-recompute"
LAW = "recomputation"


@dataclass(frozen=True)
class DiagramRecomputePass(ModulePass):
    """Compute an array twice, with what it is computed from, if it is summed along one of its axes in one place and
    along another axis elsewhere. No kernel can be fed both axes, so one would have to save the array for the other.

    Before:

    ```
    !A = tensor<?x64xf16, #diagram.array<[q, d]>>
    !B = tensor<?x64xf16, #diagram.array<[x, d]>>
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !rows = tensor<?xf32, #diagram.array<[q]>>
    !columns = tensor<?xf32, #diagram.array<[x]>>
    func.func @f(%A: !A, %B: !B) -> (!rows, !columns) attributes {sizes = #diagram.sizes<q = 4096, x = 4096>} {
      %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
      %r = diagram.reduce max %S over [x] : !S -> !rows
      %c = diagram.reduce max %S over [q] : !S -> !columns
      func.return %r, %c : !rows, !columns
    }
    ```

    After:

    ```
    !A = tensor<?x64xf16, #diagram.array<[q, d]>>
    !B = tensor<?x64xf16, #diagram.array<[x, d]>>
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !rows = tensor<?xf32, #diagram.array<[q]>>
    !columns = tensor<?xf32, #diagram.array<[x]>>
    func.func @f(%A: !A, %B: !B) -> (!rows, !columns) attributes {sizes = #diagram.sizes<q = 4096, x = 4096>} {
      %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
      %S_b = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
      %r = diagram.reduce max %S over [x] : !S -> !rows
      %c = diagram.reduce max %S_b over [q] : !S -> !columns
      func.return %r, %c : !rows, !columns
    }
    ```

    Legal, because operations are functions, as long as what is made of a product passes on a rounding as no more than
    that (`expressions.steady`): two kernels may add the product up in different orders. What other sums make decides no
    comparison (`expressions.decisions`).

    Done where a product is among what is made again (`fusion` makes again what is computed element by element), if
    that takes less time than what the kernels then save and read less takes in device memory. Both grow alike with the
    axes, so likely sizes do not matter. What is saved is found by trying `fusion` with and without.

    - Powers that are then made for their shares alone, `exp(a) / b`, are made as `exp(a - log b)`: one logarithm for
      all that `b` divides (`expressions.shares`).
    - Sums along one axis that need sums along another, which need such sums themselves, are phases of their own, which
      no kernel makes with the first. Arrays are made for each phase, if that saves more.
    - A reduction over several long axes, along some of which others sum, is no kernel's either: it is done along these
      first, and then, of what is left, along the others. So is a sum of products over several axes of another product,
      whose kernel has columns along one axis alone: along the longest first."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for index, function in enumerate(functions(op)):
            for place, block in enumerate(function.body.blocks):
                split_sums_between(function, block, PASS)
                split_products_of_products(function, block, PASS)
                found = _ways(block)
                gains = _gains(op, index, place, found)
                if max(gains, default=0) > 0:
                    absorb_divisors(function, found[gains.index(max(gains))].part(function), PASS)


def _ways(block: Block) -> list[_Shared]:
    """The ways to make arrays again that may be taken, different ones."""
    found = [_Shared(block)]
    by_phase = _Shared(block, by_phase=True)
    if not by_phase.is_same(found[0]):
        found.append(by_phase)
    return [each for each in found if each.products and each.is_steady]


def _gains(module: ModuleOp, index: int, place: int, found: Sequence[_Shared]) -> list[float]:
    """What each of these ways is worth, in one block of one function."""
    if not found:
        return []
    before = _saved(module.clone(), index, found[0].classes)
    return [_gain(module, index, place, each, before) for each in found]


def _gain(module: ModuleOp, index: int, place: int, found: _Shared, before: float) -> float:
    """The bytes in device memory that making arrays again spares, of those that kernels save and read before, beyond
    those that could be moved in the time that it takes."""
    machine, parted = machine_of(module), module.clone()
    function = list(functions(parted))[index]
    shared = _Shared(function.body.blocks[place], found.by_phase)
    made = shared.part(function)
    sizes = default_sizes(function)
    again = sum(_seconds(op, machine, sizes) for op in made if isinstance(op, ContractOp))
    spared = before - _saved(parted, index, shared.classes)
    return spared - again * machine.levels["device"].bandwidth


def _seconds(op: ContractOp, machine: Machine, sizes: Mapping[str, int]) -> float:
    """That a product takes on the units that make it, at their full rate."""
    axes = sizes_of(op.lhs.type) | sizes_of(op.rhs.type)
    format = rated_as(str(format_of(op.lhs.type))) if op.multiply is None else op.multiply.data
    lanes = 2 * machine.rates.float * machine.sms * machine.clock
    rate = machine.tensor_flops(format) if format in machine.rates.tensor else lanes
    return 2 * _elements(axes, sizes) / rate


def _saved(module: ModuleOp, index: int, classes: Sequence[Axes]) -> float:
    """Bytes of arrays that kernels save and read, if they have axes of several classes; infinite if no kernels can be
    made."""
    function = list(functions(module))[index]
    sizes = default_sizes(function)
    try:
        run_later(module, "fusion")
    except Refusal:
        return inf
    arrays = [value for kernel in kernels(function) for value in (*kernel.operands, *kernel.outputs)]
    return sum(_bytes(value, sizes) for value in arrays if len(_of(long_axes(value), classes)) > 1)


def _bytes(value: SSAValue, sizes: Mapping[str, int]) -> int:
    return _elements(sizes_of(value.type), sizes) * number_format(format_of(value.type)).bytes


def _elements(axes: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return prod(max(1, sizes.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size) for axis, size in axes.items())


class _Shared:
    """Arrays of a block that are summed along one long axis here, and along another there; or `by_phase`, along one
    again after what depends on sums along another: no kernel does both."""

    def __init__(self, block: Block, by_phase: bool = False):
        self.block, self.by_phase = block, by_phase
        sums = Sums(block)
        self.ops, self.ends = sums.ops, sums.ends
        self.classes = classes_of(self.ops)
        """The axes of the sums that one kernel can make, those that come first in the program first."""
        self.phases = phases_of(self.ops, self.classes) if by_phase else [Phase(axes) for axes in self.classes]
        self.reached = phases_reached(self.ops, self.phases) if by_phase else {}
        self.phases_of_op: dict[Operation, list[int]] = {op: self._served(op) for op in self.ops}

    def _served(self, op: Operation) -> list[int]:
        axes = frozenset[str]().union(*self.ends[op.results[0]])
        served = [i for i, phase in enumerate(self.phases) if phase.axes & axes]
        if not self.by_phase:
            return served
        served = [i for i in served if i in self.reached[op.results[0]]]
        if not summed_axes(op):
            return served
        first = {self.phases[i].axes: i for i in reversed(served)}  # a sum is made once, and saved for later phases
        return sorted(first.values())

    def served(self, op: Operation) -> list[int]:
        """The phases of the sums of what an operation makes; the first of them keeps it."""
        return self.phases_of_op[op]

    def is_shared(self, op: Operation) -> bool:
        return len(self.served(op)) > 1

    def is_same(self, other: _Shared) -> bool:
        """Whether arrays are made again for the same sums: each class of axes is one phase."""
        axes = [[phase.axes for phase in each.phases] for each in (self, other)]
        return axes[0] == axes[1] and self.phases_of_op == other.phases_of_op

    @property
    def products(self) -> list[ContractOp]:
        return [op for op in self.ops if isinstance(op, ContractOp) and self.is_shared(op)]

    @property
    def is_steady(self) -> bool:
        """Whether it does not matter that kernels add up the products, and other sums, in different orders."""
        sums = [op.result for op in self.ops if isinstance(op, ReduceOp) and self.is_shared(op)]
        return is_steady([op.result for op in self.products], self.ops) and not any(map(decides, sums))

    def part(self, function: func.FuncOp) -> list[Operation]:
        """Let the sums of each phase have arrays of their own; the operations that came."""
        made: list[Operation] = []
        for index in reversed(range(1, len(self.phases))):  # those before are made of what copies are made of, too
            phase = self.phases[index]
            if not (copies := self._copies(index)):
                continue
            made += copies
            names, axes = ", ".join(label(op.results[0]) for op in copies), ", ".join(sorted(phase.axes))
            is_again = any(earlier.axes == phase.axes for earlier in self.phases[:index])
            before = "after sums along another axis" if is_again else "along another axis before"
            note(function, PASS, f"{names} again", LAW, f"summed along {axes} here, and {before}")
        return made

    def _copies(self, index: int) -> list[Operation]:
        """What the sums of one phase are made of, for them alone."""
        values: dict[SSAValue, SSAValue] = {}
        made: list[Operation] = []
        for op in self.ops:
            served = self.served(op)
            operands = [values.get(operand, operand) for operand in op.operands]
            if len(served) > 1 and index in served[1:]:
                copy = op.clone(dict(zip(op.operands, operands, strict=True)))
                copy.results[0].name_hint = fresh_hint(op.results[0], op.results[0].name_hint)
                copy.location = op.location
                values[op.results[0]] = copy.results[0]
                self.block.insert_op_after(copy, op)
                made.append(copy)
            elif self._is_of(op, index):
                op.operands = operands
        return made

    def _is_of(self, op: Operation, index: int) -> bool:
        """Whether an operation sums in a phase, or makes what that phase is the first to sum."""
        phase = self.phases[index]
        if summed := summed_axes(op):
            return op in phase.sums if self.by_phase else bool(phase.axes & summed)
        return self.served(op)[:1] == [index]


def _of(axes: Axes, classes: Sequence[Axes]) -> list[int]:
    """The classes that have any of these axes."""
    return [index for index, each in enumerate(classes) if each & axes]
