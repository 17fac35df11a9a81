"""Let results leave through tiles in boxes and tensor copies, where the machine has the means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.leaving import saved_by_tensor_store
from treadle.compiler.errors import InternalError
from treadle.compiler.printer.launches import launches_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import MOST_ROWS, boxes_layout
from treadle.dialects.cuda.rings import place_shared
from treadle.dialects.cuda.tensor_maps import MOST_AXES
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, layout_of, rows_of, tile_bytes
from treadle.dialects.cuda.warpgroups import result_axes
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._specialise_laws import Reason, constant_of
from treadle.passes._specialise_tiles import boxed_type

UNIT = 16
"""Bytes that the strides of an array with a tensor map are multiples of."""


@dataclass(frozen=True)
class CudaStoreTensorsPass(ModulePass):
    """Let the results of kernels with roles leave by tensor copies: the consumers write their fragments to a tile in
    boxes (`stmatrix`), a proxy fence and a barrier make that seen, and one thread starts the copies, which the block
    awaits only before it ends.

    Legal if the fragments are those of an accumulator of warpgroups, nothing else uses the tile, and the array takes a
    tensor map, whose copies write nothing outside of it: so a bound of the copy must be the array's end. The launch
    then asks for the result, too, whether it has a map, and takes the kernel without roles if not. The pass declines,
    and says why in the derivation, where that does not hold, and where the tile is so small that the copy saves no
    thread an instruction (`compiler/cost/leaving.py`).

    Before:
    ```
    #accumulator = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
    #rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
    !C = memref<64x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
    !Cs = memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #rows>>
    !c = tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #accumulator>>
    cuda.kernel @ones (%C: !C) threads 256 shared 8192 {
      %C_shared = cuda.shared at 0 alias : !Cs
      %zero = arith.constant 0 : index
      cuda.roles registers 0, 0 producer {
      } consumers 1 {
        %one = diagram.fill 1.000000e+00 : f16 -> !c
        cuda.write %one into %C_shared : !c, !Cs
        cuda.barrier
        cuda.copy %C_shared into %C[%zero, %zero] : !Cs, !C
      }
    }
    func.func @host() {
      %blocks = arith.constant 1 : index
      %C = memref.alloc() : !C
      %mappable = cuda.mappable %C : !C
      scf.if %mappable {
        cuda.launch @ones grid %blocks aligned %blocks (%C) : !C
      }
      func.return
    }
    ```

    After:
    ```
    #accumulator = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
    #boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !C = memref<64x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
    !C_map = !cuda.tensor_map<[64, 64], !C>
    !Cs = memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #boxes>>
    !c = tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #accumulator>>
    cuda.kernel @ones (%C_map: !C_map) threads 256 shared 8192 {
      %C_shared = cuda.shared at 0 alias : !Cs
      %zero = arith.constant 0 : index
      cuda.roles registers 0, 0 producer {
      } consumers 1 {
        %one = diagram.fill 1.000000e+00 : f16 -> !c
        cuda.write %one into %C_shared : !c, !Cs
        cuda.tensor_fence
        cuda.barrier
        cuda.tensor_store %C_shared into %C_map[%zero, %zero] : !Cs, !C_map
        cuda.tensor_wait pending 0
      }
    }
    func.func @host() attributes {derivation = [
        #hierarchy.step<"cuda-store-tensors", "%C_shared in @ones",
          "a tensor copy writes nothing outside of its array, and reads what was written before a fence and a barrier",
          "8,192 bytes in 1 box; 6 instructions a thread fewer">]} {
      %blocks = arith.constant 1 : index
      %C = memref.alloc() : !C
      %mappable = cuda.mappable %C, %C : !C, !C
      scf.if %mappable {
        %C_map = cuda.tensor_map %C : !C_map
        cuda.launch @ones grid %blocks aligned %blocks (%C_map) : !C_map
      }
      func.return
    }
    ```
    """

    name = "cuda-store-tensors"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        launches = launches_of(op)
        for kernel in [inner for inner in op.body.block.ops if isinstance(inner, cuda.KernelOp)]:
            roles, launch = cuda.roles_of(kernel), launches.get(kernel.sym_name.data)
            if roles is None or launch is None:
                continue
            copies = [each for each in roles.consumers.block.walk() if isinstance(each, cuda.CopyOp)]
            steps = [_try(copy, kernel, launch) for copy in copies if copy.is_outward]
            if problems := ring_problems(kernel):
                raise InternalError(f"@{kernel.sym_name.data}: {problems[0]}")
            function = launch.parent_op()
            while function is not None and not isinstance(function, FuncOp):
                function = function.parent_op()
            if function is not None:
                record(function.attributes, steps)


def _try(copy: cuda.CopyOp, kernel: cuda.KernelOp, launch: cuda.LaunchOp) -> StepAttr:
    subject = f"%{copy.tile.name_hint} in @{kernel.sym_name.data}"
    reason = _why_not(copy, kernel, launch)
    if reason is not None:
        return StepAttr("decline cuda-store-tensors", subject, reason.law, reason.fact)
    boxes = boxes_of(boxed_type(copy.tile))
    bytes = boxes.elements * format_bytes(copy.tile.type)
    saved = saved_by_tensor_store(bytes, cuda.working_threads(kernel))
    _Rewrite(copy, kernel).run()
    law = "a tensor copy writes nothing outside of its array, and reads what was written before a fence and a barrier"
    count = f"{boxes.count} box{'es' * (boxes.count > 1)}"
    return StepAttr(
        "cuda-store-tensors", subject, law, f"{bytes:,} bytes in {count}; {saved} instructions a thread fewer"
    )


def _why_not(copy: cuda.CopyOp, kernel: cuda.KernelOp, launch: cuda.LaunchOp) -> Reason | None:
    """Why a tile cannot leave by tensor copies; None if it can."""
    tile, users = copy.tile, [use.operation for use in copy.tile.uses]
    writes = [op for op in users if isinstance(op, cuda.WriteOp)]
    if len(writes) != 1 or len(users) != 2 or writes[0].parent is not copy.parent:
        return Reason("what leaves is written once, by all consumers", f"%{tile.name_hint} is used {len(users)} times")
    if not isinstance(branch := launch.parent_op(), scf.IfOp) or not isinstance(branch.cond.owner, cuda.MappableOp):
        return Reason("the launch asks whether arrays have tensor maps", "it does not ask")
    return _layout_problem(copy, writes[0]) or _bound_problem(copy, launch) or _merit_problem(copy, kernel)


def _layout_problem(copy: cuda.CopyOp, write: cuda.WriteOp) -> Reason | None:
    law, sizes = "a tensor map describes what leaves", sizes_of(copy.tile.type)
    name, bytes = f"%{copy.buffer.name_hint}", format_bytes(copy.tile.type)
    layout = layout_of(write.value.type)
    if result_axes(layout) is None or bytes != 2 or next(iter(layout.register)).size % 2:
        return Reason("stmatrix stores 16-bit fragments of an accumulator", f"{write.value.type} is none")
    if not 2 <= len(sizes) <= MOST_AXES or max(sizes.values()) > MOST_ROWS:
        return Reason(law, f"pieces of {name} have {list(sizes.values())} elements")
    if rows_of(copy.tile.type).shape != tuple(sizes.values()) or boxes_layout(tuple(sizes.values()), bytes) is None:
        return Reason(law, f"the tile of {name} is padded, or its rows are no multiple of 32 bytes")
    width = list(sizes_of(copy.buffer.type).values())[-1]
    if width != DYNAMIC and width * bytes % UNIT:
        return Reason(law, f"rows of {name} are {width * bytes} bytes, no multiple of {UNIT}")
    return None


def _bound_problem(copy: cuda.CopyOp, launch: cuda.LaunchOp) -> Reason | None:
    """A tensor copy stops where the array does: a bound must be there."""
    for axis, limit in zip(copy.bound_axes, copy.limits, strict=True):
        size = sizes_of(copy.buffer.type)[axis]
        if size != constant_of(limit) if size != DYNAMIC else not _is_end(copy, launch, axis, limit):
            fact = f"%{copy.buffer.name_hint} is written only up to %{limit.name_hint} along '{axis}'"
            return Reason("a tensor copy stops where the array ends", fact)
    return None


def _is_end(copy: cuda.CopyOp, launch: cuda.LaunchOp, axis: str, limit: SSAValue) -> bool:
    """Whether the launch gives for a bound what the array was allocated with."""
    assert isinstance(copy.buffer, BlockArgument)
    made = launch.arguments[copy.buffer.index].owner
    if not isinstance(made, memref.AllocOp) or not isinstance(limit, BlockArgument):
        return False
    symbolic = [name for name, size in sizes_of(copy.buffer.type).items() if size == DYNAMIC]
    return made.dynamic_sizes[symbolic.index(axis)] is launch.arguments[limit.index]


def _merit_problem(copy: cuda.CopyOp, kernel: cuda.KernelOp) -> Reason | None:
    bytes = tile_bytes(boxed_type(copy.tile))
    if saved_by_tensor_store(bytes, cuda.working_threads(kernel)) >= 1:
        return None
    return Reason("a tensor copy pays for its fence and its wait", f"the tile has {bytes:,} bytes")


@dataclass
class _Rewrite:
    """The rewrite of one copy."""

    copy: cuda.CopyOp
    kernel: cuda.KernelOp

    def run(self) -> None:
        copy, tile = self.copy, self.copy.tile
        buffer = copy.buffer
        assert isinstance(tile.owner, cuda.SharedOp)
        assert isinstance(buffer, BlockArgument)
        shared = cuda.SharedOp(0, boxed_type(tile), alias=tile.owner.alias is not None)
        shared.result.name_hint = tile.name_hint
        Rewriter.replace_op(tile.owner, shared)
        type = cuda.TensorMapType(boxes_of(shared.result.type).box, buffer.type)
        block = self.kernel.body.block
        map = block.insert_arg(type, len(block.args))
        map.name_hint = f"{buffer.name_hint}_map"
        self._fence()
        store = cuda.TensorStoreOp(shared.result, map, copy.offsets)
        store.location = copy.location
        Rewriter.replace_op(copy, [store, cuda.TensorWaitOp()], [])
        number = buffer.index
        unused = not list(buffer.uses)
        if unused:
            block.erase_arg(buffer)
        self.kernel.shared_bytes = IntAttr(place_shared(block))
        for launch in _launches(self.kernel):
            _give_map(launch, number, type, unused)

    def _fence(self) -> None:
        """Before the last barrier that all consumers reach between their writes and the copy."""
        op: Operation | None = self.copy.prev_op
        while op is not None and not isinstance(op, cuda.BarrierOp | cuda.WriteOp):
            op = op.prev_op
        if not isinstance(op, cuda.BarrierOp):
            Rewriter.insert_op(op := cuda.BarrierOp(), InsertPoint.before(self.copy))
        Rewriter.insert_op(cuda.TensorFenceOp(), InsertPoint.before(op))


def _launches(kernel: cuda.KernelOp) -> Sequence[cuda.LaunchOp]:
    module = kernel.parent_op()
    assert module is not None
    name = kernel.sym_name.data
    return [op for op in module.walk() if isinstance(op, cuda.LaunchOp) and op.kernel.root_reference.data == name]


def _give_map(launch: cuda.LaunchOp, number: int, type: cuda.TensorMapType, instead: bool) -> None:
    """A launch that gives the map of its argument of that number, too; or `instead` of the argument."""
    buffer, branch = launch.arguments[number], launch.parent_op()
    assert isinstance(branch, scf.IfOp)
    asked = branch.cond.owner
    assert isinstance(asked, cuda.MappableOp)
    new = cuda.MappableOp([*asked.buffers, buffer])
    new.result.name_hint = asked.result.name_hint
    Rewriter.replace_op(asked, new)
    map = cuda.TensorMapOp(buffer, type)
    map.result.name_hint = f"{buffer.name_hint}_map"
    arguments = [given for i, given in enumerate(launch.arguments) if not (instead and i == number)]
    changed = cuda.LaunchOp(launch.kernel.root_reference.data, launch.grid, launch.alignment, [*arguments, map.result])
    changed.location = launch.location
    Rewriter.replace_op(launch, [map, changed], [])
