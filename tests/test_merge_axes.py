"""Reductions over several axes are one stream, for axes that are one (`diagram-merge-axes`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from treadle.compiler.pipeline import run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.formats import DTYPES
from treadle.runtime.interpreter import run_function


def maxima_of_both(Q: Any, K: Any, V: Any) -> Any:
    S = tl.contract(Q, K, over="d") * 0.125
    E = tl.exp(S - tl.max(S, over="x y"))
    return tl.contract(E, V, over="x y") / tl.sum(E, over="x y")


def maxima_of_maxima(Q: Any, K: Any, V: Any) -> Any:
    S = tl.contract(Q, K, over="d") * 0.125
    E = tl.exp(S - tl.max(tl.max(S, over="y"), over="x"))
    return tl.sum(tl.contract(E, V, over="y"), over="x") / tl.sum(tl.sum(E, over="x"), over="y")


def shares_of_both(Q: Any, K: Any, V: Any) -> Any:
    S = tl.contract(Q, K, over="d") * 0.125
    return tl.contract(tl.softmax(S, over="x y"), V, over="x y")


def flat(Q: Any, K: Any, V: Any) -> Any:
    S = tl.contract(Q, K, over="d") * 0.125
    return tl.contract(tl.softmax(S, over="z"), V, over="z")


WRITINGS = (maxima_of_both, maxima_of_maxima, shares_of_both)
SIGNATURE = "q d, x y d, x y e -> q e"


def arrays(*shapes: tuple[int, ...], format: str = "f16", seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    dtype = DTYPES[format]
    made = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [each if format == "f32" else each.astype(dtype) for each in made]


def streams(kernel: treadle.Kernel) -> int:
    return kernel.hierarchy.count("hierarchy.stream")


def verify(kernel: treadle.Kernel, *given: Any) -> None:
    for verdict in kernel.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("function", WRITINGS)
def test_attention_over_two_axes_is_that_over_one(function: Any, machine: str) -> None:
    """However it is written: one kernel with one stream, as fast as the flat form."""
    given = arrays((200, 64), (40, 27, 64), (40, 27, 64))
    Q, K, V = given
    kernel = treadle.kernel(SIGNATURE, machine=machine)(function).compiled(*given)
    known = treadle.kernel("q d, z d, z e -> q e", machine=machine)(flat)
    plain = known.compiled(Q, K.reshape(-1, 64), V.reshape(-1, 64))
    assert kernel.estimate.kernels == plain.estimate.kernels
    assert streams(kernel) == streams(plain)
    assert kernel.estimate.time_us == pytest.approx(plain.estimate.time_us, rel=0.01)
    assert kernel.estimate.device_bytes == plain.estimate.device_bytes


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [(40, 13, 11), (1, 1, 1), (33, 1, 70), (17, 35, 1), (5, 0, 3), (5, 3, 0), (0, 2, 3)])
def test_any_sizes(sizes: tuple[int, int, int], machine: str) -> None:
    q, x, y = sizes
    kernel = treadle.compile(SYMBOLIC, machine=machine)
    given = arrays((q, 64), (x, y, 64), (x, y, 64))
    verify(kernel, *given)


SYMBOLIC = """
!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[x, y, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[x, y, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[q, x, y]>>
!P = tensor<?x?x?xf16, #diagram.array<[q, x, y]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x64xf32, #diagram.array<[q, e]>>
func.func @spatial(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<q = 4000, x = 30, y = 17>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m = diagram.reduce max %S over [x, y] : !S -> !r
  %E = diagram.map (%s = %S : !S, %b = %m : !r) -> !S {
    %t = arith.subf %s, %b : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !r
  %P = diagram.cast %E : !S -> !P
  %A = diagram.contract %P, %V over [x, y] accumulate f32 : !P, !V -> !O
  %O = diagram.map (%a = %A : !O, %b = %l : !r) -> !O {
    %t = arith.divf %a, %b : f32
    diagram.yield %t : f32
  }
  func.return %O : !O
}
"""


def test_sizes_stay_those_of_the_program() -> None:
    """Who asks for costs names the axes that the program has; that of the kernel has the product of their sizes."""
    kernel = treadle.compile(SYMBOLIC, machine="h100")
    assert kernel.cost(x=60).kernels[0].sizes["x_y"] == 60 * 17
    assert kernel.cost().kernels[0].sizes["x_y"] == 30 * 17
    with pytest.raises(treadle.TreadleError, match="no axis 'x_y'"):
        kernel.cost(x_y=5)
    half = treadle.compile(SYMBOLIC, machine="h100", sizes={"y": 16})
    assert half.cost(x=10).kernels[0].sizes["x_y"] == 160
    verify(half, *arrays((40, 64), (9, 16, 64), (9, 16, 64)))
    assert "x_y = 160" in str(treadle.compile(SYMBOLIC, machine="h100", sizes={"x": 10, "y": 16}).cost())


def gaps(shape: tuple[int, ...], seed: int) -> list[Any]:
    """Views with that shape: of rows that are longer, of every second row, backwards, repeated, turned."""
    x, y, d = shape
    (big,) = arrays((2 * x, y + 5, d), seed=seed)
    (turned,) = arrays((y, x, d), seed=seed)
    (one,) = arrays((1, y, d), seed=seed)
    return [
        big[:x, 2 : y + 2],
        big[::2, :y],
        big[x - 1 :: -1, :y],
        big[:x, y - 1 :: -1],
        turned.transpose(1, 0, 2),
        np.broadcast_to(one, shape),
    ]


@pytest.mark.parametrize("number", range(6))
def test_arguments_with_gaps_are_copied(number: int) -> None:
    kernel = treadle.compile(SYMBOLIC, machine="a100")
    (Q,) = arrays((20, 64))
    verify(kernel, Q, gaps((9, 7, 64), 1)[number], gaps((9, 7, 64), 2)[number])


@pytest.mark.parametrize("format", ["f32", "f16", "bf16", "f8E4M3FN"])
def test_a_norm_over_three_axes(format: str) -> None:
    @treadle.kernel("n c h w, n c h w -> n c h w", machine="h100")
    def norm(X: Any, G: Any) -> Any:
        X = X.to("f32") - tl.mean(X, over="c h w")
        return X * tl.rsqrt(tl.mean(X * X, over="c h w") + 1e-5) * G

    given = arrays((3, 5, 7, 6), (3, 5, 7, 6), format=format)
    kernel = norm.compiled(*given)
    assert "[c, h, w] as c_h_w" in " ".join(step.subject for step in kernel.derivation)
    assert kernel.estimate.kernels == 1
    verify(kernel, *given)


def test_batches_stay() -> None:
    """Axes that nothing reduces together are as they were, and a condition on others is none of their business."""

    @treadle.kernel("b h q d, b h x y d, b h x y e -> b h q e", machine="h100")
    def heads(Q: Any, K: Any, V: Any) -> Any:
        S = tl.keep(tl.contract(Q, K, over="d"), "b + h < 4")
        return tl.contract(tl.softmax(S, over="x y"), V, over="x y")

    given = arrays((2, 3, 20, 16), (2, 3, 5, 9, 16), (2, 3, 5, 9, 16))
    kernel = heads.compiled(*given)
    assert [step.subject for step in kernel.derivation if step.rewrite == "diagram-merge-axes"] == ["[x, y] as x_y"]
    verify(kernel, *given)


@pytest.mark.parametrize("condition", ["x <= q", "2 * y < q"])
def test_a_condition_on_one_of_them_keeps_them_apart(condition: str) -> None:
    @treadle.kernel("q x y -> q", machine="a100")
    def largest(S: Any) -> Any:
        return tl.max(tl.keep(S, condition), over="x y")

    given = arrays((9, 6, 7), format="f32")
    kernel = largest.compiled(*given)
    assert "diagram-merge-axes" not in [step.rewrite for step in kernel.derivation]
    verify(kernel, *given)


def test_the_reference_is_the_same() -> None:
    """Before and after in float64, of a program in which sums of sums and of products are joined on the way."""
    given = arrays((7, 64), (4, 5, 64), (4, 5, 64))
    traced = [treadle.kernel(SIGNATURE)(each).compiled(*given).diagram for each in WRITINGS]
    for text in (SYMBOLIC, *traced):
        module, merged = parse_module(text), parse_module(text)
        run_passes(merged, [ArgSpec("diagram-expand-laws", {}), ArgSpec("diagram-merge-axes", {})])
        one, other = (run_function(each, given).results[0] for each in (module, merged))
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
        names = {axis for op in merged.walk() for value in op.results for axis in axes_of(value.type)}
        assert "x_y" in names


def test_too_many_elements_for_one_axis() -> None:
    text = """
    !X = tensor<65536x65536xf32, #diagram.array<[x, y]>>
    !s = tensor<f32, #diagram.array<[]>>
    func.func @f(%X: !X) -> !s {
      %s = diagram.reduce add %X over [x, y] : !X -> !s
      func.return %s : !s
    }
    """
    module = parse_module(text)
    run_passes(module, [ArgSpec("diagram-merge-axes", {})])
    assert "collapse" not in str(module)


def test_rounded_numbers_are_those_of_numpy() -> None:
    """The oracle of another: attention over an image, in numpy's float64."""
    Q, K, V = arrays((9, 64), (5, 7, 64), (5, 7, 64))
    S = np.einsum("qd,xyd->qxy", Q.astype(float), K.astype(float)) * 0.125
    E = np.exp(S - S.max((1, 2), keepdims=True))
    wanted = np.einsum("qxy,xye->qe", E, V.astype(float)) / E.sum((1, 2))[:, None]
    made = treadle.kernel(SIGNATURE, machine="a100")(shares_of_both)(Q, K, V, backend="emulator")
    np.testing.assert_allclose(np.asarray(made, float), wanted, atol=2e-3)


def test_what_is_absent_may_be_returned() -> None:
    """Zeros are saved for it, and have their axes again."""

    @treadle.kernel("q x y, q -> q x y, q", machine="a100")
    def kept(S: Any, B: Any) -> Any:
        W = tl.keep(S + B, "q < 3")
        return W, tl.sum(W, over="x y")

    given = arrays((6, 4, 5), (6,), format="f32")
    kernel = kept.compiled(*given)
    assert "diagram.expand" in kernel.host
    verify(kernel, *given)


MERGED = """
func.func @f(%x: tensor<?x?x8xf32>, %g: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  %room = tensor.empty() : tensor<8xf32>
  %start = linalg.fill ins(%zero : f32) outs(%room : tensor<8xf32>) -> tensor<8xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(r, k) -> (r, k)>, affine_map<(r, k) -> (k)>,
                                        affine_map<(r, k) -> (k)>], iterator_types = ["reduction", "parallel"]}
      ins(%flat, %g : tensor<?x8xf32>, tensor<8xf32>) outs(%start : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}
"""


@pytest.mark.parametrize("gap", [0, 3])
def test_linalg_that_merges_dimensions_of_an_argument(gap: int) -> None:
    kernel = treadle.compile(MERGED, machine="a100")
    x, g = arrays((5, 7 + gap, 8), (8,), format="f32")
    verify(kernel, x[:, :7], g)


def test_there_and_back_through_linalg() -> None:
    module = parse_module(REGROUPED)
    (X,) = arrays((6, 3, 4), format="f32")
    (wanted,) = run_function(module, [X]).results
    passes = ["convert-diagram-to-linalg", "convert-linalg-to-diagram"]
    run_passes(module, [ArgSpec(each, {}) for each in passes])
    np.testing.assert_array_equal(run_function(module, [X]).results[0], wanted)


REGROUPED = """
!X = tensor<?x3x4xf32, #diagram.array<[x, y, d]>>
!flat = tensor<?x4xf32, #diagram.array<[z, d]>>
!s = tensor<?xf32, #diagram.array<[z]>>
!O = tensor<?x3xf32, #diagram.array<[x, y]>>
func.func @f(%X: !X) -> !O attributes {sizes = #diagram.sizes<x = 5>} {
  %flat = diagram.collapse %X [x, y] as z : !X -> !flat
  %square = diagram.map (%a = %flat : !flat) -> !flat {
    %b = arith.mulf %a, %a : f32
    diagram.yield %b : f32
  }
  %s = diagram.reduce add %square over [d] : !flat -> !s
  %O = diagram.expand %s z as [x, y] : !s -> !O
  func.return %O : !O
}
"""


def test_regrouped_arrays_have_gradients() -> None:
    """Of the sum of squares: twice the elements."""
    module = parse_module(REGROUPED)
    run_passes(module, [ArgSpec("diagram-differentiate", {})])
    X, dO = arrays((5, 3, 4), (5, 3), format="f32")
    kernel = treadle.compile(module, machine="a100")
    given = [
        {"X": X, "dO": dO}.get(each.name, (X.astype(float) ** 2).sum(-1).astype(np.float32))
        for each in kernel.arguments
    ]
    verify(kernel, *given)
    np.testing.assert_allclose(kernel(*given, backend="emulator"), 2 * X * dO[..., None], rtol=1e-6)


def test_a_part_that_no_argument_has_is_what_the_others_leave() -> None:
    text = """
    !x = tensor<?xf32, #diagram.array<[z]>>
    !y = tensor<?x4xf32, #diagram.array<[x, y]>>
    func.func @f(%x: !x) -> !y attributes {sizes = #diagram.sizes<z = 12>} {
      %two = diagram.map (%a = %x : !x) -> !x {
        %b = arith.addf %a, %a : f32
        diagram.yield %b : f32
      }
      %y = diagram.expand %two z as [x, y] : !x -> !y
      func.return %y : !y
    }
    """
    kernel = treadle.compile(text, machine="a100")
    for length in (12, 40, 0):
        (x,) = arrays((length,), format="f32")
        verify(kernel, x)
        assert kernel(x, backend="emulator").shape == (length // 4, 4)
    with pytest.raises(treadle.TreadleError, match="'z'"):
        kernel(np.ones(13, np.float32), backend="emulator")


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_the_gradient_of_attention_over_two_axes(machine: str) -> None:
    """It has the kernels of the gradient over one axis, and saves no scores; against PyTorch."""
    torch = pytest.importorskip("torch")
    module = parse_module(SYMBOLIC)
    run_passes(module, [ArgSpec("diagram-differentiate", {})])
    kernel = treadle.compile(module, machine=machine)
    assert "x_y" in kernel.hierarchy
    shapes = {"Q": (24, 64), "K": (5, 6, 64), "V": (5, 6, 64)}
    made = dict(zip(shapes, arrays(*shapes.values()), strict=True))
    leaves = {name: torch.tensor(each.astype(np.float32), requires_grad=True) for name, each in made.items()}
    K, V = (leaves[name].flatten(0, 1) for name in ("K", "V"))
    made_of_them = (leaves["Q"] @ K.T).softmax(-1) @ V
    (dO,) = arrays((24, 64), format="f32", seed=7)
    made_of_them.backward(torch.tensor(dO))
    known = {**made, "O": made_of_them.detach().numpy(), "dO": dO}
    given = [known[each.name] for each in kernel.arguments]
    for result, value in zip(kernel.results, kernel(*given, backend="emulator"), strict=True):
        wanted = leaves[result.name.removeprefix("d")].grad.numpy()
        np.testing.assert_allclose(np.asarray(value, float), wanted, atol=2e-2 * np.abs(wanted).max())


PAGED = """
!Q = tensor<?x?x64xf16, #diagram.array<[b, q, d]>>
!pages = tensor<?x16x64xf16, #diagram.array<[p, y, d]>>
!values = tensor<?x16x64xf16, #diagram.array<[p, y, e]>>
!table = tensor<?x?xi32, #diagram.array<[b, x]>>
!n = tensor<?xi32, #diagram.array<[b]>>
!K = tensor<?x?x16x64xf16, #diagram.array<[b, x, y, d]>>
!V = tensor<?x?x16x64xf16, #diagram.array<[b, x, y, e]>>
!S = tensor<?x?x?x16xf32, #diagram.array<[b, q, x, y]>>
!P = tensor<?x?x?x16xf16, #diagram.array<[b, q, x, y]>>
!r = tensor<?x?xf32, #diagram.array<[b, q]>>
!O = tensor<?x?x64xf32, #diagram.array<[b, q, e]>>
func.func @paged(%Q: !Q, %pages: !pages, %values: !values, %table: !table {diagram.up_to = "p"}, %n: !n) -> !O
    attributes {sizes = #diagram.sizes<b = 2, q = 40, p = 30, x = 9>} {
  %K = diagram.read %pages at "table[b, x], y, d" padded with (table = %table : !table) : !pages -> !K
  %V = diagram.read %values at "table[b, x], y, e" padded with (table = %table : !table) : !values -> !V
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "16 * x + y < n[b]" with (n = %n : !n) : !S
  %m = diagram.reduce max %W over [x, y] : !S -> !r
  %E = diagram.map (%s = %W : !S, %b = %m : !r) -> !S {
    %t = arith.subf %s, %b : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !r
  %P = diagram.cast %E : !S -> !P
  %A = diagram.contract %P, %V over [x, y] accumulate f32 : !P, !V -> !O
  %O = diagram.map (%a = %A : !O, %s = %l : !r) -> !O {
    %o = arith.divf %a, %s : f32
    diagram.yield %o : f32
  }
  func.return %O : !O
}
"""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_pages_that_a_table_chooses_are_one_axis(machine: str) -> None:
    """Entries say how long it is; the condition limits the stream, so that nothing behind a length is visited."""
    kernel = treadle.compile(PAGED, machine=machine)
    assert streams(kernel) == 1
    assert "x_y < n[b]" in kernel.hierarchy
    for b, q, p, x in ((2, 20, 11, 5), (1, 1, 1, 1), (3, 5, 7, 0)):
        dice = np.random.default_rng(b)
        table = dice.integers(0, p, (b, x)).astype(np.int32)
        lengths = dice.integers(0, 16 * x + 1, b).astype(np.int32)
        given = arrays((b, q, 64), (p, 16, 64), (p, 16, 64), seed=b)
        verify(kernel, *(each * np.float16(0.3) for each in given), table, lengths)


@pytest.mark.parametrize("sizes", [(9, 11), (1, 1), (2, 33)])
def test_windows_along_two_axes(sizes: tuple[int, int]) -> None:
    """Both are summed, and a read has each beside a position: they stay apart."""
    X, W = arrays((2, *sizes, 5), (3, 3, 5))

    def depthwise(X: Any, W: Any) -> Any:
        return tl.sum(tl.read(X, "b, y + i - 1, x + j - 1, c") * W, over="i j")

    kernel = treadle.kernel("b y x c, i j c -> b y x c", static="i j", machine="h100")(depthwise)
    verify(kernel.compiled(X, W), X, W)
