"""Left operands that all steps of a stream share, which warpgroups keep in registers where the schedule says so
(PTX ISA 9.7.15.5.1): they read each once, and its place is free for that of the next piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.cost import Plan, plan_of
from treadle.compiler.cost.levels.memory import registers
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import (
    CHOOSING_PASS,
    LAST_DECORATING_PASS,
    Options,
    pipeline,
    print_cuda,
    run_passes,
)
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.rings import stages_of
from treadle.dialects.cuda.tiles import is_fragment, is_shared
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.speculation.registers import registers_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
programs = benchmark("programs")
H100 = load_machine("h100")
MANY = {"b": 2, "h": 16, "q": 4096, "x": 4096}


def turned(text: str) -> str:
    """The program with queries whose rows lie along `q`."""
    return text.replace("?x?x?x64xf16, #diagram.array<[b, h, q, d]>", "?x?x64x?xf16, #diagram.array<[b, h, d, q]>")


PROGRAMS = {
    "f16": programs.attention(64),
    "f16, wide": programs.attention(128),
    "f16, 80": programs.attention(80),
    "f16, 16": programs.attention(16),
    "queries by columns": turned(programs.attention(64)),
    "causal": programs.attention(64, example="attention_causal"),
    "bf16": programs.example("attention_bf16"),
    "f8": programs.example("attention_f8"),
    "two formats": programs.example("attention_mixed"),
    "pages": programs.example("attention_paged"),
    "two products of one operand": programs.example("attention_backward"),
}


def specs(**stated: str) -> list[ArgSpec]:
    """The pipeline for an H100, with these options of what chooses sizes."""
    choosing = ArgSpec(CHOOSING_PASS, {name: (value,) for name, value in stated.items()})
    return [choosing if each.name == CHOOSING_PASS else each for each in pipeline(Options(machine="h100"))]


@cache
def made(text: str, **stated: str) -> tuple[ModuleOp, ModuleOp, str]:
    """The algorithm, its module, and the printed file."""
    module = parse_module(text)
    algorithm = module.clone()
    run_passes(module, specs(**stated))
    return algorithm, module, print_cuda(module)


def execute(text: str, sizes: Mapping[str, int], seed: int = 0, printed: str = "") -> tuple[set[str], bool]:
    """The kernels that were launched, and whether all outputs are right (EmulationError)."""
    algorithm, module, own = made(text, left="registers")
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), seed)
    execution = HostExecution(module, EmulatorBackend(printed or own, kernel_names(module), seed=seed))
    outputs = execution.run(entry_function(module), inputs)
    return {launch.kernel for launch in execution.launches}, all(
        verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator")
    )


def roles_of(text: str, **stated: str) -> Iterator[tuple[cuda.KernelOp, cuda.RolesOp]]:
    for op in made(text, **stated)[1].body.block.ops:
        if isinstance(op, cuda.KernelOp) and (roles := cuda.roles_of(op)) is not None:
            yield op, roles


def kept_of(roles: cuda.RolesOp) -> list[cuda.ReadOp]:
    """What consumers read to multiply it."""
    products = [op for op in roles.consumers.walk() if isinstance(op, cuda.WarpgroupProductOp)]
    return list(dict.fromkeys(op.lhs.owner for op in products if isinstance(op.lhs.owner, cuda.ReadOp)))


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("q", "x"), [(128, 256), (200, 333), (1, 1), (70, 1030)])
@pytest.mark.sample(8)
def test_it_is_right_at_any_size_and_order(name: str, q: int, x: int) -> None:
    sizes = {"b": 1, "q": q} | ({"m": -(-x // 16)} if name == "pages" else {"x": x})
    _, right = execute(PROGRAMS[name], sizes, seed=q + x)
    assert right


@pytest.mark.parametrize("name", PROGRAMS)
def test_consumers_read_once_and_give_the_place_back(name: str) -> None:
    found = list(roles_of(PROGRAMS[name], left="registers"))
    assert found
    for kernel, roles in found:
        kept = kept_of(roles)
        assert kept, kernel.sym_name.data
        for read in kept:
            assert is_shared(read.source.type)
            assert not isinstance(read.parent_op(), scf.ForOp) or _is_loop_of_pieces(read)
            (ring,) = {op.ring for op in _after(read) if isinstance(op, cuda.ReleaseOp)} & _rings_before(read)
            assert isinstance(ring.owner, cuda.RingOp)
            assert ring.owner.by_warps is not None
            assert stages_of(ring) == 1, "the next piece's comes while this one is multiplied: no second place"


def _is_loop_of_pieces(read: cuda.ReadOp) -> bool:
    """Whether the loop around holds that of the products."""
    loop = read.parent_op()
    assert isinstance(loop, scf.ForOp)
    return any(isinstance(op, scf.ForOp) for op in loop.body.block.ops)


def _after(read: cuda.ReadOp) -> Iterator[object]:
    """Up to the loop that multiplies what was read."""
    later = read.next_op
    while later is not None and not isinstance(later, scf.ForOp):
        yield later
        later = later.next_op


def _rings_before(read: cuda.ReadOp) -> set[object]:
    found, before = set[object](), read.prev_op
    while before is not None:
        if isinstance(before, cuda.AwaitOp):
            found.add(before.ring)
        before = before.prev_op
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("stated", [{}, {"left": "shared"}], ids=["nothing", "shared"])
def test_only_where_it_is_stated(name: str, stated: dict[str, str]) -> None:
    found = list(roles_of(PROGRAMS[name], **stated))
    assert found
    assert not any(kept_of(roles) for _, roles in found)


@needs_compiler
@pytest.mark.parametrize("name", ["f16", "two formats"])
def test_a_tile_that_is_read_before_it_is_there_is_reported(name: str) -> None:
    _, _, printed = made(PROGRAMS[name], left="registers")
    wait = "mbarrier_wait(&Q_ring[0], "
    begin = printed.rindex(wait, 0, printed.index("load_matrix_x4(Q"))
    early = printed[:begin] + "(void)(" + printed[begin + len("mbarrier_wait(&Q_ring[0], ") :]
    with pytest.raises(EmulationError):
        execute(PROGRAMS[name], {"b": 1, "q": 128, "x": 256}, printed=early)


def plan(text: str, last: str = LAST_DECORATING_PASS, **stated: str) -> Plan:
    module = parse_module(text)
    passes = specs(**stated)
    run_passes(module, passes[: [each.name for each in passes].index(last) + 1])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return plan_of(kernel)


@pytest.mark.parametrize("name", ["f16", "f16, wide", "causal", "f8", "two formats"])
def test_the_model_counts_what_is_kept(name: str) -> None:
    """Registers of a thread as fragments take them, and none of the reads that steps have spared."""
    found = plan(PROGRAMS[name], left="registers")
    expanded = plan(PROGRAMS[name], "hierarchy-expand-streams", left="registers")
    for each in (found, expanded):
        (tile,) = (tile for tile in each.tiles if tile.role == "kept")
        ((_, roles), *_) = roles_of(PROGRAMS[name], left="registers")
        (read,) = kept_of(roles)
        assert is_fragment(read.result.type)
        assert tile.elements * tile.width == 4 * 32 * each.warp_count * registers_of(read.result)
    assert registers(found, H100) == registers(expanded, H100)
    assert _operands(found) == _operands(expanded)


@pytest.mark.parametrize("width", [24, 40, 72])
def test_a_depth_that_is_no_multiple_is_for_single_warps(width: int) -> None:
    """The model, which chooses the sizes, knows that as well as what makes the roles."""
    text = programs.attention(width, MANY)
    for last in (LAST_DECORATING_PASS, "hierarchy-expand-streams"):
        assert plan(text, last).suits_warpgroups
        assert not plan(text, last, left="registers").suits_warpgroups
    assert not list(roles_of(text, left="registers"))


def test_steps_read_less_and_threads_hold_more() -> None:
    text = programs.example("attention_mixed", MANY)
    kept, again = (plan(text, left=left, group="q=128", stream="x=64") for left in ("registers", "shared"))
    rows, depth = 64, 64
    spared = rows * depth // 512 // 4  # 8-bit values by 512 bytes, of a warpgroup's four warps
    assert _operands(again) - _operands(kept) == spared
    assert registers(kept, H100) == registers(again, H100) + rows * depth // 128 // 4


def _operands(plan: Plan) -> float:
    """What a warp reads of shared memory in a step, in 512 bytes."""
    return float(sum(issue.count for issue in plan.issues if issue.kind == "operands" and issue.streams))
