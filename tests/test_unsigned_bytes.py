"""Unsigned integers of 8 bits: stored and converted, exact in all that they widen to, and multiplied with those that
have a sign or with each other, with exact sums."""

from __future__ import annotations

import itertools
import re
import shutil
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from roads import array, compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.main import main
from treadle.compiler.pipeline import Options, print_cuda, run_passes, run_pipeline
from treadle.compiler.primitives import source
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.dialects.diagram.formats import NUMBER_FORMATS, holds
from treadle.runtime.emulator import Array, compile_source
from treadle.runtime.formats import DTYPES
from treadle.runtime.host import execute
from treadle.runtime.interpreter import run_function
from treadle.runtime.nvcc import compile_cubin
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.verify import verify

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

EVERY = np.arange(256).astype(np.uint8)
PAIRS = [pair for pair in itertools.product(("i8", "ui8"), repeat=2) if "ui8" in pair]
MACHINES = ("a100", "l40s", "h100")


def cast(given: str, wanted: str) -> str:
    from_, to = array(given, n=None), array(wanted, n=None)
    return f"""func.func @f(%X: {from_}) -> {to} {{
  %Y = diagram.cast %X : {from_} -> {to}
  func.return %Y : {to}
}}"""


def product(left: str, right: str, lhs: str = "mk", rhs: str = "nk") -> str:
    a, b = (array(format, **dict.fromkeys(axes)) for format, axes in ((left, lhs), (right, rhs)))
    c = array("i32", m=None, n=None)
    return f"""func.func @f(%A: {a}, %B: {b}) -> {c} {{
  %C = diagram.contract %A, %B over [k] accumulate i32 : {a}, {b} -> {c}
  func.return %C : {c}
}}"""


def numbers(format: str, *shape: int, seed: int = 1) -> NDArray[Any]:
    limits = np.iinfo(DTYPES[format])
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(DTYPES[format])


def test_what_holds_them():
    ui8 = NUMBER_FORMATS["ui8"].type
    assert [name for name, each in NUMBER_FORMATS.items() if holds(each.type, ui8)] == ["f16", "bf16", "f32", "ui8"]


@pytest.mark.parametrize("wanted", ["f16", "bf16", "f32", "i32"])
def test_every_number_widens_exactly(wanted: str):
    road = compiled(cast("ui8", wanted))
    np.testing.assert_array_equal(road.run([EVERY])[0], EVERY.astype(DTYPES[wanted]))
    (reference,) = run_function(road.algorithm, [EVERY]).results
    np.testing.assert_array_equal(reference, EVERY.astype(np.float64))


@pytest.mark.parametrize(("given", "wanted"), [("i32", "ui8"), ("i8", "ui8"), ("ui8", "i8")])
def test_what_is_beyond_is_clipped(given: str, wanted: str):
    few = [-(2**31), -1000, -129, -128, -1, 0, 1, 127, 128, 255, 256, 2**31 - 1]
    limits, most = np.iinfo(DTYPES[given]), np.iinfo(DTYPES[wanted])
    given_numbers = np.array([each for each in few if limits.min <= each <= limits.max], DTYPES[given])
    road = compiled(cast(given, wanted))
    expected = np.clip(given_numbers.astype(np.int64), most.min, most.max).astype(DTYPES[wanted])
    np.testing.assert_array_equal(road.run([given_numbers])[0], expected)
    (reference,) = run_function(road.algorithm, [given_numbers]).results
    np.testing.assert_array_equal(reference, expected)
    assert all(verdict.ok for verdict in road.verdicts([given_numbers]))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_sums_of_products_are_exact(left: str, right: str, machine: str):
    road = compiled(product(left, right), machine=machine)
    instruction = "wgmma_m64n" if machine == "h100" else "mma_m16n8k32_s32"
    assert instruction in road.text
    for m, n, k in ((70, 48, 96), (33, 65, 47), (150, 144, 512), (1, 3, 5)):
        a, b = numbers(left, m, k), numbers(right, n, k, seed=2)
        np.testing.assert_array_equal(road.run([a, b])[0], a.astype(np.int64) @ b.astype(np.int64).T)
        assert all(verdict.ok for verdict in road.verdicts([a, b], {"m": m, "n": n, "k": k}))
        assert ("_specialised" in road.backend().variants[-1]) == (machine == "h100" and k % 16 == 0)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_the_largest_sums(machine: str):
    road = compiled(product("ui8", "ui8"), machine=machine)
    for k, expected in ((160, 160 * 255**2), (33_040, 33_040 * 255**2 - 2**32)):
        a = np.full((2, k), 255, np.uint8)
        assert road.run([a, a])[0].ravel().tolist() == [expected] * 4


@pytest.mark.parametrize(("lhs", "rhs"), [("km", "nk"), ("mk", "kn")])
def test_operands_across_the_summed_axis_widen(lhs: str, rhs: str):
    road = compiled(product("ui8", "i8", lhs, rhs), machine="h100")
    sizes = {"m": 20, "n": 24, "k": 40}
    a, b = (numbers(format, *(sizes[axis] for axis in axes)) for format, axes in (("ui8", lhs), ("i8", rhs)))
    expected = np.einsum(f"{lhs},{rhs}->mn", a.astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(road.run([a, b])[0], expected)


SHIM = """
__global__ void widen(const uint8_t* from, __half* to) {
  const int i = 4 * threadIdx.x;
  uint8_t here[4];
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
    """In numpy: x in the lower bits of the f16 1024, less 1024."""
    bits = EVERY.astype(np.uint16) | np.uint16(0x6400)
    np.testing.assert_array_equal(bits.view(np.float16) - np.float16(1024), EVERY.astype(np.float16))


IN_PTX = {
    **{" ".join(pair): (product(*pair), {"m": 40, "n": 24, "k": 80}) for pair in PAIRS},
    "widened": (cast("ui8", "f16"), {"n": 256}),
    "narrowed": (cast("i32", "ui8"), {"n": 33}),
}


@needs_nvcc
@pytest.mark.parametrize(("machine", "arch"), [("a100", "sm_80"), ("h100", "sm_90a")])
@pytest.mark.parametrize("case", IN_PTX)
def test_what_nvcc_makes_of_it_computes_the_same(case: str, machine: str, arch: str):
    """All pairs, and what widens to f16, in the machine for PTX."""
    text, sizes = IN_PTX[case]
    made = compiled(text, machine=machine)
    inputs = made.inputs(sizes)
    if list(sizes) == ["n"]:
        inputs = [EVERY if "ui8" in text.partition("->")[0] else np.linspace(-400, 400, 33).astype(np.int32)]
    else:
        inputs = [numbers(name, *each.shape) for name, each in zip(_formats(text), inputs, strict=True)]
    backend = PtxBackend(made.text, kernel_names(made.module), arch, seed=1)
    results = execute(made.module, list(inputs), backend)
    assert all(verdict.ok for verdict in verify(made.algorithm, inputs, results, "ptx", sizes=sizes))


def _formats(text: str) -> list[str]:
    return re.findall(r"x(u?i8), #", text.partition("->")[0])


@needs_nvcc
@pytest.mark.parametrize("weights", ["i8", "ui8"])
def test_products_are_shared_by_clusters_and_spill_nothing(weights: str):
    """The passes that ask the machine's rates know them."""
    x, w, z = array("ui8", m=None, k=None), array(weights, n=None, k=None), array("i32", m=None, n=None)
    module = parse_module(
        f"""func.func @f(%X: {x}, %W: {w}) -> {z} {{
  %Z = diagram.contract %X, %W over [k] accumulate i32 : {x}, {w} -> {z}
  func.return %Z : {z}
}}"""
    )
    run_pipeline(module, Options("h100", sizes=dict.fromkeys("mnk", 1024)))
    text = print_cuda(module)
    assert f"<uint8_t, {'' if weights == 'i8' else 'u'}int8_t>(" in text
    assert "__cluster_dims__" in text
    cubin = compile_cubin(text, "sm_90a")
    assert not any(each.spilled_bytes or each.product_notes for each in cubin.resources)


def test_every_pass_keeps_the_meaning(tmp_path: Any, capsys: pytest.CaptureFixture[str]):
    program = tmp_path / "f.mlir"
    program.write_text(product("ui8", "i8"))
    sizes = [part for size in ("m=70", "n=40", "k=96") for part in ("--size", size)]
    assert main(["run", str(program), "--machine", "h100", "--verify-each", *sizes]) == 0
    assert "verified (emulator)" in capsys.readouterr().out


# -- what programs may say ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("%Y = diagram.reduce add %X over [n] : !X -> !one", "'add' in ui8: cast to i32 and reduce that"),
        ("%Y = diagram.cast %F : !F -> !X", "a cast from a float format to ui8 is not defined"),
        ("%Y = diagram.cast %X : !X -> !E", "a cast from ui8 to f8E4M3FN is not defined: cast to f16 first"),
        (
            "%Y = diagram.map (%x = %X : !X) -> !I { %y = arith.extsi %x : ui8 to i32 diagram.yield %y : i32 }",
            "'arith.extsi' computes in ui8",
        ),
        (
            "%Y = diagram.map (%x = %S : !S) -> !I { %y = arith.extui %x : i8 to i32 diagram.yield %y : i32 }",
            "'arith.extui' computes in i8",
        ),
        (
            "%Y = diagram.contract %X, %X over [n] accumulate f32 : !X, !X -> !f",
            "products of ui8 cannot be accumulated in f32",
        ),
        ("%Y = diagram.contract %X, %E over [n] accumulate i32 : !X, !E -> !i", "formats ui8 and f8E4M3FN: cast one"),
    ],
)
def test_what_is_refused(body: str, said: str):
    text = f"""
!X = tensor<?xui8, #diagram.array<[n]>>
!S = tensor<?xi8, #diagram.array<[n]>>
!I = tensor<?xi32, #diagram.array<[n]>>
!F = tensor<?xf32, #diagram.array<[n]>>
!E = tensor<?xf8E4M3FN, #diagram.array<[n]>>
!one = tensor<ui8, #diagram.array<[]>>
!f = tensor<f32, #diagram.array<[]>>
!i = tensor<i32, #diagram.array<[]>>
func.func @f(%X: !X, %S: !S, %F: !F, %E: !E) -> !X {{
  {body}
  func.return %X : !X
}}
"""
    with pytest.raises(TreadleError, match=re.escape(said)):
        parse_module(text, "refused")


def test_no_arithmetic_of_mlir_has_them():
    with pytest.raises(TreadleError, match="which arith and linalg of MLIR do not compute with"):
        run_passes(parse_module(cast("ui8", "f32")), [ArgSpec("convert-diagram-to-linalg", {})])


@treadle.kernel("m k -> m k, m")
def quantise(X):
    scale = tl.max(X, over="k") / 255.0
    return tl.round(X / scale).to("ui8"), scale


@treadle.kernel("m k, n k, m -> m n", result="f32")
def dequantised(X, W, s):
    return tl.contract(X, W, over="k") * s


@treadle.kernel("m k, k n -> m n")
def beside_floats(X, W):
    return tl.contract(X, W, over="k")


@treadle.kernel("m k -> m, m k, m k")
def computed(X):
    return tl.sum(X, over="k"), X * X - X, -X


def test_quantise_and_multiply():
    random = np.random.default_rng(2)
    X, W = random.uniform(0, 1, (50, 300)).astype(np.float32), numbers("i8", 40, 300)
    X8, s = quantise(X, backend="emulator")
    assert X8.dtype == np.uint8
    assert X8.max() == 255
    assert np.abs(X8 * s[:, None] - X).max() <= 0.51 * s.max()
    assert "accumulate i32 : tensor<50x300xui8" in str(dequantised.compiled(X8, W, s).program)
    exact = (X8.astype(np.int64) @ W.astype(np.int64).T) * s.astype(float)[:, None]
    np.testing.assert_allclose(dequantised(X8, W, s, backend="emulator"), exact, rtol=1e-6)


@pytest.mark.parametrize("format", [np.float16, np.float32])
def test_beside_floats_they_widen(format: type):
    X, W = np.random.default_rng(3).standard_normal((33, 70)).astype(format), numbers("ui8", 70, 24)
    exact = X.astype(float) @ W.astype(float)
    assert np.abs(beside_floats(X, W, backend="emulator") - exact).max() <= 2.0**-9 * np.abs(exact).max()


@pytest.mark.parametrize("backend", ["interpreter", "emulator"])
def test_arithmetic_is_of_32_bits(backend: str):
    X = np.resize(EVERY, (3, 200))
    total, square, negative = computed(X, backend=backend)
    wide = X.astype(np.int32)
    np.testing.assert_array_equal(total, wide.sum(1))
    np.testing.assert_array_equal(square, wide * wide - wide)
    np.testing.assert_array_equal(negative, -wide)


def test_what_stands_for_absent_elements():
    """Past the end of a row no number of theirs stands for nothing, and what is clipped to them is none either."""
    shares = treadle.kernel("m k -> m k")(lambda X: tl.softmax(X, over="k"))
    X = np.random.default_rng(5).integers(0, 20, (33, 70)).astype(np.uint8)
    powers = np.exp(X - X.max(1, keepdims=True).astype(float))
    np.testing.assert_allclose(shares(X, backend="emulator"), powers / powers.sum(1, keepdims=True), rtol=1e-5)

    @treadle.kernel("m k, m k -> m, m")
    def extremes(X, there):
        kept = tl.keep(X, "there[m, k] == 1", there=there).to("ui8")
        return tl.max(kept, over="k"), tl.min(kept, over="k")

    there = np.arange(33 * 70).reshape(33, 70) % 3 == 0
    there[3] = False
    wide = np.random.default_rng(6).integers(-99, 400, (33, 70)).astype(np.int32)
    clipped = np.clip(wide, 0, 255)
    for backend in ("interpreter", "emulator"):
        largest, smallest = extremes(wide, there, backend=backend)
        np.testing.assert_array_equal(largest, np.where(there, clipped, -(2**31)).max(1))
        np.testing.assert_array_equal(smallest, np.where(there, clipped, 2**31 - 1).min(1))


def test_a_condition_asks_them():
    @treadle.kernel("q x, x -> q")
    def counted(S, kind):
        return tl.sum(tl.keep(S, "kind[x] > 200", kind=kind), over="x")

    S, kind = np.random.default_rng(4).standard_normal((20, 37)).astype(np.float32), numbers("ui8", 37)
    for backend in ("interpreter", "emulator"):
        np.testing.assert_allclose(counted(S, kind, backend=backend), (S * (kind > 200)).sum(1), rtol=1e-5, atol=1e-5)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    given = torch.arange(256).to(torch.uint8).reshape(4, 64)
    total, square, _ = computed(given)
    assert total.tolist() == given.int().sum(1).tolist()
    assert square.tolist() == (given.int() ** 2 - given.int()).tolist()
    made, _ = quantise(torch.arange(64.0).reshape(1, 64))
    assert made.dtype == torch.uint8


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_pytorch_takes_of_a_number_beside_8_bits(dtype: str):
    """300 is 44 there, and -1 is 255: such a comparison stays with PyTorch; one with 100 does not."""
    torch = pytest.importorskip("torch")
    given = torch.arange(-20, 300, 2).to(getattr(torch, dtype)).reshape(8, 20)
    for number in (300, -1, -200, 100):

        def counted(x: Any, number: int = number) -> Any:
            return torch.where(x < number, 1.0, 3.0) * 2

        torch._dynamo.reset()
        made = torch.compile(counted, backend="treadle")(given)
        torch.testing.assert_close(made, counted(given))


def test_torch_compile_takes_them():
    torch = pytest.importorskip("torch")

    def scaled(pixels: Any) -> Any:
        return ((pixels.float() / 255.0 - 0.5) * 2.0).softmax(-1)

    pixels = torch.randint(0, 256, (5, 40), dtype=torch.uint8)
    torch._dynamo.reset()
    made = torch.compile(scaled, backend="treadle")(pixels)
    torch.testing.assert_close(made, scaled(pixels))
    assert "left to PyTorch" not in str(treadle.explain(scaled, [pixels]))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("condition", ["k % 3 == 0", "k <= m or k % 2 == 1"])
def test_what_a_condition_leaves_out_of_them(condition: str, machine: str):
    """In its place stands a zero without a sign, of which `arith` has no constant."""
    a, b, c = array("ui8", m=None, k=None), array("ui8", n=None, k=None), array("i32", m=None, n=None)
    text = f"""func.func @f(%A: {a}, %B: {b}) -> {c} {{
  %W = diagram.where %A if "{condition}" : {a}
  %C = diagram.contract %W, %B over [k] accumulate i32 : {a}, {b} -> {c}
  func.return %C : {c}
}}"""
    left, right = numbers("ui8", 67, 45), numbers("ui8", 41, 45, seed=2)
    m, k = np.indices(left.shape)
    kept = k % 3 == 0 if condition == "k % 3 == 0" else (k <= m) | (k % 2 == 1)
    (made,) = compiled(text, machine=machine).run([left, right])
    np.testing.assert_array_equal(made, np.where(kept, left, 0).astype(int) @ right.T.astype(int))


def test_long_sums_of_them_in_parts():
    """Parts of a length that only the launch tells: what is behind the end is left out."""
    text = product("ui8", "ui8").replace(
        "-> " + array("i32", m=None, n=None) + " {",
        "-> " + array("i32", m=None, n=None) + " attributes {sizes = #diagram.sizes<m = 67, n = 512, k = 4096>} {",
        1,
    )
    road = compiled(text, machine="a100")
    assert len(road.kernels) > 1
    left, right = numbers("ui8", 67, 301), numbers("ui8", 41, 301, seed=2)
    np.testing.assert_array_equal(road.run([left, right])[0], left.astype(int) @ right.T.astype(int))
