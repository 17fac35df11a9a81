"""One piece of a block begins while another ends: right with pieces that have no turn too, in every order of
completion, and every mistake in what pieces wait for is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import pytest
from test_persistent import ATTENTION, LONG_ATTENTION, PRODUCT, execute, made, persistent
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, ModuleOp, UnitAttr
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.timing import time
from treadle.compiler.cost.timing.between import Piece
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.rings import ring_problems
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.grids.held import loop_of_pieces
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
CAUSAL = programs.attention(64, LONG, example="attention_causal")
LENGTHS = programs.attention(64, LONG, example="attention_lengths")
LAYER = programs.example("matmul_epilogue", {"t": 4096, "i": 4096, "o": 4096})

CASES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "attention": (ATTENTION, {"b": 1, "h": 3, "q": 300, "x": 200}),
    "causal": (CAUSAL, {"b": 1, "h": 3, "q": 300, "x": 300}),
    "product": (PRODUCT, {"m": 300, "n": 520, "k": 200}),
    "a bias": (LAYER, {"t": 300, "i": 128, "o": 264}),
}


def told(text: str, twice: bool = True) -> list[str]:
    steps = [step.texts() for step in derivation_of(entry_function(made(text, twice=twice)[1]).attributes)]
    return [step[3] for step in steps if step[0] == "cuda-overlap-pieces"]


@pytest.mark.parametrize(
    ("text", "twice", "groups", "others"),
    [
        (CAUSAL, True, 3, ["%Q_shared has two places, a piece's and the next one's"]),
        (CAUSAL, False, 3, ["%Q_shared comes with the turns of %K_ring"]),
        (PRODUCT, True, 2, []),
        (LAYER, True, 2, ["%bias_ring turns behind those of loops"]),
    ],
    ids=["causal", "causal in one place", "product", "layer"],
)
def test_what_overlaps_is_told(text: str, twice: bool, groups: int, others: list[str]) -> None:
    assert told(text, twice=twice) == [*others, f"{groups} warpgroups do not meet at the end of a piece"]


@needs_compiler
@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("twice", [True, False])
def test_any_order_of_completion_gives_no_report(twice: bool, case: str, seed: int) -> None:
    text, sizes = CASES[case]
    assert execute(made(text, twice=twice), sizes, seed)[1]


@needs_compiler
@pytest.mark.parametrize("lengths", [(0, 300, 0, 5), (0, 0, 0, 200), (0, 0, 0, 0), (130, 0, 0, 300)])
@pytest.mark.parametrize("twice", [True, False])
def test_pieces_without_a_turn(twice: bool, lengths: tuple[int, ...]) -> None:
    """With one place they take no turn of the ring of what others hold."""
    algorithm, module, printed = made(LENGTHS, twice=twice)
    function = entry_function(algorithm)
    fact = (
        "%Q_shared has two places, a piece's and the next one's"
        if twice
        else "%Q_shared comes with the turns of %K_ring"
    )
    assert fact in told(LENGTHS, twice)
    for seed in range(2):
        inputs = make_inputs(function, axis_sizes(function, {"b": 4, "h": 1, "q": 200, "x": 300}), seed)
        inputs[3][...] = np.array(lengths)
        execution = HostExecution(module, EmulatorBackend(printed, kernel_names(module), seed=seed))
        outputs = execution.run(entry_function(module), inputs)
        assert all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


@needs_compiler
def test_pieces_that_do_not_overlap() -> None:
    module = parse_module(CAUSAL)
    algorithm = module.clone()
    name, options = "cuda-overlap-pieces", {"twice": (False,), "early": (False,), "apart": (False,)}
    specs = pipeline(Options(machine="h100"))
    run_passes(module, [ArgSpec(name, options) if each.name == name else each for each in specs])
    text = print_cuda(module)
    assert "barrier_named<1>(384)" in text
    assert "barrier_numbered(5" not in text
    assert execute((algorithm, module, text), {"b": 1, "h": 1, "q": 200, "x": 200})[1]


FAULTS = {
    "what a piece holds comes at once": (r"(turn_beside = )(\d+) \+ K_ring_done", r"\g<1>K_ring_done % 2"),
    "it comes a turn early": (r"(turn_beside = )\d+ \+ ", r"\g<1>"),
    "it comes twice": (r"if \((turn_\d+) == ahead\) \{", r"if (\1 < 2) {"),
    "it never comes": (r"if \((turn_\d+) == ahead\) \{", r"if (\1 < 0) {"),
    "nobody awaits it": (r"mbarrier_wait\(&Q_ring\[0\][^;]*;", ";"),
    "its turns are not counted": (r"(Q_shared_done = Q_shared_done \+ )", r"\g<1>0 * "),
    "a share of another warpgroup": (r"warpgroup \* 4096", "(1 - warpgroup) * 4096"),
    "the rows of another warpgroup": (r"int\(q0 \+ warpgroup \* 64\)", "int(q0 + (1 - warpgroup) * 64)"),
    "one warpgroup sends nothing": (r"if \(thread % 128 == 0\) \{", "if (thread == 0) {"),
    "no fence": (r"fence_proxy_async\(\);", ""),
    "no barrier before the copy": (r"(fence_proxy_async\(\);)\s*barrier_numbered\(5[^;]*;", r"\1"),
    "no barrier after the wait": (r"(tensor_store_wait<0>\(\);)\s*barrier_numbered\(5[^;]*;", r"\1"),
    "no wait before the next write": (r"if \(thread % 128 == 0\) tensor_store_wait<0>\(\);(\s*barrier)", r"\1"),
    "one thread waits for all": (r"if \(thread % 128 == 0\) tensor_store_wait", "if (thread == 0) tensor_store_wait"),
    "the barrier of all for each": (
        r"barrier_numbered\(5 \+ warpgroup, 128\)",
        "barrier_numbered(1, 256 - warpgroup * 128)",
    ),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_caught(fault: str) -> None:
    pattern, replacement = FAULTS[fault]
    is_caught(made(CAUSAL, twice=False), pattern, replacement)


FAULTS_OF_TWO_PLACES = {
    "both are one": (r"(Q_to = stage_at\(Q_shared\w*, )\w+ \* ", r"\g<1>0 * "),
    "the other one is read": (r"int\(Q_stage\) \* ", "(1 - int(Q_stage)) * "),
    "nobody awaits it": (r"mbarrier_wait\(&Q_ring\[Q_stage\][^;]*;", ";"),
    "nobody waits until it is free": (r"mbarrier_wait\(&Q_ring\[2 \+ [^;]*;", ";"),
    "nobody gives it back": (r"if \(lane == 0\) mbarrier_arrive\(&Q_ring[^;]*;", ";"),
    "its turns are not counted": (r"(Q_ring_done = Q_ring_done \+ )1", r"\g<1>0"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS_OF_TWO_PLACES)
def test_a_fault_of_two_places_is_caught(fault: str) -> None:
    is_caught(made(CAUSAL), *FAULTS_OF_TWO_PLACES[fault])


def is_caught(found: tuple[ModuleOp, ModuleOp, str], pattern: str, replacement: str) -> None:
    """By a report or a wrong result, with some seed."""
    head, begin, body = found[2].partition("template <int ALIGNED>")
    changed, count = re.subn(pattern, replacement, body)
    assert count, f"nothing in the kernel is like '{pattern}'"
    with suppress(EmulationError):
        right = [
            execute(found, {"b": 1, "h": 4, "q": 300, "x": 300}, seed, head + begin + changed)[1]
            for seed in range(1, 7)
        ]
        assert not all(right)


def erase(op: Operation) -> None:
    Rewriter.erase_op(op)


def one_earlier(op: Operation) -> None:
    """Acquired beside a turn that is free a turn before."""
    assert isinstance(op, cuda.AcquireBesideOp)
    one = arith.ConstantOp.from_int_and_width(1, IndexType())
    less = arith.SubiOp(op.turn_beside, one.result)
    Rewriter.insert_op([one, less], InsertPoint.before(op))
    op.operands[3] = less.result


def every_turn(op: Operation) -> None:
    """Without a turn, too."""
    branch = op.parent_op()
    assert isinstance(branch, scf.IfOp)
    op.detach()
    Rewriter.insert_op(op, InsertPoint.before(branch))


def of_all(op: Operation) -> None:
    assert isinstance(op, cuda.BarrierOp | cuda.TensorWaitOp | cuda.TensorStoreOp)
    op.by_groups = None


def other_tile(op: Operation) -> None:
    """A write beside the one that leaves, in its place: of rows of any warpgroup."""
    assert isinstance(op, cuda.WriteOp)
    source = op.destination.owner
    assert isinstance(source, cuda.SharedOp)
    Rewriter.insert_op(twin := source.clone(), InsertPoint.after(source))
    op.operands[1] = twin.result


MISTAKES: list[tuple[type[Operation], Callable[[Operation], None]]] = [
    (cuda.AcquireBesideOp, one_earlier),
    (cuda.AcquireBesideOp, erase),
    (cuda.TensorWaitOp, erase),
    (cuda.TensorWaitOp, of_all),
    (cuda.TensorFenceOp, erase),
    (cuda.BarrierOp, erase),
    (cuda.TensorStoreOp, of_all),
    (cuda.WriteOp, other_tile),
]


@pytest.mark.parametrize(("kind", "change"), MISTAKES)
def test_a_mistake_in_the_ir_is_found(kind: type[Operation], change: Callable[[Operation], None]) -> None:
    kernel = persistent(CAUSAL, twice=False).clone()
    assert ring_problems(kernel) == []
    change(next(op for op in kernel.walk() if isinstance(op, kind)))
    assert ring_problems(kernel)


def one_place(op: Operation) -> None:
    assert isinstance(op, cuda.StageOp)
    Rewriter.insert_op(zero := arith.ConstantOp.from_int_and_width(0, IndexType()), InsertPoint.before(op))
    op.operands[1] = zero.result


MISTAKES_OF_TWO_PLACES: list[tuple[type[Operation], Callable[[Operation], None]]] = [
    (cuda.AcquireOp, erase),
    (cuda.AwaitOp, erase),
    (cuda.ReleaseOp, erase),
    (cuda.StageOp, one_place),
]


@pytest.mark.parametrize(("kind", "change"), MISTAKES_OF_TWO_PLACES)
def test_a_mistake_of_two_places_is_found(kind: type[Operation], change: Callable[[Operation], None]) -> None:
    kernel = persistent(CAUSAL).clone()
    assert ring_problems(kernel) == []
    change(next(op for op in kernel.walk() if isinstance(op, kind) and _is_of_held(op)))
    assert ring_problems(kernel)


def _is_of_held(op: Operation) -> bool:
    return any((each.name_hint or "").startswith("Q_") for each in op.operands)


def test_what_no_turn_awaits_is_found() -> None:
    """A piece without a turn brings nothing: whoever awaits it waits for ever."""
    kernel = persistent(LENGTHS, twice=False).clone()
    assert ring_problems(kernel) == []
    rings = {op.ring for op in kernel.walk() if isinstance(op, cuda.AcquireBesideOp)}
    every_turn(next(op for op in kernel.walk() if isinstance(op, cuda.AwaitOp) and op.ring in rings))
    assert ring_problems(kernel)


def test_barriers_of_all_serve_each() -> None:
    """And what each has written is seen by all behind one."""
    kernel = persistent(CAUSAL).clone()
    for op in kernel.walk():
        if isinstance(op, cuda.BarrierOp):
            op.by_groups = None
    assert ring_problems(kernel) == []


def test_each_of_three_warpgroups_sends_its_share() -> None:
    kernel = persistent(CAUSAL).clone()
    loop = loop_of_pieces(next(op for op in kernel.walk() if isinstance(op, cuda.RolesOp)).consumers.block)
    assert loop is not None
    store = next(op for op in loop.walk() if isinstance(op, cuda.TensorStoreOp))
    assert (store.shares, store.by_groups) == (3, UnitAttr())
    assert store.map_type.shape[-2] * 3 == store.boxes.rows


# -- the model -------------------------------------------------------------------------------------


def test_a_piece_alone_is_that_much_longer() -> None:
    """Two warpgroups, 4 steps of products of 2 x 300 and scores of 400 clocks: tensor cores have 300 of the other
    to do while one has 400 of scores, which both then share; at the end one alone."""
    piece = Piece(2, 4 * 600, 4 * 400, 4, 0.5, 70)
    assert piece.alone() == 2 * (400 - 300) + (400 - 300) + 70
    bound_by_scores = Piece(2, 4 * 600, 4 * 900, 4, 0.5, 0)
    assert bound_by_scores.alone() == 300 + 300
    assert Piece(2, 4 * 600, 4 * 400, 4, 0.5, 70, has_scores=False).alone() == 0


def decorated(text: str) -> KernelOp:
    module = parse_module(text)
    specs = pipeline(Options(machine="h100"))
    names = [spec.name for spec in specs]
    run_passes(module, specs[: names.index("hierarchy-expand-streams") + 1])
    return next(op for op in module.walk() if isinstance(op, KernelOp))


def test_pieces_that_overlap_take_less() -> None:
    """By what nothing hides, and by what warpgroups wait, for each piece of a block but the first; a product holds
    nothing, and computes nothing that it multiplies."""
    machine, sizes = load_machine("h100"), {"b": 2, "h": 16, "q": 4096, "x": 4096, "d": 64, "e": 64}
    plan = plan_of(decorated(LONG_ATTENTION))
    times = [
        time.timing(plan, machine, sizes, Made(True, None, overlaps, twice=False)).time_us for overlaps in (True, False)
    ]
    pieces = -(-2 * 16 * 22 // 132)
    lost = (times[1] - times[0]) * machine.clock / 1e6 / (pieces - 1)
    brought = machine.levels["device"].latency + 192 * 64 * 2 / 64
    assert brought < lost < brought + 192 * 64 * 2 / 64 + 6000
    plan, sizes = plan_of(decorated(PRODUCT)), {"m": 4096, "n": 4096, "k": 4096}
    times = [
        time.timing(plan, machine, sizes, Made(True, None, overlaps, twice=False)).time_us for overlaps in (True, False)
    ]
    assert times[0] == times[1]
