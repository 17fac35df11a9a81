"""Decide how wide every access to device memory is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, UnitAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.layouts.operations import traffic_of
from treadle.compiler.layouts.sectors import Traffic
from treadle.compiler.machines import Machine, machine_of
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.kernel import FEWEST_SECTORS
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import format_bytes, is_line
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._levels import check_lowered
from treadle.passes.staging.stage import stage
from treadle.passes.staging.told import told_of_lines, told_of_sectors


@dataclass(frozen=True)
class CoalescingPass(ModulePass):
    """Give every access to device memory the vector widths among which the alignment of its arrays chooses at launch,
    and tell what sectors it then moves.

    The widths come from the layout algebra (`docs/layouts.md`): of a copy, the neighbours that fill rows of its tile;
    of fragments, those that every thread holds in registers that follow each other. Legal always: a vector never leaves
    a row, since the launch allows a width only if addresses, strides and the size of the last axis are multiples of it,
    and here only if the piece is, too. Narrower widths serve other alignments. Where lanes, as they hold elements,
    would ask for the same sector several times (neighbours in rows that begin anywhere, what several warps hold), a
    fragment goes through shared memory in those variants, if there is room, and the block copies it by whole sectors
    (`passes/staging`). So does a result of words behind products in all variants, where that is the cheaper way to
    whole lines (`compiler/lowering/leaving.py`). What is loaded beside products has to spare more than it costs; with
    `minimize=sectors` nothing has to, and every fragment goes so whose lanes ask for a sector twice, or for a line in
    parts where a copy would ask for it once (`compiler/lowering/whole_lines.py`). The derivation of the function that
    launches the kernel says, for each access, the bytes a thread and the sectors a request, beside the fewest possible
    (dense arrays, symbolic sizes multiples of a line).

    Before:
    ```
    #fragment = #cuda.layout<register = [n:2:1], lane = [n:32:2], warp = []>
    !X = memref<64xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
    !t = tensor<64xf32, #diagram.array<[n], level = register, layout = #fragment>>
    cuda.kernel @copy_kernel (%x: !X, %y: !X) threads 32 shared 0 {
      %zero = arith.constant 0 : index
      %a = cuda.load %x[%zero] : !X -> !t
      cuda.store %a into %y[%zero] : !t, !X
    }
    ```

    After:
    ```
    #fragment = #cuda.layout<register = [n:2:1], lane = [n:32:2], warp = []>
    #staged = #cuda.staged<at = 0, below = 8, rows = #cuda.rows<extents = [64], pitch = 64>>
    !X = memref<64xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
    !t = tensor<64xf32, #diagram.array<[n], level = register, layout = #fragment>>
    cuda.kernel @copy_kernel (%x: !X, %y: !X) threads 32 shared 0 {
      %zero = arith.constant 0 : index
      %a = cuda.load %x[%zero] widths [2, 1] through #staged : !X -> !t
      cuda.store %a into %y[%zero] widths [2, 1] through #staged : !t, !X
    }
    ```
    """

    name = "coalescing"

    max_bytes: int = 16
    """The widest vector, in bytes: a power of two, at most 16."""
    minimize: Literal["time", "sectors"] = "time"
    """What a fragment is taken through shared memory for: `time`, where that spares a block more than it costs, by
    count; or `sectors`, wherever lanes ask for a sector twice or for a line in parts, whatever it costs."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.max_bytes not in (2, 4, 8, 16):
            raise PassFailedException(f"max-bytes={self.max_bytes}: a vector has 2, 4, 8 or 16 bytes")
        check_lowered(op)
        machine = machine_of(op)
        symbols = {kernel.sym_name.data: kernel for kernel in op.body.block.ops if isinstance(kernel, cuda.KernelOp)}
        steps = {name: self.coalesce(accesses_of(kernel), kernel, machine) for name, kernel in symbols.items()}
        for function in op.body.block.ops:
            if isinstance(function, FuncOp):
                launches = [launch for launch in function.walk() if isinstance(launch, cuda.LaunchOp)]
                kernels = dict.fromkeys(launch.kernel.root_reference.data for launch in launches)
                mark_single(launches, symbols)
                record(function.attributes, dict.fromkeys(step for name in kernels for step in steps[name]))

    def coalesce(self, accesses: Sequence[GlobalAccess], kernel: cuda.KernelOp, machine: Machine) -> list[StepAttr]:
        """Set the widths of all accesses of a kernel and which go through shared memory, and say what each moves."""
        if self.minimize == "sectors":
            kernel.attributes[FEWEST_SECTORS] = UnitAttr()
        stage(accesses, kernel, machine, self.max_bytes)
        return [step_of(access, kernel, self.max_bytes) for access in accesses]


def step_of(access: GlobalAccess, kernel: cuda.KernelOp, most_bytes: int = WIDEST_VECTOR) -> StepAttr:
    """What one access moves."""
    bytes = max(access.width_list) * format_bytes(access.buffer_type)
    moved = traffic_of(access, cuda.threads_at(access, kernel))
    elsewhere = "" if access.staged is None else "; elsewhere through shared memory, sector by sector"
    if access.staged is not None and access.staged.below.data == EVERYWHERE:
        elsewhere = ", through shared memory"
    return StepAttr(
        "coalescing",
        f"{subject(access)} in @{kernel.sym_name.data}",
        "a vector that divides addresses, strides, sizes and pieces never leaves a row",
        f"{bytes} bytes a thread where aligned, {per_request(moved)}{elsewhere}"
        f"{told_of_lines(access, kernel)}{told_of_sectors(access, kernel, most_bytes)}",
    )


def mark_single(launches: Sequence[cuda.LaunchOp], kernels: Mapping[str, cuda.KernelOp]) -> None:
    """Say which arrays launches access by single elements only, so that their alignment makes no other access narrower
    (the sums of rows that attention leaves for its gradient begin anywhere)."""
    vectors: dict[cuda.AlignmentOp, set[SSAValue]] = {}
    for launch in launches:
        if not isinstance(asked := launch.alignment.owner, cuda.AlignmentOp):
            continue
        kernel = kernels[launch.kernel.root_reference.data]
        given: dict[SSAValue, SSAValue] = dict(zip(kernel.body.block.args, launch.arguments, strict=True))
        wide = [each for each in accesses_of(kernel) if _has_say(each)]
        vectors.setdefault(asked, set()).update(given[cuda.buffer_of(op)] for op in wide)
    for asked, used in vectors.items():
        single = [number for number, buffer in enumerate(asked.buffers) if buffer not in used]
        asked.by_element = DenseArrayBase.from_list(i64, single) if single else None


def _has_say(access: GlobalAccess) -> bool:
    """Whether it matters to an access how rows are aligned."""
    is_tile = isinstance(access, cuda.CopyOp) and not is_line(access.tile.type)
    return is_tile or max(access.width_list) > 1


def accesses_of(kernel: cuda.KernelOp) -> list[GlobalAccess]:
    return [op for op in kernel.walk() if isinstance(op, GlobalAccess)]


def subject(access: GlobalAccess) -> str:
    """`copy of K[b, h, x, d] to shared memory`"""
    match access:
        case cuda.CopyOp():
            buffer, way = access.buffer, "from shared memory" if access.is_outward else "to shared memory"
        case cuda.LoadOp():
            buffer, way = access.source, "to registers"
        case cuda.StoreOp():
            buffer, way = access.destination, "from registers" if access.place is None else "from registers, added"
        case _:
            return access.name
    places = axes_of(buffer.type) if access.place is None else (access.place.text.data,)
    return f"copy of {buffer.name_hint or 'an array'}[{', '.join(places)}] {way}"


def per_request(moved: Traffic) -> str:
    """`16 sectors a request, the fewest, in whole lines`"""
    count = f"{moved.sectors_per_request:.3g}"
    told = f"{count} sector{'' if count == '1' else 's'} a request"
    if not moved.is_fewest:
        return f"{told}, the fewest are {moved.fewest_per_request:.3g}"
    return f"{told}, the fewest{', in whole lines' if moved.has_whole_lines else ''}"
