"""Reads at quotients of positions: an element of the array counts for a block of neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.cost.reading.plans import plan_of, sizes_of_kernel
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram.condition import spelled
from treadle.dialects.diagram.place import PlaceAttr
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.interpreter import entry_function

WEIGHTS = Path(__file__).parents[1] / "examples" / "matmul_int4.mlir"

BIASED = """
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!G = tensor<?x?x64xf16, #diagram.array<[g, x, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!B = tensor<?x?xf16, #diagram.array<[m, n]>>
!R = tensor<?x?xf16, #diagram.array<[q, x]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
func.func @f(%Q: !Q, %G: !G, %V: !V, %B: !B) -> !A
    attributes {sizes = #diagram.sizes<h = 6, q = 70, x = 150, g = 2, m = 10, n = 10>} {
  %K = diagram.read %G at "h // 3, x, d" padded : !G -> !K
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %R = diagram.read %B at "q // 8, x // 16" padded : !B -> !R
  %T = diagram.map (%s = %S : !S, %b = %R : !R) -> !S {
    %f = arith.extf %b : f16 to f32
    %y = arith.addf %s, %f : f32
    diagram.yield %y : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  func.return %A : !A
}
"""
COMPUTED = """
!a = tensor<?x?xf32, #diagram.array<[i, k]>>
!b = tensor<?x?xf32, #diagram.array<[k, l]>>
!c = tensor<?x?xf32, #diagram.array<[i, l]>>
!r = tensor<?x?xf32, #diagram.array<[y, z]>>
!o = tensor<?x?xf32, #diagram.array<[z, y]>>
func.func @f(%a: !a, %b: !b, %like: !o) -> (!r, !o) {
  %c = diagram.contract %a, %b over [k] accumulate f32 : !a, !b -> !c
  %r = diagram.read %c at "y // 2 + 1, 2 * (z // 4)" padded : !c -> !r
  %s = diagram.map (%u = %r : !r, %v = %like : !o) -> !o {
    %y = arith.addf %u, %v : f32
    diagram.yield %y : f32
  }
  func.return %r, %s : !r, !o
}
"""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_heads_and_blocks_of_a_bias(machine: str) -> None:
    road = compiled(BIASED, machine=machine)
    road.check({"h": 6, "q": 70, "x": 150, "g": 2, "m": 9, "n": 10})
    road.check({"h": 5, "q": 33, "x": 65, "g": 1, "m": 4, "n": 40})  # of what lies outside there are zeros


def test_what_was_computed_is_read_at_quotients_with_factors() -> None:
    road = compiled(COMPUTED)
    for sizes in ((9, 5, 30, 17, 61), (1, 5, 3, 7, 1), (64, 33, 70, 100, 130)):
        road.check(dict(zip("iklyz", sizes, strict=True)))


def attended(Q, K, V, kept):  # type: ignore[no-untyped-def]
    """In float64; of nothing, nothing."""
    scores = np.where(kept, Q.astype(float) @ K.astype(float).T * 0.125, -np.inf)
    powers = np.exp(scores - np.maximum(scores.max(1, keepdims=True), -1e30))
    return powers / np.maximum(powers.sum(1, keepdims=True), 1e-30) @ V.astype(float)


@pytest.mark.parametrize(("queries", "keys"), [(70, 150), (1, 1), (33, 65)])
def test_attention_to_blocks_of_a_table_and_to_distances_of_another(queries: int, keys: int) -> None:
    @treadle.kernel("q d, x d, x e, m n, r -> q e")
    def sparse(Q, K, V, table, near):
        S = tl.contract(Q, K, over="d") * 0.125
        seen = "table[q // 16, x // 24] == 1 or table[q // 16, x // 24] == 2 and near[x - q + 3] > 0"
        return tl.contract(tl.softmax(tl.keep(S, seen, table=table, near=near), over="x"), V, over="x")

    dice = np.random.default_rng(0)
    Q, K, V = (dice.standard_normal((n, 64)).astype(np.float16) for n in (queries, keys, keys))
    table = dice.integers(0, 3, (-(-queries // 16), -(-keys // 24))).astype(np.int32)
    near = dice.integers(0, 2, 40).astype(np.int32)
    q, x = np.indices((queries, keys))
    at, blocks = x - q + 3, table[q // 16, x // 24]
    kept = (blocks == 1) | (blocks == 2) & (at >= 0) & (at < 40) & (near[at.clip(0, 39)] > 0)
    assert np.abs(sparse(Q, K, V, table, near) - attended(Q, K, V, kept)).max() < 1e-2
    (verdict,) = sparse.compiled(Q, K, V, table, near).verify(Q, K, V, table, near)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("table[x // 16, x] == 1", "'x' of a quotient stands once"),
        ("table[q // 16, z // 16] == 1", "'z' of 'table.*' is no axis of the array"),
        ("other[q // 16, x // 16] == 1", "'other' is not given: name the array that it is"),
        ("table[q // 0, x] == 1", "no sum of positions, integer inputs and whole numbers"),
        ("table[q * x, x] == 1", "multiplies two things that vary"),
        ("table[x // 16] == 1", "1 positions for the 2 axes"),
    ],
)
def test_positions_that_nothing_is_read_at(condition: str, message: str) -> None:
    @treadle.kernel("q x, m n -> q x")
    def kept(S, table):
        return tl.keep(S, condition, table=table)

    with pytest.raises(TreadleError, match=message):
        kept(np.ones((3, 5), np.float32), np.ones((1, 5), np.int32))


def test_an_array_of_blocks_is_as_large_as_it_is() -> None:
    module = parse_module(BIASED)
    run_pipeline(module, Options(), last=LAST_HIERARCHY_PASS)
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    sizes = sizes_of_kernel(kernel, entry_function(module), {"h": 6, "q": 70, "x": 150})
    whole = {each.array: each.whole(sizes) for each in plan_of(kernel).transfers}
    assert whole["R"] == 9 * 10
    assert whole["K"] == 2 * 150 * 64


@pytest.mark.parametrize("place", ["3 - t // 2", "-(t // 3) + 1", "3 - t % 4", "n - 2 * (t // 4)", "-(t // 2) - n + 5"])
def test_quotients_that_run_backwards(place: str) -> None:
    """They are written so that they are read again: `-t // 2` is another number."""
    (form,) = PlaceAttr(place).forms
    assert PlaceAttr(spelled(form)).forms == (form,)

    @treadle.kernel("m, t, n -> t n" if "n" in place else "m, t -> t")
    def read(A, B, *_):
        return tl.read(A, place) + B

    A, B = np.asarray([1, 2, 4, 8], np.float32), np.arange(11, dtype=np.float32)
    at = eval(place, dict(zip("nt", np.meshgrid(np.arange(3), np.arange(11)), strict=True)))
    wanted = np.where((at >= 0) & (at < 4), A[np.clip(at, 0, 3)], 0) + B[:, None]
    found = read(A, B, np.zeros(3, np.float32)) if "n" in place else read(A, B)[:, None]
    np.testing.assert_array_equal(np.broadcast_to(found, wanted.shape), wanted)


def in_parts(path: Path, **how: int) -> Road:
    algorithm = load_module(path)
    module = algorithm.clone()
    asked = {name: (number,) for name, number in how.items()}
    specs = [ArgSpec(s.name, asked) if s.name == "hierarchy-split-streams" else s for s in pipeline(Options())]
    run_passes(module, specs)
    return Road(algorithm, module, print_cuda(module))


@pytest.mark.parametrize("length", [64, 192])
def test_parts_of_a_stream_are_whole_blocks(length: int) -> None:
    """Each reads the array itself, where blocks are shared by positions."""
    road = in_parts(WEIGHTS, length=length)
    assert len(road.kernels) == 2
    for k in (0, 1, 63, 64, 65, 191, 192, 193, 385, 640):
        road.check({"m": 5, "k": k, "b": (k + 1) // 2, "g": k // 64 + 1, "n": 12})
    road.check({"m": 5, "k": 400, "b": 150, "g": 4, "n": 9})  # of what lies outside there are zeros


def test_parts_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(TreadleError, match=r"scales is read at quotients: .* it takes whole blocks of 64"):
        in_parts(WEIGHTS, length=96)


def test_parts_need_an_array_that_says_how_many_there_are() -> None:
    text = """
!P = tensor<?x?xf32, #diagram.array<[m, n]>>
!R = tensor<?x?xf32, #diagram.array<[k, n]>>
!r = tensor<?xf32, #diagram.array<[n]>>
!k = tensor<?xf32, #diagram.array<[k]>>
func.func @f(%P: !P, %like: !k) -> (!r, !k) {
  %R = diagram.read %P at "k // 4, n" padded : !P -> !R
  %s = diagram.reduce add %R over [k] : !R -> !r
  %t = diagram.map (%x = %like : !k) -> !k {
    %y = arith.addf %x, %x : f32
    diagram.yield %y : f32
  }
  func.return %s, %t : !r, !k
}
"""
    module = parse_module(text)
    specs = [
        ArgSpec(s.name, {"length": (64,)}) if s.name == "hierarchy-split-streams" else s for s in pipeline(Options())
    ]
    with pytest.raises(TreadleError, match="'k' is read at quotients alone"):
        run_passes(module, specs)
    compiled(text).check({"m": 33, "k": 130, "n": 5})


def test_weights_of_four_bits_are_cut_where_groups_are_few() -> None:
    """As the cost model sees it, which counts an element once, however many positions read it."""
    sizes = {"m": 16, "k": 4096, "b": 2048, "g": 64, "n": 4096}
    for machine in ("a100", "h100"):
        kernel = treadle.compile(WEIGHTS, machine=machine, sizes=sizes)
        assert any(step.rewrite == "hierarchy-split-streams" for step in kernel.derivation)
