"""Counts equal predictions in distributed shared memory, too: for every example whose kernels can run in clusters, at
sizes that divide and at odd ones, what blocks bring each other, and what is left to bring from device memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.cli.run import kernel_names
from treadle.compiler.cost import Plan, are_of_warpgroups, plan_of, sizes_of_kernel, transfers_at
from treadle.compiler.cost.clusters import bytes_across
from treadle.compiler.cost.copies import copies_of_arrays
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import load_module
from treadle.dialects import cuda
from treadle.dialects.diagram.array import axes_of, format_of, is_array, sizes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution, Launched
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

from roads import fitting  # isort: skip

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.mlir"))
IN_CLUSTERS = [
    "attention",
    "attention_bf16",
    "attention_backward",
    "attention_bias",
    "attention_f8",
    "attention_gqa",
    "attention_lengths",
    "attention_lse",
    "attention_mixed",
    "attention_mqa",
    "attention_sigmoid",
    "attention_sink",
    "attention_soft_cap",
    "attention_spherical",
    "attention_widths",
    "batched_matmul",
    "matmul",
    "matmul_epilogue",
    "matmul_gelu",
    "matmul_nt",
    "matmul_residual",
    "matmul_tn",
    "matmul_transposed",
    "matmul_tt",
    "mlp",
    "split_k",
    "swiglu",
    "two_kernels",
]
"""Examples of which neighbouring blocks read something alike, and warpgroups multiply."""
UNIT = 16
"""Bytes of which rows that a tensor map takes are multiples."""
LARGE = 64
SMALL = {"dividing": 2, "odd": 3}
"""Of an axis of which each group has one index: batches and heads."""


@cache
def made(path: Path, blocks: int) -> tuple[ModuleOp, ModuleOp, str, tuple[tuple[KernelOp, Plan], ...]]:
    """The algorithm, its module for an H100 with clusters of so many blocks, the printed file, and its kernels while
    they were explicit."""
    module = load_module(path)
    algorithm = module.clone()
    specs = list(pipeline(Options(machine="h100")))
    names = [each.name for each in specs]
    specs[names.index("cuda-cluster")] = ArgSpec("cuda-cluster", {"size": (blocks,)})
    before = names.index(LAST_HIERARCHY_PASS) + 1
    run_passes(module, specs[:before])
    explicit = module.clone()
    run_passes(module, specs[before:])
    plans = tuple((op, plan_of(op)) for op in explicit.walk() if isinstance(op, KernelOp))
    return algorithm, module, print_cuda(module), plans


def clusters_in(path: Path, blocks: int) -> list[cuda.KernelOp]:
    kernels = made(path, blocks)[1].body.block.ops
    return [op for op in kernels if isinstance(op, cuda.KernelOp) and op.cluster > 1]


def sizes(path: Path, blocks: int, kind: str) -> dict[str, int]:
    """Of every symbolic axis: along the innermost one as many pieces as make one cluster, of a stream two steps. Odd
    ones leave the last piece short: rows by 16 bytes, for else no tensor map takes the array, others by one element."""
    function = entry_function(made(path, blocks)[0])
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
    plans = [plan for _, plan in made(path, blocks)[3]]
    pieces = {each.axis: each.size for plan in plans for each in (*plan.groups, *plan.streams)}
    inner = {plan.groups[-1].axis for plan in plans if plan.groups}
    streamed = {each.axis for plan in plans for each in plan.streams}
    found: dict[str, int] = {}
    for axis in (axis for type in function.function_type.inputs for axis, size in sizes_of(type).items() if size < 0):
        if pieces.get(axis) == 1:
            found[axis] = SMALL[kind]
            continue
        whole = pieces.get(axis, LARGE) * (blocks if axis in inner else 2 if axis in streamed else 1)
        found[axis] = whole if kind == "dividing" else whole - row_steps.get(axis, 1)
    return fitting(function, found)


def execute(path: Path, blocks: int, given: Mapping[str, int]) -> list[Launched]:
    algorithm, module, printed, _ = made(path, blocks)
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), given), 0)
    execution = HostExecution(module, EmulatorBackend(printed, kernel_names(module)))
    outputs = execution.run(entry_function(module), inputs)
    # Of long sums of 8-bit numbers some cancel down to their rounding errors, and have no tolerance: none may be wrong.
    assert not any(verdict.wrong for verdict in verify(algorithm, inputs, outputs, "emulator"))
    return execution.launches


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sample(12, each=False)
def test_the_model_knows_what_neighbours_read_alike(path: Path):
    """As the pass finds it in the lowered kernel."""
    machine, given = load_machine("h100"), sizes(path, 2, "odd")
    function = entry_function(made(path, 2)[0])
    known = axis_sizes(function, given)
    of_model = {
        plan.name
        for kernel, plan in made(path, 2)[3]
        if are_of_warpgroups(plan, machine) and bytes_across(plan, sizes_of_kernel(kernel, function, known), 2)
    }
    of_pass = {op.sym_name.data.partition("_kernel_specialised")[0] for op in clusters_in(path, 2)}
    assert {name.removesuffix("_kernel") for name in of_model} == of_pass
    assert bool(of_pass) == (path.stem in IN_CLUSTERS)


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize("name", IN_CLUSTERS)
@pytest.mark.sample(4, each=False)
def test_emulator_counts_what_blocks_bring_each_other(name: str, kind: str):
    hold_counts_against_predictions(name, 2, kind)


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize("name", ["attention", "matmul"])
def test_emulator_counts_what_four_blocks_bring_each_other(name: str, kind: str):
    hold_counts_against_predictions(name, 4, kind)


def hold_counts_against_predictions(name: str, blocks: int, kind: str) -> None:
    """Bytes between blocks, and bytes from device memory: what all blocks take, less what neighbours bring."""
    path = EXAMPLES[0].parent / f"{name}.mlir"
    given = sizes(path, blocks, kind)
    launches = execute(path, blocks, given)
    known = axis_sizes(entry_function(made(path, blocks)[0]), given)
    function = entry_function(made(path, blocks)[0])
    kernels = [op for op in made(path, blocks)[1].body.block.ops if isinstance(op, cuda.KernelOp)]
    of_name = {cuda.variant_name(each, to): (each, to) for each in kernels for to in cuda.alignments(each)}
    in_clusters = 0
    for launch, (kernel, plan) in zip(launches, made(path, blocks)[3], strict=True):
        of_entry, alignment = of_name[launch.kernel]
        at, cluster = sizes_of_kernel(kernel, function, known), of_entry.cluster
        across = bytes_across(plan, at, cluster) if cluster > 1 else 0
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
        in_clusters += cluster == blocks and across > 0
    assert in_clusters == len(clusters_in(path, blocks))
