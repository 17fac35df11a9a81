"""Integers of 8 bits: stored and converted, never computed in; every one of them is exact in i32, f16, bf16 and f32,
and products of two add up exactly on tensor cores."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle
import treadle.language as tl
from roads import Road, array, compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.primitives import source
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram.formats import NUMBER_FORMATS, holds
from treadle.runtime.emulator import Array, compile_source
from treadle.runtime.formats import DTYPES
from treadle.runtime.interpreter import run_function, run_with_bounds
from treadle.runtime.nvcc import compile_cubin

EVERY = np.arange(-128, 128).astype(np.int8)


def cast(given: str, wanted: str) -> str:
    source, target = array(given, n=None), array(wanted, n=None)
    return f"""
func.func @f(%X: {source}) -> {target} {{
  %Y = diagram.cast %X : {source} -> {target}
  func.return %Y : {target}
}}
"""


def product(lhs: str, rhs: str) -> str:
    left, right = (array("i8", **dict.fromkeys(axes)) for axes in (lhs, rhs))
    made = array("i32", m=None, n=None)
    return f"""
func.func @f(%A: {left}, %B: {right}) -> {made} {{
  %C = diagram.contract %A, %B over [k] accumulate i32 : {left}, {right} -> {made}
  func.return %C : {made}
}}
"""


def test_what_holds_an_i8():
    i8 = NUMBER_FORMATS["i8"].type
    assert [name for name, each in NUMBER_FORMATS.items() if holds(each.type, i8)] == ["f16", "bf16", "f32", "i8"]


@pytest.mark.parametrize("wanted", ["f16", "bf16", "f32", "i32"])
def test_every_number_widens_exactly(wanted: str):
    road = compiled(cast("i8", wanted))
    (ours,) = road.run([EVERY])
    np.testing.assert_array_equal(ours, EVERY.astype(DTYPES[wanted]))
    (reference,) = run_function(road.algorithm, [EVERY]).results
    np.testing.assert_array_equal(reference, EVERY.astype(np.float64))


def test_what_is_beyond_is_clipped():
    numbers = np.array([-(2**31), -1000, -129, -128, -1, 0, 127, 128, 255, 256, 2**31 - 1], np.int32)
    road = compiled(cast("i32", "i8"))
    (ours,) = road.run([numbers])
    np.testing.assert_array_equal(ours, np.clip(numbers, -128, 127).astype(np.int8))
    assert all(verdict.ok for verdict in road.verdicts([numbers]))


@pytest.mark.parametrize(("lhs", "rhs"), [("mk", "nk"), ("km", "nk"), ("mk", "kn")])
@pytest.mark.parametrize("machine", ["a100", "l40s", "h100"])
def test_sums_of_products_are_exact(lhs: str, rhs: str, machine: str):
    arch = {"a100": "sm_80", "l40s": "sm_89", "h100": "sm_90a"}[machine]
    road = compiled(product(lhs, rhs), arch=arch, machine=machine)
    along_rows = (lhs, rhs) == ("mk", "nk")
    for sizes in (
        {"m": 70, "n": 48, "k": 96},
        {"m": 33, "n": 65, "k": 47},
        {"m": 1, "n": 3, "k": 5},
        {"m": 9, "n": 8, "k": 0},
    ):
        random = np.random.default_rng(1)
        left, right = (
            random.integers(-128, 128, [sizes[axis] for axis in axes]).astype(np.int8) for axes in (lhs, rhs)
        )
        expected = np.einsum(f"{lhs},{rhs}->mn", left.astype(np.int64), right.astype(np.int64))
        (ours,) = road.run([left, right])
        np.testing.assert_array_equal(ours, expected)
        assert all(verdict.ok for verdict in road.verdicts([left, right], sizes))
    used = {op.instruction.data for kernel in road.kernels for op in kernel.walk() if isinstance(op, cuda.ProductOp)}
    of_warpgroups = "k32_s32<int8_t, int8_t>(" in road.text
    if machine == "h100" and along_rows:  # lanes bring what no tensor copy does, too
        assert of_warpgroups
        assert not used
    else:  # what lies across the sum lanes transpose on the way
        assert not of_warpgroups
        assert used == {"m16n8k32_s32"}


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_sums_without_tensor_cores_are_exact(machine: str):
    """Where nothing is transposed, products across the sum are of i32."""
    algorithm = parse_module(product("mk", "kn"))
    module = algorithm.clone()
    run_passes(module, [each for each in pipeline(Options(machine)) if each.name != "diagram-transpose-operands"])
    road = Road(algorithm, module, print_cuda(module))
    assert {op.instruction.data for op in module.walk() if isinstance(op, cuda.ProductOp)} == {"fma"}
    for sizes in ({"m": 33, "n": 65, "k": 47}, {"m": 9, "n": 8, "k": 0}):
        road.check(sizes)


def test_sums_wrap_in_32_bits():
    """2^17 products of 2^14 are 2^31."""
    numbers = np.full((1, 2**17), -128, np.int8)
    road = compiled(product("mk", "nk"), arch="sm_80")
    (ours,) = road.run([numbers, numbers], checks=False)
    assert ours.item() == -(2**31)


SHIM = """
__global__ void widen(const int8_t* from, __half* to) {
  const int i = 4 * threadIdx.x;
  int8_t here[4];
  __half wide[4];
  UNROLL for (int j = 0; j < 4; ++j) here[j] = load_global(from + i + j);
  widen_bytes<4>(wide, here);
  UNROLL for (int j = 0; j < 4; ++j) store_global(to + i + j, wide[j]);
}
"""


def test_four_at_once():
    module = compile_source(source(["load_global", "store_global", "widen_bytes"]) + SHIM, ["widen"])
    wide = np.zeros(256, np.float16)
    module.launch("widen", (1, 1, 1), (64, 1, 1), 0, [Array(EVERY, False), Array(wide, True)])
    np.testing.assert_array_equal(wide, EVERY.astype(np.float16))


def test_bits_that_the_device_adds():
    """The device's own way, in numpy: x + 128 in the lower bits of the f16 1024, less 1152."""
    bits = (EVERY.view(np.uint8) ^ np.uint8(0x80)).astype(np.uint16) | np.uint16(0x6400)
    np.testing.assert_array_equal(bits.view(np.float16) - np.float16(1152), EVERY.astype(np.float16))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_tensor_cores_multiply_integers(machine: str):
    module = parse_module(product("mk", "nk"), "product")
    run_pipeline(module, Options(machine=machine, sizes={"m": 512, "n": 512, "k": 512}))
    cubin = compile_cubin(print_cuda(module), "sm_80" if machine == "a100" else "sm_90a")
    assert all(not each.spilled_bytes for each in cubin.resources)


# -- in Python ------------------------------------------------------------------------------------


@treadle.kernel("m k -> m k, m")
def quantise(X):
    scale = tl.max(abs(X), over="k") / 127.0
    return tl.round(X / scale).to("i8"), scale


@treadle.kernel("m k, n k, m, n -> m n", result="f32")
def dequantised(X, W, s, t):
    return tl.contract(X, W, over="k") * s * t


@treadle.kernel("m k, k n, n -> m n")
def of_weights(X, W, t):
    return tl.contract(X, W, over="k") * t


def test_quantise_and_multiply():
    random = np.random.default_rng(2)
    X, W = random.standard_normal((50, 300), np.float32), random.standard_normal((40, 300), np.float32)
    (X8, s), (W8, t) = quantise(X, backend="emulator"), quantise(W, backend="emulator")
    assert X8.dtype == W8.dtype == np.int8
    assert np.abs(X8.astype(float) * s[:, None] - X).max() <= 0.51 * s.max()
    made = dequantised(X8, W8, s, t, backend="emulator")
    exact = (X8.astype(np.int64) @ W8.astype(np.int64).T) * s.astype(float)[:, None] * t.astype(float)
    np.testing.assert_allclose(made, exact, rtol=1e-6)
    assert np.abs(made - X.astype(float) @ W.astype(float).T).max() < 0.02 * 300**0.5 * 3


def test_weights_of_8_bits_widen_to_16():
    random = np.random.default_rng(3)
    X, W = random.standard_normal((33, 70)).astype(np.float16), random.integers(-128, 128, (70, 24)).astype(np.int8)
    t = random.random(24, np.float32)
    made = of_weights(X, W, t, backend="emulator")
    exact = X.astype(float) @ W.astype(float) * t
    assert np.abs(made - exact).max() <= 2**-10 * np.abs(exact).max()
    program = str(of_weights.compiled(X, W, t).program)
    assert "diagram.cast %W : tensor<70x24xi8" in program


def test_beside_f32_nothing_is_rounded():
    random = np.random.default_rng(5)
    X, W = random.standard_normal((20, 70), np.float32) * 1e6, random.integers(-128, 128, (70, 24)).astype(np.int8)
    made = of_weights(X, W, np.ones(24, np.float32), backend="emulator")
    np.testing.assert_allclose(made, X.astype(float) @ W.astype(float), rtol=1e-4, atol=1e3)


@pytest.mark.parametrize("of_torch", [False, True])
def test_truth_values_are_bytes(of_torch: bool):
    torch = pytest.importorskip("torch")

    @treadle.kernel("q x, q x -> q, q x")
    def counted(S, there):
        kept = tl.keep(S, "there[q, x] != 0", there=there)
        return tl.sum(kept, over="x"), there

    random = np.random.default_rng(4)
    S, there = random.standard_normal((20, 37), np.float32), random.random((20, 37)) < 0.5
    given: list[Any] = [torch.from_numpy(S), torch.from_numpy(there)] if of_torch else [S, there]
    for backend in ("interpreter", "emulator"):
        total, same = (np.asarray(each) for each in counted(*given, backend=backend))
        np.testing.assert_allclose(total, np.where(there, S, 0).sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(same.astype(bool), there)


def test_no_arithmetic_in_8_bits():
    """Sums of i8 are sums of i32."""

    @treadle.kernel("m k -> m, m k")
    def sums(X):
        return tl.sum(X, over="k"), X * X + X

    X: NDArray[np.int8] = np.full((3, 200), 127, np.int8)
    total, square = sums(X, backend="emulator")
    assert total.dtype == square.dtype == np.int32
    assert (total == 127 * 200).all()
    assert (square == 127 * 128).all()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("%Y = diagram.reduce add %X over [n] : !X -> !one", "'add' in i8: cast to i32 and reduce that"),
        ("%Y = diagram.cast %F : !F -> !X", "a cast from a float format to i8 is not defined"),
        ("%Y = diagram.cast %X : !X -> !E", "a cast from i8 to f8E4M3FN is not defined: cast to f16 first"),
        (
            "%Y = diagram.map (%x = %X : !X) -> !X { %y = arith.addi %x, %x : i8 diagram.yield %y : i8 }",
            "'arith.addi' computes in i8: widen to i32, compute, and cast",
        ),
        (
            "%Y = diagram.contract %X, %X over [n] accumulate f32 : !X, !X -> !scalar",
            "products of i8 cannot be accumulated in f32",
        ),
    ],
)
def test_what_is_refused(body: str, said: str):
    text = f"""
!X = tensor<?xi8, #diagram.array<[n]>>
!F = tensor<?xf32, #diagram.array<[n]>>
!E = tensor<?xf8E4M3FN, #diagram.array<[n]>>
!one = tensor<i8, #diagram.array<[]>>
!scalar = tensor<f32, #diagram.array<[]>>
func.func @f(%X: !X, %F: !F) -> !X {{
  {body}
  func.return %X : !X
}}
"""
    with pytest.raises(TreadleError, match=said.replace("'", ".").replace("(", r"\(")):
        parse_module(text, "refused")


def test_what_stands_for_absent_elements_is_an_integer():
    """Past the end of a row of i8 no -inf stands, and what i8 clips is no neutral element of a maximum in i32."""
    shares = treadle.kernel("m k -> m k")(lambda X: tl.softmax(X, over="k"))
    X = np.random.default_rng(5).integers(-9, 9, (33, 70)).astype(np.int8)
    powers = np.exp(X - X.max(1, keepdims=True).astype(float))
    made = shares(X, backend="emulator")
    np.testing.assert_allclose(made, powers / powers.sum(1, keepdims=True), rtol=1e-5)

    @treadle.kernel("m k, m k -> m, m")
    def extremes(X, there):
        kept = tl.keep(X, "there[m, k] == 1", there=there).to("i8")
        return tl.max(kept, over="k"), tl.min(kept, over="k")

    there = np.arange(33 * 70).reshape(33, 70) % 3 == 0
    there[3] = False
    wide = X.astype(np.int32) * 40
    largest, smallest = extremes(wide, there, backend="emulator")
    clipped = np.clip(wide, -128, 127)
    np.testing.assert_array_equal(largest, np.where(there, clipped, -(2**31)).max(1))
    np.testing.assert_array_equal(smallest, np.where(there, clipped, 2**31 - 1).min(1))


@pytest.mark.parametrize("wanted", ["f16", "bf16", "f32"])
def test_widening_adds_nothing_to_a_bound(wanted: str):
    """The size of -128 is 128, which i8 does not have: its bound was below zero, and right results were called
    wrong."""
    (converted,) = run_with_bounds(parse_module(cast("i8", wanted)), [EVERY])
    assert (converted.error == 0).all()


def test_weights_that_are_rounded_beside_the_least_number():
    """Shares near one are rounded to f16, each by up to 2^-12 of itself, and -128 counts as much as 127."""
    shares, values = np.full((3, 2), 0.91819, np.float32), np.full((2, 4), -128, np.int8)
    function = treadle.kernel("q x, x e -> q e")(lambda P, V: tl.contract((P * 1.0).to("f16"), V, over="x"))
    for backend in ("emulator", "interpreter"):
        (verdict,) = function.compiled(shares, values).verify(shares, values, backend=backend)
        assert verdict.ok, str(verdict)
