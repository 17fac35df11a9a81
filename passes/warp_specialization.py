"""Give copies and products to different warps, where the machine has the means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.errors import InternalError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import TURNS, WITHOUT_MAPS
from treadle.dialects.cuda.tiles import WORD
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._levels import check_lowered
from treadle.passes.warps.fallback import stand_beside
from treadle.passes.warps.laws import Reason, has_room_by_lanes, why_not
from treadle.passes.warps.specialise import Specialised, specialise

SUFFIX, BY_LANES = "_specialised", "_by_lanes"


@dataclass(frozen=True)
class WarpSpecializationPass(ModulePass):
    """Split the warps of a streamed kernel into a producer, which issues the copies of the next pieces, and consumers,
    which compute.

    Legal if the copies depend on nothing that the consumers compute, and every use of a piece waits for it: each tile
    gets a ring of stages, in which the producer acquires a turn, and a consumer awaits and releases it, so that the
    order of copies and uses is kept. A producer that only starts copies gives registers to the consumers: of several
    warpgroups, or of the blocks that share a multiprocessor (`turns`, as it was decided with the sizes), which
    have a part of its shared memory each. The copies become tensor copies and the products those of warpgroups, which
    read their operands from the tiles; a left operand that is read before a loop, for all its products, stays in
    registers, and its place is given back before the loop.

    Tensor maps take no array whose address or strides are not multiples of 16 bytes. So two kernels are made, of which
    the launch chooses: one with tensor maps, and one with the same roles, whose lanes copy. Where lanes cannot, the old
    kernel stays beside the new one, as a `fallback`. The pass declines, and says why
    in the derivation, below sm_90, where a producer could not hand its registers to the consumers; for a kernel without
    a loop that copies, in which there is nothing to overlap; and where no tensor copy or product of a warpgroup fits.

    Before:
    ```
    cuda.kernel @step_kernel (%n: index) threads 128 shared 0 {
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      scf.for %i = %zero to %n step %piece {
      }
    }
    func.func @step(%n: index) {
      cuda.launch @step_kernel grid %n aligned %n (%n) : index
      func.return
    }
    ```

    After:
    ```
    cuda.kernel @step_kernel (%n: index) threads 128 shared 0 {
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      scf.for %i = %zero to %n step %piece {
      }
    }
    func.func @step(%n: index) attributes {derivation = [
        #hierarchy.step<"decline warp-specialization", "@step_kernel",
          "registers move between warps only on sm_90a", "the machine a100 is sm_80">]} {
      cuda.launch @step_kernel grid %n aligned %n(%n) : index
      func.return
    }
    ```
    """

    name = "warp-specialization"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        machine = machine_of(op)
        kernels = {kernel.sym_name.data: kernel for kernel in op.body.block.ops if isinstance(kernel, cuda.KernelOp)}
        made = {name: _try(kernel, machine) for name, kernel in kernels.items()}
        beside = {name: _by_lanes(kernels[name], machine) for name, found in made.items() if _is_mapped(found)}
        for kernel in kernels.values():
            if cuda.roles_of(kernel) is None:  # without roles no block takes a second piece
                kernel.attributes.pop(TURNS, None)
        for function in [inner for inner in op.body.block.ops if isinstance(inner, FuncOp)]:
            launches = [launch for launch in function.walk() if isinstance(launch, cuda.LaunchOp)]
            names = dict.fromkeys(launch.kernel.root_reference.data for launch in launches)
            for launch in launches:
                name = launch.kernel.root_reference.data
                if isinstance(found := made[name], Specialised):
                    _launch_either(launch, found, beside.get(name))
            record(function.attributes, [_step(name, made[name], beside.get(name)) for name in names])
        for name, found in made.items():
            if isinstance(found, Specialised):
                Rewriter.insert_op(found.kernel, InsertPoint.before(kernels[name]))
                if not found.maps:  # whose copies take any array
                    Rewriter.erase_op(kernels[name])
                    continue
                if (by_lanes := beside[name]) is None:
                    stand_beside(kernels[name])
                    continue
                Rewriter.insert_op(by_lanes.kernel, InsertPoint.before(kernels[name]))
                Rewriter.erase_op(kernels[name])


def _is_mapped(found: Specialised | Reason) -> bool:
    return isinstance(found, Specialised) and bool(found.maps)


def _by_lanes(kernel: cuda.KernelOp, machine: Machine) -> Specialised | None:
    """The kernel with roles for arrays that have no tensor maps, whose lanes copy; None if it cannot be."""
    kernel = kernel.clone()
    kernel.attributes[WITHOUT_MAPS] = UnitAttr()
    if why_not(kernel) is not None or not has_room_by_lanes(kernel):
        return None
    made = specialise(kernel, f"{kernel.sym_name.data}{BY_LANES}", machine)
    if isinstance(made, Specialised) and (problems := ring_problems(made.kernel)):
        raise InternalError(f"@{made.kernel.sym_name.data}: {problems[0]}")
    return made if isinstance(made, Specialised) else None


def _try(kernel: cuda.KernelOp, machine: Machine) -> Specialised | Reason:
    if not machine.has_warpgroups:
        law = "registers move between warps only on sm_90a"
        return Reason(law, f"the machine {machine.name} is {machine.arch}")
    reason = why_not(kernel)
    if reason is not None:
        return reason
    made = specialise(kernel, f"{kernel.sym_name.data}{SUFFIX}", machine)
    if isinstance(made, Specialised) and (problems := ring_problems(made.kernel)):
        raise InternalError(f"@{made.kernel.sym_name.data}: {problems[0]}")
    return made


def _step(name: str, found: Specialised | Reason, beside: Specialised | None) -> StepAttr:
    if isinstance(found, Reason):
        return StepAttr("decline warp-specialization", f"@{name}", found.law, found.fact)
    reason = found.summary
    elsewhere = f"@{name} runs instead, and copies by cp.async"
    if beside is not None:
        lanes = f"whose lanes copy, rows that are aligned to less than {WORD} element by element"
        elsewhere = f"@{beside.kernel.sym_name.data} runs instead, {lanes}"
    if found.maps:
        reason += f"; where an array has an address or a stride that is no multiple of 16 bytes, {elsewhere}"
    return StepAttr(
        "warp-specialization", f"@{name}", "a ring for each tile keeps the order of copies and uses", reason
    )


def _launch_either(launch: cuda.LaunchOp, found: Specialised, beside: Specialised | None) -> None:
    """Launch the kernel with tensor maps if its arrays have them, else the one whose lanes copy, or without roles."""
    arguments = list(launch.arguments)
    if not found.maps:
        return Rewriter.replace_op(launch, list(_launch_with_maps(launch, found, arguments)), [])
    buffers = list(dict.fromkeys(arguments[i] for i, _ in found.maps))
    mappable = cuda.MappableOp(buffers, dict(type.multiple for _, type in found.maps if type.multiple is not None))
    mappable.result.name_hint = "mappable"
    without = [launch.clone()] if beside is None else _launch_with_maps(launch, beside, arguments)
    branch = scf.IfOp(
        mappable.result,
        [],
        Region(Block([*_launch_with_maps(launch, found, arguments), scf.YieldOp()])),
        Region(Block([*without, scf.YieldOp()])),
    )
    branch.location = launch.location
    Rewriter.replace_op(launch, [mappable, branch], [])


def _launch_with_maps(launch: cuda.LaunchOp, found: Specialised, arguments: list[SSAValue]) -> Iterator[Operation]:
    maps: list[SSAValue] = []
    for i, type in found.maps:
        made = cuda.TensorMapOp(arguments[i], type)
        made.result.name_hint = f"{arguments[i].name_hint}_map"
        maps.append(made.result)
        yield made
    given = [*(arguments[i] for i in found.kept), *maps]
    new = cuda.LaunchOp(found.kernel.sym_name.data, launch.grid, launch.alignment, given)
    new.location = launch.location
    yield new
