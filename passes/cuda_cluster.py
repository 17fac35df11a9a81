"""Let neighbouring blocks bring together what they read alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntAttr, ModuleOp, StringAttr, UnitAttr
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.clusters import ACROSS, best_cluster
from treadle.compiler.errors import InternalError
from treadle.compiler.execution import computation
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import MOST_IN_CLUSTER
from treadle.dialects.cuda.tensor_maps import share_of
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes.grids.cluster_laws import ALIKE, Neighbours, alike, feeding, neighbours_in
from treadle.passes.grids.sharing import numbers_of_host
from treadle.passes.warps.laws import BUSY, Reason

DIVIDES = "the blocks of a cluster are pieces that differ in one coordinate alone"
SUFFIX = "_clusters"


@dataclass(frozen=True)
class CudaClusterPass(ModulePass):
    """Run neighbouring blocks of a grid as a cluster: each copies a share of every tile that all of them read, to all.

    Neighbours differ in the innermost coordinate of their pieces. A copy whose place does not depend on it is made
    alike by all of them; then each block takes an equal part of the rows, multicasts it, and waits for the bytes of all
    parts. A stage is free when the consumers of all blocks have released it. The barriers of others are used only after
    all blocks have initialised theirs, and no block ends before the others have let go of its memory.

    Legal if the number of pieces along the coordinate is a multiple of the cluster's blocks, if all of them take the
    same turns, and if the rows of a tile have so many shares of whole swizzles; the pass declines, with its reason in
    the derivation, where that does not hold. How many blocks a cluster has the cost model finds
    (`compiler/cost/clusters.py`), where the number of pieces is known; by the option it is so many, and where the
    number of pieces is known at launch only, the launch takes the kernel with clusters if they divide it. 1 is none.

    Before:
    ```
    !A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
    !A_map = !cuda.tensor_map<[64, 64], !A>
    !As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
    cuda.kernel @read (%A_map: !A_map, %columns: index) threads 256 shared 8208 {
      %A_shared = cuda.shared at 0 : !As
      %A_ring = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
      %block = cuda.block_index
      %column = arith.remui %block, %columns : index
      %row = arith.divui %block, %columns : index
      %rows = arith.constant 64 : index
      %m0 = arith.muli %row, %rows : index
      %zero = arith.constant 0 : index
      cuda.ready %A_ring : !cuda.ring<1>
      cuda.roles registers 0, 0 producer {
        cuda.acquire %A_ring[%zero] : !cuda.ring<1>
        cuda.expect %A_ring[%zero] bytes 8192 : !cuda.ring<1>
        cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] : !A_map, !As, !cuda.ring<1>
      } consumers 1 {
        cuda.await %A_ring[%zero] : !cuda.ring<1>
        cuda.release %A_ring[%zero] : !cuda.ring<1>
      }
    }
    func.func @host(%A: !A, %blocks: index) {
      %columns = arith.constant 8 : index
      %A_map = cuda.tensor_map %A : !A_map
      cuda.launch @read grid %blocks aligned %blocks (%A_map, %columns) : !A_map, index
      func.return
    }
    ```

    After `cuda-cluster{size=2}`:
    ```
    !A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
    !A_map = !cuda.tensor_map<[32, 64], !A>
    !As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
    cuda.kernel @read (%A_map: !A_map, %columns: index) threads 256 shared 8208 cluster 2 {
      %A_shared = cuda.shared at 0 : !As
      %A_ring = cuda.ring at 8192 consumers 1 blocks 2 : !cuda.ring<1>
      %block = cuda.block_index
      %column = arith.remui %block, %columns : index
      %row = arith.divui %block, %columns : index
      %rows = arith.constant 64 : index
      %m0 = arith.muli %row, %rows : index
      %zero = arith.constant 0 : index
      cuda.ready %A_ring : !cuda.ring<1>
      cuda.roles registers 0, 0 producer {
        cuda.acquire %A_ring[%zero] : !cuda.ring<1>
        cuda.expect %A_ring[%zero] bytes 8192 : !cuda.ring<1>
        cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] multicast : !A_map, !As, !cuda.ring<1>
      } consumers 1 {
        cuda.await %A_ring[%zero] : !cuda.ring<1>
        cuda.release %A_ring[%zero] : !cuda.ring<1>
      }
      cuda.cluster_arrive
      cuda.cluster_wait
    }
    func.func @host(%A: !A, %blocks: index) {
      %columns = arith.constant 8 : index
      %A_map = cuda.tensor_map %A : !A_map
      cuda.launch @read grid %blocks aligned %blocks (%A_map, %columns) : !A_map, index
      func.return
    }
    ```
    """

    name = "cuda-cluster"

    size: int | None = None
    """Blocks of a cluster, 1 for none; by default what the cost model finds."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.size is not None and not 1 <= self.size <= MOST_IN_CLUSTER:
            raise ValueError(f"cuda-cluster: size is {self.size}; a cluster has 1 to {MOST_IN_CLUSTER} blocks")
        machine = machine_of(op)
        for kernel in [inner for inner in op.body.block.ops if isinstance(inner, cuda.KernelOp)]:
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or len(launches) != 1 or self.size == 1 or kernel.cluster > 1:
                continue
            function = function_of(launches[0])
            record(function.attributes, self._try(kernel, roles, launches[0], machine))

    def _try(
        self, kernel: cuda.KernelOp, roles: cuda.RolesOp, launch: cuda.LaunchOp, machine: Machine
    ) -> Sequence[StepAttr]:
        """What to tell. Where nobody asked and nothing is gained, that is nothing."""
        subject = f"@{kernel.sym_name.data}"
        found = neighbours_in(kernel)
        if found is None:
            return self._declined(subject, Reason(ALIKE, "the kernel does not ask which block it is"))
        size = self.size or _by_model(kernel, roles, launch, found, machine)
        if size == 1:
            return []
        loads = alike(kernel, roles, found, size)
        if isinstance(loads, Reason):
            return self._declined(subject, loads)
        pieces = _pieces(kernel, launch, found, hints=False)
        if pieces is not None and pieces % size:
            fact = f"a cluster of {size} blocks does not divide the {pieces} pieces along {found.name}"
            return self._declined(subject, Reason(DIVIDES, fact))
        if pieces is None and self.size is None:
            fact = (
                f"how many pieces there are along {found.name} is known at launch only: make its size static, or ask "
                f"for size={size}"
            )
            return [StepAttr("decline cuda-cluster", subject, DIVIDES, fact)]
        tiles = ", ".join(dict.fromkeys(f"%{load.ring.name_hint}" for load in loads))
        told = f"clusters of {size} blocks along {found.name} bring the stages of {tiles} together"
        if pieces is None:
            kernel, launch = _beside(kernel, launch, found, size)
            made = cuda.roles_of(kernel)
            assert made is not None
            again = alike(kernel, made, _found(kernel), size)
            assert not isinstance(again, Reason)
            loads = again
            told += f", where {size} divides the pieces along it; {subject} runs elsewhere"
        _together(kernel, launch, loads, size)
        if problems := ring_problems(kernel):
            raise InternalError(f"{subject}: {problems[0]}")
        return [StepAttr("cuda-cluster", subject, ALIKE, told)]

    def _declined(self, subject: str, reason: Reason) -> Sequence[StepAttr]:
        asked = self.size is not None
        return [StepAttr("decline cuda-cluster", subject, reason.law, reason.fact)] if asked else []


def _found(kernel: cuda.KernelOp) -> Neighbours:
    found = neighbours_in(kernel)
    assert found is not None
    return found


def _arguments(kernel: cuda.KernelOp, launch: cuda.LaunchOp, hints: bool) -> dict[SSAValue, int]:
    """The numbers that the kernel is given, as far as they are known."""
    known = numbers_of_host(function_of(launch), hints)
    pairs = zip(kernel.body.block.args, launch.arguments, strict=True)
    return {arg: known[given] for arg, given in pairs if given in known}


def _pieces(kernel: cuda.KernelOp, launch: cuda.LaunchOp, found: Neighbours, hints: bool) -> int | None:
    """How many pieces there are along the coordinate; None if that is not known."""
    if found.count is None:
        return numbers_of_host(function_of(launch), hints).get(launch.grid)
    return _number(found.count, _arguments(kernel, launch, hints))


def _number(value: SSAValue, known: dict[SSAValue, int]) -> int | None:
    """A number that a kernel computes from its arguments; None if one of those is not known."""
    if value in known or not isinstance(value.owner, Operation):
        return known.get(value)
    if any(_number(operand, known) is None for operand in value.owner.operands):
        return None
    if (compute := computation(value.owner)) is not None:
        compute(known)
    return known.get(value)


def _by_model(
    kernel: cuda.KernelOp, roles: cuda.RolesOp, launch: cuda.LaunchOp, found: Neighbours, machine: Machine
) -> int:
    """The blocks of the best cluster of those that can be made, at the sizes that the function is made for."""
    arguments = _arguments(kernel, launch, hints=True)
    pieces = _pieces(kernel, launch, found, hints=True)
    loads = alike(kernel, roles, found, min(ACROSS))
    if pieces is None or isinstance(loads, Reason):
        return 1
    fed = feeding(kernel, roles, arguments, loads, machine)
    able = {size: pieces % size == 0 and not isinstance(alike(kernel, roles, found, size), Reason) for size in ACROSS}
    return 1 if fed is None else best_cluster(fed, machine, able)


def _together(kernel: cuda.KernelOp, launch: cuda.LaunchOp, loads: Sequence[cuda.TensorLoadOp], size: int) -> None:
    """Make a kernel one of clusters, whose blocks make these copies together, and give its launch the smaller boxes."""
    block, roles = kernel.body.block, cuda.roles_of(kernel)
    assert roles is not None
    given, taken = BUSY.get(roles.consumer_groups.data, roles.registers)
    roles.producer_registers, roles.consumer_registers = IntAttr(given), IntAttr(taken)
    kernel.blocks = IntAttr(size)
    arguments = list(launch.arguments)
    for load in loads:
        ring, map = load.ring.owner, load.map
        assert isinstance(ring, cuda.RingOp)
        ring.blocks, load.multicast = IntAttr(size), UnitAttr()
        assert isinstance(map, BlockArgument)
        old = load.map_type
        share = share_of(load.boxes, size)
        assert share is not None
        if old.shape == share:
            continue  # the map of a copy before
        type = cuda.TensorMapType(share, old.buffer, tuple(old.order))
        whole = arguments[map.index].owner
        assert isinstance(whole, cuda.TensorMapOp)
        made = cuda.TensorMapOp(whole.buffer, type)
        made.location, made.result.name_hint = whole.location, whole.result.name_hint
        Rewriter.insert_op(made, InsertPoint.before(launch))
        arguments[map.index] = made.result
        Rewriter.replace_value_with_new_type(map, type)
    block.add_ops([cuda.ClusterArriveOp(), cuda.ClusterWaitOp()])
    new = cuda.LaunchOp(kernel.sym_name.data, launch.grid, launch.alignment, arguments)
    new.location = launch.location
    before = [value.owner for value in launch.arguments]
    Rewriter.replace_op(launch, new, [])
    for op in before:
        if isinstance(op, cuda.TensorMapOp) and not list(op.result.uses):
            Rewriter.erase_op(op)


def _beside(
    kernel: cuda.KernelOp, launch: cuda.LaunchOp, found: Neighbours, size: int
) -> tuple[cuda.KernelOp, cuda.LaunchOp]:
    """A copy of the kernel, which is launched in its stead where the cluster divides the pieces; the launch of it."""
    copy = kernel.clone()
    for old, new in zip(kernel.walk(), copy.walk(), strict=True):
        new.location = old.location
    copy.sym_name = StringAttr(f"{kernel.sym_name.data}{SUFFIX}")
    Rewriter.insert_op(copy, InsertPoint.after(kernel))
    given: dict[SSAValue, SSAValue] = dict(zip(kernel.body.block.args, launch.arguments, strict=True))
    ops: list[Operation] = []
    count = launch.grid if found.count is None else _on_host(found.count, given, ops)
    blocks = arith.ConstantOp.from_int_and_width(size, IndexType())
    rest, zero = arith.RemUIOp(count, blocks.result), arith.ConstantOp.from_int_and_width(0, IndexType())
    divides = arith.CmpiOp(rest.result, zero.result, "eq")
    divides.result.name_hint = "divides"
    taken = cuda.LaunchOp(copy.sym_name.data, launch.grid, launch.alignment, list(launch.arguments))
    taken.location = launch.location
    branch = scf.IfOp(
        divides.result,
        [],
        Region(Block([taken, scf.YieldOp()])),
        Region(Block([launch.clone(), scf.YieldOp()])),
    )
    branch.location = launch.location
    Rewriter.replace_op(launch, [*ops, blocks, rest, zero, divides, branch], [])
    return copy, taken


def _on_host(value: SSAValue, given: dict[SSAValue, SSAValue], ops: list[Operation]) -> SSAValue:
    """The same number in the host function, of the arguments of the launch; its operations go to `ops`."""
    if value in given:
        return given[value]
    owner = value.owner
    assert isinstance(owner, Operation)
    for operand in owner.operands:
        _on_host(operand, given, ops)
    ops.append(copy := owner.clone(value_mapper=dict(given)))
    copy.results[0].name_hint = value.name_hint
    copy.attributes.clear()
    given[value] = copy.results[0]
    return copy.results[0]
