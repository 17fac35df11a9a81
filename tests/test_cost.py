"""H and M: closed forms where sizes divide, enumeration and the interpreter everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import (
    Plan,
    Transfer,
    footprint,
    peak_memory,
    plan_of,
    sizes_of_kernel,
    sketch_of,
    sum_text,
    timing,
    transfer_bytes,
    transfer_expression,
    transfer_values,
)
from treadle.compiler.cost.levels.memory import registers
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine, load_machine
from treadle.compiler.pipeline import LAST_DECORATING_PASS, LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import run_function

HERE = Path(__file__).parent
A100 = load_machine("a100")


def kernel_in(module: ModuleOp) -> KernelOp:
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return kernel


def decorated(name: str, tiles: Mapping[str, int], warps: Mapping[str, int] | None = None) -> Plan:
    kernel = kernel_in(load_module(HERE / "decorated" / f"{name}.mlir"))
    assert kernel.schedule is not None
    sketch = sketch_of(kernel, kernel.schedule)
    return sketch.plan({**tiles, **kernel.schedule.whole.as_dict()}, warps or {})


# -- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b", "c", "ga", "gc", "sb"), [(64, 64, 64, 16, 16, 16), (256, 32, 96, 64, 32, 16)])
def test_matrix_product(a: int, b: int, c: int, ga: int, gc: int, sb: int):
    plan = decorated("matmul", {"a": ga, "c": gc, "b": sb})
    sizes = {"a": a, "b": b, "c": c}
    assert transfer_values(plan, "device", sizes) == a * b * c // ga + a * b * c // gc + a * c
    assert transfer_values(plan, "register", sizes) == a * c
    assert transfer_bytes(plan, "device", sizes) == 2 * transfer_values(plan, "device", sizes)
    assert transfer_expression(plan, "device") == f"a*b*ceil(c/{gc}) + b*c*ceil(a/{ga}) + a*c"


@pytest.mark.parametrize(("b", "h"), [(1, 1), (1, 8), (3, 5)])
@pytest.mark.parametrize(("q", "x", "gq", "sx"), [(64, 64, 64, 16), (512, 1024, 64, 128), (4096, 32, 16, 16)])
def test_attention_of_heads(b: int, h: int, q: int, x: int, gq: int, sx: int):
    d = 64
    plan = decorated("attention", {"b": 1, "h": 1, "q": gq, "x": sx})
    sizes = {"b": b, "h": h, "q": q, "x": x, "d": d, "e": d}
    assert transfer_values(plan, "device", sizes) == b * h * (2 * q * d + 2 * x * d * q // gq)
    assert transfer_values(plan, "shared", sizes) == b * h * (q * d + 2 * x * d * q // gq)
    assert transfer_expression(plan, "device") == f"b*h*(q*(d + e) + x*(d + e)*ceil(q/{gq}))"


def test_softmax_is_streamed_twice():
    plan = decorated("softmax", {"row": 4, "x": 256})
    assert transfer_values(plan, "device", {"row": 77, "x": 1000}) == 3 * 77 * 1000
    assert transfer_expression(plan, "device") == "3*row*x"
    assert [str(pieces) for pieces in plan.streams] == ["ceil(x/256)"] * 2


def test_an_output_beside_the_reductions_needs_no_second_stream():
    text = (HERE / "decorated" / "softmax.mlir").read_text()
    module_text = text.replace("hierarchy.yield %Y", "hierarchy.yield %Z").replace(
        "%m = diagram.reduce max %Ad",
        """%Z = diagram.map (%t = %Ad : !Ad) -> !S {
      %n = arith.negf %t : f32
      diagram.yield %n : f32
    }
    %m = diagram.reduce max %Ad""",
    )
    kernel = kernel_in(parse_module(module_text))
    assert kernel.schedule is not None
    plan = sketch_of(kernel, kernel.schedule).plan({"row": 4, "x": 32}, {})
    assert transfer_values(plan, "device", {"row": 10, "x": 100}) == 2 * 1000
    assert len(plan.streams) == 1


# -- odd sizes: enumeration -------------------------------------------------------------------------


def enumerated(transfer: Transfer, pieces: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Every group and step, one after another, with pieces cut off at the edge."""
    around = [axis for axis in pieces if axis in transfer.axes or axis in {p.axis for p in transfer.again}]
    starts = [range(0, sizes[axis], pieces[axis]) for axis in around]
    total = 0
    for place in product(*starts):
        held = {axis: min(pieces[axis], sizes[axis] - at) for axis, at in zip(around, place, strict=True)}
        total += prod(held.get(axis, sizes[axis]) for axis in transfer.axes)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_edges_against_enumeration(seed: int):
    random = np.random.default_rng(seed)
    tiles = {"b": 1, "h": 1, "q": int(random.integers(1, 40)), "x": int(random.integers(1, 40))}
    plan = decorated("attention", tiles)
    sizes = {axis: int(random.integers(0, 60)) for axis in ("b", "h", "q", "x")} | {"d": 5, "e": 3}
    for transfer in plan.transfers:
        assert transfer.values(sizes) == enumerated(transfer, tiles, sizes)


# -- the explicit form, against the interpreter -------------------------------------------------------

SIZES = [
    {"a": 64, "b": 16, "c": 32, "row": 8, "x": 64},
    {"a": 33, "b": 17, "c": 5, "row": 7, "x": 33},
    {"a": 1, "b": 1, "c": 1, "row": 1, "x": 1},
    {"a": 100, "b": 3, "c": 70, "row": 13, "x": 100},
    {"a": 40, "b": 0, "c": 20, "row": 5, "x": 0},
]


def measured(module: ModuleOp, sizes: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Values and bytes that the interpreter sees crossing each level."""
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    arguments = [np.ones([sizes[axis] for axis in axes_of(value.type)]) for value in function.body.block.args]
    (counts,) = run_function(module, arguments).transfers
    values = {level: counts.loaded.get(level, 0) + counts.saved.get(level, 0) for level in ("shared", "register")}
    size = {
        level: counts.loaded_bytes.get(level, 0) + counts.saved_bytes.get(level, 0) for level in ("shared", "register")
    }
    return values | {"device": counts.values}, size | {"device": counts.bytes}


@pytest.mark.parametrize("name", ["matmul", "row_shares", "broadcast"])
@pytest.mark.parametrize("sizes", SIZES)
def test_prediction_is_what_the_interpreter_counts(name: str, sizes: Mapping[str, int]):
    module = load_module(HERE / "explicit" / f"{name}.mlir")
    plan = plan_of(kernel_in(module))
    values, size = measured(module, sizes)
    for level in ("device", "shared", "register"):
        assert transfer_values(plan, level, sizes) == values[level]
        assert transfer_bytes(plan, level, sizes) == size[level]


def test_loads_in_a_step_count_every_step():
    plan = plan_of(kernel_in(load_module(HERE / "explicit" / "broadcast.mlir")))
    assert transfer_expression(plan, "device") == "row*(2*x + ceil(x/32))"


@pytest.mark.parametrize("sizes", SIZES)
def test_decorated_and_explicit_agree(sizes: Mapping[str, int]):
    explicit = plan_of(kernel_in(load_module(HERE / "explicit" / "matmul.mlir")))
    plan = decorated("matmul", {"a": 32, "c": 16, "b": 8}, {"a": 2})
    assert transfer_values(plan, "device", sizes) == transfer_values(explicit, "device", sizes)
    assert footprint(plan, A100) == footprint(explicit, A100)
    shares = plan_of(kernel_in(load_module(HERE / "explicit" / "row_shares.mlir")))
    softmax = decorated("softmax", {"row": 4, "x": 32})
    assert transfer_values(softmax, "device", sizes) == transfer_values(shares, "device", sizes)


# -- M ------------------------------------------------------------------------------------------------


def test_memory_of_a_matrix_product():
    memory = peak_memory(kernel_in(load_module(HERE / "explicit" / "matmul.mlir")))
    ga, gc, sb = 32, 16, 8
    assert memory["shared"].values == sb * (ga + gc)
    assert memory["shared"].bytes == 2 * sb * (ga + gc)
    # The sum is added to in place.
    assert (memory["register"].values, memory["register"].bytes) == (ga * gc, 4 * ga * gc)


def test_memory_of_two_streams_is_that_of_the_larger():
    memory = peak_memory(kernel_in(load_module(HERE / "explicit" / "row_shares.mlir")))
    assert memory["shared"].values == 0
    # A piece and its row's sum, in either stream; the map writes over its piece.
    assert memory["register"].values == 4 * 32 + 4


def test_streamed_tiles_have_two_stages_where_they_fit():
    needs = footprint(decorated("attention", {"b": 1, "h": 1, "q": 32, "x": 48}, {"q": 2}), A100)
    assert (needs.stages, needs.shared_bytes) == (2, (32 + 2 * (48 + 48)) * 64 * 2)
    needs = footprint(decorated("attention", {"b": 1, "h": 1, "q": 128, "x": 512}, {"q": 8}), A100)
    assert (needs.stages, needs.shared_bytes) == (1, (128 + 512 + 512) * 64 * 2)


# -- instructions -------------------------------------------------------------------------------------


def issued(plan: Plan) -> dict[str, float]:
    """Instructions of a warp in one step of the stream."""
    counts: dict[str, float] = {}
    for issue in plan.issues:
        if issue.streams:
            counts[issue.kind] = counts.get(issue.kind, 0) + issue.count
    return counts


@pytest.mark.parametrize(
    ("q", "x", "warps", "counts"),
    [
        # As read from what nvcc 13.0 makes: see benchmarks/results/model-*.md.
        (128, 64, 8, {"products f16": 64, "ldmatrix": 32, "float": 138, "special": 34, "convert": 16, "shuffle": 4}),
        (128, 64, 4, {"products f16": 128, "ldmatrix": 32, "float": 276, "special": 68, "convert": 32, "shuffle": 8}),
        (64, 128, 4, {"products f16": 128, "ldmatrix": 64, "float": 234, "special": 66, "convert": 32, "copies": 16}),
    ],
)
def test_instructions_of_attention(q: int, x: int, warps: int, counts: Mapping[str, float]):
    module = load_module(HERE.parent / "examples" / "attention.mlir")
    run_pipeline(module, Options(machine="a100"), last="tiling")
    kernel = kernel_in(module)
    assert kernel.schedule is not None
    tiles = {"b": 1, "h": 1, "q": q, "x": x, "d": 64, "e": 64}
    found = issued(sketch_of(kernel, kernel.schedule).plan(tiles, {"q": warps}))
    assert counts.items() <= found.items()


def test_row_tiles_share_what_they_read_of_the_right_operand():
    narrow = decorated("matmul", {"a": 128, "c": 128, "b": 64}, {"a": 8})
    wide = decorated("matmul", {"a": 128, "c": 128, "b": 64}, {"a": 2, "c": 2})
    assert issued(narrow)["ldmatrix"] == 4 * (1 + 8)
    assert issued(wide)["ldmatrix"] == 4 * (4 + 4)
    assert (issued(narrow)["products f16"], issued(wide)["products f16"]) == (64, 128)


def test_results_leave_where_the_tiles_were():
    plan = decorated("matmul", {"a": 128, "c": 256, "b": 16}, {"a": 4, "c": 2})
    assert footprint(plan, A100).shared_bytes == 128 * 256 * 2


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([], "0"),
        ([(1, ())], "1"),
        ([(1, ("q", "d")), (1, ("q", "d"))], "2*q*d"),
        ([(1, ("q",)), (1, ("x",))], "q + x"),
        ([(1, ("q",)), (1, ("q", "q"))], "q*(1 + q)"),
        (
            [
                (1, ("b", "h", "q", "d")),
                (1, ("b", "h", "x", "d", "ceil(q/64)")),
                (1, ("b", "h", "x", "d", "ceil(q/64)")),
                (1, ("b", "h", "q", "d")),
            ],
            "b*h*d*(2*q + 2*x*ceil(q/64))",
        ),
    ],
)
def test_expressions(terms: list[tuple[int, tuple[str, ...]]], text: str):
    assert sum_text(terms) == text


@pytest.mark.parametrize("seed", range(10))
def test_expression_has_the_value(seed: int):
    random = np.random.default_rng(seed)
    plan = decorated("attention", {"b": 1, "h": 1, "q": int(random.integers(2, 40)), "x": 16})
    sizes = {axis: int(random.integers(1, 60)) for axis in ("b", "h", "q", "x", "d", "e")}

    def value(text: str) -> int:
        return eval(text, {"ceil": lambda v: int(np.ceil(v))}, sizes)

    for level in ("device", "shared", "register"):
        assert value(transfer_expression(plan, level)) == transfer_values(plan, level, sizes)


# -- sizes ----------------------------------------------------------------------------------------


def test_sizes_come_from_types_then_given_then_defaults():
    module = load_module(HERE / "decorated" / "attention.mlir")
    kernel = kernel_in(module)
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    assert sizes_of_kernel(kernel, function) == {"b": 2, "h": 3, "q": 200, "d": 64, "x": 333, "e": 64}
    assert sizes_of_kernel(kernel, function, {"q": 7, "d": 9})["q"] == 7
    assert sizes_of_kernel(kernel, function, {"d": 9})["d"] == 64
    with pytest.raises(TreadleError, match="size of axis 'b' of kernel @attention is known only at launch"):
        sizes_of_kernel(kernel, None)


def test_undecided_sizes_have_no_plan():
    with pytest.raises(TreadleError, match="run hierarchy-choose-sizes first"):
        plan_of(kernel_in(load_module(HERE / "decorated" / "attention.mlir")))


def test_memory_of_attention():
    """`2 g_q d + 2 s_x d` of the closed form, and scores and state."""
    module = scheduled(HERE.parent / "examples" / "attention.mlir", LAST_HIERARCHY_PASS)
    kernel = kernel_in(module)
    assert kernel.schedule is not None
    tiles = kernel.schedule.tile_sizes()
    q, x, d = tiles["q"], tiles["x"], 64
    memory = peak_memory(kernel)
    assert memory["shared"].values == q * d + 2 * x * d
    accumulators = q * d + q * x
    assert accumulators <= memory["register"].values <= 2 * accumulators


# -- what the passes make ---------------------------------------------------------------------------

EXAMPLES = sorted((HERE.parent / "examples").glob("*.mlir"))
SEVERAL_WAYS = [
    HERE / "programs" / f"{name}.mlir"
    for name in ("product_softmax", "mixed_numbers", "narrow_result", "to_linalg", "to_linalg_where")
]
"""With two streams, searches in a kernel without products, results narrower than their sums, several results."""
SEARCHING = [HERE.parent / "examples" / "attention_packed.mlir", HERE / "programs" / "packed_by_places.mlir"]


def scheduled(path: Path, last: str) -> ModuleOp:
    module = load_module(path)
    run_pipeline(module, Options(machine="h100"), last=last)
    return module


@pytest.mark.sample(22, each=False)
@pytest.mark.parametrize("size", [None, 1, 31, 96])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_move_what_is_predicted(path: Path, size: int | None):
    plans = [plan_of(op) for op in scheduled(path, LAST_DECORATING_PASS).walk() if isinstance(op, KernelOp)]
    module = scheduled(path, LAST_HIERARCHY_PASS)
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    defaults = default_sizes(function)
    given = {axis: default if size is None else min(size, default) for axis, default in defaults.items()}
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    axes = {axis: size for kernel in kernels for axis, size in sizes_of_kernel(kernel, function, given).items()}
    whole = axis_sizes(function, given)
    arguments = [np.ones([whole[axis] for axis in axes_of(value.type)]) for value in function.body.block.args]
    counts = run_function(module, arguments).transfers
    assert [count.kernel for count in counts] == [plan.name for plan in plans]
    for decorated_plan, kernel, count in zip(plans, kernels, counts, strict=True):
        for plan in (decorated_plan, plan_of(kernel)):
            said = transfer_values(plan, "device", axes), transfer_bytes(plan, "device", axes)
            said += (transfer_values(plan, "shared", axes),)
            counted = count.values, count.bytes, count.loaded.get("shared", 0)
            if plan.is_at_most:  # what is excluded, only the data know
                assert all(most >= moved for most, moved in zip(said, counted, strict=True))
            else:
                assert said == counted


@pytest.mark.sample(15)
@pytest.mark.parametrize("path", [*EXAMPLES, *SEVERAL_WAYS], ids=lambda path: path.stem)
def test_examples_need_what_was_chosen_for(path: Path):
    """What choosing estimates of a decorated kernel is what the explicit one needs, and takes."""
    machine = load_machine("h100")
    before = [plan_of(op) for op in scheduled(path, LAST_DECORATING_PASS).walk() if isinstance(op, KernelOp)]
    module = scheduled(path, LAST_HIERARCHY_PASS)
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    for early, kernel in zip(before, [op for op in module.walk() if isinstance(op, KernelOp)], strict=True):
        late, sizes = plan_of(kernel), sizes_of_kernel(kernel, function)
        assert len(late.streams) == len(early.streams)
        assert footprint(late, machine) == footprint(early, machine)
        chosen_for, needed = timing(early, machine, sizes), timing(late, machine, sizes)
        assert needed.time_us == pytest.approx(chosen_for.time_us)
        assert set(needed.units_us) == set(chosen_for.units_us)


@pytest.mark.parametrize("machine", [A100, load_machine("h100")], ids=lambda machine: machine.name)
@pytest.mark.parametrize("path", SEARCHING, ids=lambda path: path.stem)
def test_searches_for_limits_are_chosen_for(path: Path, machine: Machine):
    """The stream that searches data for where another one begins and ends stands in both forms of a kernel."""
    plans: list[Plan] = []
    for last in (LAST_DECORATING_PASS, LAST_HIERARCHY_PASS):
        module = load_module(path)
        run_pipeline(module, Options(machine=machine.name), last=last)
        plans.append(plan_of(kernel_in(module)))
    decorated, explicit = plans
    assert list(map(str, decorated.streams)) == list(map(str, explicit.streams))
    sizes = {"b": 2, "h": 3, "q": 333, "d": 64, "x": 333, "e": 64}
    for size in (1, 31, 333, 4096):
        at = sizes | {"q": size, "x": size}
        assert sorted(map(str, counted(decorated, at))) == sorted(map(str, counted(explicit, at)))
        chosen_for, needed = timing(decorated, machine, at), timing(explicit, machine, at)
        assert needed.time_us == pytest.approx(chosen_for.time_us)
        assert needed.footprint == chosen_for.footprint
        # A step of the search waits, too.
        (search, *_), others = decorated.streams, replace(decorated, streams=decorated.streams[1:])
        assert decorated.steps(at) - others.steps(at) == search.count(at)
        assert timing(others, machine, at).time_us < chosen_for.time_us


def counted(plan: Plan, sizes: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """What is loaded, where to, and how many values."""
    return [(each.array, each.level, each.values(sizes)) for each in plan.transfers if not each.saves]


def test_products_of_streams_are_held_one_after_another():
    """A softmax over a product makes the scores twice, once for the sum and once for the shares."""
    module = scheduled(HERE / "programs" / "product_softmax.mlir", LAST_HIERARCHY_PASS)
    plan = plan_of(kernel_in(module))
    assert [work.stream for work in plan.work] == [0, 1]
    assert len(plan.algorithm) == 1
    assert not plan.delays
    # ptxas 13.0 takes 134 registers of the kernel for an A100 with these pieces.
    assert (dict(plan.warps), [pieces.size for pieces in plan.streams]) == ({"m": 4}, [128, 128])
    assert footprint(plan, A100).registers_per_thread == 136


def test_what_meets_scores_column_by_column_is_in_every_lane_of_a_column():
    """Numbers of sequences along the streamed axis: all warps, and eight lanes of each, hold the same quarter."""
    text = (HERE.parent / "examples" / "attention_packed.mlir").read_text(encoding="utf-8")
    counts: list[int] = []
    for last in (LAST_DECORATING_PASS, LAST_HIERARCHY_PASS):
        module = parse_module(text)
        run_pipeline(module, Options(machine="a100"), last=last)
        kernel = kernel_in(module)
        plan = plan_of(kernel)
        (pieces,) = {each.size for each in plan.streams}
        (along,) = (tile for tile in plan.tiles if tile.role == "column")
        assert along.shape == (pieces,)
        without = replace(plan, tiles=tuple(tile for tile in plan.tiles if tile is not along))
        counts.append(registers(plan, A100) - registers(without, A100))
        assert counts[-1] == pieces // 4
    assert len(set(counts)) == 1
