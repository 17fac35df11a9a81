"""The 8-bit formats: numpy, the interpreter, the emulator and CUDA's own header round alike, bit for bit; what
saturates, and what programs may say with them."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from math import inf
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects import scf
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array, compiled, matmul
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, print_cuda, run_passes, run_pipeline
from treadle.compiler.primitives import source
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import EIGHT_BIT, NUMBER_FORMATS
from treadle.runtime.coarse import coarse_sums
from treadle.runtime.emulator import Array, EmulatedModule, compile_source
from treadle.runtime.formats import DTYPES, rounded
from treadle.runtime.interpreter import run_function, run_with_bounds

EVERY = np.arange(256, dtype=np.uint8)
"""The bits of every 8-bit number."""

CONVERT = source(["load_global", "store_global", "to_float", "from_float", "widen_pair", "narrow_pair"]) + "".join(
    f"""
__global__ void widen_{name}(const {type}* from, float* one, __half* pairs) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {type} here[2] = {{load_global(from + i / 2 * 2), load_global(from + i / 2 * 2 + 1)}};
  __half wide[2];
  widen_pair(wide, here);
  store_global(one + i, to_float(here[i % 2]));
  store_global(pairs + i, wide[i % 2]);
}}
__global__ void narrow_{name}(const float* from, {type}* one, {type}* pairs) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {type} both[2];
  narrow_pair(both, load_global(from + i / 2 * 2), load_global(from + i / 2 * 2 + 1));
  store_global(one + i, from_float<{type}>(load_global(from + i)));
  store_global(pairs + i, both[i % 2]);
}}
"""
    for name, type in ((name, NUMBER_FORMATS[name].c_type) for name in EIGHT_BIT)
)


@pytest.fixture(scope="module")
def convert() -> EmulatedModule:
    return compile_source(CONVERT, [f"{way}_{name}" for way in ("widen", "narrow") for name in EIGHT_BIT])


def hard_floats(format: str) -> NDArray[np.float32]:
    """Every number of a format, what lies halfway between neighbours and just beside, all magnitudes, and beyond."""
    exact = EVERY.view(DTYPES[format]).astype(np.float32)
    finite = np.sort(exact[np.isfinite(exact)])
    ties = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(ties, np.float32(to)) for to in (-np.inf, np.inf)]
    random = np.random.default_rng(3).integers(0, 2**32, 1 << 15, dtype=np.uint32).view(np.float32)
    usual = np.random.default_rng(4).standard_normal(1 << 13).astype(np.float32)
    beyond = np.array([448, 449, 464, 465, 480, 57344, 61439, 61440, 65536, 1e30, np.inf, -np.inf, np.nan], np.float32)
    every = np.concatenate([exact, ties, *beside, random, usual, beyond, -beyond])
    return every[: every.size // 256 * 256]


def same_bits(ours: NDArray[np.generic], theirs: NDArray[np.generic]) -> bool:
    """Whether two arrays hold the same numbers, the signs of zeros included; a NaN is like any other."""
    nan = np.isnan(theirs.astype(np.float32))
    bits = np.dtype(f"u{theirs.dtype.itemsize}")
    return bool(
        np.array_equal(np.isnan(ours.astype(np.float32)), nan)
        and np.array_equal(ours.view(bits)[~nan], theirs.view(bits)[~nan])
    )


@pytest.mark.parametrize("format", EIGHT_BIT)
def test_every_number_widens_as_in_numpy(convert: EmulatedModule, format: str):
    numbers = EVERY.view(DTYPES[format])
    one, pairs = np.zeros(256, np.float32), np.zeros(256, np.float16)
    arguments = [Array(numbers, False), Array(one, True), Array(pairs, True)]
    convert.launch(f"widen_{format}", (1, 1, 1), (256, 1, 1), 0, arguments)
    assert same_bits(one, numbers.astype(np.float32))
    assert same_bits(pairs, numbers.astype(np.float16))
    assert same_bits(pairs.astype(np.float32), one), "every 8-bit number is an f16"


@pytest.mark.parametrize("format", EIGHT_BIT)
def test_floats_narrow_as_in_numpy(convert: EmulatedModule, format: str):
    floats = hard_floats(format)
    one, pairs = (np.zeros(floats.size, DTYPES[format]) for _ in range(2))
    arguments = [Array(floats, False), Array(one, True), Array(pairs, True)]
    convert.launch(f"narrow_{format}", (floats.size // 256, 1, 1), (256, 1, 1), 0, arguments)
    expected = rounded(floats, NUMBER_FORMATS[format].type)
    assert same_bits(one, expected)
    assert same_bits(pairs, expected)
    largest = NUMBER_FORMATS[format].largest
    wide = expected.astype(np.float32)
    assert float(np.nanmax(wide)) == largest  # and not infinite


def test_numpy_and_cuda_agree(tmp_path: Path):
    """CUDA's header has a body for the host, which says what the device's instruction does."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    floats = {name: hard_floats(name) for name in EIGHT_BIT}
    calls = "".join(
        f"""
  if (FILE* in = std::fopen("{name}.in", "rb")) {{
    FILE* out = std::fopen("{name}.out", "wb");
    for (float x; std::fread(&x, 4, 1, in);) {{ {each.c_type} y(x); std::fwrite(&y, 1, 1, out); }}
    std::fclose(out), std::fclose(in);
  }}"""
        for name, each in NUMBER_FORMATS.items()
        if name in EIGHT_BIT
    )
    (tmp_path / "narrow.cpp").write_text(f"#include <cuda_fp8.h>\n#include <cstdio>\nint main() {{{calls}\n}}\n")
    for name, numbers in floats.items():
        (tmp_path / f"{name}.in").write_bytes(numbers.tobytes())
    subprocess.run(["nvcc", "narrow.cpp", "-o", "narrow"], cwd=tmp_path, check=True)
    subprocess.run(["./narrow"], cwd=tmp_path, check=True)
    for name, numbers in floats.items():
        theirs = np.frombuffer((tmp_path / f"{name}.out").read_bytes(), DTYPES[name])
        assert same_bits(rounded(numbers, NUMBER_FORMATS[name].type), theirs), name


def test_the_way_before_sm_89_is_exact(tmp_path: Path):
    """The device's own body for older machines, on the host: bytes moved, and one product of halves."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    shim = """
#include <cstdint>
#include <cstdio>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define __CUDA_ARCH__ 800
typedef _Float16 __half;
struct __nv_fp8_e4m3 { uint8_t bits; explicit operator float() const; };
struct __nv_fp8_e5m2 { uint8_t bits; explicit operator float() const; };
struct __half2 { __half x, y; };
inline __half __ushort_as_half(uint16_t bits) { __half h; memcpy(&h, &bits, 2); return h; }
inline __half2 __half2half2(__half h) { return {h, h}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__half(a.x * b.x), __half(a.y * b.y)}; }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s) {
  const uint64_t bytes = (uint64_t(b) << 32) | a;
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= uint32_t((bytes >> (8 * ((s >> (4 * i)) & 7))) & 0xff) << (8 * i);
  return word;
}
"""
    (tmp_path / "cuda_fp8.h").write_text("")
    body = source(["widen_pair"]).split("// The 8-bit formats")[1].split("// Rounds two floats")[0]
    main = """
template <class T> void all() {
  for (int i = 0; i < 256; ++i) {
    T from[2] = {{uint8_t(i)}, {uint8_t(255 - i)}};
    __half pair[2];
    widen_pair(pair, from);
    fwrite(pair, 2, 2, stdout);
  }
}
int main() { all<__nv_fp8_e4m3>(); all<__nv_fp8_e5m2>(); }
"""
    (tmp_path / "widen.cpp").write_text(f"{shim}\n// {body}\n{main}")
    subprocess.run(["g++", "-std=c++17", "-I.", "widen.cpp", "-o", "widen"], cwd=tmp_path, check=True)
    found = subprocess.run(["./widen"], cwd=tmp_path, check=True, capture_output=True).stdout
    halves = np.frombuffer(found, np.float16).reshape(2, 256, 2)
    for format, ours in zip(EIGHT_BIT, halves, strict=True):
        numbers = EVERY.view(DTYPES[format]).astype(np.float16)
        assert same_bits(np.ascontiguousarray(ours[:, 0]), numbers), format
        assert same_bits(np.ascontiguousarray(ours[::-1, 1]), numbers), format


# -- programs -------------------------------------------------------------------------------------


def cast(given: str, wanted: str) -> str:
    source, target = array(given, n=None), array(wanted, n=None)
    return f"""
func.func @f(%X: {source}) -> {target} {{
  %Y = diagram.cast %X : {source} -> {target}
  func.return %Y : {target}
}}
"""


@pytest.mark.parametrize("format", EIGHT_BIT)
@pytest.mark.parametrize("given", ["f32", "f16", "bf16"])
def test_a_cast_rounds_and_saturates_at_every_level(given: str, format: str):
    road = compiled(cast(given, format))
    with np.errstate(all="ignore"):
        numbers = hard_floats(format)[:4001].astype(DTYPES[given])
    expected = rounded(numbers.astype(np.float32), NUMBER_FORMATS[format].type)
    (ours,) = road.run([numbers])
    assert same_bits(ours, expected)
    (reference,) = run_function(road.algorithm, [numbers]).results
    assert same_bits(reference.astype(DTYPES[format]), expected)


@pytest.mark.parametrize("format", EIGHT_BIT)
def test_whole_numbers_saturate_too(format: str):
    largest = int(NUMBER_FORMATS[format].largest)
    numbers = np.array([0, 3, 17, largest, largest + 1, 10 * largest, -largest, -2 * largest, -(2**31)], np.int32)
    expected = np.clip(numbers, -largest, largest).astype(np.float32).astype(DTYPES[format])
    road = compiled(cast("i32", format))
    assert same_bits(road.run([numbers])[0], expected)
    for verdict in road.verdicts([numbers]):
        assert verdict.ok, verdict


@pytest.mark.parametrize("wanted", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("format", EIGHT_BIT)
def test_a_cast_from_8_bits_is_exact(format: str, wanted: str):
    numbers = EVERY.view(DTYPES[format])
    (ours,) = compiled(cast(format, wanted)).run([numbers])
    assert same_bits(ours, numbers.astype(np.float32).astype(DTYPES[wanted]))


@pytest.mark.parametrize(("given", "wanted"), list(itertools.permutations(EIGHT_BIT)))
def test_a_cast_from_one_8_bit_format_to_the_other(given: str, wanted: str):
    """Infinities of f8E5M2 saturate too."""
    numbers = EVERY.view(DTYPES[given])
    (ours,) = compiled(cast(given, wanted)).run([numbers])
    assert same_bits(ours, rounded(numbers.astype(np.float32), NUMBER_FORMATS[wanted].type))


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize(("lhs", "rhs"), [("mk", "nk"), ("km", "nk"), ("mk", "kn"), ("km", "kn")])
def test_products_in_every_transposition(lhs: str, rhs: str, arch: str):
    road = compiled(matmul(lhs, rhs, "f8E4M3FN"), arch=arch, **machine(arch))
    for sizes in ({"m": 70, "n": 48, "k": 96}, {"m": 33, "n": 65, "k": 47}, {"m": 1, "n": 3, "k": 5}):
        road.check(sizes)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize(("left", "right"), list(itertools.product(EIGHT_BIT, EIGHT_BIT)))
def test_products_of_both_formats(left: str, right: str, arch: str):
    road = compiled(mixed_matmul(left, right), arch=arch, **machine(arch))
    road.check({"m": 40, "n": 36, "k": 80})


def mixed_matmul(left: str, right: str) -> str:
    text = matmul("mk", "nk", left).replace(f"%B: {array(left, n=None, k=None)}", f"%B: {array(right, n=None, k=None)}")
    return text.replace(f", {array(left, n=None, k=None)} ->", f", {array(right, n=None, k=None)} ->")


def machine(arch: str) -> dict[str, str]:
    return {"machine": "l40s"} if arch == "sm_89" else {}


def test_infinities_and_nan_go_through_a_product():
    road = compiled(matmul("mk", "nk", "f8E5M2"))
    a = np.ones((2, 32), DTYPES["f8E5M2"])
    a[0, 3], a[1, 5] = np.inf, np.nan
    b = np.ones((1, 32), DTYPES["f8E5M2"])
    (c,) = road.run([a, b])
    assert c[0, 0] == np.inf
    assert np.isnan(c[1, 0])


def test_shares_become_a_left_operand_without_moving():
    """On sm_89: the columns of the scores are read in such an order that a lane holds four neighbours. No shuffle but
    those of the maximum, and nothing written to shared memory in the loop."""
    road = compiled((Path(__file__).parents[1] / "examples/attention_f8.mlir").read_text(), machine="l40s")
    (kernel,) = road.kernels
    products = [op for op in kernel.walk() if isinstance(op, cuda.ProductOp)]
    assert {op.instruction.data for op in products} == {"m16n8k32"}
    assert not any(isinstance(op, cuda.WriteOp) for op in kernel.walk() if isinstance(op.parent_op(), scf.ForOp))
    road.check({"b": 1, "h": 2, "q": 33, "x": 100})


def warpgroup_products(road: Road) -> list[tuple[str, str]]:
    products = [op for op in road.module.walk() if isinstance(op, cuda.ProductOfWarpgroupsOp)]
    return [(str(format_of(op.lhs.type)), str(format_of(op.rhs.type))) for op in products]


@pytest.mark.parametrize(("left", "right"), list(itertools.product(EIGHT_BIT, EIGHT_BIT)))
def test_warpgroups_multiply_8_bits(left: str, right: str):
    road = compiled(mixed_matmul(left, right), machine="h100")
    assert (left, right) in warpgroup_products(road)
    assert "wgmma_m64n" in road.text
    for sizes in ({"m": 150, "n": 144, "k": 512}, {"m": 65, "n": 80, "k": 112}):
        road.check(sizes)


def test_scores_in_8_bits_and_values_in_16():
    """On sm_90a both products are of warpgroups; the shares become the second one's operand as they lie."""
    text = (Path(__file__).parents[1] / "examples/attention_mixed.mlir").read_text()
    road = compiled(text, machine="h100")
    assert {*warpgroup_products(road)} == {("f8E4M3FN", "f8E4M3FN"), ("f16", "f16")}
    road.check({"b": 1, "h": 1, "q": 130, "x": 272})


def test_shares_in_8_bits_on_warpgroups():
    """The rows of keys come in the order in which the columns of the scores become shares: nothing moves in the loop.
    Where the number of keys is no multiple of four, no map has that order, and the other kernel runs."""
    text = (Path(__file__).parents[1] / "examples/attention_f8.mlir").read_text()
    road = compiled(text, machine="h100")
    assert {*warpgroup_products(road)} == {("f8E4M3FN", "f8E4M3FN")}
    assert "shuffle" not in road.text[road.text.index("wgmma_wait") :].replace("shuffle_xor", "")
    assert not any(isinstance(op, cuda.WriteOp) for op in road.module.walk() if isinstance(op.parent_op(), scf.ForOp))
    sizes = {"b": 1, "h": 2, "q": 130, "x": 272}
    queries, keys, values, *scales = road.inputs(sizes)
    weighted = abs(values.astype(np.float32)).astype(values.dtype)  # that do not cancel, whatever their number
    assert all(verdict.ok for verdict in road.verdicts([queries, keys, weighted, *scales], sizes))
    assert road.backend().variants[-1].endswith("_specialised")
    q, k, v = (
        np.random.default_rng(i).uniform(-2, 2, shape).astype(ml_dtypes.float8_e4m3fn)
        for i, shape in enumerate([(1, 1, 20, 64), (1, 1, 54, 64), (1, 1, 64, 64)])
    )
    fits_but_for_its_length = v[..., :54]  # rows of 54 keys, 64 bytes apart as maps want them
    assert all(verdict.ok for verdict in road.verdicts([q, k, fits_but_for_its_length, 0.5, 0.25, 2.0]))
    assert "specialised" not in road.backend().variants[-1]


def test_operands_are_widened_where_the_machine_does_not_multiply_them():
    old = compiled(matmul("mk", "nk", "f8E4M3FN"))
    assert '"every f8E4M3FN is an f16", "the tensor cores of sm_80' in str(old.module)
    small = matmul("km", "nk", "f8E4M3FN").replace(
        " {\n", " attributes {sizes = #diagram.sizes<m = 64, n = 64, k = 64>} {\n", 1
    )
    other_way = compiled(small, arch="sm_90a")
    assert "has another last axis than k" in str(other_way.module)
    for road in (old, other_way):
        products = [op for op in road.module.walk() if isinstance(op, cuda.ProductOp | cuda.WarpgroupProductOp)]
        assert {str(format_of(op.rhs.type)) for op in products} == {"f16"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("%Y = diagram.reduce max %X over [n] : {a} -> {s}", "cast to f32 and reduce that"),
        ("%Y = diagram.contract %X, %X over [n] accumulate f16 : {a}, {a} -> tensor<f16, #diagram.array<[]>>", "f32"),
        (
            "%Y = diagram.contract %X, %X over [n] accumulate f8E4M3FN : {a}, {a} -> {s}",
            "cannot accumulate in f8E4M3FN",
        ),
        (
            "%Y = diagram.map (%x = %X : {a}) -> {a} {{ %y = arith.addf %x, %x : f8E4M3FN\n"
            "diagram.yield %y : f8E4M3FN }}",
            "widen to f32, compute, and cast",
        ),
    ],
)
def test_what_8_bits_cannot_do_is_refused(body: str, why: str):
    a, s = array("f8E4M3FN", n=None), "tensor<f8E4M3FN, #diagram.array<[]>>"
    with pytest.raises(TreadleError, match=why):
        parse_module(f"func.func @f(%X: {a}) {{\n{body.format(a=a, s=s)}\nfunc.return\n}}")


QUANTISE = """
!X = tensor<?x?xf32, #diagram.array<[t, i]>>
!X8 = tensor<?x?xf8E4M3FN, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
func.func @f(%X: !X) -> !X8 {
  %largest = diagram.reduce max %X over [i] : !X -> !r
  %small = diagram.map (%x = %X : !X, %l = %largest : !r) -> !X {
    %y = arith.divf %x, %l : f32
    diagram.yield %y : f32
  }
  %Y = diagram.cast %small FIXED : !X -> !X8
  func.return %Y : !X8
}
"""


def test_a_fixed_cast_is_rounded_in_the_reference_and_another_only_bounded():
    x = np.random.default_rng(0).uniform(1, 2, (3, 40)).astype(np.float32)
    values = x / x.max(-1, keepdims=True)
    (fixed,) = run_with_bounds(parse_module(QUANTISE.replace("FIXED", "fixed")), [x])
    (moved,) = run_with_bounds(parse_module(QUANTISE.replace("FIXED", "")), [x])
    assert np.array_equal(fixed.value, values.astype(ml_dtypes.float8_e4m3fn).astype(np.float64))
    assert np.mean(fixed.error == 0) > 0.9
    assert np.all(moved.error > values / 17)
    np.testing.assert_allclose(moved.value, values, rtol=1e-6)


def test_a_fixed_cast_does_not_move():
    program = compiled(
        """
!X = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf8E4M3FN, #diagram.array<[q, x]>>
!V = tensor<?x?xf8E4M3FN, #diagram.array<[e, x]>>
!O = tensor<?x?xf32, #diagram.array<[q, e]>>
func.func @f(%S: !X, %V: !V) -> !O {
  %P = diagram.apply @softmax(%S) over [x] : (!X) -> !X
  %P8 = diagram.cast %P fixed : !X -> !P
  %O = diagram.contract %P8, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}
"""
    )
    assert "the program fixes how %P8 is rounded" in str(program.module)
    program.check({"q": 20, "x": 50, "e": 24})


def test_a_difference_does_not_pass_a_cast_that_saturates():
    """The maximum of what was cast is no more than 448 above nothing: a rescaling by exp of a difference is refused."""
    text = """
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!S8 = tensor<?x?xf8E4M3FN, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%X: !S) -> !r {
  %m = diagram.reduce max %X over [x] : !S -> !r
  %d = diagram.map (%x = %X : !S, %a = %m : !r) -> !S {
    %y = arith.subf %x, %a : f32
    diagram.yield %y : f32
  }
  %d8 = diagram.cast %d : !S -> !S8
  %e = diagram.map (%x = %d8 : !S8) -> !S {
    %w = arith.extf %x : f8E4M3FN to f32
    %y = math.exp %w : f32
    diagram.yield %y : f32
  }
  %l = diagram.reduce add %e over [x] : !S -> !r
  func.return %l : !r
}
"""
    road = compiled(text)
    assert "is a difference that saturates in f8E4M3FN" in str(road.module)
    road.check({"q": 5, "x": 300})


ABSENT = {
    "a cast": """%B = diagram.where %A if "x + q < n" with (n = %n : i32) : {s}
  %C = diagram.cast %B : {s} -> {narrow}
  %D = diagram.cast %C : {narrow} -> {s}""",
    "the condition itself": """%C = diagram.cast %A : {s} -> {narrow}
  %B = diagram.where %C if "x + q < n" with (n = %n : i32) : {narrow}
  %D = diagram.cast %B : {narrow} -> {s}""",
    "a map": """%B = diagram.where %A if "x + q < n" with (n = %n : i32) : {s}
  %D = diagram.map (%b = %B : {s}) -> {s} {{
    %c = arith.truncf %b : f32 to {format}
    %d = arith.extf %c : {format} to f32
    diagram.yield %d : f32
  }}""",
}


@pytest.mark.parametrize("format", EIGHT_BIT)
@pytest.mark.parametrize("through", ABSENT)
def test_an_absent_element_does_not_saturate(through: str, format: str):
    """What stands in a register for it would be the smallest number of 8 bits, where a row has no element."""
    s, narrow = array("f32", q=None, x=None), array(format, q=None, x=None)
    r = array("f32", q=None)
    road = compiled(f"""func.func @f(%A: {s}, %n: i32) -> {r} {{
  {ABSENT[through].format(s=s, narrow=narrow, format=format)}
  %r = diagram.reduce max %D over [x] : {s} -> {r}
  func.return %r : {r}
}}""")
    given = road.inputs({"q": 5, "x": 40})[0], 2
    assert all(verdict.ok for verdict in road.verdicts(given))
    assert (road.run(given)[0] == -np.inf).tolist() == [False, False, True, True, True]


def test_8_bits_from_python():
    """Two formats meet in f16, which holds both; what is no product is computed in f32."""
    import treadle
    import treadle.language as tl

    @treadle.kernel("q d, x d -> q x", result="f32")
    def scores(Q: tl.Array, K: tl.Array) -> tl.Array:
        return tl.contract(Q, K, over="d") * 0.5

    q = np.random.default_rng(0).standard_normal((5, 32)).astype(ml_dtypes.float8_e4m3fn)
    k = np.random.default_rng(1).standard_normal((7, 32)).astype(ml_dtypes.float8_e5m2)
    np.testing.assert_allclose(scores(q, k), q.astype(np.float32) @ k.astype(np.float32).T / 2, atol=1e-5)


def test_torch_tensors_of_8_bits():
    import torch

    import treadle
    import treadle.language as tl

    @treadle.kernel("q -> q", result="f8E4M3FN")
    def double(Q: tl.Array) -> tl.Array:
        return Q.to("f32") * 2.0

    given = torch.tensor([0.5, 3.0, 400.0, -448.0]).to(torch.float8_e4m3fn)
    made = double(given)
    assert made.dtype == torch.float8_e4m3fn
    assert made.float().tolist() == [1.0, 6.0, 448.0, -448.0]


def test_npz_files(tmp_path: Path):
    """numpy saves what it does not know as bytes, and of f8E5M2 what it cannot read: that says what to do."""
    from treadle.compiler.main import main

    program = tmp_path / "f.mlir"
    for format in EIGHT_BIT:
        program.write_text(cast(format, "f32"))
        numbers = EVERY[:100].view(DTYPES[format])
        np.savez(tmp_path / "bytes.npz", X=numbers.view(np.uint8))
        assert main(["run", str(program), "--backend", "interpreter", "--inputs", str(tmp_path / "bytes.npz")]) == 0
    np.savez(tmp_path / "five.npz", X=EVERY[:100].view(DTYPES["f8E5M2"]))
    assert main(["run", str(program), "--backend", "interpreter", "--inputs", str(tmp_path / "five.npz")]) == 2


def test_linalg_clips_before_it_rounds():
    """`arith.truncf` of other compilers does not saturate."""
    module = parse_module(cast("f32", "f8E4M3FN"))
    run_passes(module, [ArgSpec("convert-diagram-to-linalg", {})])
    text = str(module)
    assert text.index("arith.maximumf") < text.index("arith.minimumf") < text.index("arith.truncf")


@pytest.mark.parametrize(
    ("machine", "kernel", "capability", "most"),
    [
        ("h100", "attention_f8_kernel_specialised", (9, 0), inf),
        ("h100", "attention_f8_kernel_strided", (9, 0), 0),
        ("a100", "attention_f8_kernel", (9, 0), 0),
        ("l40s", "attention_f8_kernel", (8, 9), inf),
        ("l40s", "attention_f8_kernel", (9, 0), 0),
        ("h100", "no_such_kernel", (9, 0), inf),
    ],
)
def test_which_kernels_add_up_coarsely(machine: str, kernel: str, capability: tuple[int, int], most: float) -> None:
    """A result is held to the digits that what ran keeps: operands that became f16 keep those of f32 sums."""
    module = parse_module((Path(__file__).parents[1] / "examples" / "attention_f8.mlir").read_text(encoding="utf-8"))
    run_pipeline(module, Options(machine))
    assert coarse_sums(print_cuda(module), [kernel], capability) == most


@pytest.mark.sample(6)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("format", "accumulate"), [("ui8", "i32"), ("f8E4M3FN", "f32")])
@pytest.mark.parametrize("over", ["k, l", "l, k"])
@pytest.mark.parametrize("rows", ["mkil", "mlik"])
def test_a_sum_over_two_axes_is_deep_along_the_one_that_is_not_fed(
    rows: str, over: str, format: str, accumulate: str, machine: str
) -> None:
    """Four products over 64 numbers: rows of 4 are none of theirs, in whatever order the axes are named."""
    sizes: dict[str, int | None] = {"m": None, "k": 64, "i": 40, "l": 4, "n": 7}
    shared = [axis for axis in rows if axis in "kl"]
    left, right = (array(format, **{axis: sizes[axis] for axis in axes}) for axes in (rows, ["n", *shared]))
    result = array(accumulate, **{axis: sizes[axis] for axis in "min"})
    road = compiled(
        f"""
func.func @f(%A: {left}, %B: {right}) -> {result} {{
  %C = diagram.contract %A, %B over [{over}] accumulate {accumulate} : {left}, {right} -> {result}
  func.return %C : {result}
}}""",
        machine=machine,
    )
    road.check({"m": 5})
