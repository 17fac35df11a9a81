"""Counts equal predictions in distributed shared memory, too: for every example whose kernels can run in clusters, at
sizes that divide and at odd ones, what blocks bring each other, and what is left to bring from device memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.cost import Pieces, Plan, are_of_warpgroups, plan_of, sizes_of_kernel, transfers_at
from treadle.compiler.cost.levels.copies import copies_of_arrays
from treadle.compiler.cost.timing.clusters import Shape, bytes_across
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, is_array, sizes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution, Launched
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

from roads import fitting  # isort: skip

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.mlir"))
ALONG: dict[str, tuple[str, ...]] = {
    "attention": ("q",),
    "attention_backward": ("x",),
    "attention_bf16": ("q",),
    "attention_bias": ("b", "q"),
    "attention_dropout": ("q",),
    "attention_f8": ("q",),
    "attention_gqa": ("g", "q"),
    "attention_latent": ("h",),
    "attention_lengths": ("q",),
    "attention_lse": ("q",),
    "attention_mixed": ("q",),
    "attention_mqa": ("h", "q"),
    "attention_sigmoid": ("q",),
    "attention_sink": ("q",),
    "attention_soft_cap": ("q",),
    "attention_spherical": ("q",),
    "attention_widths": ("q",),
    "batched_matmul": ("m", "n"),
    "conv1d": ("b", "f", "t"),
    "conv1d_dilated": ("b", "f", "t"),
    "cross_attention": ("q",),
    "experts": ("n",),
    "gru": ("b", "j", "t"),
    "routing": ("t",),
    "lora": ("t", "j"),
    "matmul": ("m", "n"),
    "matmul_epilogue": ("t", "o"),
    "matmul_gelu": ("t", "o"),
    "matmul_nt": ("m", "n"),
    "matmul_residual": ("t", "i"),
    "matmul_tn": ("m", "n"),
    "matmul_transposed": ("m", "n"),
    "matmul_tt": ("m", "n"),
    "mlp": ("t",),
    "split_k": ("m", "n"),
    "state_space": ("h",),
    "swiglu": ("t", "j"),
    "triangle_multiplication": ("c", "i", "j", "k"),
    "two_kernels": ("t", "j", "o"),
}
"""Examples of which blocks that differ along an axis read something alike, and warpgroups multiply."""
MADE = {("conv1d", "t"), ("conv1d_dilated", "t")}
"""Axes that a read makes: how many pieces there are follows from another, and at the sizes tried here it is odd, so
that the kernel without clusters runs."""
LARGER = {"batched_matmul": "b = 6, m = 512, n = 512"}
"""Sizes for which examples are made here, where at their own too few rows are multiplied for warpgroups."""
UNIT = 16
"""Bytes of which rows that a tensor map takes are multiples."""
LARGE = 64
SMALL = {"dividing": 2, "odd": 3}
"""Of an axis of which each group has one index: batches and heads."""


Sides = tuple[tuple[str, int], ...]
"""Axes, and how many blocks of a cluster lie along each; none where no axis is asked for."""


@cache
def made(path: Path, sides: Sides) -> tuple[ModuleOp, ModuleOp, str, tuple[tuple[KernelOp, Plan], ...]]:
    """The algorithm, its module for an H100 with such clusters, the printed file, and its kernels while they were
    explicit. Streams are whole, for axes have the names and sizes that the algorithm gives them."""
    text = path.read_text(encoding="utf-8")
    if path.stem in LARGER:
        text = re.sub(r"#diagram\.sizes<[^>]*>", f"#diagram.sizes<{LARGER[path.stem]}>", text)
    module = parse_module(text)
    algorithm = module.clone()
    specs = [each for each in pipeline(Options(machine="h100")) if each.name != "hierarchy-split-streams"]
    names = [each.name for each in specs]
    options = {"size": tuple(count for _, count in sides) or (1,), "along": tuple(axis for axis, _ in sides)}
    specs[names.index("cuda-cluster")] = ArgSpec("cuda-cluster", options)
    before = names.index(LAST_HIERARCHY_PASS) + 1
    run_passes(module, specs[:before])
    explicit = module.clone()
    run_passes(module, specs[before:])
    plans = tuple((op, plan_of(op)) for op in explicit.walk() if isinstance(op, KernelOp))
    return algorithm, module, print_cuda(module), plans


def clusters_in(path: Path, sides: Sides) -> list[cuda.KernelOp]:
    kernels = made(path, sides)[1].body.block.ops
    return [op for op in kernels if isinstance(op, cuda.KernelOp) and op.cluster > 1]


def sizes(path: Path, sides: Sides, kind: str) -> dict[str, int]:
    """Of every symbolic axis: along those of clusters as many pieces as make one, of a stream two steps. Odd
    ones leave the last piece short: rows by 16 bytes, for else no tensor map takes the array, others by one element."""
    function = entry_function(made(path, sides)[0])
    types = [
        value.type
        for op in function.walk()
        for value in (*op.results, *op.operands)
        if is_array(value.type) and axes_of(value.type)
    ]
    row_steps: dict[str, int] = {}
    for type in types:
        axis = axes_of(type)[-1]
        row_steps[axis] = max(UNIT // format_of(type).size, row_steps.get(axis, 1))
    names = [op.sym_name.data.partition("_kernel_specialised")[0] for op in clusters_in(path, sides)]
    plans = sorted(
        (plan for _, plan in made(path, sides)[3]), key=lambda plan: plan.name in names
    )  # whose pieces count
    pieces = {each.axis: each.size for plan in plans for each in (*plan.groups, *plan.streams)}
    together = dict(sides)
    streamed = {each.axis for plan in plans for each in plan.streams}
    found: dict[str, int] = {}
    for axis in (axis for type in function.function_type.inputs for axis, size in sizes_of(type).items() if size < 0):
        if pieces.get(axis) == 1:
            found[axis] = SMALL[kind] if axis not in together else together[axis]
            continue
        whole = pieces.get(axis, LARGE) * together.get(axis, 2 if axis in streamed else 1)
        found[axis] = whole if kind == "dividing" else whole - row_steps.get(axis, 1)
    return fitting(function, found)


def execute(path: Path, sides: Sides, given: Mapping[str, int], seed: int = 0) -> list[Launched]:
    algorithm, module, printed, _ = made(path, sides)
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), given), 0)
    execution = HostExecution(module, EmulatorBackend(printed, kernel_names(module), seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    # Of long sums of 8-bit numbers some cancel down to their rounding errors, and have no tolerance: none may be wrong.
    assert not any(verdict.wrong for verdict in verify(algorithm, inputs, outputs, "emulator"))
    return execution.launches


def has_one_piece(kernel: KernelOp, pieces: Pieces) -> bool:
    """Whether no launch brings more."""
    types = [value.type for value in (*kernel.inputs, *kernel.outputs)]
    known = {size for type in types for axis, size in sizes_of(type).items() if axis == pieces.axis}
    return all(size != DYNAMIC and size <= pieces.size for size in known)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sample(12, each=False)
def test_the_model_knows_what_neighbours_read_alike(path: Path):
    """Along each axis of the grids, as the pass finds it in the lowered kernel."""
    machine = load_machine("h100")
    function = entry_function(made(path, ())[0])
    axes = {pieces.axis for _, plan in made(path, ())[3] for pieces in plan.groups}
    shared: set[str] = set()
    for axis in sorted(axes):
        sides = ((axis, 2),)
        known = axis_sizes(function, sizes(path, sides, "odd"))
        of_model = {
            plan.name.removesuffix("_kernel")
            for kernel, plan in made(path, sides)[3]
            if any(pieces.axis == axis and not has_one_piece(kernel, pieces) for pieces in plan.groups)
            and are_of_warpgroups(plan, machine)
            and bytes_across(plan, sizes_of_kernel(kernel, function, known), Shape(sides))
        }
        of_pass = {op.sym_name.data.partition("_kernel_specialised")[0] for op in clusters_in(path, sides)}
        assert of_model == of_pass, axis
        shared |= {axis} if of_pass else set()
    assert shared == set(ALONG.get(path.stem, ()))


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize(
    ("name", "axis"), [each for name, axes in ALONG.items() for axis in axes if (each := (name, axis)) not in MADE]
)
@pytest.mark.sample(6, each=False)
def test_emulator_counts_what_blocks_bring_each_other(name: str, axis: str, kind: str):
    hold_counts_against_predictions(name, ((axis, 2),), kind)


OF_MORE: list[tuple[str, Sides]] = [
    ("attention", (("q", 4),)),
    ("matmul", (("m", 4),)),
    ("matmul", (("n", 4),)),
    ("matmul", (("m", 2), ("n", 2))),
    ("matmul", (("m", 2), ("n", 4))),
    ("matmul_transposed", (("n", 2), ("m", 2))),
]


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize(("name", "sides"), OF_MORE)
def test_emulator_counts_what_more_blocks_bring_each_other(name: str, sides: Sides, kind: str):
    for seed in range(2):
        hold_counts_against_predictions(name, sides, kind, seed)


def hold_counts_against_predictions(name: str, sides: Sides, kind: str, seed: int = 0) -> None:
    """Bytes between blocks, and bytes from device memory: what all blocks take, less what neighbours bring."""
    path = EXAMPLES[0].parent / f"{name}.mlir"
    given, shape = sizes(path, sides, kind), Shape(sides)
    launches = execute(path, sides, given, seed)
    known = axis_sizes(entry_function(made(path, sides)[0]), given)
    function = entry_function(made(path, sides)[0])
    kernels = [op for op in made(path, sides)[1].body.block.ops if isinstance(op, cuda.KernelOp)]
    of_name = {cuda.variant_name(each, to): (each, to) for each in kernels for to in cuda.alignments(each)}
    in_clusters = 0
    for launch, (kernel, plan) in zip(launches, made(path, sides)[3], strict=True):
        of_entry, alignment = of_name[launch.kernel]
        at, cluster = sizes_of_kernel(kernel, function, known), of_entry.cluster
        across = bytes_across(plan, at, shape) if cluster > 1 else 0
        copies = copies_of_arrays(of_entry, alignment)
        taken = sum(
            each.values(at) * each.width * copies.get(each.array, 1)
            for each in transfers_at(plan, "device")
            if not each.saves
        )
        found = launch.report
        if plan.is_at_most:  # by how much, only the data know
            assert 0 < found.cluster_bytes <= across
            assert found.bytes_loaded + found.cluster_bytes <= taken
        else:
            assert (found.cluster_bytes, found.bytes_loaded) == (across, taken - across)
        in_clusters += cluster == shape.blocks and across > 0
    assert in_clusters == len(clusters_in(path, sides))
