"""Delayed products carried from loop to loop: through which loops, right where any of them has no turn, in every order
of completion, and every mistake in what is carried is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from test_delay import PRODUCT, WAIT, found
from test_overlap_pieces import decorated
from test_persistent import ATTENTION, execute, made
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.timing import time
from treadle.compiler.cost.timing.between import Piece, mean_drains
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.execution import executed
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes, through
from treadle.compiler.rings import ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.loops.carry import chains_of
from treadle.passes.loops.delay import rings_of_tiles
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
programs = benchmark("programs")

LONG = {"b": 4, "h": 16, "q": 2048, "x": 2048}
CAUSAL, WINDOW, SEGMENTS, LENGTHS = (
    programs.attention(64, LONG, example=f"attention_{name}") for name in ("causal", "window", "segments", "lengths")
)
WINDOW = WINDOW.replace("q - x < 128", "q - x < 400")  # of tiles of 128 keys some are seen whole
LINEAR = programs.example("linear_attention_causal")
STEERED = {"window": 2, "segments": 2}
"""States of loops that take their powers before they know their maximum, of which the first tells them."""
LOOPS = {"causal": (CAUSAL, 2), "window": (WINDOW, 3), "segments": (SEGMENTS, 3), "linear": (LINEAR, 2)}


def consumers(module: ModuleOp) -> cuda.RolesOp:
    kernel = next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op))
    roles = cuda.roles_of(kernel)
    assert roles is not None
    return roles


def loops_of(module: ModuleOp) -> list[scf.ForOp]:
    """Those of the consumers that start products themselves."""
    loops = [op for op in consumers(module).consumers.walk() if isinstance(op, scf.ForOp)]
    return [loop for loop in loops if found(list(loop.body.block.ops), PRODUCT)]


@pytest.mark.parametrize("name", LOOPS)
def test_every_turn_of_every_loop_starts_the_product_before(name: str) -> None:
    text, count = LOOPS[name]
    module = made(text)[1]
    loops = loops_of(module)
    assert len(loops) == count
    for loop in loops:
        ops = list(loop.body.block.ops)
        waits = [op.pending.data for op in ops if isinstance(op, cuda.WarpgroupWaitOp)]
        products = found(ops, PRODUCT, WAIT)
        assert products[: products.index(WAIT)] == [PRODUCT] * (len(products) // 2)
        assert waits == [1, *[0] * (len(waits) - 1)]
    for before, loop in pairwise(loops):
        states = min(len(loop.iter_args), len(before.results)) - STEERED.get(name, 0)
        assert loop.iter_args[:states] == before.results[:states]
    around = loops[0].parent_op()
    assert isinstance(around, scf.IfOp)
    ops = list(around.true_region.block.ops)
    assert found(ops, PRODUCT, WAIT, "scf.if", "scf.for") == ["scf.if", *["scf.for"] * count, PRODUCT, WAIT]


def test_what_is_carried_is_told() -> None:
    steps = [step.texts() for step in derivation_of(entry_function(made(WINDOW)[1]).attributes)]
    told = [step[3] for step in steps if step[2] == "the turns of a ring count on from loop to loop"]
    assert told == ["%A_sum_new of the last turn of a loop during the first of the next, through 3 loops"] * 2


# -- runs --------------------------------------------------------------------------------------------

CASES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "windows": (WINDOW, {"b": 1, "h": 2, "q": 700, "x": 700}),
    "segments": (SEGMENTS, {"b": 1, "h": 1, "q": 400, "x": 400}),
    "sums that are chunks": (LINEAR, {"h": 2, "q": 300, "x": 300}),
}


@needs_compiler
@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("case", CASES)
def test_any_order_of_completion_gives_no_report(case: str, seed: int) -> None:
    text, sizes = CASES[case]
    assert execute(made(text), sizes, seed)[1]


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("text", [CAUSAL, WINDOW], ids=["causal", "window"])
@pytest.mark.parametrize(("q", "x"), [(1, 1), (100, 100), (129, 129), (400, 200), (400, 384), (130, 400)])
def test_loops_without_a_turn(text: str, q: int, x: int) -> None:
    """The first rows have no whole piece, the last of many rows all keys, and a window may be behind all of them."""
    assert execute(made(text), {"b": 1, "h": 2, "q": q, "x": x}, 1)[1]


@needs_compiler
@pytest.mark.parametrize("lengths", [(0, 300, 0, 5), (0, 0, 0, 0), (64, 128, 1, 256)])
def test_streams_without_a_turn(lengths: tuple[int, ...]) -> None:
    algorithm, module, printed = made(LENGTHS)
    function = entry_function(algorithm)
    inputs = make_inputs(function, axis_sizes(function, {"b": 4, "h": 1, "q": 100, "x": 300}), 1)
    inputs[3][...] = np.array(lengths)
    execution = HostExecution(module, EmulatorBackend(printed, kernel_names(module), seed=1))
    outputs = execution.run(entry_function(module), inputs)
    assert all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


@needs_compiler
def test_loops_each_by_itself() -> None:
    module = parse_module(CAUSAL)
    algorithm = module.clone()
    alone = ArgSpec("pipelining", {"carry": (False,)})
    run_passes(module, [alone if spec.name == alone.name else spec for spec in pipeline(Options(machine="h100"))])
    (first, second) = loops_of(module)
    assert first.parent_op() is not second.parent_op()
    assert execute((algorithm, module, print_cuda(module)), {"b": 1, "h": 1, "q": 200, "x": 200})[1]


FAULTS = {
    "a loop begins with its second turn": (r"has_begun \? 0 : second(_2)?", r"second\1"),
    "a loop repeats the first turn": (r"has_begun \? 0 : second(_2)?", "0"),
    "the first turn is that of another loop": (r"(begins_here = 0 <) turns", r"\1= turns"),
    "the last product is one too early": (r"(last_turn = turns_\d+ - )1", r"\g<1>2"),
    "the product of this turn": (r"turn_before = (turn_?\d*) - 1\b", r"turn_before = \1"),
    "only a stream of the first loop has turns": (r"has_turns = 0 < turns_\d+", "has_turns = 0 < turns"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_caught(fault: str) -> None:
    pattern, replacement = FAULTS[fault]
    head, begin, body = made(CAUSAL)[2].partition("template <int ALIGNED>")
    changed, count = re.subn(pattern, replacement, body)
    assert count, f"nothing in the kernel is like '{pattern}'"
    with suppress(EmulationError):
        assert not execute(made(CAUSAL), {"b": 1, "h": 2, "q": 400, "x": 400}, 1, head + begin + changed)[1]


# -- laws --------------------------------------------------------------------------------------------


@cache
def specialised() -> ModuleOp:
    module = parse_module(CAUSAL)
    run_passes(module, through(Options(machine="h100"), "warp-specialization"))
    return module


def chains(module: ModuleOp, carries: bool = True) -> list[int]:
    roles = consumers(module)
    return [len(chain) for chain in chains_of(roles.consumers.block, rings_of_tiles(roles), carries)]


def another_count(second: scf.ForOp) -> None:
    """Its turns are not those behind the turns of the first loop."""
    for op in [op for op in second.body.block.ops if isinstance(op, arith.AddiOp)]:
        one = arith.ConstantOp.from_int_and_width(1, IndexType())
        later = arith.AddiOp(op.lhs, one.result)
        Rewriter.insert_op([one, later], InsertPoint.before(op))
        op.operands[0] = later.result


def another_begin(second: scf.ForOp) -> None:
    """It begins elsewhere than at 0."""
    one = arith.ConstantOp.from_int_and_width(1, IndexType())
    Rewriter.insert_op(one, InsertPoint.before(second))
    second.operands[0] = one.result


def a_barrier_between(second: scf.ForOp) -> None:
    Rewriter.insert_op(cuda.BarrierOp(), InsertPoint.before(second))


def read_twice(second: scf.ForOp) -> None:
    """What the first loop leaves is read behind the second, too."""
    last = second.parent
    assert last is not None
    (copied,) = (op for op in last.ops if isinstance(op, cuda.WriteOp))
    copied.operands[0] = next(arg for arg in second.iter_args if arg.type == second.results[2].type)


def by_position(second: scf.ForOp) -> None:
    """A stage depends on the position of the loop, and not on the turn of the ring."""
    position = second.body.block.args[0]
    for op in [op for op in second.body.block.ops if isinstance(op, arith.RemUIOp)]:
        op.operands[0] = position


@pytest.mark.parametrize("change", [another_count, another_begin, a_barrier_between, read_twice, by_position])
def test_loops_that_do_not_go_on_are_left_apart(change: Callable[[scf.ForOp], None]) -> None:
    module = specialised().clone()
    assert chains(module) == [2]
    assert chains(module, carries=False) == [1, 1]
    change(loops_of(module)[1])
    assert chains(module) == [1, 1]


def swap(op: Operation) -> None:
    assert isinstance(op, arith.SelectOp)
    op.operands[1], op.operands[2] = op.operands[2], op.operands[1]


def never(op: Operation) -> None:
    assert isinstance(op, arith.SelectOp)
    op.operands[1] = op.operands[2]


def always(op: Operation) -> None:
    assert isinstance(op, arith.SelectOp)
    op.operands[2] = op.operands[1]


@pytest.mark.parametrize("change", [swap, never, always])
def test_a_loop_that_begins_with_another_turn_is_found(change: Callable[[Operation], None]) -> None:
    kernel = consumers(made(CAUSAL)[1]).parent_op()
    assert isinstance(kernel, cuda.KernelOp)
    kernel = kernel.clone()
    assert ring_problems(kernel) == []
    change(next(op for op in kernel.walk() if isinstance(op, arith.SelectOp) and op.result.name_hint == "start"))
    assert ring_problems(kernel)


# -- the model -----------------------------------------------------------------------------------------


def test_what_a_drained_loop_loses() -> None:
    """One warpgroup has no scores beside its last product, nor products beside its next scores. Of two that products
    keep busy, each has first products of the other for a part of its scores, which both then share; with scores that
    take longest, or three warpgroups, others have enough to do."""
    assert Piece(1, 4 * 600, 4 * 400, 4, 0.5, 0).drained() == 300
    assert Piece(1, 4 * 600, 4 * 200, 4, 0.5, 0).drained() == 200
    assert Piece(2, 4 * 600, 4 * 400, 4, 0.5, 0).drained() == 2 * (400 - 300)
    assert Piece(2, 4 * 600, 4 * 700, 4, 0.5, 0).drained() == 0
    assert Piece(3, 4 * 600, 4 * 400, 4, 0.5, 0).drained() == 0
    assert Piece(1, 4 * 600, 4 * 400, 4, 0.5, 0, has_scores=False).drained() == 0


def turns_of_pieces(text: str, sizes: Mapping[str, int]) -> list[list[int]]:
    """How many turns each of the producer's loops has, of each piece of a grid along rows."""
    module = parse_module(text)
    run_passes(module, through(Options(machine="h100"), "warp-specialization"))
    roles = consumers(module)
    kernel = roles.parent_op()
    assert isinstance(kernel, cuda.KernelOp)
    block = kernel.body.block
    (number,) = (op.result for op in block.ops if isinstance(op, cuda.BlockIndexOp))
    given = {arg: sizes[arg.name_hint or ""] for arg in block.args if isinstance(arg.type, IndexType)}
    loops = [op for op in roles.producer.block.ops if isinstance(op, scf.ForOp)]
    found: list[list[int]] = []
    for piece in range(sizes["b"] * sizes["h"] * -(-sizes["q"] // 128)):
        known = {number: piece, **given}
        assert list(executed(block, known))
        found.append([known[loop.ub] for loop in loops])
    return found


@pytest.mark.parametrize(("text", "most_loops"), [(CAUSAL, 2), (WINDOW, 3), (ATTENTION, 1)])
def test_loops_that_follow_another_are_those_that_have_turns(text: str, most_loops: int) -> None:
    """As the launch counts them, of each piece."""
    plan = plan_of(decorated(text))
    sizes = {"b": 2, "h": 3, "q": 1000, "x": 1000, "d": 64, "e": 64}
    turns = turns_of_pieces(text, sizes)
    assert {len(each) for each in turns} == {most_loops}
    expected = sum(max(sum(count > 0 for count in each) - 1, 0) for each in turns) / len(turns)
    assert mean_drains(plan, sizes) == pytest.approx(expected)


def test_loops_that_carry_take_less() -> None:
    machine, sizes = load_machine("h100"), {"b": 4, "h": 16, "q": 4096, "x": 4096, "d": 128, "e": 128}
    plan = plan_of(decorated(programs.attention(128, {**LONG, "q": 4096, "x": 4096}, example="attention_causal")))
    made = [Made(True, None, True, carries) for carries in (True, False)]
    carried, drained = (time.timing(plan, machine, sizes, each).time_us for each in made)
    assert time.timing(plan, machine, sizes).time_us == carried
    pieces = 64 * 32 / machine.sms
    lost = (drained - carried) * machine.clock / 1e6 / pieces
    assert 300 < lost < 1000
    full = plan_of(decorated(programs.attention(128, {**LONG, "q": 4096, "x": 4096})))
    same = [time.timing(full, machine, sizes, each).time_us for each in made]
    assert same[0] == same[1]
