"""`cuda`: which threads and which instructions.

A `cuda.kernel` is what one block runs. Its values are tiles of the algorithm's arrays, still with their axes:

- a buffer at level `device`: `memref<?x64xf16, #diagram.array<[q, d], level = device>>`, any strides but a
  contiguous last axis;
- a tile in shared memory: a `memref` at level `shared` whose layout `#cuda.rows` says how rows are padded;
- fragments: a `tensor` at level `register` whose layout `#cuda.layout` says which lane of which warp holds which
  element in which register. The registers' modes are the dimensions of the array that the CUDA C declares.

`copy`, `load` and `store` touch device memory, `read` and `write` shared memory, `product` is a tile's contraction on
tensor cores or by fused multiply-adds; `diagram.map`, `reduce`, `cast` and `fill` work on fragments, element by
element, reductions across the lanes that share a row. Loops and branches are `scf`, index arithmetic is `arith`. Where
data leave out pieces of a stream, the block lists the others (`select`), and the turns of a loop read the list
(`selected`). The host function allocates results and holds one `cuda.launch` a kernel.

From sm_90 on a kernel may part its warps into `cuda.roles`: a producer, whose tensor copies (`tensor_load`, described
by a `tensor_map` that the host makes) bring tiles in `#cuda.boxes` to shared memory, and consumers, whose warpgroups
multiply them (`warpgroup_product`). They hand stages to each other by the barriers of a `ring`. A tile whose rows lie
where data say comes by a copy for each run of rows (`tensor_gather`). Results may leave through a tile in boxes, too
(`tensor_store`). The blocks of a `cluster` may fill their stages together, each copying a share to all (`tensor_load
.. multicast`). Consumer warpgroups may take turns at starting products (`order_wait`, `order_arrive`).
"""

from xdsl.ir import Dialect

from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.clusters import (
    BlockInClusterOp,
    ClusterArriveOp,
    ClusterIndexOp,
    ClusterWaitOp,
    ReadClusterOp,
)
from treadle.dialects.cuda.fragments import CombineOp, ExchangeOp, IndexOp, MaskOp
from treadle.dialects.cuda.kernel import (
    ANY_STRIDES,
    WHOLE_SECTORS,
    AlignmentOp,
    BlockIndexOp,
    GridSizeOp,
    KernelOp,
    LaunchOp,
    alignments,
    kernel_names,
    shared_bytes,
    variant_name,
)
from treadle.dialects.cuda.layout import LayoutAttr, ModeAttr, ModesAttr, RowsAttr
from treadle.dialects.cuda.order import ORDERING, OrderArriveOp, OrderBeginOp, OrderEndOp, OrderWaitOp
from treadle.dialects.cuda.parts import PartsOp
from treadle.dialects.cuda.placed import PlacedAccess, Scatter
from treadle.dialects.cuda.products import ProductOp
from treadle.dialects.cuda.promoted import ProductOfWarpgroupsOp, PromotedProductOp
from treadle.dialects.cuda.rename import RenameOp
from treadle.dialects.cuda.rings import (
    AcquireBesideOp,
    AcquireOp,
    ArriveOp,
    AwaitOp,
    ExpectOp,
    ReadyOp,
    ReleaseOp,
    RingOp,
    RingType,
)
from treadle.dialects.cuda.roles import RolesOp, roles_of, threads_at, working_threads
from treadle.dialects.cuda.selections import KeepOp, SelectedBeforeOp, SelectedOp, SelectOp
from treadle.dialects.cuda.shared import ReadOp, SharedOp, StageOp, WriteOp
from treadle.dialects.cuda.staging import StagedAttr
from treadle.dialects.cuda.swap import SwapOp
from treadle.dialects.cuda.tensor_gathers import TensorGatherOp
from treadle.dialects.cuda.tensor_maps import MappableOp, TensorLoadOp, TensorMapOp, TensorMapType
from treadle.dialects.cuda.tensor_stores import TensorFenceOp, TensorStoreOp, TensorWaitOp
from treadle.dialects.cuda.transfers import CopyOp, LoadOp, StoreOp, buffer_of
from treadle.dialects.cuda.votes import ExceedsOp
from treadle.dialects.cuda.waits import BarrierOp, CommitOp, WaitOp
from treadle.dialects.cuda.warpgroups import WarpgroupDrainOp, WarpgroupProductOp, WarpgroupWaitOp

Cuda = Dialect(
    "cuda",
    [
        AcquireBesideOp,
        AcquireOp,
        AlignmentOp,
        ArriveOp,
        AwaitOp,
        BarrierOp,
        BlockInClusterOp,
        BlockIndexOp,
        ClusterArriveOp,
        ClusterIndexOp,
        ClusterWaitOp,
        ReadClusterOp,
        CombineOp,
        CommitOp,
        CopyOp,
        ExceedsOp,
        ExchangeOp,
        ExpectOp,
        GridSizeOp,
        IndexOp,
        KeepOp,
        KernelOp,
        LaunchOp,
        LoadOp,
        MappableOp,
        MaskOp,
        OrderArriveOp,
        OrderBeginOp,
        OrderEndOp,
        OrderWaitOp,
        PartsOp,
        ProductOp,
        PromotedProductOp,
        ReadOp,
        ReadyOp,
        ReleaseOp,
        RenameOp,
        RingOp,
        RolesOp,
        SelectOp,
        SelectedBeforeOp,
        SelectedOp,
        SharedOp,
        StageOp,
        StoreOp,
        SwapOp,
        TensorFenceOp,
        TensorGatherOp,
        TensorLoadOp,
        TensorMapOp,
        TensorStoreOp,
        TensorWaitOp,
        WaitOp,
        WarpgroupProductOp,
        WarpgroupWaitOp,
        WarpgroupDrainOp,
        WriteOp,
    ],
    [BoxesAttr, LayoutAttr, ModeAttr, ModesAttr, RingType, RowsAttr, StagedAttr, TensorMapType],
)

__all__ = [
    "ANY_STRIDES",
    "ORDERING",
    "WHOLE_SECTORS",
    "AcquireBesideOp",
    "AcquireOp",
    "AlignmentOp",
    "ArriveOp",
    "AwaitOp",
    "BarrierOp",
    "BlockInClusterOp",
    "BlockIndexOp",
    "BoxesAttr",
    "ClusterArriveOp",
    "ClusterIndexOp",
    "ClusterWaitOp",
    "CombineOp",
    "CommitOp",
    "CopyOp",
    "Cuda",
    "ExceedsOp",
    "ExchangeOp",
    "ExpectOp",
    "GridSizeOp",
    "IndexOp",
    "KeepOp",
    "KernelOp",
    "LaunchOp",
    "LayoutAttr",
    "LoadOp",
    "MappableOp",
    "MaskOp",
    "ModeAttr",
    "ModesAttr",
    "OrderArriveOp",
    "OrderBeginOp",
    "OrderEndOp",
    "OrderWaitOp",
    "PartsOp",
    "PlacedAccess",
    "ProductOfWarpgroupsOp",
    "ProductOp",
    "PromotedProductOp",
    "ReadClusterOp",
    "ReadOp",
    "ReadyOp",
    "ReleaseOp",
    "RenameOp",
    "RingOp",
    "RingType",
    "RolesOp",
    "RowsAttr",
    "Scatter",
    "SelectOp",
    "SelectedBeforeOp",
    "SelectedOp",
    "SharedOp",
    "StageOp",
    "StagedAttr",
    "StoreOp",
    "SwapOp",
    "TensorFenceOp",
    "TensorGatherOp",
    "TensorLoadOp",
    "TensorMapOp",
    "TensorMapType",
    "TensorStoreOp",
    "TensorWaitOp",
    "WaitOp",
    "WarpgroupDrainOp",
    "WarpgroupProductOp",
    "WarpgroupWaitOp",
    "WriteOp",
    "alignments",
    "buffer_of",
    "kernel_names",
    "roles_of",
    "shared_bytes",
    "threads_at",
    "variant_name",
    "working_threads",
]
