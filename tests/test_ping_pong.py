"""Warpgroups that take turns at starting products: which loops, right in every order of completion, and every mistake
in their barriers noticed, in the IR by the static check and in the text by the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from xdsl.dialects import arith, scf
from xdsl.dialects import test as unknown
from xdsl.dialects.builtin import IndexType, ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.cost.timing.ping_pong import turns_of
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, print_cuda, run_passes, through
from treadle.compiler.rings import ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.passes.warps.laws import Reason
from treadle.passes.warps.ping_pong import Runs, runs_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
programs = benchmark("programs")
SIZES = {"b": 1, "h": 2, "q": 4096, "x": 4096}
FULL = programs.attention(64, SIZES)
CAUSAL = programs.attention(64, SIZES, example="attention_causal")


@cache
def made(
    text: str, warpgroups: int = 2, delayed: bool = True, turns: bool | None = None, last: str | None = None
) -> ModuleOp:
    """A program for so many consumer warpgroups; without `delayed`, each step waits for its own products."""
    sizes = {"group": (f"b=1,h=1,q={64 * warpgroups}",), "stream": ("x=64",)}
    specs = [
        ArgSpec(spec.name, {"hierarchy-choose-sizes": sizes}.get(spec.name, spec.parameters))
        for spec in through(Options(arch="sm_90a"), last)
        if delayed or spec.name != "pipelining"
    ]
    if turns is not None:
        specs = [
            ArgSpec(spec.name, {"turns": (turns,)} if spec.name == "cuda-ping-pong" else spec.parameters)
            for spec in specs
        ]
    module = parse_module(text)
    run_passes(module, specs)
    return module


def kernel(module: ModuleOp) -> cuda.KernelOp:
    return next(op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and cuda.roles_of(op))


def ordering(of: cuda.KernelOp) -> list[str]:
    return [op.name for op in of.walk() if isinstance(op, cuda.ORDERING)]


@cache
def printed(text: str, warpgroups: int = 2, delayed: bool = True) -> str:
    """The printed file without its other entries, which would only be compiled."""
    text = print_cuda(made(text, warpgroups, delayed))
    entries = re.findall(r'(?ms)^extern "C" __global__ .*?^}\n', text)
    others = [each for each in entries if "_specialised(" not in each.splitlines()[0]]
    assert len(others) == len(entries) - 1
    for each in others:
        text = text.replace(each, "")
    return text


def is_right(text: str, sizes: Mapping[str, int], seed: int = 0, changed: str | None = None, **how: Any) -> bool:
    """Whether the emulator computes the right result (EmulationError)."""
    module, algorithm = made(text, **how), parse_module(text)
    function = entry_function(algorithm)
    inputs = make_inputs(function, axis_sizes(function, sizes), seed)
    execution = HostExecution(module, EmulatorBackend(changed or printed(text, **how), kernel_names(module), seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    assert any("specialised" in launch.kernel for launch in execution.launches)
    return all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


BEGIN, WAIT, ARRIVE, END = "cuda.order_begin", "cuda.order_wait", "cuda.order_arrive", "cuda.order_end"


def test_a_step_starts_both_its_products_in_one_turn() -> None:
    found = kernel(made(FULL))
    assert ordering(found) == [BEGIN, WAIT, ARRIVE, END]
    (loop,) = (op.parent_op() for op in found.walk() if isinstance(op, cuda.OrderWaitOp))
    assert isinstance(loop, scf.ForOp)
    kinds = (cuda.OrderWaitOp, cuda.OrderArriveOp, cuda.WarpgroupProductOp, cuda.WarpgroupWaitOp)
    assert [op.name for op in loop.body.block.ops if isinstance(op, kinds)] == [
        WAIT,
        *2 * ["cuda.warpgroup_product"],
        ARRIVE,
        *2 * ["cuda.warpgroup_wait"],
    ]


def test_the_tiles_that_a_condition_cuts_take_turns_too() -> None:
    assert ordering(kernel(made(CAUSAL))) == [BEGIN, WAIT, ARRIVE, WAIT, ARRIVE, END]


def test_products_that_are_not_delayed_share_a_turn_with_the_next_step() -> None:
    assert ordering(kernel(made(FULL, delayed=False))) == [BEGIN, WAIT, ARRIVE, WAIT, ARRIVE, END]


@pytest.mark.parametrize("turns", [None, False, True])
def test_who_decides(turns: bool | None) -> None:
    """A product of matrices does nothing else in a step, whatever is asked for."""
    assert bool(ordering(kernel(made(FULL, turns=turns)))) == (turns is not False)
    assert "cuda-ping-pong" in str(made(FULL, turns=turns)) or turns is False


def test_one_warpgroup_has_nobody_to_take_turns_with() -> None:
    assert ordering(kernel(made(FULL, warpgroups=1, turns=True))) == []


@pytest.mark.parametrize("warpgroups", [2, 3])
def test_what_a_step_gains(warpgroups: int) -> None:
    """A warpgroup makes 64 x 64 scores by a product of 128 clocks of the tensor cores, and multiplies as many shares by
    another; its exponentials take 256 clocks, the three to four other instructions a score 32 each, and beside those
    the second product runs. Side by side all of that adds up; in turns what is computed never stands still."""
    found = kernel(made(FULL, warpgroups=warpgroups, last="cuda-ping-pong"))
    (loop,) = (op.parent_op() for op in found.walk() if isinstance(op, cuda.OrderWaitOp))
    assert isinstance(loop, scf.ForOp)
    turns = turns_of(loop, warpgroups, load_machine("h100"))
    assert warpgroups * (128 + 256 + 3 * 32) < turns.side_by_side < warpgroups * (128 + 256 + 4 * 32)
    assert warpgroups * (256 + 3 * 32) < turns.in_turns < warpgroups * (256 + 4 * 32)
    assert turns.pays


def test_a_loop_whose_end_data_decide_takes_no_turns() -> None:
    """Not all warpgroups need take as many turns then."""
    found = kernel(made(FULL, turns=False)).clone()
    loop = next(op for op in found.walk() if isinstance(op, scf.ForOp) and isinstance(runs_of(op), Runs))
    read = unknown.TestOp(result_types=[IndexType()])
    Rewriter.insert_op(read, InsertPoint.before(loop))
    loop.operands[1] = read.results[0]
    assert runs_of(loop) == Reason("all warpgroups take as many turns", "data decide how often the loop runs")


# -- the emulator --------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("text", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("how", [{}, {"warpgroups": 3}, {"delayed": False}], ids=["two", "three", "not delayed"])
@pytest.mark.parametrize(("q", "x"), [(192, 700), (200, 333), (1, 1), (70, 130)])
@pytest.mark.sample(6)
def test_results_are_right_at_any_size(text: str, how: dict[str, Any], q: int, x: int) -> None:
    assert is_right(text, {"b": 1, "h": 2, "q": q, "x": x}, **how)


@needs_compiler
@pytest.mark.sample(2, each=False)
@pytest.mark.parametrize("text", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("seeds", [range(0, 5), range(5, 10), range(10, 15), range(15, 20)], ids=str)
def test_twenty_orders_of_completion_give_no_report(text: str, seeds: range) -> None:
    for seed in seeds:
        assert is_right(text, {"b": 1, "h": 1, "q": 200, "x": 500}, seed)


ORDERED = r"barrier_numbered\(my_turn, 256\);"
HANDED = r"barrier_numbered_arrive\(next_turn, 256\);"
FAULTS = {
    "nobody begins": (r"if \(warpgroup == 1\) barrier_numbered_arrive\(2, 256\);", ";"),
    "both begin": (r"if \(warpgroup == 1\) (barrier_numbered_arrive\(2, 256\);)", r"\1"),
    "nobody hands the turn on": (HANDED, ";"),
    "one does not hand the turn on": (HANDED, "if (warpgroup == 0) barrier_numbered_arrive(3, 256);"),
    "the turn is handed on twice": (HANDED, f"{HANDED} {HANDED}".replace("\\", "")),
    "a warpgroup hands the turn to itself": (HANDED, "barrier_numbered_arrive(my_turn, 256);"),
    "all wait at one barrier": (ORDERED, "barrier_numbered(2, 256);"),
    "each waits at the other's barrier": (ORDERED, "barrier_numbered(next_turn, 256);"),
    "a wait for more": (ORDERED, "barrier_numbered(my_turn, 384);"),
    "waits for nobody": (r"(barrier_numbered\w*\([^,]*, )256", r"\g<1>128"),
    "a wait for fewer": (ORDERED, "barrier_numbered(my_turn, 128);"),
    "arrivals for fewer": (HANDED, "barrier_numbered_arrive(next_turn, 128);"),
    "a wait too many": (ORDERED, f"{ORDERED} {ORDERED}".replace("\\", "")),
    "one warp does not wait": (ORDERED, "if (warp != 1) barrier_numbered(my_turn, 256);"),
    "a warpgroup leaves a step out": (
        ORDERED,
        "if (warpgroup != 1 || turn_4 != 2) barrier_numbered(my_turn, 256);",
    ),
    "another barrier is in the way": (r"my_turn = kept\((.*)\);", r"my_turn = kept(\1 - 1);"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sample(6)
def test_a_fault_in_the_text_is_caught(fault: str) -> None:
    pattern, replacement = FAULTS[fault]
    head, begin, body = printed(FULL).partition("attention_kernel_specialised_body")
    turn = re.search(r"\[&\]\(const int64_t (\w+), auto& P16", body)
    assert turn is not None
    changed, count = re.subn(pattern, replacement.replace("turn_4", turn[1]), body)
    assert count, f"nothing in the kernel is like '{pattern}'"
    with pytest.raises(EmulationError):
        is_right(FULL, {"b": 1, "h": 1, "q": 128, "x": 700}, 1, head + begin + changed)


# -- the static check ----------------------------------------------------------------------------------


def erase(op: Operation) -> None:
    Rewriter.erase_op(op)


def repeat(op: Operation) -> None:
    Rewriter.insert_op(op.clone(), InsertPoint.after(op))


def leave_out_a_step(op: Operation) -> None:
    """Behind a branch that the first step does not take."""
    loop = op.parent_op()
    assert isinstance(loop, scf.ForOp)
    test = arith.CmpiOp(loop.body.block.args[0], loop.lb, "ugt")
    branch = scf.IfOp(test.result, [], Region(Block([op.clone(), scf.YieldOp()])))
    Rewriter.replace_op(op, [test, branch], [])


MISTAKES: list[tuple[type[Operation], Callable[[Operation], None]]] = [
    *((kind, erase) for kind in (cuda.OrderBeginOp, cuda.OrderWaitOp, cuda.OrderArriveOp, cuda.OrderEndOp)),
    *((kind, repeat) for kind in (cuda.OrderBeginOp, cuda.OrderWaitOp, cuda.OrderArriveOp, cuda.OrderEndOp)),
    *((kind, leave_out_a_step) for kind in (cuda.OrderWaitOp, cuda.OrderArriveOp)),
]


@pytest.mark.parametrize(("kind", "change"), MISTAKES)
@pytest.mark.parametrize("warpgroups", [2, 3])
def test_a_mistake_in_the_ir_is_found(
    kind: type[Operation], change: Callable[[Operation], None], warpgroups: int
) -> None:
    found = kernel(made(CAUSAL, warpgroups=warpgroups)).clone()
    assert ring_problems(found) == []
    change(next(op for op in found.walk() if isinstance(op, kind)))
    assert ring_problems(found)
