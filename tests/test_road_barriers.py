"""Every barrier that a kernel has is needed, and nearly every wait: take one away, and the emulator reports a fault."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from roads import Road, attention, compiled, matmul
from treadle.compiler.pipeline import print_cuda
from treadle.dialects import cuda
from treadle.runtime.emulator import EmulationError

SEEDS = (0, 1, 2, 3)
"""Orders in which the emulator lets warps run and copies arrive."""

PROGRAMS = {
    "attention": (attention(64, 64, "f16"), "x"),
    "attention in f32": (attention(24, 24, "f32"), "x"),
    "wide attention": (attention(256, 256, "bf16"), "x"),
    "product": (matmul("mk", "kn", "f16"), "k"),
    "product in f32": (matmul("km", "kn", "f32"), "k"),
}
"""With the axis that is streamed."""

SPARE = {"attention in f32": 1}
"""After a loop, all stages of its tiles are taken as read since the last barrier; those of K are not, here, because
the step itself meets after it."""

LENGTHS = (300, 150, 30, 0, 500, 128, 129, 16, 17, 33, 64)
"""Of the streamed axis: no turn of the loop, an odd number, an even one, with and without a last, smaller piece."""


def synchronisations(module: ModuleOp) -> list[cuda.BarrierOp | cuda.WaitOp]:
    return [op for op in module.walk() if isinstance(op, cuda.BarrierOp | cuda.WaitOp)]


def fault(road: Road, axis: str) -> str | None:
    """The first fault at any length of the streamed axis, in any order."""
    backend = road.backend()
    for length in LENGTHS:
        inputs = road.inputs({**dict.fromkeys(road.symbolic, 40), axis: length})
        for seed in SEEDS:
            backend.seed = seed
            try:
                road.run(inputs)
            except EmulationError as error:
                return str(error).splitlines()[0]
    return None


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] if "f32" in name or "wide" in name else []) for name in PROGRAMS],
)
def test_no_barrier_can_go(name: str) -> None:
    text, axis = PROGRAMS[name]
    whole = compiled(text)
    assert fault(whole, axis) is None
    spare: list[str] = []
    for i, op in enumerate(synchronisations(whole.module)):
        if is_at_the_end_of_a_loop(op):
            continue
        module = whole.module.clone()
        Rewriter.erase_op(synchronisations(module)[i])
        found = fault(Road(whole.algorithm, module, print_cuda(module)), axis)
        if found is None:
            spare.append(f"{op.name}, number {i}, before {op.next_op}"[:200])
        else:
            assert "race" in found or "uninitialised" in found
    assert len(spare) <= SPARE.get(name, 0), spare


def is_at_the_end_of_a_loop(op: cuda.BarrierOp | cuda.WaitOp) -> bool:
    """The one wait that a kernel may do without: it is for loops of no turn, which leave copies under way that were
    asked for before."""
    return isinstance(op, cuda.WaitOp) and isinstance(op.prev_op, scf.ForOp)


TURNED = """
!X = tensor<2x8x32xf32, #diagram.array<[l, i, n]>>
!W = tensor<4x32xf32, #diagram.array<[j, n]>>
!a = tensor<4xf32, #diagram.array<[j]>>
!f = tensor<8xf32, #diagram.array<[i]>>
!i = tensor<8xi32, #diagram.array<[i]>>
!g = tensor<8x4xf32, #diagram.array<[i, j]>>
!C = tensor<2x8x4xf32, #diagram.array<[l, i, j]>>
func.func @turned(%X: !X, %W: !W, %a: !a) -> !C {
  %i = diagram.index -> !i
  %f = diagram.cast %i : !i -> !f
  %g = diagram.map (%p = %f : !f, %b = %a : !a) -> !g {
    %t = arith.mulf %p, %b : f32
    %c = math.cos %t : f32
    diagram.yield %c : f32
  }
  %P = diagram.contract %X, %W over [n] accumulate f32 : !X, !W -> !C
  %C = diagram.map (%p = %P : !C, %b = %g : !g) -> !C {
    %c = arith.mulf %p, %b : f32
    diagram.yield %c : f32
  }
  func.return %C : !C
}
"""
"""While `a` is on its way to shared memory, `f` goes through it to other threads, which takes a barrier."""


def test_a_barrier_before_the_wait_shows_no_copy() -> None:
    """What an asynchronous copy brings is read after a wait and a barrier, in this order."""
    road = compiled(TURNED)
    block = road.kernels[0].body.block
    (read,) = (op for op in block.ops if isinstance(op, cuda.ReadOp) and op.source.name_hint == "a_shared")
    before = [*block.ops][: [*block.ops].index(read)]
    last = max(i for i, op in enumerate(before) if isinstance(op, cuda.WaitOp))
    assert any(isinstance(op, cuda.BarrierOp) for op in before[last:])
    for seed in SEEDS:
        road.backend().seed = seed
        road.run(road.inputs({}))
