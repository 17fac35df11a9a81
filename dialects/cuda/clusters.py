"""Clusters of blocks, which run at the same time and reach into each other's shared memory (PTX ISA 5.1, clusters)."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, MemRefType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.kernel import KernelOp
from treadle.dialects.cuda.shared import check_read
from treadle.dialects.cuda.tiles import is_boxed


def cluster_around(op: Operation) -> int:
    """Blocks of a cluster of the kernel that an operation stands in; 1 where it has none."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, KernelOp):
        parent = parent.parent_op()
    return 1 if parent is None else parent.cluster


class _InCluster(IRDLOperation):
    """What only a kernel with clusters does."""

    def verify_(self) -> None:
        if cluster_around(self) < 2:
            raise VerifyException(f"'{self.name}' in a kernel without clusters: say `cluster` after its shared memory")


@irdl_op_definition
class BlockInClusterOp(_InCluster):
    """The number of this block in its cluster, from 0 on: the blocks of a cluster are neighbours in the grid (PTX ISA
    10, `%cluster_ctarank`)."""

    name = "cuda.block_in_cluster"

    result = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


@irdl_op_definition
class ClusterIndexOp(_InCluster):
    """The index of this block's cluster in the grid (PTX ISA 10, `%clusterid`): that of the block, divided by the
    blocks of a cluster."""

    name = "cuda.cluster_index"

    result = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


@irdl_op_definition
class ClusterArriveOp(_InCluster):
    """Every thread of every block of the cluster says that it has come this far (PTX ISA 9.7.13.3,
    `barrier.cluster.arrive`)."""

    name = "cuda.cluster_arrive"

    assembly_format = "attr-dict"


@irdl_op_definition
class ClusterWaitOp(_InCluster):
    """Every thread waits until all threads of the cluster have come or returned, and then knows what they did before
    (PTX ISA 9.7.13.3, `barrier.cluster.wait`). A block may return only when no other reaches into its memory any more.
    """

    name = "cuda.cluster_wait"

    assembly_format = "attr-dict"


@irdl_op_definition
class ReadClusterOp(_InCluster):
    """Each thread reads its elements of a tile from the shared memory of the block of the cluster that has this number:
    from where the tile lies in its own (PTX ISA 9.7.9.24, `mapa`, and 9.7.9.8, `ld.shared::cluster`). A
    `cuda.cluster_arrive` and a `cuda.cluster_wait` stand between what that block wrote there and this, and between this
    and what that block writes there next, or its end.

    ```
    %theirs = cuda.read_cluster %T_shared of %number : !Ts -> !t
    ```
    """

    name = "cuda.read_cluster"

    source = operand_def(MemRefType)
    block = operand_def(IndexType())
    result = result_def(TensorType)

    assembly_format = "$source `of` $block attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, block: SSAValue, result_type: Attribute):
        super().__init__(operands=[source, block], result_types=[result_type])

    def verify_(self) -> None:
        super().verify_()
        check_read(self.source.type, self.result.type)
        if is_boxed(self.source.type):
            raise VerifyException("a tile in boxes is read by products and matrices of its own block")
