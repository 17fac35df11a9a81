"""Two axes that a product sums over are one depth, fed piece by piece, where that saves time
(`diagram-merge-depths`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import run_passes
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import run_function

PASS = "diagram-merge-depths"


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


def both(A: Any, B: Any) -> Any:
    return tl.contract(A, B, over="b k")


def summed(A: Any, B: Any) -> Any:
    return tl.sum(tl.contract(A, B, over="k"), over="b")


def mean(A: Any, B: Any) -> Any:
    return tl.mean(tl.contract(A, B, over="k"), over="b")


def scaled(A: Any, B: Any) -> Any:
    return tl.sum(3 * (tl.contract(A, B, over="k") / 8), over="b")


def weights(X: Any, dY: Any) -> Any:
    return tl.contract(X, dY, over="b t")


def decided(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == PASS]


def declined(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == f"decline {PASS}"]


def kernels_of(kernel: treadle.Kernel) -> int:
    return sum(step.rewrite == "fusion" and " into @" in step.subject for step in kernel.derivation)


def verify(kernel: treadle.Kernel, *given: Any) -> None:
    for verdict in kernel.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)


def text(k: int, format: str = "f16", accumulate: str = "f32", sizes: str = "b = 8, m = 4096, n = 4096") -> str:
    return f"""
!A = tensor<?x?x{k}x{format}, #diagram.array<[b, m, k]>>
!B = tensor<?x{k}x?x{format}, #diagram.array<[b, k, n]>>
!C = tensor<?x?x{accumulate}, #diagram.array<[m, n]>>
func.func @both(%A: !A, %B: !B) -> !C attributes {{sizes = #diagram.sizes<{sizes}>}} {{
  %C = diagram.contract %A, %B over [b, k] accumulate {accumulate} : !A, !B -> !C
  func.return %C : !C
}}
"""


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("function", [both, summed, mean, scaled])
def test_products_of_a_batch_are_added_up_in_one_kernel(function: Callable[..., Any], machine: str) -> None:
    """As fast as where the program has both axes as one, side by side."""
    A, B = np.zeros((8, 4096, 1024), np.float16), np.zeros((8, 1024, 4096), np.float16)
    kernel = treadle.kernel("b m k, b k n -> m n", machine=machine)(function).compiled(A, B)
    assert "[b_k, k_within]" in decided(kernel)[-1]
    assert kernels_of(kernel) == 1
    flat = treadle.kernel("m z, z n -> m n", machine=machine)(lambda A, B: tl.contract(A, B, over="z"))
    plain = flat.compiled(A.reshape(4096, 8192), B.reshape(8192, 4096))
    assert kernel.estimate.time_us == pytest.approx(plain.estimate.time_us, rel=0.03)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("k", [64, 192, 48])
def test_any_sizes(k: int, machine: str) -> None:
    kernel = treadle.compile(text(k), machine=machine, passes=[f"{PASS}{{axes=b,k}}"] if k != 64 else [])
    assert bool(decided(kernel)) == (k != 64)  # which a group holds whole as it is
    for batch, rows, columns in ((3, 67, 131), (1, 1, 1), (0, 5, 3), (2, 0, 7), (5, 130, 64)):
        verify(kernel, *arrays((batch, rows, k), (batch, k, columns)))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    ("format", "accumulate", "dtype", "within"),
    [
        ("f16", "f32", np.float16, 64),
        ("bf16", "f32", bfloat16, 64),
        ("i8", "i32", np.int8, 128),
        ("f32",) * 2 + (np.float32, 32),
    ],
)
def test_formats(format: str, accumulate: str, dtype: Any, within: int, machine: str) -> None:
    """A piece has 128 bytes."""
    kernel = treadle.compile(text(384, format, accumulate), machine=machine, passes=[f"{PASS}{{axes=b,k}}"])
    assert f"/ {384 // within}u" in kernel.cuda
    verify(kernel, *((3 * each).astype(dtype) for each in arrays((2, 40, 384), (2, 384, 24))))


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_factors_of_each_product_are_one_of_their_sum(machine: str) -> None:
    A, B = arrays((3, 40, 64), (3, 64, 24))
    kernel = treadle.kernel("b m k, b k n -> m n", machine=machine)(scaled).compiled(A, B)
    assert [step.subject for step in kernel.derivation if step.rewrite == "diagram-hoist-factors"] == [
        "3, 8 past the sum %sum over [b]"
    ]
    verify(kernel, A, B)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_any_strides(machine: str) -> None:
    """With gaps between the two axes, backwards, and in another order: pieces are views."""
    kernel = treadle.compile(text(128), machine=machine, passes=[f"{PASS}{{axes=b,k}}"])
    A, B = arrays((6, 40, 128), (40, 3, 128))
    verify(kernel, A[::2], B.transpose(1, 2, 0))
    verify(kernel, A[:3, ::-1, ::-1], B.transpose(1, 2, 0)[::-1])


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_weights_of_heads_are_one_product(machine: str) -> None:
    """Of positions that lie apart in a batch, for each head."""
    X, dY = arrays((2, 3, 256, 40), (2, 256, 72))
    verify(treadle.kernel("b h t d, b t o -> h d o", machine=machine)(weights).compiled(X, dY), X, dY)
    asked = treadle.compile(WEIGHTS, machine=machine, passes=[f"{PASS}{{axes=b,t}}"])
    verify(asked, X, dY)


def test_weights_of_heads_are_fed_piece_by_piece() -> None:
    """Index by index along all pieces, whose elements are the depth, however few there are."""
    given = [np.zeros((4, 16, 2048, 128), np.float16), np.zeros((4, 2048, 2048), np.float16)]
    kernel = treadle.kernel("b h t d, b t o -> h d o", machine="h100")(weights).compiled(*given)
    assert kernels_of(kernel) == 1
    assert kernel.estimate.time_us < 90
    (chosen,) = [step.subject for step in kernel.derivation if step.rewrite == "streaming"]
    assert chosen == "%product of @weights along b_t"


WEIGHTS = """
!X = tensor<?x?x256x?xf16, #diagram.array<[b, h, t, d]>>
!dY = tensor<?x256x?xf16, #diagram.array<[b, t, o]>>
!W = tensor<?x?x?xf32, #diagram.array<[h, d, o]>>
func.func @weights(%X: !X, %dY: !dY) -> !W attributes {sizes = #diagram.sizes<b = 8, h = 16, d = 128, o = 2048>} {
  %W = diagram.contract %X, %dY over [b, t] accumulate f32 : !X, !dY -> !W
  func.return %W : !W
}
"""


def test_it_is_declined_where_a_group_is_fed_one_axis_as_fast() -> None:
    def projection(X: Any, W: Any) -> Any:
        return tl.contract(X, W, over="h d")

    X, W = arrays((2, 8, 256, 128), (8, 128, 512))
    kernel = treadle.kernel("b h q d, h d o -> b q o", machine="h100")(projection).compiled(X, W)
    assert decided(kernel) == []
    assert declined(kernel) == ["[h, d]"]


def test_what_something_else_uses_is_no_part_of_a_sum() -> None:
    def two(A: Any, B: Any) -> Any:
        P = tl.contract(A, B, over="k")
        return tl.sum(P, over="b"), P

    A, B = arrays((4, 64, 128), (4, 128, 64))
    kernel = treadle.kernel("b m k, b k n -> m n, b m n", machine="h100")(two).compiled(A, B)
    assert decided(kernel) == declined(kernel) == []
    verify(kernel, A, B)


def test_what_is_read_elsewhere_is_not_read_in_pieces() -> None:
    """Windows of a signal: no view of views."""
    module = parse_module(WINDOWS)
    before = str(module)
    run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)}), ArgSpec(PASS, {})])
    assert "k_within" not in str(module)
    assert "diagram.read %X" in before


WINDOWS = """
!X = tensor<?x1024xf16, #diagram.array<[b, t]>>
!V = tensor<?x64x?xf16, #diagram.array<[b, k, m]>>
!B = tensor<?x64x?xf16, #diagram.array<[b, k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @windows(%X: !X, %B: !B) -> !C attributes {sizes = #diagram.sizes<b = 8, n = 4096>} {
  %V = diagram.read %X at "b, m + k" : !X -> !V
  %C = diagram.contract %V, %B over [b, k] accumulate f32 : !V, !B -> !C
  func.return %C : !C
}
"""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_pieces_that_no_array_counts_are_no_depth(machine: str) -> None:
    """Each array has one of the two axes: only the host knows how long the outer one is, and it is asked for both."""
    kernel = treadle.compile(SCALED, machine=machine)
    assert decided(kernel) == declined(kernel) == []
    X, scale, Y = arrays((3, 5), (128,), (3, 7))
    verify(kernel, X, scale, Y)
    fixed = SCALED.replace("?x?x128x", "3x?x128x").replace("<?x?xf16", "<3x?xf16").replace("b = 4096, ", "")
    known = treadle.compile(fixed, machine=machine, passes=[f"{PASS}{{axes=b,k}}"])
    assert decided(known)
    verify(known, X, scale, Y)


SCALED = """
!X = tensor<?x?xf16, #diagram.array<[b, m]>>
!scale = tensor<128xf16, #diagram.array<[k]>>
!Y = tensor<?x?xf16, #diagram.array<[b, n]>>
!A = tensor<?x?x128xf16, #diagram.array<[b, m, k]>>
!B = tensor<?x?x128xf16, #diagram.array<[b, n, k]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @scaled(%X: !X, %scale: !scale, %Y: !Y) -> !C
    attributes {sizes = #diagram.sizes<b = 4096, m = 512, n = 512>} {
  %A = diagram.map (%x = %X : !X, %s = %scale : !scale) -> !A {
    %a = arith.addf %x, %s : f16
    diagram.yield %a : f16
  }
  %B = diagram.map (%y = %Y : !Y, %s = %scale : !scale) -> !B {
    %b = arith.subf %y, %s : f16
    diagram.yield %b : f16
  }
  %C = diagram.contract %A, %B over [b, k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
"""


@pytest.mark.parametrize("axes", [("b", "m"), ("z",)])
def test_impossible_axes_are_refused(axes: tuple[str, ...]) -> None:
    module = parse_module(text(128))
    with pytest.raises(TreadleError, match=f"no product sums over axis '{axes[-1]}' and another one"):
        run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)}), ArgSpec(PASS, {"axes": axes})])


def test_without_pieces_there_is_nothing_to_merge() -> None:
    module = parse_module(text(100))
    with pytest.raises(TreadleError, match="there are none"):
        run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)}), ArgSpec(PASS, {"axes": ("b", "k")})])


def test_more_pieces_than_an_axis_may_have_are_no_depth() -> None:
    module = parse_module(text(1024).replace("<?x?x1024x", f"<{2**28}x?x1024x").replace("<?x1024x", f"<{2**28}x1024x"))
    run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)}), ArgSpec(PASS, {})])
    assert "diagram.read" not in str(module)


def test_the_interpreter_computes_the_same() -> None:
    A, B = arrays((3, 5, 192), (3, 192, 7))
    module = parse_module(text(192))
    (before,) = run_function(module, [A, B]).results
    run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)}), ArgSpec(PASS, {"axes": ("b", "k")})])
    (after,) = run_function(module, [A, B]).results
    np.testing.assert_allclose(after, before, rtol=1e-12)
    np.testing.assert_allclose(before, np.einsum("bmk,bkn->mn", A.astype(float), B.astype(float)), rtol=1e-12)


def test_the_longer_axis_is_the_depth_where_both_are_known_only_at_launch() -> None:
    """A product for each index of the shorter one, which is then summed."""
    sizes = "b = 8, m = 512, n = 512, k = 1000"
    kernel = treadle.compile(text(1000, sizes=sizes).replace("x1000x", "x?x"), machine="h100")
    assert decided(kernel) == []
    assert kernel.estimate.device_bytes < 2 * 4 * 8 * 512 * 512 + 3 * 2 * 8 * 1000 * 512 * 2
    verify(kernel, *arrays((3, 20, 40), (3, 40, 24)))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("k", ["1000", "?"])
def test_a_long_axis_without_pieces_is_the_depth(k: str, machine: str) -> None:
    """Or both are, of copies in which they are one; and not a batch alone, index by index: memory runs along `k`."""
    program = text(1000, sizes="b = 8, m = 4096, n = 4096, k = 1000")
    program = program.replace("<?x?x1000x", "<8x?x1000x").replace("<?x1000x", "<8x1000x").replace("x1000x", f"x{k}x")
    kernel = treadle.compile(program, machine=machine)
    fed = [step.subject for step in kernel.derivation if step.rewrite == "streaming"]
    assert any(each.endswith((" along k", " along b_k")) for each in fed)
    assert kernels_of(kernel) == 2
    short = 1000 if k == "1000" else 40
    verify(kernel, *arrays((8, 20, short), (8, short, 24)))
