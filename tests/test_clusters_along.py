"""Clusters along axes that are not the innermost of the grid, and along two: which pieces their blocks take, what they
compute in every order, that every mistake between them is noticed, and what ptxas makes of them."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from test_clusters import ATTENTION, PRODUCT, execute, made, needs_compiler, needs_nvcc, told
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import PassFailedException

from benchmarking import benchmark
from treadle.compiler.errors import TreadleError
from treadle.compiler.execution import executed
from treadle.compiler.pipeline import Options, make_pass, pipeline, run_passes
from treadle.compiler.source import make_context, parse_module
from treadle.dialects import cuda
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes.grids.coordinates import arguments_of
from treadle.passes.grids.sharing import numbers_at
from treadle.runtime.emulator import EmulationError

EXAMPLES = benchmark("programs").EXAMPLES
BATCHED = re.sub(
    r"sizes<.*?>",
    "sizes<b = 6, m = 2048, n = 2048>",  # so large that warpgroups multiply
    (EXAMPLES / "batched_matmul.mlir").read_text(encoding="utf-8"),
)
GROUPED = (EXAMPLES / "attention_gqa.mlir").read_text(encoding="utf-8")
BIAS = (EXAMPLES / "attention_bias.mlir").read_text(encoding="utf-8")
CROSS = (EXAMPLES / "cross_attention.mlir").read_text(encoding="utf-8")

Sides = tuple[tuple[str, int], ...]

PROGRAMS: Mapping[str, tuple[str, Sides, dict[str, int]]] = {
    "product along m": (PRODUCT, (("m", 2),), {"m": 500, "n": 776, "k": 264}),
    "product along m by four": (PRODUCT, (("m", 4),), {"m": 512, "n": 256, "k": 128}),
    "product along m and n": (PRODUCT, (("m", 2), ("n", 2)), {"m": 1000, "n": 1000, "k": 264}),
    "batched product along m": (BATCHED, (("m", 2),), {"b": 3, "m": 250, "n": 56}),
    "batched product along n": (BATCHED, (("n", 2),), {"b": 2, "m": 130, "n": 504}),
    "attention along queries": (ATTENTION, (("q", 2),), {"b": 2, "h": 1, "q": 250, "x": 333}),
    "grouped heads along those that share": (GROUPED, (("g", 2),), {"b": 1, "h": 2, "g": 4, "q": 130, "x": 200}),
    "grouped heads along queries": (GROUPED, (("q", 2),), {"b": 2, "h": 1, "g": 3, "q": 100, "x": 70}),
    "a bias that batches share, and queries": (BIAS, (("b", 2), ("q", 2)), {"b": 4, "h": 1, "q": 250, "x": 136}),
    "a bias that batches share": (BIAS, (("b", 2),), {"b": 2, "h": 3, "q": 130, "x": 200}),
    "queries that are not innermost": (CROSS, (("q", 2),), {"b": 1, "h": 3, "q": 100, "x": 300}),
}


@cache
def made_along(text: str, sides: Sides, section: int = 0) -> tuple[ModuleOp, ModuleOp, str]:
    axes, counts = zip(*sides, strict=True)
    return made(text, counts[0], section, (), axes, counts)


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_clusters_in_any_order(name: str, seed: int) -> None:
    text, sides, sizes = PROGRAMS[name]
    launched = execute(made_along(text, sides), sizes, seed).kernel
    assert launched.removesuffix("_aligned_8").endswith("_specialised_clusters")


@needs_compiler
@pytest.mark.parametrize("section", [1, 2, 4])
@pytest.mark.parametrize("sides", [(("m", 2),), (("m", 2), ("n", 2))], ids=["m", "m and n"])
def test_sections_of_rows_of_clusters(sides: Sides, section: int) -> None:
    """3 rows of clusters: sections that do not divide them, too."""
    launch = execute(made_along(PRODUCT, sides, section), {"m": 768, "n": 1024, "k": 72}, section)
    assert launch.kernel.endswith("_clusters")


@needs_compiler
def test_a_cluster_that_does_not_divide_the_outer_axis_is_not_launched() -> None:
    """3 pieces along m; a cluster along m and n is launched where it divides both."""
    assert execute(made_along(PRODUCT, (("m", 2),)), {"m": 384, "n": 512, "k": 72}).kernel.endswith("_specialised")
    both = made_along(PRODUCT, (("m", 2), ("n", 2)))
    for m, n, ending in ((384, 512, "_specialised"), (256, 768, "_specialised"), (256, 512, "_clusters")):
        assert execute(both, {"m": m, "n": n, "k": 72}).kernel.endswith(ending)


@needs_compiler
@pytest.mark.parametrize("along", [("m",), ("m", "n")], ids=["m", "m and n"])
def test_where_sizes_are_known_there_is_no_kernel_beside(along: tuple[str, ...]) -> None:
    static = {"m": 500, "n": 1016, "k": 264}
    made_so = made(PRODUCT, 2, 2, tuple(static.items()), along, (2,) * len(along))
    kernels = [op for op in made_so[1].body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op)]
    (kernel,) = [op for op in kernels if not op.sym_name.data.endswith("_by_lanes")]
    assert kernel.cluster == 2 ** len(along)
    assert any(isinstance(op, cuda.ClusterIndexOp) for op in kernel.body.block.ops)
    for seed in range(2):
        assert execute(made_so, static, seed).kernel.startswith(kernel.sym_name.data)


def test_known_pieces_that_do_not_divide_are_told() -> None:
    _, module, _ = made(PRODUCT, 2, 0, (("m", 300), ("n", 512), ("k", 264)), ("m",))
    assert "a cluster of 2 blocks does not divide the 5 pieces along %m0" in told(module)[0]
    assert not any(isinstance(op, cuda.KernelOp) and op.cluster > 1 for op in module.body.block.ops)


def clustered(text: str, sides: Sides) -> tuple[cuda.KernelOp, cuda.LaunchOp]:
    """The kernel of clusters, and its launch, before blocks take several pieces."""
    module = parse_module(text)
    specs = list(pipeline(Options(machine="h100")))
    names = [each.name for each in specs]
    run_passes(module, tuple(specs[: names.index("cuda-cluster")]))
    axes, counts = zip(*sides, strict=True)
    run_passes(module, (ArgSpec("cuda-cluster", {"size": counts, "along": axes}),))
    (kernel,) = (op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and op.cluster > 1)
    (launch,) = launches_of_kernel(kernel)
    return kernel, launch


@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_of_a_cluster_take_neighbouring_pieces_and_all_are_taken_once(name: str) -> None:
    """What is copied together is at the same place for all that copy it, and the pieces of a grid are a bijection of
    its blocks."""
    text, sides, sizes = PROGRAMS[name]
    kernel, launch = clustered(text, sides)
    of_host = numbers_at(function_of(launch), sizes)
    grid, arguments = of_host[launch.grid], arguments_of(kernel, launch, of_host)
    roles = cuda.roles_of(kernel)
    assert roles is not None
    pieces: set[tuple[object, ...]] = set()
    for first in range(0, grid, kernel.cluster):
        together: dict[tuple[object, ...], list[tuple[int, ...]]] = defaultdict(list)
        for rank in range(kernel.cluster):
            known = arguments | _numbers(kernel, first, rank)
            list(executed(kernel.body.block, known))
            loads = [op for op in executed(roles.producer.block, known) if isinstance(op, cuda.TensorLoadOp)]
            pieces.add(tuple((id(op), *(known[each] for each in op.offsets)) for op in loads))
            for op in loads:
                if op.multicast is not None:
                    assert isinstance(op.ring.owner, cuda.RingOp)
                    ring = op.ring.owner
                    span = ring.apart * ring.filled_by
                    team = rank // span * span + rank % ring.apart
                    place = tuple(known[each] for each in op.offsets)
                    together[(id(op), team, known[op.turn])].append(place)
        for places in together.values():
            assert len(places) > 1
            assert len(set(places)) == 1
    assert len(pieces) == grid


def _numbers(kernel: cuda.KernelOp, first: int, rank: int) -> dict[SSAValue, int]:
    """What a block knows of its place: it is one of the cluster that begins with block `first`."""
    found: dict[SSAValue, int] = {}
    for op in kernel.body.block.ops:
        match op:
            case cuda.BlockIndexOp():
                found[op.result] = first + rank
            case cuda.ClusterIndexOp():
                found[op.result] = first // kernel.cluster
            case cuda.BlockInClusterOp():
                found[op.result] = rank
            case _:
                pass
    return found


# -- which one ---------------------------------------------------------------------------------------


def test_of_one_size_it_is_the_larger_tile_that_is_shared() -> None:
    step, _ = told(made(PRODUCT, 2, 0, (), ())[1])
    assert "clusters of 2 blocks along %m0 bring the stages of %B_ring together" in step
    # 4 blocks along m would do so, too, if there were as many pieces.
    step, _ = told(made(PRODUCT, 4, 0, (("m", 256), ("n", 2048), ("k", 512)), ())[1])
    assert "clusters of 4 blocks along %n0 bring the stages of %A_ring together" in step


def test_an_axis_whose_size_is_known_is_enough() -> None:
    """Of m alone it is known how many pieces there are, and clusters along it save time; n is as it will be."""
    (step,) = told(made(PRODUCT, None, 0, (("m", 256),))[1])
    assert "cuda-cluster" in step
    assert "clusters of 2 blocks along %m0 bring the stages of %B_ring together" in step
    assert "known at launch" not in step
    assert "runs elsewhere" not in step


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"size": (2, 8), "along": ("m", "n")}, "size is 2 x 8; a cluster has 1 to 8 blocks"),
        ({"size": (2, 2)}, "2 sizes, 0 axes: name one for each size"),
        ({"size": (2,), "along": ("m", "n", "k")}, "along is m, n, k; a cluster lies along one axis or two"),
        ({"size": (2, 2), "along": ("m", "m")}, "along is m, m; a cluster lies along one axis or two"),
    ],
)
def test_options_are_checked(options: dict[str, tuple[int, ...]], reason: str) -> None:
    with pytest.raises(PassFailedException, match=f"^{reason}"):
        make_pass(ArgSpec("cuda-cluster", options)).apply(make_context(), parse_module("builtin.module {}"))


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_a_name_that_no_array_has_is_refused(machine: str) -> None:
    """Whether or not a kernel has roles; one that the grid alone lacks is declined, as other sizes may leave it out."""
    module, passes = parse_module(PRODUCT), [*pipeline(Options(machine=machine))]
    asked = ArgSpec("cuda-cluster", {"along": ("m", "zz")})
    with pytest.raises(TreadleError, match="along names axis 'zz', which no array has; those of grids are m, n"):
        run_passes(module, [asked if each.name == asked.name else each for each in passes])


def test_an_axis_that_the_grid_lacks_is_told() -> None:
    step, _ = told(made(PRODUCT, 2, 0, (), ("k",))[1])  # and of the kernel beside, whose lanes copy
    assert "the grid has coordinates along m, n, not along k" in step


# -- mistakes ----------------------------------------------------------------------------------------

RANK = r"block_in_cluster\(\)"

OF_TWO = {
    "the mask names the first block only": (r"(tensor_load_multicast\(B_to.*), 3\);", r"\1, 1);"),
    "the mask names a block that is not there": (r"(tensor_load_multicast\(B_to.*), 3\);", r"\1, 5);"),
    "all bring the first share": (rf"int\(k0 \+ {RANK} \* 32\)", "int(k0)"),
    "shares go to the place of the first": (rf"B_to \+ {RANK} \* 2048", "B_to"),
    "both take the piece of the first": (r"\(block(\w*) \* 2\) \+ place\)", r"(block\1 * 2))"),
    "pieces of clusters are as far apart as of blocks": (r"\(block(\w*) \* 2\) \+ place\)", r"block\1 + place)"),
    "an arrival of the other block is missing": (
        r"if \(thread % 128 < 2\) mbarrier_arrive_at\(&B_ring",
        "if (thread % 128 < 1) mbarrier_arrive_at(&B_ring",
    ),
    "arrivals at the own block only": (r"(mbarrier_arrive_at\(&B_ring.*), thread % 128\)", r"\1, block_in_cluster())"),
    "arrivals of one block are awaited": (r"(mbarrier_init\(&B_ring\[4 \+ stage\]), 4\)", r"\1, 2)"),
    "blocks end without each other": (r"  barrier_cluster_arrive\(\);\n  barrier_cluster_wait\(\);\n}", "}"),
}

OF_FOUR = {
    "A goes to the other two": (rf"3 << \({RANK} / 2 \* 2\)", "3 << (2 - block_in_cluster() / 2 * 2)"),
    "A goes to those that share B": (rf"3 << \({RANK} / 2 \* 2\)", "5 << (block_in_cluster() % 2)"),
    "B goes to the other two": (rf"5 << \({RANK} % 2\)", "5 << (1 - block_in_cluster() % 2)"),
    "B goes to all": (rf"5 << \({RANK} % 2\)", "15"),
    "A by the share of B": (rf"A_to \+ {RANK} % 2", "A_to + block_in_cluster() / 2"),
    "B by the share of A": (rf"int\(k0 \+ {RANK} / 2 \* 32\)", "int(k0 + block_in_cluster() % 2 * 32)"),
    "A is given back to those that share B": (
        rf"(&A_ring\[4 \+ A_stage\]), {RANK} / 2 \* 2 \+ thread % 128\)",
        r"\1, block_in_cluster() % 2 + thread % 128 * 2)",
    ),
    "B is given back to one block": (
        r"if \(thread % 128 < 2\) mbarrier_arrive_at\(&B_ring",
        "if (thread % 128 < 1) mbarrier_arrive_at(&B_ring",
    ),
    "the places along m and n are exchanged": (r"place_along_m = place / 2", "place_along_m = uint32_t(place) % 2"),
    "four arrivals are two": (r"(mbarrier_init\(&A_ring\[4 \+ stage\]), 4\)", r"\1, 2)"),
}

MISTAKES: list[tuple[Sides, str, tuple[str, str]]] = [
    *(((("m", 2),), name, fault) for name, fault in OF_TWO.items()),
    *(((("m", 2), ("n", 2)), name, fault) for name, fault in OF_FOUR.items()),
]


@needs_compiler
@pytest.mark.parametrize(("sides", "what", "fault"), MISTAKES, ids=lambda each: each if isinstance(each, str) else "")
def test_mistakes_between_blocks_are_told(sides: Sides, what: str, fault: tuple[str, str]) -> None:
    before, function, body = made_along(PRODUCT, sides)[2].rpartition("matmul_kernel_specialised_clusters_body(\n")
    body, count = re.subn(*fault, body)
    assert count
    with pytest.raises((EmulationError, AssertionError)):
        execute(made_along(PRODUCT, sides), {"m": 512, "n": 512, "k": 520}, len(what) % 2, before + function + body)


# -- machine code ------------------------------------------------------------------------------------


@needs_nvcc
@pytest.mark.parametrize(
    ("text", "sides"),
    [
        (PRODUCT, (("m", 2),)),
        pytest.param(PRODUCT, (("m", 2), ("n", 2)), marks=pytest.mark.full),
        pytest.param(GROUPED, (("g", 2),), marks=pytest.mark.full),
    ],
    ids=["product", "product along both", "grouped heads"],
)
def test_ptxas_takes_them_without_spills(text: str, sides: Sides, tmp_path: Path) -> None:
    (tmp_path / "file.cu").write_text(made_along(text, sides)[2])
    command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-cubin", "-Xptxas", "-v", "file.cu", "-o", "file.cubin"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert "C75" not in report
    found = re.findall(r"properties for (\w+_specialised_clusters)\n\s+(.*)\n", report)
    assert found
    assert all(each.startswith("0 bytes stack frame, 0 bytes spill stores") for _, each in found)
