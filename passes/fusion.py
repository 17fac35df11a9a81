"""`fusion`: make kernels of convex sets of operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import default_sizes
from treadle.dialects.diagram import ContractOp, RecurrenceOp, ReduceOp, ScatterOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import format_of, is_array, with_level
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.formats import SIXTEEN_BIT
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp, YieldOp
from treadle.passes._functions import erase_dead, erase_unused, functions, kernels, label, note
from treadle.passes._later import run_later
from treadle.passes._parts import Part, is_free, part_of
from treadle.passes._recurrences import drop_unused
from treadle.passes._structure import Structure, remember, structure_of, structure_of_parts, structure_with_names
from treadle.passes.expressions.reductions import reduce_alone
from treadle.passes.kernels.added_zeros import only_adds
from treadle.passes.kernels.by_time import Clock
from treadle.passes.kernels.clusters import Clusters
from treadle.passes.kernels.copies import copy_padded
from treadle.passes.kernels.in_turn import split_reductions
from treadle.passes.kernels.roles import WHOLE_LIMIT
from treadle.passes.kernels.scattered import begin_scatters
from treadle.passes.kernels.sized import Sizes
from treadle.passes.kernels.swaps import read_what_others_have
from treadle.passes.kernels.trial import alone, alone_in_parts, scheduled_time
from treadle.passes.kernels.wide import wide_roles
from treadle.passes.streams.totals import add_totals

PASS = "fusion"

TO_SIZES = (
    "streaming",
    "tiling",
    "hierarchy-join-sums",
    "hierarchy-rescale-lazily",  # as where times are asked for, so that sizes are chosen once for both
    "hierarchy-choose-sizes",
)
"""The passes that tell whether a machine has room for a kernel."""
TO_CUDA = (*TO_SIZES, "hierarchy-expand-streams", "convert-hierarchy-to-cuda")
"""Those that tell whether it can be made."""


@dataclass(frozen=True)
class FusionPass(ModulePass):
    """Outline convex sets of operations into kernels: what lies between them never leaves the near level.

    Before:

    ```
    !x = tensor<?xf32, #diagram.array<[i]>>
    func.func @f(%x: !x) -> !x {
      %y = diagram.map (%a = %x : !x) -> !x {
        %b = math.sin %a : f32
        diagram.yield %b : f32
      }
      func.return %y : !x
    }
    ```

    After:

    ```
    !x = tensor<?xf32, #diagram.array<[i]>>
    !xd = tensor<?xf32, #diagram.array<[i], level = device>>
    !xr = tensor<?xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !x {
      %y = hierarchy.kernel @f (%x_1 = %x : !x as !xd) -> (!x) {
        %y_1 = diagram.map (%a = %x_1 : !xd) -> !xr {
          %b = math.sin %a : f32
          diagram.yield %b : f32
        }
        hierarchy.yield %y_1 : !xr
      }
      func.return %y : !x
    }
    ```

    Legal if the set is convex in the dataflow: no value leaves it and comes back, so its operations can run at one
    moment. Operations of other dialects are boundaries and stay as they are. What is kept apart is recorded with the
    reason.

    A set becomes one kernel only if every axis has a role in it (`kernels.roles.roles_of`): at most one axis streamed,
    no other axis held whole that has more than `whole-limit` elements, no product computed again by another group.
    Several products, or a product and a reduction, become one kernel only if it can be lowered with sizes that fit the
    machine, which is tried, and if a product is not made a few columns at a time (`kernels.narrow`). A reduction or a
    product over several axes that no kernel can do at once is done one axis after another. Where no sizes of a kernel
    fit, its operations are placed again, each where it fits.

    Three rules go beyond that:

    - Two or three sets that need *wide roles* (the depth of a product held whole however long it is, columns that
      several warps share, or a product repeated by the groups of an axis that none can hold) become one where the cost
      model finds that no slower (`kernels.wide`).
    - Sets that have nothing in common but an array that they read become one if they hold no products, every axis has
      the same role in each and in all, and they fit the machine: the array is read once.
    - What could be one kernel, but would repeat work or lack registers, is cut where the cost model finds that its
      parts take a tenth less time at the sizes that the program states, and no more where axes known only at launch are
      long (`kernels.by_time`).

    What one kernel computes element by element of what another reads or saves anyway is made again there, where that
    moves fewer bytes (`kernels.make_again`). What a condition left of an array is asked again (`kernels.select_again`);
    sums of what is read of it take the zeros that are saved for the rest (`kernels.added_zeros`).

    With `operations` only those, named by their results, are joined with what they use, or refused."""

    name = PASS

    whole_limit: int = WHOLE_LIMIT
    together: bool = True
    """False keeps every operation a kernel of its own: to compare with."""
    operations: tuple[str, ...] = ()
    """Only these, named by their results, join what they use; refused where a law keeps one apart from all of that."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        names = _Names(op)
        results = {value.name_hint for each in op.walk() for value in each.results}
        if unknown := [name for name in self.operations if name not in results]:
            raise PassFailedException(f"there is no operation %{unknown[0]} to put together with what it uses")
        for function in functions(op):
            for block in function.body.blocks:
                _check_accumulators(block)
                _reduce_alone(block)
                for recurrence in [each for each in block.ops if isinstance(each, RecurrenceOp)]:
                    drop_unused(recurrence)
                add_totals(block)
                begin_scatters(block)
                copy_padded(block)
                unfit, too_large = (partial(_why_unfit, op, function, passes) for passes in (TO_CUDA, TO_SIZES))
                split_reductions(function, block, self.whole_limit, PASS, too_large)
                stated = with_fitting(block, default_sizes(function))
                clock = Clock(machine_of(op), stated, self.whole_limit, partial(_time, op, function, self.whole_limit))
                cluster = partial(
                    Clusters,
                    function,
                    block,
                    self.whole_limit,
                    self.together,
                    unfit,
                    self.operations,
                    clock,
                    too_large=too_large,
                )
                found = cluster()
                if read_what_others_have(block, found.found):
                    found = cluster()
                _outline(function, block, found, names)


def _check_accumulators(block: Block) -> None:
    """Kernels add up products in 32 bits; told here, before anything is decided for what none could be made of."""
    for op in block.ops:
        if isinstance(op, ContractOp) and str(op.accumulate) in SIXTEEN_BIT:
            raise Refusal(
                op,
                f"it accumulates in {op.accumulate}, and kernels add up products in f32: a sum in {op.accumulate} "
                "would be rounded at every addition; write 'accumulate f32', and the result of "
                f"{format_of(op.result.type)} is rounded once",
            )


def _reduce_alone(block: Block) -> None:
    """An array that a reduction is added to is at another level than the sum: add it by a map."""
    for op in list(block.ops):
        if isinstance(op, ContractOp | ReduceOp) and op.init is not None:
            reduce_alone(op)


LONGEST_NAME = 40
"""Characters of a function's name that its kernels take over."""


@dataclass
class _Names:
    """Names of kernels, each used once in a module."""

    module: ModuleOp
    taken: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        for function in functions(self.module):
            self.taken |= {kernel.kernel_name.data for kernel in kernels(function)}

    def fresh(self, function: func.FuncOp, index: int, count: int) -> str:
        base = re.sub(r"[^A-Za-z0-9]+", "_", function.sym_name.data)[:LONGEST_NAME].strip("_")
        base = base if base[:1].isalpha() else f"k{base}"
        name = base if count == 1 else f"{base}_{index}"
        while name in self.taken:
            index += 1
            name = f"{base}_{index}"
        self.taken.add(name)
        return name


def _outline(function: func.FuncOp, block: Block, clusters: Clusters, names: _Names) -> None:
    """Replace each cluster by a kernel, and put the operations of the block in an order that allows it."""
    units = [part_of(unit) if unit in clusters.found else unit for unit in clusters.in_order()]
    parts = [unit for unit in units if isinstance(unit, Part)]
    for part in parts:
        _check_absent(part, clusters)
    for op in clusters.ops:
        op.detach()
    for unit in units:
        block.add_ops(unit.ops if isinstance(unit, Part) else unit)
    for index, part in enumerate(parts, start=1):
        kernel = _kernel(names.fresh(function, index, len(parts)), part)
        block.insert_op_before(kernel, part.ops[0])
        _hand_over(part, kernel)
        noted, free = _noted_of_kernel(part, kernel), _free_operands(part)
        for op in reversed(part.ops):
            op.detach()
            op.erase()
        erase_unused(result for op in free for result in op.results)
        note(function, PASS, *noted)
    erase_dead(block)


def _why_unfit(
    module: ModuleOp, function: func.FuncOp, passes: tuple[str, ...], ops: frozenset[Operation]
) -> str | None:
    """Why a kernel of these operations could not be made for the machine of the module; found by trying these passes on
    a copy, all of them down to the layouts of its fragments."""
    kernel = _kernel("trial", part_of(ops))
    # First of all, for until then it uses values of the program.
    copy, _ = alone(module, function, kernel, with_views=False)
    stated = default_sizes(function)
    structure = structure_of(kernel, module.attributes, stated)
    if structure is not None and (structure, passes) in _FIT:
        return None
    called = structure_with_names(kernel, module.attributes, stated)
    if (reason := _UNFIT.get((called, passes))) is not None:
        return reason
    reason = _tried(copy, passes, in_parts=wide_roles(part_of(ops), WHOLE_LIMIT) is not None)
    if reason is not None:
        remember(_UNFIT, (called, passes), reason)
    elif structure is not None:
        remember(_FIT, (structure, passes), None)
    return reason


_FIT: dict[tuple[Structure, tuple[str, ...]], None] = {}
"""Kernels of which these passes could be made, whatever their values and axes are called: programs that one graph is
cut into have many in common."""

_UNFIT: dict[tuple[Structure, tuple[str, ...]], str] = {}
"""Why others could not, by structure and names: the reason has names in it."""


def _tried(module: ModuleOp, passes: tuple[str, ...], in_parts: bool) -> str | None:
    try:
        before = ["hierarchy-split-streams"] if in_parts else []  # what needs wide roles may fit in parts alone
        run_later(module, *before, *passes)
    except Refusal as refusal:
        return str(refusal).split(";")[0].replace("kernel @trial", "it")
    return None


def _time(
    module: ModuleOp, function: func.FuncOp, limit: int, parts: Sequence[frozenset[Operation]], sizes: Sizes
) -> float:
    """In microseconds, of the kernels of some operations, with their launches. The same operations are asked of in many
    programs that a graph is cut into, and more than once in each."""
    structure = structure_of_parts(parts, module.attributes, sizes)
    key = None if structure is None else (structure, limit)
    if key is not None and (known := _TIMES.get(key)) is not None:
        return known
    time = _tried_time(module, function, limit, parts, sizes)
    return time if key is None else remember(_TIMES, key, time)


_TIMES: dict[tuple[Structure, int], float] = {}


def _tried_time(
    module: ModuleOp, function: func.FuncOp, limit: int, parts: Sequence[frozenset[Operation]], sizes: Sizes
) -> float:
    """Found by trying, on a copy."""
    copy, trial, copies = alone_in_parts(module, function, parts, sizes)
    block = trial.body.block
    try:
        clusters = Clusters(trial, block, limit, given=copies)
        _outline(trial, block, clusters, _Names(copy))
        return scheduled_time(copy)
    except (Refusal, TreadleError):
        return inf


def _check_absent(part: Part, clusters: Clusters) -> None:
    """Absent elements are saved as zeros: kernels that read them ask again (`kernels.select_again`), nobody else does,
    and sums need not."""
    for value in part.leaving:
        readers = [use.operation for use in value.uses if not _takes_zeros(use.operation)]
        reader = next((op for op in readers if op not in clusters.members and not only_adds(op, value)), None)
        if reader is None or not (conditions := absences(value)):
            continue
        texts = " and ".join(sorted({f"'{op.condition.text.data}'" for op in conditions}))
        raise Refusal(
            reader,
            f"{label(value)} has elements only where {texts}, but it would be saved by a kernel and read by what is in "
            "none, which could not know that: select its elements with `diagram.where` (`keep` of Python) after that, "
            "or let those that count for nothing be zeros, by a choice of a map (`where` of Python)",
        )


def _takes_zeros(op: Operation) -> bool:
    """Whether a value is handed to the caller, as it is or with axes of its own again, so that zeros stay zeros; or is
    added up where data say, where they add nothing."""
    if isinstance(op, Regrouping):
        return all(_takes_zeros(use.operation) for use in op.results[0].uses)
    return isinstance(op, func.ReturnOp | ScatterOp)


def _hand_over(part: Part, kernel: KernelOp) -> None:
    """Let everybody outside use the results of the kernel."""
    members = set(part.ops)
    for old, new in zip(part.leaving, kernel.outputs, strict=True):
        new.name_hint = old.name_hint
        old.replace_uses_with_if(new, lambda use: use.operation not in members)


def _noted_of_kernel(part: Part, kernel: KernelOp) -> tuple[str, str, str]:
    """What became the kernel, by which law, and what that saves."""
    names = ", ".join(label(op.results[0]) for op in part.ops)
    subject = f"{names} into @{kernel.kernel_name.data}"
    if len(part.ops) == 1:
        return subject, "recolour", ""
    kept = [label(op.results[0]) for op in part.ops if op.results[0] not in part.leaving]
    if not kept:
        several = [
            label(value) for value in _inputs(part) if len({use.operation for use in value.uses} & {*part.ops}) > 1
        ]
        return subject, "recolour of a convex set", f"read once: {', '.join(several)}"
    return subject, "recolour of a convex set", f"kept at the near level: {', '.join(kept)}"


def _kernel(name: str, part: Part) -> KernelOp:
    inputs = _inputs(part)
    block = Block(arg_types=[_at_level(value.type, "device") for value in inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for value, argument in zip(inputs, block.args, strict=True):
        argument.name_hint = value.name_hint
    for op in (*_free_operands(part), *part.ops):
        block.add_op(_inside(op, values))
    block.add_op(YieldOp(*(values[value] for value in part.leaving)))
    kernel = KernelOp(name, inputs, [value.type for value in part.leaving], Region(block))
    kernel.location = part.ops[0].location
    return kernel


def _inputs(part: Part) -> list[SSAValue]:
    """What a kernel is given, in the order in which it is used."""
    return [value for value in part.read if not _is_free_value(value)]


def _free_operands(part: Part) -> list[Operation]:
    operands = dict.fromkeys(operand for op in part.ops for operand in op.operands)
    owners = [value.owner for value in operands if value.owner not in part.ops and _is_free_value(value)]
    return [owner for owner in owners if isinstance(owner, Operation)]


def _is_free_value(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and is_free(value.owner)


def _inside(op: Operation, values: dict[SSAValue, SSAValue]) -> Operation:
    """A copy of an operation whose results live at the near level."""
    copy = op.clone(values)
    for old, new in zip(op.results, list(copy.results), strict=True):
        values[old] = Rewriter.replace_value_with_new_type(new, _at_level(new.type, "register"))
    return copy


def _at_level(type: Attribute, level: str) -> Attribute:
    return with_level(type, level) if is_array(type) else type
