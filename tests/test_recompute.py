"""`diagram-recompute`: what is summed along different axes is made once for each, and no wide array is saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.fusion import FusionPass
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import run_function

ROOT = Path(__file__).parents[1]
BACKWARD = ROOT / "examples" / "attention_backward.mlir"
DUAL = ROOT / "tests" / "programs" / "masked_dual_softmax.mlir"

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


def fused(module: ModuleOp, machine: str) -> list[KernelOp]:
    run_pipeline(module, Options(machine=machine), last="fusion")
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def saved(kernels: list[KernelOp]) -> list[tuple[str, ...]]:
    """The axes of what kernels read of each other."""
    return [axes_of(each.type) for kernel in kernels for each in kernel.operands if isinstance(each.owner, KernelOp)]


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("path", [BACKWARD, DUAL], ids=lambda path: path.stem)
def test_no_scores_are_saved(path: Path, machine: str) -> None:
    kernels = fused(load_module(path), machine)
    assert len(kernels) == 2
    assert saved(kernels)
    assert not [axes for axes in saved(kernels) if {"q", "x"} <= {*axes}]


def test_ways_that_are_the_same_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums along x, and of them sums along q, are a phase each: kernels are made without arrays again, and with."""
    tried: list[int] = []

    def count(self: FusionPass, ctx: Context, op: ModuleOp, apply: Callable[..., None] = FusionPass.apply) -> None:
        tried.append(1)
        apply(self, ctx, op)

    monkeypatch.setattr(FusionPass, "apply", count)
    run_pipeline(load_module(BACKWARD), Options(machine="a100"), last="diagram-recompute")
    assert len(tried) == 2


def test_gradients_are_autograds() -> None:
    q, k, v, do = (torch.randn(1, 2, n, 64, dtype=torch.float64).half().double() for n in (9, 13, 13, 9))
    q, k, v = (each.requires_grad_() for each in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v)
    wanted = torch.autograd.grad((o * do).sum(), (q, k, v))
    given = [each.detach().numpy() for each in (q, k, v, o, do)]
    found = run_function(load_module(BACKWARD), given, sizes={"b": 1, "h": 2, "q": 9, "x": 13}).results
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [{"q": 70, "x": 131}, {"q": 1, "x": 33}, {"q": 129, "x": 1}])
def test_attention_backward_runs_at_any_size(sizes: dict[str, int], machine: str) -> None:
    road, every = road_of(BACKWARD.read_text(), machine), {"b": 1, "h": 2, **sizes}
    for verdict in road.verdicts(road.inputs(every, 3), every):
        assert verdict.ok, verdict


LONG = BACKWARD.read_text().replace("q = 200, x = 333", "q = 4096, x = 4096")


def test_what_begins_a_stream_is_kept_apart_where_that_saves_time() -> None:
    """On an H100: the sum over e reads what else only products read, and no producer could bring."""
    kernels = fused(parse_module(LONG, "long.mlir"), "h100")
    assert len(kernels[0].outputs) == 1
    assert len(kernels) == 3
    assert not [axes for axes in saved(kernels) if {"q", "x"} <= {*axes}]


@cache
def road_of(text: str, machine: str) -> Road:
    return compiled(text, machine=machine)


@needs_compiler
@pytest.mark.parametrize("format", ["f16", "bf16"])
@pytest.mark.parametrize(("q", "x"), [(70, 200), (129, 33)])
def test_long_gradients_at_odd_sizes(q: int, x: int, format: str) -> None:
    road, sizes = road_of(LONG.replace("xf16", f"x{format}"), "h100"), {"b": 1, "h": 1, "q": q, "x": x}
    assert len(road.kernels) >= 3
    for verdict in road.verdicts(road.inputs(sizes, 4), sizes):
        assert verdict.ok, verdict


HEAD = """
!A = tensor<?x64xf16, #diagram.array<[q, d]>>
!B = tensor<?x64xf16, #diagram.array<[x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!rows = tensor<?xf32, #diagram.array<[q]>>
!columns = tensor<?xf32, #diagram.array<[x]>>
"""

COUNTS = (
    HEAD
    + """
func.func @counts(%A: !A, %B: !B) -> (!rows, !columns) attributes {sizes = #diagram.sizes<q = 200, x = 333>} {
  %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
  %m = diagram.reduce max %S over [x] : !S -> !rows
  %is_most = diagram.map (%s = %S : !S, %most = %m : !rows) -> !S {
    %one = arith.constant 1.0 : f32
    %zero = arith.constant 0.0 : f32
    %is = arith.cmpf oeq, %s, %most : f32
    %n = arith.select %is, %one, %zero : f32
    diagram.yield %n : f32
  }
  %n = diagram.reduce add %is_most over [q] : !S -> !columns
  func.return %m, %n : !rows, !columns
}
"""
)


def test_what_a_rounding_would_change_is_not_made_again() -> None:
    """Whether an element is the largest of its row: two kernels that add up its product in different orders may not
    agree."""
    kernels = fused(parse_module(COUNTS, "counts.mlir"), "h100")
    assert ("q", "x") in saved(kernels)
    products = [op for kernel in kernels for op in kernel.walk() if op.name == "diagram.contract"]
    assert len(products) == 1


@treadle.kernel("q d, x d -> q, x", static="d", result="f32")
def contrastive(A: tl.Array, B: tl.Array) -> tuple[tl.Array, tl.Array]:
    scores = tl.contract(A, B, over="d") * 0.125
    return tl.logsumexp(scores, over="x"), tl.logsumexp(scores, over="q")


@treadle.kernel("q d, x d -> q, x", static="d", result="f32")
def beyond_a_number(A: tl.Array, B: tl.Array) -> tuple[tl.Array, tl.Array]:
    scores = tl.contract(A, B, over="d")
    largest = tl.max(scores, over="x")
    return largest, tl.sum(tl.where(largest > 8.0, scores, 0.0), over="q")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("program", "is_steady"), [(contrastive, True), (beyond_a_number, False)])
def test_whether_a_number_is_infinite_is_no_matter_of_roundings(
    program: tl.NamedKernel, is_steady: bool, machine: str
) -> None:
    """A log-sum-exp asks that of its maximum, so that rows of nothing but -inf give -inf."""
    module = program.trace(["f16", "f16"], {"q": 4096, "x": 4096, "d": 64}, program.static)
    assert (("q", "x") not in saved(fused(module, machine))) == is_steady


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_log_sum_exps_along_both_axes(machine: str) -> None:
    module = contrastive.trace(["f16", "f16"], {"q": 4096, "x": 4096, "d": 64}, contrastive.static)
    road = compiled(str(module), machine=machine)
    A, B = (np.random.default_rng(n).standard_normal((n, 64)).astype(np.float16) for n in (37, 75))
    A[3], B[5] = np.inf, 0
    A[3, 1:] = 0  # scores of row 3 are infinities of both signs, and NaN with row 5
    B[6], A[4] = -np.inf, 0
    B[6, 2:] = 0
    rows, columns = road.run((A, B))
    with np.errstate(invalid="ignore"):
        scores = 0.125 * A.astype(float) @ B.astype(float).T
        for axis, ours in ((1, rows), (0, columns)):
            np.testing.assert_allclose(ours, np.logaddexp.reduce(scores, axis), rtol=2e-5)
