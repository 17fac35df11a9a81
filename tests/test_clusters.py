"""Clusters end to end: what they compute and move, in every order, beside what they decline, and what the model says of
them; every mistake between their blocks is noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from math import prod
from pathlib import Path

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntAttr, IntegerAttr, ModuleOp
from xdsl.rewriter import Rewriter
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.cost import Plan, plan_of, sizes_of_kernel, timing, transfers_at
from treadle.compiler.cost.levels.scaling import cross_transfer
from treadle.compiler.cost.timing.clusters import (
    ACROSS,
    Feeding,
    Shape,
    best_cluster,
    bytes_across,
    from_l2,
    part,
    shapes_of,
)
from treadle.compiler.draw.program import draw_module
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.explain import Explanation, explain
from treadle.compiler.explain.text import explanation_text
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import (
    CHOOSING_PASS,
    LAST_HIERARCHY_PASS,
    Options,
    pipeline,
    print_cuda,
    run_passes,
    run_pipeline,
)
from treadle.compiler.rings import ring_problems
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.grids.tile_order import TileOrder
from treadle.runtime.arguments import HostError
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution, Launched
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
programs = benchmark("programs")

PRODUCT = programs.matmul({"m": 4096, "n": 4096, "k": 4096})
ATTENTION = programs.attention(64, {"b": 2, "h": 16, "q": 4096, "x": 4096})
CAUSAL = re.sub(
    r"#diagram\.sizes<[^>]*>",
    "#diagram.sizes<b = 4, h = 16, q = 2048, x = 2048>",
    (programs.EXAMPLES / "attention_causal.mlir").read_text(),
)
INNERMOST = {PRODUCT: ("n",), ATTENTION: ("q",)}
Made = tuple[ModuleOp, ModuleOp, str]


@cache
def made(
    text: str,
    size: int | None = 2,
    section: int = 0,
    static: tuple[tuple[str, int], ...] = (),
    along: tuple[str, ...] | None = None,
    sizes: tuple[int, ...] = (),
    group: str = "",
) -> Made:
    """The algorithm, its module for an H100, and the printed file for a grid of 4 blocks, or of one cluster. Clusters
    of a given size lie along the innermost axis, if nothing else is said."""
    module = parse_module(text)
    algorithm = module.clone()
    specs = list(pipeline(Options(machine="h100", sizes=dict(static))))
    names = [each.name for each in specs]
    if size is not None:
        options = {"size": sizes or (size,), "along": INNERMOST.get(text, ()) if along is None else along}
        specs[names.index("cuda-cluster")] = ArgSpec("cuda-cluster", options)
    if group:
        specs[names.index(CHOOSING_PASS)] = ArgSpec(CHOOSING_PASS, {"group": (group,)})
    if section:
        specs[names.index("cuda-persist")] = ArgSpec("cuda-persist", {"section": (section,)})
    run_passes(module, tuple(specs))
    for op in module.walk():
        if isinstance(op, arith.MinSIOp) and op.result.name_hint == "grid":
            assert isinstance(op.rhs.owner, arith.ConstantOp)
            op.rhs.owner.properties["value"] = IntegerAttr.from_index_int_value(max(4, prod(sizes)))
    return algorithm, module, print_cuda(module)


def told(module: ModuleOp) -> list[str]:
    """What the derivation says of clusters."""
    return [str(step) for step in entry_function(module).attributes["derivation"].data if "cuda-cluster" in str(step)]  # type: ignore[attr-defined]


def execute(made: Made, sizes: Mapping[str, int], seed: int = 0, printed: str = "", checks: bool = True) -> Launched:
    """The launch; its results hold against the reference (EmulationError)."""
    algorithm, module, own = made
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), seed)
    execution = HostExecution(module, EmulatorBackend(printed or own, kernel_names(module), checks=checks, seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    assert all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))
    return execution.launches[0]


@needs_compiler
@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 200), (8, 1000, 8), (600, 1512, 136)])
def test_products_of_clusters(m: int, n: int, k: int) -> None:
    assert execute(made(PRODUCT), {"m": m, "n": n, "k": k}).kernel.endswith("_specialised_clusters")


@needs_compiler
@pytest.mark.parametrize(
    ("text", "sizes"), [(PRODUCT, {"m": 256, "n": 512, "k": 72}), (ATTENTION, {"q": 384, "x": 200})]
)
def test_clusters_run_unwatched(text: str, sizes: dict[str, int]) -> None:
    """As `Kernel.run` and `torch.compile` run them: where nobody keeps what threads know, nobody judges by it."""
    assert execute(made(text), sizes, checks=False).kernel.endswith("_clusters")


@needs_compiler
def test_a_cluster_that_does_not_divide_the_grid_is_not_launched() -> None:
    """3 pieces along n: the kernel without clusters runs. Asked for by hand, the launch refuses."""
    sizes = {"m": 256, "n": 768, "k": 72}
    assert execute(made(PRODUCT), sizes).kernel.endswith("_specialised")
    algorithm, module, printed = made(PRODUCT)
    forced = module.clone()
    for op in forced.walk():
        if isinstance(op, cuda.KernelOp) and op.sym_name.data.endswith("_specialised"):
            op.blocks = IntAttr(3)
    with pytest.raises(HostError, match=r"a cluster of 3 blocks does not divide a grid of 4 along x; use sizes"):
        execute((algorithm, forced, printed), sizes)


def predicted(text: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """The bytes of each argument that the groups of a kernel load, as the model reads them off the program."""
    module = parse_module(text)
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    at = sizes_of_kernel(kernel, entry_function(module), axis_sizes(entry_function(module), sizes))
    found = Counter[str]()
    for each in transfers_at(plan_of(kernel), "device"):
        if not each.saves:
            found[each.array] += each.values(at) * each.width
    return dict(found)


@needs_compiler
@pytest.mark.parametrize(
    ("text", "alike", "sizes"),
    [
        (PRODUCT, "A", {"m": 256, "n": 512, "k": 128}),
        (PRODUCT, "A", {"m": 300, "n": 1000, "k": 264}),
        (PRODUCT, "A", {"m": 8, "n": 1024, "k": 72}),
        (ATTENTION, "KV", {"b": 1, "h": 2, "q": 384, "x": 200}),
        (ATTENTION, "KV", {"b": 2, "h": 1, "q": 250, "x": 333}),
    ],
    ids=["product", "odd product", "low product", "attention", "odd attention"],
)
def test_a_cluster_reads_once_what_its_blocks_read_alike(text: str, alike: str, sizes: dict[str, int]) -> None:
    """To the byte what the model predicts, by the block and by the cluster."""
    of_array = predicted(text, sizes)
    assert set(alike) < set(of_array)
    for blocks in (1, 2):
        counted = execute(made(text, blocks), sizes).report.bytes_loaded
        assert counted == sum(bytes // (blocks if name in alike else 1) for name, bytes in of_array.items())


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("section", [0, 2])
def test_products_of_clusters_in_any_order(section: int, seed: int) -> None:
    execute(made(PRODUCT, 2, section), {"m": 300, "n": 1000, "k": 264}, seed)


@needs_compiler
def test_a_cluster_of_four() -> None:
    assert execute(made(PRODUCT, 4), {"m": 256, "n": 1024, "k": 200}).kernel.endswith("_clusters")


@needs_compiler
def test_where_sizes_are_known_there_is_one_kernel_with_roles() -> None:
    static = {"m": 256, "n": 1024, "k": 256}
    algorithm, module, printed = made(PRODUCT, 2, 0, tuple(static.items()))
    kernels = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op)]
    (kernel,) = [op for op in kernels if not op.sym_name.data.endswith("_by_lanes")]
    assert kernel.cluster == 2
    assert execute((algorithm, module, printed), static).kernel == kernel.sym_name.data
    assert "clusters of 2 blocks along n" in draw_module(module).svg()


@needs_compiler
@pytest.mark.parametrize(("q", "x"), [(384, 200), (1000, 70), (256, 1), (512, 64)])
def test_attention_of_clusters(q: int, x: int) -> None:
    for seed in range(2):
        launch = execute(made(ATTENTION), {"b": 1, "h": 2, "q": q, "x": x}, seed)
        assert launch.kernel.endswith("_clusters" if -(-q // 192) % 2 == 0 else "_specialised")


def test_blocks_that_take_different_turns_copy_for_themselves() -> None:
    step, _ = told(made(CAUSAL)[1])  # and of the kernel beside, whose lanes copy
    assert "%K_ring: blocks take different numbers of turns" in step
    assert "%Q_ring: every block reads elsewhere" in step


def test_the_option_is_checked() -> None:
    with pytest.raises(TreadleError, match=r"pass 'cuda-cluster': size is 9; a cluster has 1 to 8 blocks") as refused:
        run_passes(parse_module("builtin.module {}"), [ArgSpec("cuda-cluster", {"size": (9,)})])
    assert not isinstance(refused.value, InternalError)


# -- the model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "of_attention", "of_product"), [(2, 0.812, 0.906), (4, 0.827, 0.914)])
def test_the_model_is_the_papers(blocks: int, of_attention: float, of_product: float) -> None:
    """All read alike, as keys and values are: the paper's figures for attention. Half of it, as in a product of square
    pieces whose clusters lie along one side, saves less than the paper's, which lie along both."""
    attention, product = Feeding({blocks: 1.0}, blocks), Feeding({1: 0.5, blocks: 0.5}, blocks)
    assert attention.clocks(1.0) == pytest.approx(of_attention, abs=5e-4)
    assert attention.clocks(1.0) == pytest.approx(cross_transfer(1.0, blocks, 1.0, ACROSS[blocks]))
    assert product.clocks(1.0) == pytest.approx(of_product, abs=5e-4)


@pytest.mark.parametrize("larger", [0.5, 0.6, 0.7, 0.8, 1.0])
def test_a_cluster_along_both_sides_of_a_product_saves_little_more(larger: float) -> None:
    """2 x 2 blocks share all of it by twos, across four: the paper's figure, of which two along the side that shares
    the larger part are less than a fortieth away."""
    both = Feeding({2: 1.0}, 4).clocks(1.0)
    assert both == pytest.approx(cross_transfer(0.5, 4, 1.0, ACROSS[4])) == pytest.approx(0.885, abs=5e-4)
    assert Feeding({1: 1 - larger, 2: larger}, 2).clocks(1.0) < both + 1 / 40


def test_clusters_only_where_copies_are_what_is_waited_for() -> None:
    machine = load_machine("h100")
    rate = from_l2(machine)

    def best(alike: float, own: float, product_clocks: float, *able: int) -> int:
        alone = Feeding({1: alike + own})
        made = [(blocks in able, Feeding({1: own, blocks: alike}, blocks)) for blocks in (2, 4)]
        return best_cluster(alone, made, product_clocks, machine)

    assert best(1000 * rate, 0, 0, 2, 4) == 1
    assert best(1000 * rate, 0, 1000, 2, 4) == 0  # products take as long
    assert best(1000 * rate, 0, 900, 2, 4) == 1
    assert best(100 * rate, 900 * rate, 0, 2, 4) == 0  # little of it is alike
    assert best(1000 * rate, 0, 0, 4) == 2
    assert best(1000 * rate, 0, 0) == 0


def test_the_model_chooses_where_sizes_are_known() -> None:
    """Pieces of 128 x 64 are fed by L2 more slowly than they multiply, and the larger of their tiles, 128 rows of A, is
    the same along n; those of 128 x 256 are not, since L2 is asked for a part of what blocks read alike. Unasked and
    with sizes known at launch only, the pass says what to do."""
    static = tuple({"m": 4096, "n": 4096, "k": 4096}.items())
    for group, cluster, step in (
        ("m=128,n=64", 2, "clusters of 2 blocks along %n0 bring the stages of %A_ring"),
        ("m=128,n=256", 1, None),
    ):
        module = made(PRODUCT, None, 0, static, group=group)[1]
        kernels = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op)]
        assert [op.cluster for op in kernels if not op.sym_name.data.endswith("_by_lanes")] == [cluster]
        assert step is None or step in told(module)[0]
    (step,) = told(made(PRODUCT, None, group="m=128,n=64")[1])
    assert "known at launch only: make its size static, or ask for size=2" in step


AT_1024 = {
    "attention": 1,
    "attention_bias": 2,
    "conv1d": 2,
    "matmul": 2,
    "matmul_transposed": 2,
    "mlp": 2,
    "split_k": 2,
    "swiglu": 1,
}
"""Blocks of the clusters of examples whose long axes have 1024 elements, as they know: so short that every processor
has a piece only where pieces are small, and wait for their copies. At 4096 none has any."""
AT_4096 = ("attention_causal", "matmul", "swiglu")


def explained(name: str, long: int) -> tuple[Explanation, list[cuda.KernelOp]]:
    """What `explain` says of an example with static axes, the long ones of so many elements; and its kernels with
    roles. On an H100."""
    module = parse_module((programs.EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"))
    defaults = default_sizes(entry_function(module))
    static = {axis: long if size >= 40 else size for axis, size in defaults.items()}
    specs = list(pipeline(Options(machine="h100", sizes=static)))
    explicit = [each.name for each in specs].index(LAST_HIERARCHY_PASS) + 1
    run_passes(module, specs[:explicit])
    told = explain(module, load_machine("h100"))
    run_passes(module, specs[explicit:])
    kernels = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]
    mapped = [kernel for kernel in kernels if not kernel.sym_name.data.endswith("_by_lanes")]
    return told, [kernel for kernel in mapped if cuda.roles_of(kernel)]


@pytest.mark.parametrize(("name", "long"), [*((name, 1024) for name in AT_1024), *((name, 4096) for name in AT_4096)])
@pytest.mark.sample(4)
def test_what_is_explained_is_what_the_kernel_does(name: str, long: int) -> None:
    told, kernels = explained(name, long)
    (of_model,) = (each for each in told.kernels if kernels[0].sym_name.data.startswith(f"{each.name}_kernel"))
    assert of_model.cluster == kernels[0].cluster == (AT_1024[name] if long == 1024 else 1)
    assert (of_model.cluster_bytes > 0) == (of_model.cluster > 1)
    text = " ".join(explanation_text(told).split())
    assert prod(of_model.cluster_along.values()) == of_model.cluster
    along = "".join(f"{blocks} along {axis}" for axis, blocks in of_model.cluster_along.items())
    brought = f"in clusters of {along}, which bring each other {of_model.cluster_bytes:,} bytes"
    assert (brought in text) == (of_model.cluster > 1)
    numbered = any(isinstance(op, cuda.ClusterIndexOp) for op in kernels[0].body.block.ops)
    assert numbered == (of_model.cluster > 1 and [*of_model.cluster_along] != [[*of_model.group][-1]])


def test_a_cluster_takes_less_from_l2() -> None:
    """Half of what two blocks read alike, and the rest across at its rate; other units are as busy as before."""
    plan, machine = static_plan(), load_machine("h100")
    together = timing(plan, machine, SQUARE)
    alone = timing(replace(plan, static=frozenset()), machine, SQUARE)
    cluster = shapes_of(plan)[together.cluster - 1]
    assert (cluster, alone.cluster) == (Shape((("n", 2),)), 0)
    (alike,) = (each for each in plan.transfers if each.array == "A")
    spared = alike.values(SQUARE) * 2 * (1 - part(2, 2))
    coalesced = machine.levels["l2"].coalesced  # of what blocks in step read
    asked = (each.values(SQUARE) * each.width * (1 if each.saves else coalesced) for each in plan.transfers)
    assert together.units_us["L2"] / alone.units_us["L2"] == pytest.approx(1 - spared * coalesced / sum(asked))
    assert bytes_across(plan, SQUARE, cluster) == alike.values(SQUARE) * 2 // 2
    for unit in ("device memory", "tensor f16", "shared", "issue"):
        assert together.units_us[unit] == alone.units_us[unit]
    assert together.units_us["loads"] < alone.units_us["loads"]
    assert together.time_us <= alone.time_us


SQUARE = {"m": 4096, "n": 4096, "k": 4096}


def static_plan() -> Plan:
    """Of a product whose fetches from L2 take longer than anything else."""
    module = parse_module(PRODUCT)
    specs = list(pipeline(Options(machine="h100", sizes=SQUARE)))
    names = [each.name for each in specs]
    specs[names.index(CHOOSING_PASS)] = ArgSpec(CHOOSING_PASS, {"group": ("m=128,n=64",), "stream": ("k=64",)})
    run_passes(module, specs[: names.index(LAST_HIERARCHY_PASS) + 1])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return plan_of(kernel)


def test_neighbours_stay_together_in_every_order() -> None:
    for section in (1, 2, 4):
        for longest in (None, "first", "last"):
            order = TileOrder(section, longest, 2)
            taken = [order.taken_by(block, 6, 24, 4) for block in range(6)]
            assert sorted(chain.from_iterable(taken)) == list(range(24))
            for even, odd in zip(taken[::2], taken[1::2], strict=True):
                assert odd == [piece + 1 for piece in even]
                assert all(piece % 2 == 0 for piece in even)


# -- mistakes ----------------------------------------------------------------------------------------

FAULTS = {
    "the mask names the first block only": (r"(tensor_load_multicast\(.*), 3\);", r"\1, 1);"),
    "the mask names a block that is not there": (r"(tensor_load_multicast\(.*), 3\);", r"\1, 5);"),
    "shares go to the place of the first": (r"A_to \+ block_in_cluster\(\) \* \d+", "A_to"),
    "all bring the first share": (r"int\(m0 \+ block_in_cluster\(\) \* 64\)", "int(m0)"),
    "stages are released to the own block": (
        r"mbarrier_arrive_at\((.*), thread % 128\)",
        r"mbarrier_arrive_at(\1, block_in_cluster())",
    ),
    "one block releases": (r"thread % 128 < 2\) mbarrier_arrive_at", "thread % 128 < 1) mbarrier_arrive_at"),
    "bytes of the own share are expected": (r"(mbarrier_arrive_expect\(&A_ring.*), 16384\)", r"\1, 8192)"),
    "arrivals of one block are awaited": (r"(mbarrier_init\(&A_ring\[4 \+ stage\]), 4\)", r"\1, 2)"),
    "blocks end without each other": (r"  barrier_cluster_arrive\(\);\n  barrier_cluster_wait\(\);\n}", "}"),
    "blocks begin without each other": (
        r"  barrier_cluster_arrive\(\);\n  barrier_cluster_wait\(\);\n  ",
        "  barrier_block();\n  ",
    ),
}


@needs_compiler
@pytest.mark.parametrize("what", FAULTS)
def test_mistakes_between_blocks_are_told(what: str) -> None:
    old, new = FAULTS[what]
    before, function, body = made(PRODUCT)[2].rpartition("matmul_kernel_specialised_clusters_body(\n")
    body, count = re.subn(old, new, body)
    assert count
    with pytest.raises((EmulationError, AssertionError)):
        execute(made(PRODUCT), {"m": 200, "n": 512, "k": 520}, len(what) % 2, before + function + body)


@pytest.mark.parametrize("what", ["the wait", "the arrival, too"])
def test_mistakes_in_the_ir_are_told(what: str) -> None:
    module = made(PRODUCT)[1].clone()
    kernel = next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and op.cluster > 1)
    assert ring_problems(kernel) == []
    last = kernel.body.block.last_op
    assert isinstance(last, cuda.ClusterWaitOp)
    Rewriter.erase_op(last)
    if what == "the arrival, too":
        Rewriter.erase_op(kernel.body.block.last_op)  # type: ignore[arg-type]
    assert "may end while others still release stages of %A_ring" in ring_problems(kernel)[0]


@needs_nvcc
@pytest.mark.parametrize(
    "text", [PRODUCT, pytest.param(ATTENTION, marks=pytest.mark.full)], ids=["product", "attention"]
)
def test_nvcc_takes_clusters_without_spills_or_advice(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.cu").write_text(made(text)[2])
    command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-cubin", "-Xptxas", "-v", "file.cu", "-o", "file.cubin"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert "C75" not in report
    found = re.findall(r"properties for (\w+_specialised_clusters)\n\s+(.*)\n", report)
    assert found
    assert all(each.startswith("0 bytes stack frame, 0 bytes spill stores") for _, each in found)
