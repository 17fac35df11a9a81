"""Registers of what lies in rows over the lanes, beside products: as the lowering spreads it, and as ptxas counts."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult

from treadle.compiler.cost import Plan, footprint, plan_of, sketch_of
from treadle.compiler.cost.choice.candidates import candidates
from treadle.compiler.cost.kernel.spread import Spread
from treadle.compiler.cost.levels.memory import loads_ahead
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, LAST_HIERARCHY_PASS, Options, pipeline, run_passes
from treadle.compiler.source import load_module
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import shape_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass
from treadle.passes.loops.load_ahead import MOST_WORDS, loads_to_move

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
LOWERING_PASS = "convert-hierarchy-to-cuda"

CASES = [
    ("softmax_matmul", "row=64,e=16", "x=128", 145),
    ("softmax_matmul", "row=16,e=64", "x=128", 80),
    ("softmax_matmul", "row=64,e=64", "x=64", 99),
    ("quantised_matmul", "t=16,o=64", "i=128", 158),
    ("quantised_matmul", "t=16,o=64", "i=32", 80),
    ("quantised_matmul", "t=64,o=16", "i=64", 96),
    ("l2_norm_matmul", "t=128,o=64", "i=64", 113),
    ("gated_linear_attention", "h=1,q=16,e=64", "x=16", 168),
]
"""What ptxas 13.0 takes for an A100 of each, with nothing spilled."""


def in_stages(name: str, group: str, stream: str) -> tuple[Plan, Plan, ModuleOp]:
    """The plans of the decorated and of the explicit kernel, and the lowered module."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    passes = list(pipeline(Options(machine="a100")))
    names = [spec.name for spec in passes]
    run_passes(module, passes[: names.index(CHOOSING_PASS)])
    HierarchyChooseSizesPass(group=group, stream=stream).apply(Context(), module)
    decorated = plan_in(module)
    explicit, lowered = names.index(LAST_HIERARCHY_PASS) + 1, names.index(LOWERING_PASS) + 1
    run_passes(module, passes[names.index(CHOOSING_PASS) : explicit])
    plan = plan_in(module)
    run_passes(module, passes[explicit:lowered])
    return decorated, plan, module


def plan_in(module: ModuleOp) -> Plan:
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return plan_of(kernel)


@pytest.mark.parametrize(("name", "group", "stream", "taken"), CASES)
def test_what_lies_in_rows_takes_what_the_lowering_gives_it(name: str, group: str, stream: str, taken: int):
    decorated, explicit, module = in_stages(name, group, stream)
    machine = load_machine("a100")
    assert footprint(decorated, machine) == footprint(explicit, machine)
    loads = [op.result for op in module.walk() if isinstance(op, cuda.LoadOp | cuda.ReadOp)]
    states = [op.result for op in module.walk() if isinstance(op, ReduceOp) and op.init is not None]
    sums: list[OpResult] = [op.result for op in module.walk() if isinstance(op, ReduceOp) and op.init is None]
    for plan in (decorated, explicit):
        assert of_lanes(plan, "loaded", "next") <= lowered(loads)
        assert of_lanes(plan, "state", "repairing") <= lowered(states)
        assert of_lanes(plan, "loaded", "next")
        assert of_lanes(plan, "reduced") <= lowered(sums)
    assert footprint(explicit, machine).registers_per_thread == pytest.approx(taken, rel=0.16)


AHEAD = [
    ("softmax_matmul", "row=16,e=64", "x=128", [16]),
    ("quantised_matmul", "t=16,o=64", "i=128", [16, 32]),
    ("quantised_matmul", "t=64,o=16", "i=64", [32]),  # and 34, one load more than may be, where it is
    ("l2_norm_matmul", "t=128,o=64", "i=64", []),
]


@pytest.mark.parametrize(("name", "group", "stream", "moved"), AHEAD)
def test_steps_load_ahead_what_the_model_says(name: str, group: str, stream: str, moved: list[int]):
    _, plan, module = in_stages(name, group, stream)
    (kernel,) = (op for op in module.walk() if isinstance(op, cuda.KernelOp))
    found = loads_to_move(kernel)
    assert [each.words for each in found if each.words <= MOST_WORDS] == moved
    assert loads_ahead(plan) == all(each.words <= MOST_WORDS for each in found)
    for each in found:
        assert of_lanes(plan, "next") >= lowered([load.result for load in each.loads])


def of_lanes(plan: Plan, *roles: str) -> set[tuple[tuple[int, ...], int]]:
    """Shapes of tiles, and what a lane has of them."""
    return {(tile.shape, int(tile.of_lane)) for tile in plan.tiles if tile.role in roles and tile.of_lane is not None}


def lowered(values: list[OpResult]) -> set[tuple[tuple[int, ...], int]]:
    """The same, as the layouts of fragments say it."""
    return {(shape_of(each.type), prod(mode.size for mode in layout_of(each.type).register)) for each in values}


@pytest.mark.parametrize("name", ["softmax_matmul", "quantised_matmul", "l2_norm_matmul", "linear_attention"])
def test_rows_of_many_candidates_are_those_of_each(name: str):
    """Also where the schedule says nothing of an axis that has one warp."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    passes = list(pipeline(Options(machine="a100")))
    run_passes(module, passes[: [spec.name for spec in passes].index(CHOOSING_PASS)])
    machine = load_machine("a100")
    for kernel in (op for op in module.walk() if isinstance(op, KernelOp)):
        assert kernel.schedule is not None
        sketch = sketch_of(kernel, kernel.schedule)
        found = candidates(sketch, dict.fromkeys(sketch.sizes, 300), {})
        together = footprint(sketch.plan(found.tiles, found.warps, about=1.0, rereads=found.rereads), machine)
        for i in range(0, len(found), max(1, len(found) // 50)):
            one = found[i]
            alone = footprint(sketch.plan(one.tiles, one.warps, rereads=one.rereads), machine)
            assert together.of(i) == alone, one


def test_an_array_that_meets_no_product_lies_over_all_warps_of_its_first_axis():
    spread = Spread({"b": 1, "x": 64, "e": 64}, {"q": 4}, "q", True, vector=8)
    # Eight lanes along e, four along x, and all warps along x: b has one element.
    assert spread.in_rows(("b", "x", "e"), ("x", "e")) == 4 * 8
    assert spread.in_rows(("b", "x", "e"), ("x",)) == 4
    # Warps do not share what one of them reduces.
    assert spread.in_rows(("x", "e"), ("e",), reduced=("x",)) == 8
    # Where the schedule says how many warps an axis has, the others share its part.
    stated = Spread({"q": 64, "e": 64}, {"q": 2, "k": 2}, "q", True, vector=8)
    assert stated.in_rows(("q", "e"), ("q", "e")) == 4 * 8


STATES = {"moving_average": 4, "split_k": 8, "attention_decode": 8, "log_sum_exp": 1}


@pytest.mark.parametrize("name", STATES)
def test_states_without_products_lie_as_the_lowering_spreads_them(name: str):
    """Lanes along an axis that is not reduced have a part of the state each."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    passes = list(pipeline(Options(machine="a100")))
    names = [spec.name for spec in passes]
    explicit, lowered = names.index(LAST_HIERARCHY_PASS) + 1, names.index(LOWERING_PASS) + 1
    run_passes(module, passes[:explicit])
    plans = [plan_of(op) for op in module.walk() if isinstance(op, KernelOp)]
    (plan,) = (each for each in plans if not each.has_products)
    run_passes(module, passes[explicit:lowered])
    kernels = (op for op in module.walk() if isinstance(op, cuda.KernelOp))
    (kernel,) = (op for op in kernels if op.sym_name.data == f"{plan.name}_kernel")
    states = [op.result for op in kernel.walk() if isinstance(op, ReduceOp) and op.init is not None]
    found = {(shape_of(each.type), prod(mode.size for mode in layout_of(each.type).register)) for each in states}
    assert of_lanes(plan, "row") == found
    assert max(count for _, count in found) == STATES[name]


UNEVEN = [
    ("matmul_tn", "m=32,n=32", "k=112", 64),
    ("matmul", "m=32,n=32", "k=80", 54),
    ("matmul", "m=32,n=32", "k=48", 42),
]
"""Products whose tiles 128 threads do not share out evenly; what ptxas 13.0 takes of each, with nothing spilled."""


@pytest.mark.parametrize(("name", "group", "stream", "taken"), UNEVEN)
def test_uneven_copies_keep_the_addresses_of_their_turns(name: str, group: str, stream: str, taken: int):
    decorated, explicit, _ = in_stages(name, group, stream)
    machine = load_machine("a100")
    assert footprint(decorated, machine) == footprint(explicit, machine)
    assert footprint(explicit, machine).registers_per_thread == pytest.approx(taken, rel=0.16)
