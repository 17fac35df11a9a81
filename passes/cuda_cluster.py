"""Let neighbouring blocks bring together what they read alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import IntAttr, ModuleOp, StringAttr, UnitAttr
from xdsl.ir import BlockArgument
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import InternalError, Refusal
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import ALONG, MOST_IN_CLUSTER
from treadle.dialects.cuda.tensor_maps import share_of
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._decisions import decide
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes._levels import lowered_kernels
from treadle.passes.grids.beside import beside
from treadle.passes.grids.cluster_laws import ALIKE, Sides, Together, alike
from treadle.passes.grids.cluster_shapes import DIVIDES, Shapes
from treadle.passes.grids.coordinates import coordinates_of
from treadle.passes.grids.renumber import lies_side_by_side, renumber
from treadle.passes.warps.laws import BUSY, Reason


@dataclass(frozen=True)
class CudaClusterPass(ModulePass):
    """Run neighbouring blocks of a grid as a cluster: each copies a share of every tile that all of them read, to all.

    The blocks of a cluster differ in one coordinate of their pieces, or in two. A copy whose place does not depend on
    one of these is made alike by those that differ in it alone; then each of them takes an equal part of the rows,
    multicasts it to them, and waits for the bytes of all parts. A stage is free when the consumers of all of them have
    released it. The barriers of others are used only after all blocks have initialised theirs, and no block ends before
    the others have let go of its memory. Neighbours in a grid differ in the innermost coordinate; where a cluster lies
    along another one, the number of the cluster is split into coordinates, and that of the block in it goes on from
    there.

    Legal if the number of pieces along each of the coordinates is a multiple of the cluster's blocks along it, if those
    that copy together take the same turns, and if the rows of a tile have so many shares of whole swizzles; the pass
    declines, with its reason in the derivation, where that does not hold. How many blocks a cluster has, and along
    which coordinates, the cost model finds (`cost/timing/clusters.py`), where the number of pieces is known; by the
    options it is so many, along these, and where the number of pieces is known at launch only, the launch takes the
    kernel with clusters if they divide it. 1 is none.

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
    cuda.kernel @read (%A_map: !A_map, %columns: index) threads 256 shared 8208 cluster 2
        attributes {along = "column"} {
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

    size: tuple[int, ...] = ()
    """Blocks of a cluster, 1 for none, or how many along each axis of `along`; by default what the cost model finds."""
    along: tuple[str, ...] = ()
    """The axes of the grid along which a cluster may lie, one, or two for blocks along both; by default any."""
    kernel: str = ""
    """The one kernel that is concerned; by default all are."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self._check()
        machine, kernels = machine_of(op), lowered_kernels(op, self.kernel)
        self._check_along(op, kernels)
        for kernel in kernels:
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or len(launches) != 1 or kernel.cluster > 1 or (self.size and prod(self.size) == 1):
                continue
            function = function_of(launches[0])
            record(function.attributes, self._try(kernel, roles, launches[0], machine))

    def _check(self) -> None:
        if self.size and not (min(self.size) >= 1 and prod(self.size) <= MOST_IN_CLUSTER):
            size = " x ".join(map(str, self.size))
            raise PassFailedException(f"size is {size}; a cluster has 1 to {MOST_IN_CLUSTER} blocks")
        if len(self.along) > 2 or len(set(self.along)) < len(self.along):
            raise PassFailedException(f"along is {', '.join(self.along)}; a cluster lies along one axis or two")
        if len(self.size) > 1 and len(self.size) != len(self.along):
            raise PassFailedException(f"{len(self.size)} sizes, {len(self.along)} axes: name one for each size")

    def _check_along(self, module: ModuleOp, kernels: Sequence[cuda.KernelOp]) -> None:
        """Refuse a name that nothing in the module has (Refusal). One that an array has may be no coordinate of a grid,
        as where a size is static and one piece holds it: the pass declines then."""
        places = sorted({place.name for kernel in kernels for place in coordinates_of(kernel)})
        known = {*places, *_axes(module)}
        for axis in self.along:
            if axis not in known:
                there = ", ".join(places) or "none"
                raise Refusal(module, f"along names axis '{axis}', which no array has; those of grids are {there}")

    def _try(
        self, kernel: cuda.KernelOp, roles: cuda.RolesOp, launch: cuda.LaunchOp, machine: Machine
    ) -> Sequence[StepAttr]:
        """What to tell. Where nobody asked and nothing is gained, that is nothing."""
        subject = f"@{kernel.sym_name.data}"
        if not coordinates_of(kernel):
            return self._declined(subject, Reason(ALIKE, "the kernel does not ask which block it is"))
        shapes = Shapes(kernel, roles, launch, machine)
        shape = shapes.asked(self.size, self.along) if self.size else shapes.best(self.along)
        if shape is None:
            if shapes.can_share(self.along):
                decide(kernel, size=1)
            return []
        if isinstance(shape, Reason):
            return self._declined(subject, shape)
        loads = alike(kernel, roles, shape)
        if isinstance(loads, Reason):
            return self._declined(subject, loads)
        if (reason := shapes.why_no_clusters(shape)) is not None:
            return self._declined(subject, reason)
        is_known = shapes.is_known(shape)
        where = " and ".join(map(str, (place for place, _ in shape.sides)))
        if not is_known and not self.size:
            told = ", ".join(str(count) for _, count in shape.sides)
            sizes = "its size" if len(shape.sides) == 1 else "their sizes"
            decide(kernel, size=1)
            fact = f"how many pieces there are along {where} is known at launch only: make {sizes} static, or ask "
            return [StepAttr("decline cuda-cluster", subject, DIVIDES, f"{fact}for size={told}")]
        tiles = ", ".join(dict.fromkeys(f"%{load.ring.name_hint}" for load in loads))
        sides = {place.name: count for place, count in shape.sides}
        decide(kernel, size=tuple(sides.values()), along=tuple(sides))
        told = f"clusters of {shape.blocks} blocks along {where} bring the stages of {tiles} together"
        if not is_known:
            told += f", where {_dividing(shape)}; {subject} runs elsewhere"
            kernel, launch, shape = beside(kernel, launch, shape)
            loads = _alike(kernel, shape)
        is_numbered = lies_side_by_side(shape, coordinates_of(kernel))
        _together(kernel, launch, loads, shape.blocks)
        kernel.attributes[ALONG] = StringAttr(" and ".join(place.name for place, _ in shape.sides))
        if not is_numbered:
            renumber(kernel, shape)
        if problems := ring_problems(kernel):
            raise InternalError(f"{subject}: {problems[0]}")
        return [StepAttr("cuda-cluster", subject, ALIKE, told)]

    def _declined(self, subject: str, reason: Reason) -> Sequence[StepAttr]:
        asked = bool(self.size or self.along)
        return [StepAttr("decline cuda-cluster", subject, reason.law, reason.fact)] if asked else []


def _axes(module: ModuleOp) -> set[str]:
    """Those of all arrays."""
    values = (value for op in module.walk() for value in (*op.operands, *op.results))
    return {axis for value in values for axis in axes_of(value.type)}


def _alike(kernel: cuda.KernelOp, shape: Sides) -> Mapping[cuda.TensorLoadOp, Together]:
    """Of a kernel that has the copies of one in which there are some."""
    roles = cuda.roles_of(kernel)
    assert roles is not None
    loads = alike(kernel, roles, shape)
    assert not isinstance(loads, Reason)
    return loads


def _dividing(shape: Sides) -> str:
    if len(shape.sides) == 1:
        return f"{shape.blocks} divides the pieces along it"
    return "the pieces divide by " + " and ".join(f"{count} along {place}" for place, count in shape.sides)


def _together(
    kernel: cuda.KernelOp, launch: cuda.LaunchOp, loads: Mapping[cuda.TensorLoadOp, Together], size: int
) -> None:
    """Make a kernel one of clusters, whose blocks make these copies together, and give its launch the smaller boxes."""
    block, roles = kernel.body.block, cuda.roles_of(kernel)
    assert roles is not None
    given, taken = max(roles.registers, BUSY.get(roles.consumer_groups.data, roles.registers))
    roles.producer_registers, roles.consumer_registers = IntAttr(given), IntAttr(taken)
    kernel.blocks = IntAttr(size)
    arguments = list(launch.arguments)
    for load, members in loads.items():
        ring, map = load.ring.owner, load.map
        assert isinstance(ring, cuda.RingOp)
        ring.blocks, load.multicast = IntAttr(members.blocks), UnitAttr()
        ring.step = IntAttr(members.step) if members.step > 1 else None
        assert isinstance(map, BlockArgument)
        old = load.map_type
        share = share_of(load.boxes, members.blocks)
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
