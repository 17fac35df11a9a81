"""`hierarchy-choose-sizes`: all sizes of a kernel together, by the cost model, within the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from xdsl.context import Context
from xdsl.dialects.builtin import IntAttr, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from treadle.compiler.cost import Choice, choose, nearest, sketch_of
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.numerals import whole_number
from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.cuda.kernel import BY_PIECE, SHARE
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp, ScheduleAttr
from treadle.dialects.hierarchy.schedule import UNDECIDED
from treadle.passes._functions import note
from treadle.passes._parts import part_of_kernel
from treadle.passes._structure import Structure, remember, structure_as_called
from treadle.passes.kernels.roles import Refusal as NoRoles
from treadle.passes.kernels.roles import roles_of


@dataclass(frozen=True)
class HierarchyChooseSizesPass(ModulePass):
    """Fill in every `?` of the schedules, and the warps: of the candidates that fit the machine of the module,
    the one with the least estimated time at the default sizes. `group` and `stream` fix sizes beforehand,
    as in `hierarchy-choose-sizes{group="q=64" stream="x=32"}`; a size that the schedule states already is
    kept. With `kernel` only that kernel is decided. The derivation gets the reasons. Before:

    ```
    !A = tensor<?x?xf16, #diagram.array<[m, k]>>
    !B = tensor<?x?xf16, #diagram.array<[k, n]>>
    !Ad = tensor<?x?xf16, #diagram.array<[m, k], level = device>>
    !Bd = tensor<?x?xf16, #diagram.array<[k, n], level = device>>
    !C = tensor<?x?xf32, #diagram.array<[m, n]>>
    !Cr = tensor<?x?xf32, #diagram.array<[m, n], level = register>>
    func.func @product(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
          schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```

    After (of the derivation nothing is shown):

    ```
    !A = tensor<?x?xf16, #diagram.array<[m, k]>>
    !B = tensor<?x?xf16, #diagram.array<[k, n]>>
    !Ad = tensor<?x?xf16, #diagram.array<[m, k], level = device>>
    !Bd = tensor<?x?xf16, #diagram.array<[k, n], level = device>>
    !C = tensor<?x?xf32, #diagram.array<[m, n]>>
    !Cr = tensor<?x?xf32, #diagram.array<[m, n], level = register>>
    func.func @product(%A: !A, %B: !B) -> !C {
      %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
          schedule #hierarchy.schedule<group = [m = 64, n = 192], stream = [k = 128], warps = [m = 2, n = 4]> {
        %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
        hierarchy.yield %c : !Cr
      }
      func.return %C : !C
    }
    ```
    """

    name = "hierarchy-choose-sizes"

    group: str | None = None
    stream: str | None = None
    kernel: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        try:
            group, stream = parse_pieces("group", self.group), parse_pieces("stream", self.stream)
            machine = machine_of(op)
        except TreadleError as error:
            raise Refusal(op, error.message) from error
        kernels = [
            kernel
            for kernel in op.walk()
            if isinstance(kernel, KernelOp) and kernel.schedule is not None and not kernel.is_expanded
        ]
        if self.kernel:
            kernels = [kernel for kernel in kernels if kernel.kernel_name.data == self.kernel]
            if not kernels:
                raise Refusal(op, f"there is no kernel @{self.kernel} whose sizes are to be chosen")
        schedules = [kernel.schedule for kernel in kernels if kernel.schedule is not None]
        _check_known(op, "group", group, {axis for s in schedules for axis in s.group.as_dict()})
        _check_known(op, "stream", stream, {axis for s in schedules for axis in s.stream.as_dict()})
        for kernel, schedule in zip(kernels, schedules, strict=True):
            _decide(kernel, schedule, machine, group, stream)


def parse_pieces(option: str, text: str | None) -> dict[str, int]:
    """`"q=64,c=128"` as a dictionary (TreadleError)."""
    sizes: dict[str, int] = {}
    for entry in (text or "").split(","):
        if not entry.strip():
            continue
        axis, equals, number = (part.strip() for part in entry.partition("="))
        size = whole_number(number) if equals and axis else None
        if size is None or not 0 < size < 2**31:
            raise TreadleError(
                f"option '{option}' has the entry '{entry.strip()}': write axis=number, as in "
                f'{option}="q=64,c=128", with a number from 1 on'
            )
        if axis in sizes:
            raise TreadleError(f"option '{option}' names axis '{axis}' twice")
        sizes[axis] = size
    return sizes


def _check_known(module: ModuleOp, option: str, given: Mapping[str, int], axes: set[str]) -> None:
    for axis in given:
        if axis not in axes:
            known = ", ".join(f"'{name}'" for name in sorted(axes)) or "none"
            raise Refusal(module, f"option '{option}' names axis '{axis}', which no kernel treats so (axes: {known})")


def _decide(
    kernel: KernelOp,
    schedule: ScheduleAttr,
    machine: Machine,
    group: Mapping[str, int],
    stream: Mapping[str, int],
) -> None:
    if schedule.is_decided and schedule.warps.as_dict():
        return
    choice = choice_for(kernel, schedule, machine, {**group, **stream})
    function = _function_of(kernel)
    kernel.schedule = _schedule(choice, schedule)
    if choice.estimate.by_piece:
        kernel.attributes[BY_PIECE] = UnitAttr()
    if (resident := int(choice.estimate.footprint.resident)) > 1:
        kernel.attributes[SHARE] = IntAttr(resident)
    if function is not None:
        note(function, "choose sizes", f"@{kernel.kernel_name.data}", "cost model", choice.reason)


def choice_for(kernel: KernelOp, schedule: ScheduleAttr, machine: Machine, given: Mapping[str, int]) -> Choice:
    """The sizes that the cost model chooses for a kernel with this schedule, where neither the schedule states them nor
    they are given (Refusal). What was chosen for a kernel that is the same but for the names of its values is chosen
    again: passes ask of one kernel many times, of which most are copies that they try something on."""
    called = structure_as_called(kernel, schedule, _defaults(_function_of(kernel)))
    key = (called, id(machine), tuple(sorted(given.items())))
    if (known := _CHOSEN.get(key)) is None:
        known = remember(_CHOSEN, key, (machine, _choose(kernel, schedule, machine, given)))
    return known[1]


_CHOSEN: dict[tuple[Structure, int, tuple[tuple[str, int], ...]], tuple[Machine, Choice]] = {}
"""With the machine, so that no other one gets its identity. Refusals name the kernel, so they are not kept."""


def _choose(kernel: KernelOp, schedule: ScheduleAttr, machine: Machine, given: Mapping[str, int]) -> Choice:
    _check_whole(kernel, schedule)
    sketch = sketch_of(kernel, schedule)
    fixed = _stated(schedule) | {axis: size for axis, size in given.items() if axis in (*sketch.group, sketch.stream)}
    try:
        return choose(sketch, machine, likely_sizes(sketch.sizes, _function_of(kernel)), fixed)
    except TreadleError as error:
        raise Refusal(kernel, error.message) from error


def nearest_for(kernel: KernelOp, machine: Machine, count: int) -> list[tuple[dict[str, int], float]]:
    """The sizes of a kernel that the cost model likes best, of its groups and its stream, and the estimated time of
    each, in us: those that are chosen first (Refusal)."""
    schedule = kernel.schedule
    if schedule is None:
        return []
    _check_whole(kernel, schedule)
    sketch = sketch_of(kernel, schedule)
    try:
        return nearest(sketch, machine, likely_sizes(sketch.sizes, _function_of(kernel)), _stated(schedule), count)
    except TreadleError as error:
        raise Refusal(kernel, error.message) from error


def _stated(schedule: ScheduleAttr) -> dict[str, int]:
    cut = {**schedule.group.as_dict(), **schedule.stream.as_dict()}
    return {axis: size for axis, size in cut.items() if size != UNDECIDED}


def _function_of(kernel: KernelOp) -> FuncOp | None:
    parent = kernel.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        parent = parent.parent_op()
    return parent


def _check_whole(kernel: KernelOp, schedule: ScheduleAttr) -> None:
    """Before anything else is asked of the kernel, for it answers only if every axis has a piece."""
    part = part_of_kernel(kernel)
    whole, cut = schedule.whole.as_dict(), (*schedule.group.as_dict(), *schedule.stream.as_dict())
    for axis in (axis for axis, size in part.sizes.items() if size == DYNAMIC and axis not in cut):
        if axis in whole:
            raise Refusal(
                kernel,
                f"axis '{axis}' is held whole by every group, but its size is known only at launch: "
                "give it a static size in the types",
            )
        roles = roles_of(part, wide=True)
        why = roles.reason if isinstance(roles, NoRoles) else "run streaming and tiling first"
        raise Refusal(kernel, f"axis '{axis}' is neither cut nor streamed, and its size is known only at launch: {why}")


def likely_sizes(
    axes: Mapping[str, int], function: FuncOp | None, given: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """The size to choose for, of every axis, or what is `given`: an empty one is no reason to prefer anything."""
    defaults = _defaults(function, given)
    return {axis: max(1, defaults.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size) for axis, size in axes.items()}


def _defaults(function: FuncOp | None, given: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    return {} if function is None else with_fitting(function.body.block, {**default_sizes(function), **given})


def _schedule(choice: Choice, schedule: ScheduleAttr) -> ScheduleAttr:
    tiles, whole = choice.candidate.tiles, schedule.whole.as_dict()
    return ScheduleAttr(
        group={axis: tiles[axis] for axis in schedule.group.as_dict()},
        stream={axis: tiles[axis] for axis in schedule.stream.as_dict()},
        whole=whole,
        warps=choice.candidate.warps,
        left="shared" if choice.candidate.rereads else schedule.left.data,
        subloop=schedule.subloop.as_dict(),
        cluster={axis: tiles[axis] for axis, size in whole.items() if tiles[axis] < size},
        promote=schedule.promote.as_dict(),
    )
