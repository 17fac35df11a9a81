"""Clusters of blocks, which run at the same time and reach into each other's shared memory (PTX ISA 5.1, clusters)."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.kernel import KernelOp


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
