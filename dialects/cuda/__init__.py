"""`cuda`: which threads and which instructions.

A `cuda.kernel` is what one block runs. Its values are tiles of the algorithm's arrays, still with their axes:

- a buffer at level `device`: `memref<?x64xf16, #diagram.array<[q, d], level = device>>`, any strides but a
  contiguous last axis;
- a tile in shared memory: a `memref` at level `shared` whose layout `#cuda.rows` says how rows are padded;
- fragments: a `tensor` at level `register` whose layout `#cuda.layout` says which lane of which warp holds which
  element in which register. The registers' modes are the dimensions of the array that the CUDA C declares.

`copy`, `load` and `store` touch device memory, `read` and `write` shared memory, `product` is a tile's contraction on
tensor cores or by fused multiply-adds; `diagram.map`, `reduce`, `cast` and `fill` work on fragments, element by
element, reductions across the lanes that share a row. Loops and branches are `scf`, index arithmetic is `arith`. The
host function allocates results and holds one `cuda.launch` a kernel.
"""

from xdsl.ir import Dialect

from treadle.dialects.cuda.layout import LayoutAttr, ModeAttr, ModesAttr, RowsAttr
from treadle.dialects.cuda.ops import (
    AlignmentOp,
    BarrierOp,
    BlockIndexOp,
    CombineOp,
    CommitOp,
    CopyOp,
    IndexOp,
    KernelOp,
    LaunchOp,
    LoadOp,
    MaskOp,
    ProductOp,
    ReadOp,
    SharedOp,
    StageOp,
    StoreOp,
    WaitOp,
    WriteOp,
    alignments,
    variant_name,
)

Cuda = Dialect(
    "cuda",
    [
        AlignmentOp,
        BarrierOp,
        BlockIndexOp,
        CombineOp,
        CommitOp,
        CopyOp,
        IndexOp,
        KernelOp,
        LaunchOp,
        LoadOp,
        MaskOp,
        ProductOp,
        ReadOp,
        SharedOp,
        StageOp,
        StoreOp,
        WaitOp,
        WriteOp,
    ],
    [LayoutAttr, ModeAttr, ModesAttr, RowsAttr],
)

__all__ = [
    "AlignmentOp",
    "BarrierOp",
    "BlockIndexOp",
    "CombineOp",
    "CommitOp",
    "CopyOp",
    "Cuda",
    "IndexOp",
    "KernelOp",
    "LaunchOp",
    "LayoutAttr",
    "LoadOp",
    "MaskOp",
    "ModeAttr",
    "ModesAttr",
    "ProductOp",
    "ReadOp",
    "RowsAttr",
    "SharedOp",
    "StageOp",
    "StoreOp",
    "WaitOp",
    "WriteOp",
    "alignments",
    "variant_name",
]
