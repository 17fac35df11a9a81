"""Runs programs through the passes with one mistake in them, in a process of its own: `python mutant.py NAME`.

Exits with 1 at the first program that comes out wrong or not at all, with 0 if none does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mutated import ROOT, mutate

from mutations import MUTATIONS

if TYPE_CHECKING:  # what a mistake may be in is imported after it was made
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.pipeline import Options

Case = tuple[str, "Sequence[Mapping[str, int]]", "Options", "ArgSpec | None"]
"""A program, sizes, options, and a pass of which something else is asked."""

PROGRAMS: dict[str, tuple[dict[str, int], ...]] = {
    "tests/programs/mutants.mlir": ({},),
    "tests/programs/masked_by_choice.mlir": ({}, {"q": 3}),
    "tests/programs/cascades.mlir": ({},),
    "examples/attention_backward.mlir": ({},),
    "tests/programs/negative_scale.mlir": ({},),
    "tests/programs/rms_gain_product.mlir": ({},),
    "tests/programs/runtime_scale.mlir": ({},),
    "tests/programs/weights_too.mlir": ({},),
    "tests/programs/scaled_shares.mlir": ({},),
    "tests/programs/narrow_result.mlir": ({},),
    "tests/programs/sum_of_maxima.mlir": ({},),
    "examples/attention_lse.mlir": ({"b": 1, "h": 2, "q": 9, "x": 37}, {"b": 1, "h": 1, "q": 3, "x": 0}),
    "examples/attention_sink.mlir": ({"b": 1, "h": 2, "q": 5, "x": 21},),
    "examples/attention_lengths.mlir": ({},),
    "examples/attention_window.mlir": ({},),
    "examples/attention_segments.mlir": ({},),
    "examples/layer_norm.mlir": ({},),
    "examples/cross_entropy.mlir": ({},),
    "examples/kl_divergence.mlir": ({},),
    "examples/variance.mlir": ({},),
    "examples/matmul_residual.mlir": ({},),
    "examples/softmax.mlir": ({},),
    "examples/swiglu.mlir": ({},),
    "examples/quantised_matmul.mlir": ({},),
    "tests/programs/unread_condition.mlir": ({},),
    "tests/programs/short_rows.mlir": ({},),
    "tests/programs/blocks_of_a_table.mlir": ({"q": 70, "x": 70},),
    "tests/programs/strided.mlir": ({"q": 40, "x": 700},),
    "tests/programs/mixed_numbers.mlir": ({}, {"q": 1, "x": 37}),
    "tests/programs/out_and_back.mlir": ({},),
    "tests/programs/undefined_rows.mlir": ({}, {"x": 0}),
    "tests/programs/safe_rows.mlir": ({}, {"x": 0}),
    "tests/programs/capped.mlir": ({},),
    "tests/programs/told_from_a_maximum.mlir": ({},),
    "tests/programs/two_peaks.mlir": ({},),
    "tests/programs/chosen_by_a_number.mlir": ({},),
    "tests/programs/scores_by_heads.mlir": ({"q": 9, "x": 37},),
    "tests/programs/added_products.mlir": ({}, {"k": 3}),
    "examples/delta_rule.mlir": ({"h": 2, "t": 5, "e": 9},),
    "examples/gru.mlir": ({"b": 2, "t": 3},),
    "tests/programs/recurrent_both_ways.mlir": ({"b": 2, "t": 4},),
    "tests/programs/crf_forward.mlir": ({"b": 2, "t": 4}, {"b": 1, "t": 0}),
    "tests/programs/recurrent_cells.mlir": ({"b": 2, "t": 6, "c": 9}, {"t": 0}),
    "tests/programs/recurrent_paths.mlir": ({"b": 3, "t": 4},),
    "examples/attention_stick_breaking.mlir": ({"h": 2, "q": 23, "x": 37}, {"h": 1, "q": 3, "x": 0}),
    "tests/programs/drawn_quotients.mlir": ({},),
    "examples/attention_dropout.mlir": ({"h": 2, "q": 23, "x": 37}, {"h": 1, "q": 3, "x": 0}),
}
EXPLICIT = (
    "hierarchy-join-sums",
    "hierarchy-rescale-lazily",
    "hierarchy-expand-streams",
    "diagram-expand-approximations",
    "diagram-exp-to-exp2",
    "diagram-fuse-multiply-adds",
)
"""The passes around the choice of sizes, and up to the level of a device."""
CUT: dict[str, dict[str, int]] = {
    "examples/attention_causal.mlir": {"q": 40, "x": 37},
    "examples/attention_alibi.mlir": {"q": 7, "x": 37},
    "examples/split_k.mlir": {},
    "tests/programs/undefined_rows.mlir": {"x": 37},
    "tests/programs/safe_rows.mlir": {"x": 37},
}
"""Programs whose streamed axis is cut into parts, at these sizes."""
CUT_AT_LAUNCH: dict[str, tuple[dict[str, int], ...]] = {
    "examples/attention_causal.mlir": ({"q": 23, "x": 23}, {"x": 4}),
    "tests/programs/mutants.mlir": ({},),
}
"""Programs whose streamed axis is cut into parts that the launch counts."""
REASSOCIATED: dict[str, tuple[dict[str, tuple[str | int, ...]], tuple[dict[str, int], ...]]] = {
    "tests/programs/products_of_products.mlir": ({"sums": ("A", "B", "C"), "chunk": (4,)}, ({}, {"x": 24, "q": 9})),
    "tests/programs/linear_attention_shares.mlir": ({"sums": ("A",), "chunk": (5,)}, ({}, {"x": 9})),
    "tests/programs/prefix_of_rows.mlir": ({"sums": ("B",), "chunk": (4,)}, ({}, {"x": 24, "q": 9})),
    "tests/programs/prefix_sums.mlir": ({"sums": ("A", "B", "C"), "chunk": (4, 2)}, ({}, {"x": 24, "q": 9})),
}
"""Programs whose products of products are made in another order: what the pass is asked for, and sizes."""
TRANSPOSED: dict[str, tuple[str, ...]] = {"tests/programs/channels_last.mlir": ("A", "B", "C16")}
"""Programs whose arrays are transposed for their kernels."""
TRANSPOSED_OPERANDS: dict[str, tuple[str, ...]] = {"tests/programs/across_the_sum.mlir": ("B", "F8")}
"""Programs whose 8-bit operands are transposed."""
MERGED: dict[str, tuple[str, ...]] = {
    "tests/programs/free_axes.mlir": ("b", "t"),
    "tests/programs/outer_products.mlir": ("i", "a", "j", "b"),
}
"""Programs of which free axes become one."""
DEPTHS: dict[str, tuple[str, ...]] = {
    "tests/programs/weights_of_heads.mlir": ("b", "q"),
    "tests/programs/summed_products.mlir": ("b", "k"),
    "tests/programs/sorted_rows.mlir": ("b", "k"),
}
"""Programs of which two axes that a product sums over become one."""
REPEATED: dict[str, tuple[str, ...]] = {"tests/programs/sorted_sums.mlir": ("b", "m")}
"""Programs whose operands are read again for each position of an axis."""
REDUCED: dict[str, tuple[tuple[str, ...], tuple[dict[str, int], ...]]] = {
    "tests/programs/pairs_of_keys.mlir": (("x", "y"), ({}, {"x": 1})),
    "tests/programs/mixture_of_layers.mlir": (("e", "k"), ({}, {"t": 1})),
}
"""Programs of which axes that are reduced together become one, and at which sizes."""
TILED: dict[str, tuple[str, ...]] = {"tests/programs/near_in_images.mlir": ("x", "y")}
"""Programs whose rows go in tiles."""
DISTRIBUTED: dict[str, tuple[str, ...]] = {"tests/programs/difference_of_shares.mlir": ("O",)}
"""Programs with products that are made term by term."""
SPLIT_DEPTHS: dict[str, tuple[str, ...]] = {"tests/programs/parts_of_keys.mlir": ("S",)}
"""Programs with products that are made part by part."""

CHUNKED: dict[str, tuple[tuple[str, ...], tuple[dict[str, int], ...]]] = {
    "examples/delta_rule.mlir": (("S",), ({"t": 11}, {"t": 4})),
    "tests/programs/gates_both_ways.mlir": (("R", "S"), ({}, {"t": 4})),
}
"""Programs of which recurrences are taken in chunks, and at which sizes they are run."""
SCANNED: dict[str, tuple[str, ...]] = {"tests/programs/cumulative_sums.mlir": ("A", "B")}
"""Programs with sums that are made as scans."""
ORDERS: dict[str, tuple[int, ...]] = {"examples/routing.mlir": (16,), "tests/programs/orders_below_zero.mlir": (5,)}
"""Programs that look for the first few of an order, and how long parts of the axis are."""
SCATTERED: dict[str, tuple[str, ...]] = {"tests/programs/scattered_sums.mlir": ("S", "count", "product", "rows")}
"""Programs with sums that are scattered."""
COPIED: dict[str, tuple[str, ...]] = {
    "tests/programs/product_of_patches.mlir": ("i", "j", "c"),
    "tests/programs/sums_over_three_axes.mlir": ("a", "b", "k"),
}
"""Programs of which operands are copied, so that a product sums these side by side."""
READ_BEFORE: dict[str, tuple[str, ...]] = {"tests/programs/parts_of_a_product.mlir": ("P", "R")}
"""Programs of which arrays are read before they are made."""
SWAPPED: dict[str, tuple[str, ...]] = {"tests/programs/rotated_product.mlir": ("P", "Q")}
"""Programs of which reads of products swap blocks."""
FOUND: dict[str, tuple[str, ...]] = {
    "tests/programs/mixed_numbers.mlir": ("x",),
    "tests/programs/near_numbers.mlir": ("x",),
}
"""Programs of which ranges along axes are found before."""
REFUSED: tuple[tuple[str, str, dict[str, tuple[str | int, ...]], str], ...] = (
    ("examples/matmul.mlir", "set-machine", {"name": ("a100",), "arch": ("sm_90a",)}, "does not run on a100"),
    ("examples/matmul.mlir", "set-machine", {"name": ("a100",), "arch": ("sm_89",)}, "sm_89 does not run on a100"),
    ("examples/matmul.mlir", "set-machine", {"name": ("a100",), "file": ("x.toml",)}, "and was given both"),
    ("examples/matmul.mlir", "streaming", {"axis": ("m",), "kernel": ("matmul",)}, "'m' is reduced by nothing"),
    ("examples/matmul.mlir", "tiling", {"axis": ("k",)}, "'k' is reduced by %C"),
    ("tests/programs/scores_by_heads.mlir", "tiling", {"repeated": ("none",)}, "would have columns along 'h' and 'e'"),
    ("tests/programs/scores_by_heads.mlir", "tiling", {"repeated": ("e",)}, "along axis 'e' would repeat no product"),
    ("examples/matmul.mlir", "hierarchy-transpose-arrays", {"arrays": ("A",)}, "there is no array %A to transpose"),
    (
        "examples/matmul_int8.mlir",
        "diagram-transpose-operands",
        {"operands": ("W",)},
        "there is no array %W to transpose",
    ),
    ("examples/matmul.mlir", "diagram-merge-free-axes", {"axes": ("m", "n")}, "'m' does not become one with another"),
    ("examples/matmul.mlir", "diagram-merge-depths", {"axes": ("m", "k")}, "no product sums over axis 'm' and another"),
    ("examples/matmul.mlir", "diagram-merge-reduced-axes", {"axes": ("m", "k")}, "nowhere a product has axis 'm'"),
    ("examples/matmul.mlir", "diagram-tile-windows", {"axes": ("m", "k")}, "nowhere axis 'm' is reduced together"),
    ("examples/matmul.mlir", "diagram-repeat-operands", {"axes": ("m",)}, "no condition keeps a range of rows"),
    ("examples/matmul.mlir", "diagram-copy-operands", {"axes": ("m", "k")}, "no product sums over axis 'm' and others"),
    (
        "examples/matmul.mlir",
        "diagram-distribute-products",
        {"products": ("C",)},
        "%C is no product with a sum whose terms wait",
    ),
    (
        "examples/matmul.mlir",
        "diagram-split-depths",
        {"products": ("C",)},
        "%C is no product whose summed axis is read",
    ),
    (
        "examples/gru.mlir",
        "diagram-chunk-recurrences",
        {"recurrences": ("last",)},
        "%last is no recurrence whose step is affine in its states",
    ),
    ("examples/matmul.mlir", "diagram-raise-scans", {"sums": ("C",)}, "%C is no sum with a triangle of ones"),
    ("examples/routing.mlir", "diagram-split-orders", {"lengths": (48,)}, "there are no two parts of 48"),
    (
        "examples/matmul.mlir",
        "diagram-raise-scatters",
        {"sums": ("C",)},
        "%C is no sum of what data name the place of",
    ),
    ("examples/matmul.mlir", "diagram-bubble-up-reads", {"arrays": ("A",)}, "%A is no array that is computed, read at"),
    (
        "examples/matmul.mlir",
        "diagram-raise-swaps",
        {"products": ("C",)},
        "%C is no product of which reads swap neighbouring blocks",
    ),
    ("examples/matmul.mlir", "diagram-find-ranges", {"axes": ("k",)}, "no condition compares data along axis 'k'"),
    ("examples/matmul.mlir", "hierarchy-promote-sums", {"axis": ("k",)}, "nothing sums products of 8 bits along 'k'"),
    ("examples/matmul.mlir", "hierarchy-promote-sums", {"every": (48,)}, "after a multiple of that"),
    ("examples/attention.mlir", "hierarchy-subloop", {"axis": ("d",), "size": (48,)}, "must cover evenly"),
    ("examples/attention.mlir", "hierarchy-subloop", {"axis": ("d",), "size": (8,)}, "write a multiple of 16"),
    ("examples/attention.mlir", "hierarchy-subloop", {"axis": ("x",), "size": (16,)}, "%P16, the left operand of"),
)
"""What no law allows: a program, a pass, what is asked of it, and the reason in its answer."""
FIRST = {
    **dict.fromkeys(
        ("diagram_raise_masks", "passes/masks/asked", "passes/masks/choices", "passes/masks/identities"),
        "tests/programs/masked_by_choice.mlir",
    ),
    "passes/axes/joins": "tests/programs/sum_of_maxima.mlir",
    "passes/axes/merge": "tests/programs/free_axes.mlir",
    "passes/products/apart": "tests/programs/outer_products.mlir",
    **dict.fromkeys(("dialects/diagram/read", "passes/products/depths"), "tests/programs/weights_of_heads.mlir"),
    **dict.fromkeys(("passes/reads/bubble", "passes/reads/found"), "tests/programs/parts_of_a_product.mlir"),
    **dict.fromkeys(
        ("passes/swaps/found", "passes/swaps/joined", "passes/swaps/write"), "tests/programs/rotated_product.mlir"
    ),
    "passes/streams/neutral": "tests/programs/safe_rows.mlir",
    "passes/expressions/infinities": "tests/programs/undefined_rows.mlir",
    "passes/expressions/kinds": "tests/programs/safe_rows.mlir",
    "passes/expressions/forms": "tests/programs/scaled_shares.mlir",
    "passes/kernels/clusters": "tests/programs/out_and_back.mlir",
    "passes/streams/limits": "examples/attention_window.mlir",
    "passes/kernels/transposed": "tests/programs/channels_last.mlir",
    "passes/expressions/moments": "examples/cross_entropy.mlir",
    **dict.fromkeys(("passes/streams/polynomial_sums", "passes/factors/logarithms"), "examples/kl_divergence.mlir"),
    "passes/expressions/polynomials": "examples/layer_norm.mlir",
    "passes/products/transposed_operands": "tests/programs/across_the_sum.mlir",
    "diagram_transpose_operands": "examples/matmul_int8.mlir",
    "passes/products/distributed": "tests/programs/difference_of_shares.mlir",
    "passes/products/split": "tests/programs/parts_of_keys.mlir",
    "passes/orders/parts": "tests/programs/orders_below_zero.mlir",
    **dict.fromkeys(("passes/products/scanned", "passes/streams/stream"), "tests/programs/cumulative_sums.mlir"),
    "passes/products/scattered": "tests/programs/scattered_sums.mlir",
    "passes/_recurrences": "examples/delta_rule.mlir",
    **dict.fromkeys(
        ("passes/recurrences/bodies", "passes/recurrences/chunked", "passes/recurrences/linear"),
        "tests/programs/gates_both_ways.mlir",
    ),
    "passes/streams/positions": "tests/programs/recurrent_cells.mlir",
    "passes/streams/moving": "examples/attention_stick_breaking.mlir",
    "passes/products/chains": "tests/programs/products_of_products.mlir",
    "passes/products/chunked_prefixes": "tests/programs/prefix_sums.mlir",
    "passes/products/chunked_products": "tests/programs/products_of_products.mlir",
    "passes/products/sums": "tests/programs/products_of_products.mlir",
    "passes/products/conditions": "tests/programs/products_of_products.mlir",
    "passes/products/factors": "tests/programs/products_of_products.mlir",
    "passes/products/orders": "tests/programs/products_of_products.mlir",
    "passes/products/positions": "tests/programs/linear_attention_shares.mlir",
    "passes/expressions/powers": "tests/programs/scaled_shares.mlir",
    "passes/expressions/scalars": "tests/programs/unread_condition.mlir",
    "dialects/diagram/solved": "tests/programs/strided.mlir",
    "passes/streams/selections": "tests/programs/blocks_of_a_table.mlir",
    **dict.fromkeys(("hierarchy_join_sums", "passes/products/added"), "tests/programs/added_products.mlir"),
    "passes/streams/lagging": "tests/programs/told_from_a_maximum.mlir",
    "passes/streams/ways": "tests/programs/two_peaks.mlir",
    "passes/streams/searches": "tests/programs/mixed_numbers.mlir",
    "passes/conditions/found": "tests/programs/mixed_numbers.mlir",
    "passes/conditions/sought": "tests/programs/near_numbers.mlir",
    "passes/streams/splits": "examples/attention_causal.mlir",
    "passes/streams/undefined": "tests/programs/undefined_rows.mlir",
    "passes/streams/visits": "examples/attention_lengths.mlir",
    "dialects/diagram/approximations": "tests/programs/capped.mlir",
    "diagram_expand_approximations": "tests/programs/capped.mlir",
    "diagram_recompute": "examples/attention_backward.mlir",
    "diagram_set_sizes": "examples/attention_causal.mlir",
    "diagram_widen_operands": "examples/quantised_matmul.mlir",
    "dialects/diagram/place": "examples/attention_causal.mlir",
}
"""The program that meets the mistakes of a file, which runs before all others: the first that is wrong ends it."""
BOUNDARIES = ("tests/programs/around_a_boundary.mlir",)
"""Programs with operations of other dialects, which nothing here runs: what becomes of them must be sound."""
PARTS, LENGTH = 3, 7
SPLIT = "hierarchy-split-streams"
REASSOCIATE = "diagram-reassociate"
TRANSPOSE = "hierarchy-transpose-arrays"
TRANSPOSE_OPERANDS = "diagram-transpose-operands"
MERGE_FREE_AXES = "diagram-merge-free-axes"
MERGE_DEPTHS = "diagram-merge-depths"
REPEAT_OPERANDS = "diagram-repeat-operands"
MERGE_REDUCED_AXES = "diagram-merge-reduced-axes"
TILE_WINDOWS = "diagram-tile-windows"
COPY_OPERANDS = "diagram-copy-operands"
SPLIT_DEPTH = "diagram-split-depths"
CHUNK_RECURRENCES = "diagram-chunk-recurrences"
RAISE_SCANS = "diagram-raise-scans"
SPLIT_ORDERS = "diagram-split-orders"
RAISE_SCATTERS = "diagram-raise-scatters"
DISTRIBUTE_PRODUCTS = "diagram-distribute-products"
BUBBLE_UP_READS = "diagram-bubble-up-reads"
FIND_RANGES = "diagram-find-ranges"
RAISE_SWAPS = "diagram-raise-swaps"
LARGEST = 24
"""Of the symbolic axes, where nothing is said: small, yet several pieces."""


def decide(module: object) -> None:
    """Small pieces, that divide nothing: every state moves several times, and every axis has an edge; of a recurrence,
    one position at a time."""
    from treadle.dialects.diagram import RecurrenceOp, SwapOp
    from treadle.dialects.hierarchy import KernelOp
    from treadle.dialects.hierarchy.schedule import ScheduleAttr

    for kernel in [op for op in module.walk() if isinstance(op, KernelOp)]:  # pyright: ignore
        schedule = kernel.schedule
        assert schedule is not None
        piece = 1 if any(isinstance(op, RecurrenceOp) for op in kernel.body.block.ops) else 5
        swapped = {op.axis.data: 2 * op.length for op in kernel.walk() if isinstance(op, SwapOp)}
        group = {axis: swapped.get(axis, 4) for axis in schedule.group.as_dict()}
        stream = dict.fromkeys(schedule.stream.as_dict(), piece)
        kernel.properties["schedule"] = ScheduleAttr(group, stream, schedule.whole.as_dict(), {})


def in_order(first: str | None) -> list[Case]:
    """All programs; `first` is the one to begin with."""
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.pipeline import Options

    everything: list[Case] = [(path, cases, Options(), None) for path, cases in PROGRAMS.items()]
    parts, length = ArgSpec(SPLIT, {"parts": (PARTS,)}), ArgSpec(SPLIT, {"length": (LENGTH,)})
    everything += [(path, ({},), Options(sizes=sizes), parts) for path, sizes in CUT.items()]
    everything += [(path, cases, Options(), length) for path, cases in CUT_AT_LAUNCH.items()]
    everything += [
        (path, cases, Options(), ArgSpec(REASSOCIATE, asked)) for path, (asked, cases) in REASSOCIATED.items()
    ]
    everything += [
        (path, ({},), Options(), ArgSpec(TRANSPOSE, {"arrays": names})) for path, names in TRANSPOSED.items()
    ]
    everything += [
        (path, ({}, {"k": 5}), Options(), ArgSpec(TRANSPOSE_OPERANDS, {"operands": names}))
        for path, names in TRANSPOSED_OPERANDS.items()
    ]
    everything += [
        (path, ({}, {axes[0]: 1}), Options(), ArgSpec(MERGE_FREE_AXES, {"axes": axes})) for path, axes in MERGED.items()
    ]
    everything += [
        (path, ({}, {"b": 1}), Options(), ArgSpec(MERGE_DEPTHS, {"axes": axes})) for path, axes in DEPTHS.items()
    ]
    everything += [
        (path, ({}, {"m": 1}), Options(), ArgSpec(REPEAT_OPERANDS, {"axes": axes})) for path, axes in REPEATED.items()
    ]
    everything += [
        (path, cases, Options(), ArgSpec(MERGE_REDUCED_AXES, {"axes": axes})) for path, (axes, cases) in REDUCED.items()
    ]
    everything += [
        (path, ({},), Options(), ArgSpec(TILE_WINDOWS, {"axes": axes, "rows": (rows,)}))
        for path, axes in TILED.items()
        for rows in (4, 16)
    ]
    everything += [
        (path, ({},), Options(), ArgSpec(DISTRIBUTE_PRODUCTS, {"products": names}))
        for path, names in DISTRIBUTED.items()
    ]
    everything += [
        (path, ({}, {"x": 1}), Options(), ArgSpec(SPLIT_DEPTH, {"products": names}))
        for path, names in SPLIT_DEPTHS.items()
    ]
    everything += [
        (path, cases, Options(), ArgSpec(CHUNK_RECURRENCES, {"recurrences": names, "length": (4,)}))
        for path, (names, cases) in CHUNKED.items()
    ]
    everything += [
        (path, ({}, {"x": 1}), Options(), ArgSpec(RAISE_SCANS, {"sums": names})) for path, names in SCANNED.items()
    ]
    everything += [(path, ({},), Options(), ArgSpec(SPLIT_ORDERS, {"lengths": each})) for path, each in ORDERS.items()]
    everything += [
        (path, ({}, {"t": 1}), Options(), ArgSpec(RAISE_SCATTERS, {"sums": names})) for path, names in SCATTERED.items()
    ]
    everything += [(path, ({},), Options(), ArgSpec(COPY_OPERANDS, {"axes": axes})) for path, axes in COPIED.items()]
    everything += [
        (path, ({}, {"t": 1}), Options(), ArgSpec(BUBBLE_UP_READS, {"arrays": names}))
        for path, names in READ_BEFORE.items()
    ]
    everything += [
        (path, ({}, {"t": 1}), Options(), ArgSpec(RAISE_SWAPS, {"products": names, "join": (join,)}))
        for path, names in SWAPPED.items()
        for join in (0, 1, 2)
    ]
    everything += [(path, ({},), Options(), ArgSpec(FIND_RANGES, {"axes": axes})) for path, axes in FOUND.items()]
    return [each for each in everything if each[0] == first] + [each for each in everything if each[0] != first]


def stay_sound() -> None:
    """An exception if one of the programs that nothing here runs does not."""
    from treadle.compiler.pipeline import Options, pipeline, run_passes
    from treadle.compiler.source import load_module

    for path in BOUNDARIES:
        module, specs = load_module(ROOT / path), pipeline(Options())
        run_passes(module, specs[: [each.name for each in specs].index("tiling") + 1])


def is_right(case: Case) -> bool:
    """Whether a program comes out right at its sizes."""
    import numpy as np
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.pipeline import pipeline, run_passes
    from treadle.compiler.sizes import default_sizes
    from treadle.compiler.source import load_module
    from treadle.runtime.inputs import make_inputs
    from treadle.runtime.interpreter import entry_function, run_function

    path, cases, options, asked = case
    algorithm = load_module(ROOT / path)
    lowered = algorithm.clone()
    specs = [asked if asked is not None and asked.name == each.name else each for each in pipeline(options)]
    run_passes(lowered, specs[: [each.name for each in specs].index("tiling") + 1])
    decide(lowered)
    run_passes(lowered, [ArgSpec(name, {}) for name in EXPLICIT])
    function = entry_function(algorithm)
    defaults = {axis: min(size, LARGEST) for axis, size in default_sizes(function).items()} | dict(options.sizes)
    for given in cases:
        sizes = {**defaults, **given}
        inputs = make_inputs(function, sizes, 0)
        wanted, got = (run_function(module, inputs, sizes=sizes).results for module in (algorithm, lowered))
        for one, other in zip(wanted, got, strict=True):
            scale = np.abs(np.where(np.isfinite(one), one, 0)).max(initial=1e-3)
            if not np.allclose(one, other, rtol=0, atol=1e-5 * scale, equal_nan=True):
                print(f"{path}: differs")
                return False
    return True


def survives(first: str | None) -> bool:
    """Whether all programs come out right; `first` is the one to begin with."""
    stay_sound()
    return all(map(is_right, in_order(first)))


def refuses() -> bool:
    """Whether what no law allows is refused, by the pass that is asked for it, with the reason."""
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.errors import TreadleError
    from treadle.compiler.pipeline import Options, pipeline, run_passes
    from treadle.compiler.source import load_module

    for path, name, asked, reason in REFUSED:
        specs = [ArgSpec(each.name, asked) if each.name == name else each for each in pipeline(Options())]
        try:
            run_passes(load_module(ROOT / path), specs[: [each.name for each in specs].index(name) + 1])
            said = "nothing"
        except TreadleError as error:
            said = str(error)
        if reason not in said:
            print(f"{path}: {name} should say '{reason}', and says {said}")
            return False
    return True


if __name__ == "__main__":
    mutate(MUTATIONS, sys.argv[1:])
    first = next((FIRST.get(MUTATIONS[name][0]) for name in sys.argv[1:]), None)
    sys.exit(0 if (first or refuses()) and survives(first) and (not first or refuses()) else 1)
