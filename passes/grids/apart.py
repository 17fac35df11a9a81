"""Let each warpgroup of a persistent grid send its own rows of the results, so that it need not meet the others at the
end of a piece: one then begins the next piece while another still ends this one."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects import cuda
from treadle.dialects.cuda.tensor_maps import share_of, shared_axis
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.cuda.warpgroups import result_axes
from treadle.dialects.diagram.array import axes_of
from treadle.passes._functions import launches_of_kernel
from treadle.passes.grids.held import loop_of_pieces
from treadle.passes.warps.laws import Reason

LAW_APART = "a warpgroup sends the rows that it has written, and writes there again when they are read"


def why_not_apart(roles: cuda.RolesOp) -> Reason | None:
    """Why warpgroups cannot send their results by themselves; None if they can."""
    loop = loop_of_pieces(roles.consumers.block)
    stores = stores_of(roles)
    if loop is None or not stores:
        return Reason(LAW_APART, "no result leaves in a loop over pieces")
    for store in stores:
        reason = _why_not(store, roles.consumer_groups.data)
        if reason is not None:
            return reason
    met = [op for op in loop.body.walk() if isinstance(op, cuda.BarrierOp)]
    if len(met) != 2 * len(stores):
        return Reason(LAW_APART, "they meet for something else, too")
    return None


def stores_of(roles: cuda.RolesOp) -> list[cuda.TensorStoreOp]:
    return [op for op in roles.consumers.walk() if isinstance(op, cuda.TensorStoreOp)]


def _why_not(store: cuda.TensorStoreOp, groups: int) -> Reason | None:
    name, boxes = f"%{store.tile.name_hint}", store.boxes
    users = [use.operation for use in store.tile.uses]
    writes = [op for op in users if isinstance(op, cuda.WriteOp)]
    if not all(isinstance(op, cuda.WriteOp | cuda.TensorStoreOp) for op in users) or not writes:
        return Reason(LAW_APART, f"{name} is used otherwise")
    rows = [result_axes(layout_of(op.value.type)) for op in writes]
    if any(each is None or axes_of(store.tile.type)[shared_axis(boxes)] != each[0] for each in rows):
        return Reason(LAW_APART, f"a warpgroup does not write whole rows of {name}")
    if boxes.rows != groups * ROWS or share_of(boxes, groups) is None:
        return Reason(LAW_APART, f"the {boxes.rows} rows of a box of {name} are no share of each warpgroup")
    return None


ROWS = 64
"""Of a tile that a warpgroup writes."""


def leave_apart(kernel: cuda.KernelOp, roles: cuda.RolesOp) -> None:
    """Let the operations around the results be those of each warpgroup. Tensor maps have the boxes of a share."""
    loop = loop_of_pieces(roles.consumers.block)
    assert loop is not None
    stores = stores_of(roles)
    groups = roles.consumer_groups.data
    _cut_maps(kernel, stores, groups)
    for op in roles.consumers.walk():
        if isinstance(op, cuda.TensorStoreOp | cuda.TensorWaitOp):
            op.by_groups = UnitAttr()
    for op in loop.body.walk():
        if isinstance(op, cuda.BarrierOp):
            op.by_groups = UnitAttr()


def _cut_maps(kernel: cuda.KernelOp, stores: Iterable[cuda.TensorStoreOp], groups: int) -> None:
    maps: dict[SSAValue, cuda.TensorMapType] = {}
    for store in stores:
        share = share_of(store.boxes, groups)
        assert share is not None
        maps[store.map] = cuda.TensorMapType(share, store.map_type.buffer)
    for map, type in maps.items():
        assert isinstance(map, BlockArgument)
        new = kernel.body.block.insert_arg(type, map.index)
        new.name_hint = map.name_hint
        map.replace_all_uses_with(new)
        kernel.body.block.erase_arg(map)
        for launch in launches_of_kernel(kernel):
            made = launch.arguments[new.index].owner
            assert isinstance(made, cuda.TensorMapOp)
            of_share = cuda.TensorMapOp(made.buffer, type)
            of_share.result.name_hint = made.result.name_hint
            Rewriter.replace_op(made, of_share)
