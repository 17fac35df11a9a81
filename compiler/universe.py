"""What treadle adds to the stock `xdsl-opt`: dialects, passes and targets, by name, loaded when used.

Each entry is `name -> "module:object"`, so that importing this module costs nothing and a broken pass
breaks only the command that names it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from xdsl.universe import Universe

DIALECTS = {
    "diagram": "treadle.dialects.diagram:Diagram",
    "hierarchy": "treadle.dialects.hierarchy:Hierarchy",
    "cuda": "treadle.dialects.cuda:Cuda",
}

PASSES: dict[str, str] = {
    "convert-hierarchy-to-cuda": "treadle.passes.convert_hierarchy_to_cuda:ConvertHierarchyToCudaPass",
    "convert-diagram-to-linalg": "treadle.passes.convert_diagram_to_linalg:ConvertDiagramToLinalgPass",
    "convert-linalg-to-diagram": "treadle.passes.convert_linalg_to_diagram:ConvertLinalgToDiagramPass",
    "coalescing": "treadle.passes.coalescing:CoalescingPass",
    "pipelining": "treadle.passes.pipelining:PipeliningPass",
    "warp-specialization": "treadle.passes.warp_specialization:WarpSpecializationPass",
    "cuda-cluster": "treadle.passes.cuda_cluster:CudaClusterPass",
    "cuda-order-blocks": "treadle.passes.cuda_order_blocks:CudaOrderBlocksPass",
    "cuda-overlap-pieces": "treadle.passes.cuda_overlap_pieces:CudaOverlapPiecesPass",
    "cuda-persist": "treadle.passes.cuda_persist:CudaPersistPass",
    "cuda-ping-pong": "treadle.passes.cuda_ping_pong:CudaPingPongPass",
    "cuda-speculate": "treadle.passes.cuda_speculate:CudaSpeculatePass",
    "cuda-store-tensors": "treadle.passes.cuda_store_tensors:CudaStoreTensorsPass",
    "diagram-differentiate": "treadle.passes.diagram_differentiate:DiagramDifferentiatePass",
    "diagram-expand-laws": "treadle.passes.diagram_expand_laws:DiagramExpandLawsPass",
    "diagram-raise-swaps": "treadle.passes.diagram_raise_swaps:DiagramRaiseSwapsPass",
    "diagram-chunk-recurrences": "treadle.passes.diagram_chunk_recurrences:DiagramChunkRecurrencesPass",
    "diagram-raise-scans": "treadle.passes.diagram_raise_scans:DiagramRaiseScansPass",
    "diagram-split-orders": "treadle.passes.diagram_split_orders:DiagramSplitOrdersPass",
    "diagram-raise-scatters": "treadle.passes.diagram_raise_scatters:DiagramRaiseScattersPass",
    "diagram-raise-masks": "treadle.passes.diagram_raise_masks:DiagramRaiseMasksPass",
    "diagram-bubble-up-reads": "treadle.passes.diagram_bubble_up_reads:DiagramBubbleUpReadsPass",
    "diagram-merge-axes": "treadle.passes.diagram_merge_axes:DiagramMergeAxesPass",
    "diagram-find-ranges": "treadle.passes.diagram_find_ranges:DiagramFindRangesPass",
    "diagram-split-depths": "treadle.passes.diagram_split_depths:DiagramSplitDepthsPass",
    "diagram-distribute-products": "treadle.passes.diagram_distribute_products:DiagramDistributeProductsPass",
    "diagram-copy-operands": "treadle.passes.diagram_copy_operands:DiagramCopyOperandsPass",
    "diagram-tile-windows": "treadle.passes.diagram_tile_windows:DiagramTileWindowsPass",
    "diagram-merge-reduced-axes": "treadle.passes.diagram_merge_reduced_axes:DiagramMergeReducedAxesPass",
    "diagram-merge-depths": "treadle.passes.diagram_merge_depths:DiagramMergeDepthsPass",
    "diagram-repeat-operands": "treadle.passes.diagram_repeat_operands:DiagramRepeatOperandsPass",
    "diagram-merge-free-axes": "treadle.passes.diagram_merge_free_axes:DiagramMergeFreeAxesPass",
    "diagram-allow-approximations": "treadle.passes.diagram_allow_approximations:DiagramAllowApproximationsPass",
    "diagram-expand-approximations": "treadle.passes.diagram_expand_approximations:DiagramExpandApproximationsPass",
    "diagram-fuse-multiply-adds": "treadle.passes.diagram_fuse_multiply_adds:DiagramFuseMultiplyAddsPass",
    "diagram-exp-to-exp2": "treadle.passes.diagram_exp_to_exp2:DiagramExpToExp2Pass",
    "diagram-hoist-factors": "treadle.passes.diagram_hoist_factors:DiagramHoistFactorsPass",
    "diagram-compose-maps": "treadle.passes.diagram_compose_maps:DiagramComposeMapsPass",
    "diagram-transpose-operands": "treadle.passes.diagram_transpose_operands:DiagramTransposeOperandsPass",
    "diagram-widen-operands": "treadle.passes.diagram_widen_operands:DiagramWidenOperandsPass",
    "diagram-reassociate": "treadle.passes.diagram_reassociate:DiagramReassociatePass",
    "diagram-recompute": "treadle.passes.diagram_recompute:DiagramRecomputePass",
    "diagram-set-sizes": "treadle.passes.diagram_set_sizes:DiagramSetSizesPass",
    "set-machine": "treadle.passes.set_machine:SetMachinePass",
    "hierarchy-choose-sizes": "treadle.passes.hierarchy_choose_sizes:HierarchyChooseSizesPass",
    "fusion": "treadle.passes.fusion:FusionPass",
    "hierarchy-transpose-arrays": "treadle.passes.hierarchy_transpose_arrays:HierarchyTransposeArraysPass",
    "hierarchy-split-streams": "treadle.passes.hierarchy_split_streams:HierarchySplitStreamsPass",
    "hierarchy-join-sums": "treadle.passes.hierarchy_join_sums:HierarchyJoinSumsPass",
    "hierarchy-promote-sums": "treadle.passes.hierarchy_promote_sums:HierarchyPromoteSumsPass",
    "hierarchy-share-reciprocals": "treadle.passes.hierarchy_share_reciprocals:HierarchyShareReciprocalsPass",
    "hierarchy-rescale-lazily": "treadle.passes.hierarchy_rescale_lazily:HierarchyRescaleLazilyPass",
    "hierarchy-subloop": "treadle.passes.hierarchy_subloop:HierarchySubloopPass",
    "streaming": "treadle.passes.streaming:StreamingPass",
    "tiling": "treadle.passes.tiling:TilingPass",
    "hierarchy-expand-streams": "treadle.passes.hierarchy_expand_streams:HierarchyExpandStreamsPass",
    "treadle": "treadle.passes.treadle:TreadlePass",
}

TARGETS: dict[str, str] = {
    "cuda-c": "treadle.compiler.target:CudaCTarget",
}


def loader(path: str) -> Callable[[], Any]:
    def load() -> Any:
        module, _, name = path.partition(":")
        return getattr(import_module(module), name)

    return load


TREADLE_UNIVERSE = Universe(
    all_dialects={name: loader(path) for name, path in DIALECTS.items()},
    all_passes={name: loader(path) for name, path in PASSES.items()},
    all_targets={name: loader(path) for name, path in TARGETS.items()},
)
