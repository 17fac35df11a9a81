"""Products whose operands are copied, so that they are fed one axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn
from numpy.typing import DTypeLike, NDArray

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.main import main

PASS = "diagram-copy-operands"

PATCHES = """
!X = tensor<?x?x?x?xf16, #diagram.array<[b, h, w, c]>>
!V = tensor<?x?x4x?x4x?xf16, #diagram.array<[b, x, i, y, j, c]>>
!W = tensor<4x4x?x?xf16, #diagram.array<[i, j, c, o]>>
!O = tensor<?x?x?x?xf32, #diagram.array<[b, x, y, o]>>
func.func @patches(%X: !X, %W: !W) -> !O
    attributes {sizes = #diagram.sizes<b = 32, h = 224, w = 224, c = 4, x = 56, y = 56, o = 768>} {
  %V = diagram.read %X at "b, 4 * x + i, 4 * y + j, c" : !X -> !V
  %O = diagram.contract %V, %W over [i, j, c] accumulate f32 : !V, !W -> !O
  func.return %O : !O
}
"""

THREE = """
!A = tensor<?x?x?x?xf16, #diagram.array<[a, m, b, k]>>
!B = tensor<?x?x?x?xf16, #diagram.array<[b, a, k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @three(%A: !A, %B: !B) -> !C
    attributes {sizes = #diagram.sizes<a = 4, m = 2048, b = 4, k = 256, n = 2048>} {
  %C = diagram.contract %A, %B over [a, b, k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
"""


def arrays(*shapes: Sequence[int], dtype: DTypeLike = np.float16) -> list[NDArray[Any]]:
    random = np.random.default_rng(1)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def copied(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == PASS]


def verify(kernel: treadle.Kernel, *given: NDArray[Any]) -> None:
    verdicts = kernel.verify(*given, backend="emulator")
    assert verdicts
    assert all(each.ok for each in verdicts), verdicts


# -- what the model decides --------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "most"), [("h100", 0.1), ("a100", 0.1)])
def test_patches_are_rows_of_one_product(machine: str, most: float) -> None:
    kernel = treadle.compile(PATCHES, machine=machine)
    assert copied(kernel) == ["%V of %O as [.., i, j, c]"]
    plain = treadle.compile(PATCHES, machine=machine, passes=[f"{PASS}{{axes=none}}"])
    assert copied(plain) == []
    assert kernel.estimate.time_us < most * plain.estimate.time_us


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_three_axes_that_lie_apart_are_one(machine: str) -> None:
    kernel = treadle.compile(THREE, machine=machine)
    assert copied(kernel) == ["%A of %C as [.., b, a, k]"]
    plain = treadle.compile(THREE, machine=machine, passes=[f"{PASS}{{axes=none}}"])
    assert kernel.estimate.time_us < 0.6 * plain.estimate.time_us


def test_a_product_is_not_copied_for_less_than_it_saves() -> None:
    """Two axes, of which the inner one can be cut in pieces, need no copies."""
    text = THREE.replace("[a, m, b, k]", "[m, a, b, k]").replace("[b, a, k, n]", "[a, b, k, n]")
    assert copied(treadle.compile(text, machine="h100")) == []  # they lie side by side as it is
    weights = np.zeros((4, 16, 2048, 128), np.float16), np.zeros((4, 2048, 2048), np.float16)

    def product(X: Any, Y: Any) -> Any:
        return tl.contract(X, Y, over="b t")

    kernel = treadle.kernel("b h t d, b t o -> h d o", machine="h100")(product)
    kernel = kernel.compiled(*weights)
    assert copied(kernel) == []
    (reason,) = [step.reason for step in kernel.derivation if step.rewrite == f"decline {PASS}"]
    assert "us" in reason


# -- what is computed --------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_patches_at_any_size(machine: str) -> None:
    kernel = treadle.compile(PATCHES, machine=machine, passes=[f"{PASS}{{axes=i,j,c}}"])
    assert copied(kernel) == ["%V of %O as [.., i, j, c]"]
    for batch, height, width, channels, out in ((2, 12, 20, 3, 37), (1, 4, 4, 1, 1), (0, 8, 4, 3, 5), (2, 7, 9, 5, 8)):
        verify(kernel, *arrays((batch, height, width, channels), (4, 4, channels, out)))


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ("axes=b,a,k operands=A", "%A of %C as [.., b, a, k]"),
        ("axes=a,b,k operands=B", "%B of %C as [.., a, b, k]"),
    ],
)
def test_either_operand(options: str, subject: str, machine: str) -> None:
    """Of one operand two axes lie side by side then, and the third one is left apart."""
    kernel = treadle.compile(THREE, machine=machine, passes=[f"{PASS}{{{options}}}"])
    assert copied(kernel) == [subject]
    for a, m, b, k, n in ((3, 70, 2, 40, 19), (1, 1, 1, 1, 1), (2, 5, 0, 3, 4)):
        verify(kernel, *arrays((a, m, b, k), (b, a, k, n)))


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_both_operands(machine: str) -> None:
    """Where the order of neither has the axes side by side."""
    text = THREE.replace("[b, a, k, n]", "[a, n, b, k]")
    kernel = treadle.compile(text, machine=machine, passes=[f"{PASS}{{axes=a,b_k}}"])
    assert copied(kernel) == ["%A_flat and %B_flat of %C as [.., a, b_k]"]
    verify(kernel, *arrays((3, 70, 2, 40), (3, 19, 2, 40)))


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize(
    ("format", "accumulate", "dtype"),
    [("bf16", "f32", bfloat16), ("f32", "f32", np.float32), ("i8", "i32", np.int8), ("f8E4M3FN", "f32", float8_e4m3fn)],
)
def test_formats(format: str, accumulate: str, dtype: Any, machine: str) -> None:
    text = THREE.replace("f16", "FORMAT").replace("f32", accumulate).replace("FORMAT", format)
    kernel = treadle.compile(text, machine=machine, passes=[f"{PASS}{{axes=b,a,k}}"])
    given = arrays((3, 33, 2, 40), (2, 3, 40, 19), dtype=np.float32)
    verify(kernel, *((3 * each).astype(dtype) for each in given))


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_any_strides(machine: str) -> None:
    kernel = treadle.compile(THREE, machine=machine, passes=[f"{PASS}{{axes=b,a,k}}"])
    A, B = arrays((6, 20, 4, 24), (24, 2, 3, 19))
    verify(kernel, A[::2, :, ::2], B.transpose(1, 2, 0, 3)[:, ::-1])


COMPUTED = """
!A = tensor<?x?x?x?xf16, #diagram.array<[a, m, b, k]>>
!E = tensor<?x?x?x?xf32, #diagram.array<[a, m, b, k]>>
!B = tensor<?x?x?x?xf16, #diagram.array<[b, a, k, n]>>
!P = tensor<?x?x?xf32, #diagram.array<[b, m, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @computed(%A: !A, %B: !B) -> !C
    attributes {sizes = #diagram.sizes<a = 4, m = 2048, b = 4, k = 256, n = 2048>} {
  %E = diagram.map (%a = %A : !A) -> !A {
    %two = arith.constant 2.0 : f16
    %e = arith.mulf %a, %two : f16
    diagram.yield %e : f16
  }
  %P = diagram.contract %E, %B over [a, k] accumulate f32 : !A, !B -> !P
  %C = diagram.reduce add %P over [b] : !P -> !C
  func.return %C : !C
}
"""


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_what_is_computed_is_copied_as_well(machine: str) -> None:
    """In the kernel that makes it, where a sum of products is one of them, too."""
    kernel = treadle.compile(COMPUTED, machine=machine, passes=[f"{PASS}{{axes=b,a,k}}"])
    assert copied(kernel) == ["%P into %C", "%E of %C as [.., b, a, k]"]
    assert kernel.estimate.kernels == 2
    verify(kernel, *arrays((2, 20, 3, 40), (3, 2, 40, 9)))


# -- what is not -------------------------------------------------------------------------------------


def test_absent_elements_have_no_place_in_a_copy() -> None:
    def function(A: Any, B: Any) -> Any:
        return tl.contract(tl.keep(A, "k <= m"), B, over="a b k")

    given = arrays((4, 64, 4, 64), (4, 4, 64, 64))
    kernel = treadle.kernel("a m b k, b a k n -> m n", machine="h100")(function).compiled(*given)
    assert [step for step in kernel.derivation if PASS in step.rewrite] == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("axes=m", "no product sums over axis 'm'"),
        ("axes=k,b,a", r"such are \[b, a, k\] with operands=A; \[a, b, k\] with operands=B"),
        ("axes=b,a,k operands=B", "with operands=B: such are"),
    ],
)
def test_what_cannot_be_is_refused(options: str, told: str) -> None:
    with pytest.raises(TreadleError, match=told):
        treadle.compile(THREE, machine="h100", passes=[f"{PASS}{{{options}}}"])


def test_a_derivation_copies_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At sizes at which it would not pay, too."""
    program, derivation = tmp_path / "patches.mlir", tmp_path / "a.derivation"
    program.write_text(PATCHES, encoding="utf-8")
    assert main(["explain", str(program), "--machine", "h100", "--derivation"]) == 0
    derivation.write_text(capsys.readouterr().out, encoding="utf-8")
    small = {"b": 1, "h": 4, "w": 4, "c": 4, "x": 1, "y": 1, "o": 8}
    assert copied(treadle.compile(PATCHES, machine="h100", sizes=small)) == []
    assert copied(treadle.compile(PATCHES, sizes=small, replay=derivation)) == ["%V of %O as [.., i, j, c]"]
