"""`hierarchy-choose-sizes`: all sizes of a kernel together, by the cost model, within the machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from treadle.compiler.cost import Choice, Stated, choose, nearest, sketch_of
from treadle.compiler.cost.choice.merit import merit
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.numerals import whole_number
from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp, ScheduleAttr
from treadle.dialects.hierarchy.schedule import UNDECIDED
from treadle.passes._decisions import decide
from treadle.passes._functions import names_of, note
from treadle.passes._parts import part_of_kernel
from treadle.passes._structure import Structure, remember, structure_as_called
from treadle.passes.kernels.roles import Refusal as NoRoles
from treadle.passes.kernels.roles import roles_of
from treadle.passes.kernels.singly import may_step_over_matrices


@dataclass(frozen=True)
class HierarchyChooseSizesPass(ModulePass):
    """Fill in every `?` of the schedules, the warps and how blocks take the pieces: of the candidates that fit the
    machine of the module, the one with the least estimated time at the default sizes. What the schedule states already
    is kept. Options state more beforehand: `group` and `stream` sizes, `warps` how many lie along which axis, `left`
    whether left operands that all steps share stay in shared memory or are kept in registers, `cluster` what each block
    of a cluster has of an axis that they share, and `turns` how many blocks of a processor take pieces one after
    another (0: each piece has its own), as in
    `hierarchy-choose-sizes{group="q=64" stream="x=32" warps="q=4" turns=3}`. With `kernel` only that kernel is decided.
    The derivation gets the reasons. Before:

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
    warps: str | None = None
    left: Literal["registers", "shared"] | None = None
    cluster: str | None = None
    turns: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        try:
            given = {key: parse_pieces(key, text) for key, text in self._pieces().items()}
            machine = machine_of(op)
        except TreadleError as error:
            raise Refusal(op, error.message) from error
        if self.turns is not None and self.turns < 0:
            raise Refusal(op, f"{self.turns} blocks of a processor cannot take turns: use 0 or more")
        kernels = [
            kernel
            for kernel in op.walk()
            if isinstance(kernel, KernelOp) and kernel.schedule is not None and not kernel.is_expanded
        ]
        if self.kernel:
            there = names_of(kernels)
            kernels = [kernel for kernel in kernels if kernel.kernel_name.data == self.kernel]
            if not kernels:
                raise Refusal(
                    op, f"there is no kernel @{self.kernel} whose sizes are to be chosen (kernels are {there})"
                )
        schedules = [kernel.schedule for kernel in kernels if kernel.schedule is not None]
        for key, sizes in given.items():
            _check_known(op, key, sizes, {axis for schedule in schedules for axis in _axes(key, schedule)})
        for kernel, schedule in zip(kernels, schedules, strict=True):
            _decide(kernel, schedule, self._stated(schedule, given), machine)

    def _pieces(self) -> dict[str, str | None]:
        return {"group": self.group, "stream": self.stream, "warps": self.warps, "cluster": self.cluster}

    def _stated(self, schedule: ScheduleAttr, given: Mapping[str, Mapping[str, int]]) -> ScheduleAttr:
        """The schedule with what the options state of its own axes."""
        own = {
            key: {axis: size for axis, size in sizes.items() if axis in _axes(key, schedule)}
            for key, sizes in given.items()
        }
        return schedule.but(
            group=schedule.group.as_dict() | own["group"],
            stream=schedule.stream.as_dict() | own["stream"],
            warps=own["warps"] or None,
            cluster=own["cluster"] or None,
            left=self.left,
            turns=self.turns,
        )


def _options(schedule: ScheduleAttr) -> dict[str, str | int | None]:
    """All sizes of a schedule, as the pass takes them."""
    parts = {"group": schedule.group, "stream": schedule.stream, "warps": schedule.warps, "cluster": schedule.cluster}
    texts = {key: ",".join(f"{axis}={size}" for axis, size in part.as_dict().items()) for key, part in parts.items()}
    turns = None if schedule.turns.data == UNDECIDED else schedule.turns.data
    return {key: text or None for key, text in texts.items()} | {"left": schedule.left.data or None, "turns": turns}


def _axes(key: str, schedule: ScheduleAttr) -> Collection[str]:
    """The axes of a schedule of which an option may say something."""
    if key == "warps":
        return schedule.tile_sizes().keys()
    part = {"group": schedule.group, "stream": schedule.stream, "cluster": schedule.whole}[key]
    return part.as_dict().keys()


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


def _decide(kernel: KernelOp, schedule: ScheduleAttr, stated: ScheduleAttr, machine: Machine) -> None:
    if schedule.is_decided and schedule.warps.as_dict():
        return
    choice = choice_for(kernel, stated, machine)
    function = _function_of(kernel)
    kernel.schedule = _schedule(choice, stated)
    decide(kernel, **_options(kernel.schedule))
    if function is not None:
        note(function, "choose sizes", f"@{kernel.kernel_name.data}", "cost model", choice.reason)


def choice_for(kernel: KernelOp, schedule: ScheduleAttr, machine: Machine) -> Choice:
    """The sizes that the cost model chooses for a kernel with this schedule, where that does not state them (Refusal).
    What was chosen for a kernel that is the same but for the names of its values is chosen again: passes ask of one
    kernel many times, of which most are copies that they try something on."""
    key = (structure_as_called(kernel, schedule, _defaults(_function_of(kernel))), id(machine))
    if (known := _CHOSEN.get(key)) is None:
        known = remember(_CHOSEN, key, (machine, _choose(kernel, schedule, machine)))
    return known[1]


_CHOSEN: dict[tuple[Structure, int], tuple[Machine, Choice]] = {}
"""With the machine, so that no other one gets its identity. Refusals name the kernel, so they are not kept."""


def _choose(kernel: KernelOp, schedule: ScheduleAttr, machine: Machine) -> Choice:
    return min(_of_ways(choose, kernel, schedule, machine), key=lambda choice: merit(choice.estimate))


_Found = TypeVar("_Found")


def _of_ways(ask: Callable[..., _Found], kernel: KernelOp, schedule: ScheduleAttr, machine: Machine) -> list[_Found]:
    """What the cost model says of each way to take a kernel for which some sizes fit (Refusal where there is none)."""
    _check_whole(kernel, schedule)
    found, problems = list[_Found](), list[TreadleError]()
    for way in _ways(kernel, schedule):
        sketch = sketch_of(kernel, way)
        try:
            found.append(ask(sketch, machine, likely_sizes(sketch.sizes, _function_of(kernel)), *_stated(way)))
        except TreadleError as error:
            problems.append(error)
    if not found:
        raise Refusal(kernel, problems[0].message) from problems[0]
    return found


def _ways(kernel: KernelOp, schedule: ScheduleAttr) -> list[ScheduleAttr]:
    """What a schedule leaves open that is no size: whether products have columns along the streamed axis, or steps take
    one index of it, where both are possible."""
    group, stream = schedule.group.as_dict(), schedule.stream.as_dict()
    steps = {axis: 1 for axis, size in stream.items() if size == UNDECIDED}
    if not any(may_step_over_matrices(kernel.body.block.ops, group, axis) for axis in steps):
        return [schedule]
    return [schedule, schedule.but(stream=stream | steps)]


def nearest_for(kernel: KernelOp, machine: Machine, count: int) -> list[tuple[dict[str, int], float]]:
    """The sizes of a kernel that the cost model likes best, of its groups and its stream, and the estimated time of
    each, in us: those that are chosen first (Refusal)."""
    schedule = kernel.schedule
    if schedule is None:
        return []
    found = _of_ways(partial(nearest, count=count), kernel, schedule, machine)
    (first, *rest), *others = sorted(found, key=lambda each: each[0][1])
    return [first, *sorted([*rest, *(each for other in others for each in other)], key=lambda each: each[1])][:count]


def _stated(schedule: ScheduleAttr) -> tuple[dict[str, int], Stated]:
    """The sizes of groups and of the stream that a schedule states, and what else it does."""
    cut = {**schedule.group.as_dict(), **schedule.stream.as_dict()}
    turns = None if schedule.turns.data == UNDECIDED else schedule.turns.data
    beside = Stated(schedule.warps.as_dict(), schedule.left.data, schedule.cluster.as_dict(), turns)
    return {axis: size for axis, size in cut.items() if size != UNDECIDED}, beside


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
    defaults = _defaults(function, given) if DYNAMIC in axes.values() else {}
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
        turns=UNDECIDED if choice.turns is None else choice.turns,
    )
