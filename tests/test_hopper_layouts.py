"""Fragments, descriptors and swizzles of sm_90a, against CuTe: what CUTLASS's headers say goes into the emulator as
bytes and bits, so that the emulator and what the compiler makes cannot share a misreading of the PTX ISA."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cute_facts import printed_with_cute
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from treadle.compiler.primitives import source
from treadle.compiler.primitives.wgmma import name_of
from treadle.compiler.source import make_context
from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator, column_order, row_operand
from treadle.dialects.cuda.tensor_maps import TensorMapType
from treadle.dialects.cuda.warpgroups import ROWS
from treadle.runtime.emulator import Array, MappedArray, compile_source

Facts = dict[str, NDArray[np.int64]]
SPANS = (0, 32, 64, 128)
COLUMNS, SUM, DEPTH = 128, 128, 16
TYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
BYTES = {
    "__nv_fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "__nv_fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int8_t": np.dtype(np.int8),
}
LEADING = 0x3FFF << 16
"""The leading offset of a descriptor: not used by a swizzled K-major operand (PTX ISA 9.7.15.5.1.2.1) or one chunk."""
FIELDS = ((2, np.uint64), (1, np.int32))
"""Of a step: its descriptor, and where it starts."""


@pytest.fixture(scope="module")
def cute() -> Facts:
    """CuTe's facts, by kind and name: rows of three numbers, in the order of the first two."""
    shown = printed_with_cute((Path(__file__).parent / "hopper" / "cute.cu").read_text())
    rows: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for kind, name, *numbers in (line.split() for line in shown):
        if not kind.startswith("ERROR"):  # it has no address in shared memory on the host: see the file
            rows[f"{kind} {name}"].append(tuple(int(number) for number in numbers))
    return {name: np.array(sorted(each)) for name, each in rows.items()}


def fragment(cute: Facts, name: str, threads: int = 128) -> NDArray[np.int64]:
    """For each thread and value, the index down the columns."""
    return cute[f"fragment {name}"][:, 2].reshape(threads, -1)


def places(cute: Facts, name: str, outer: int) -> NDArray[np.int64]:
    """The byte of each element (outer, k)."""
    return cute[f"place {name}"][:, 2].reshape(outer, SUM)


def scattered(matrix: NDArray[np.generic], at: NDArray[np.int64]) -> NDArray[np.generic]:
    """The tile as shared memory holds it: each element of a matrix (outer, k) where `at` says."""
    tile = np.zeros(matrix.size, matrix.dtype)
    tile[at // matrix.itemsize] = matrix
    return tile


# -- fragments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", [*TYPES, *BYTES])
@pytest.mark.parametrize("operand", ["a", "c"])
def test_fragments_are_cutes(cute: Facts, element: str, operand: str) -> None:
    """The layouts with which the compiler counts, of one warpgroup."""
    warps, pack = (Mode("m", 4, 16),), 4 if element in BYTES else 2
    left, sums = row_operand("m", "k", 1, 1, warps, pack), accumulator("m", "k", 1, 16, (4, 1))
    of: LayoutAttr = left if operand == "a" else sums
    table = fragment(cute, f"{element}.{operand}")
    strides = [int(np.prod(of.register_shape[i + 1 :])) for i in range(len(of.register_shape))]
    count = 0
    for registers, lane, warp, place in of.elements():
        value = sum(digit * stride for digit, stride in zip(registers, strides, strict=True))
        assert table[32 * warp + lane, value] == place["m"] + ROWS * place["k"]
        count += 1
    assert count == table.size


@pytest.mark.parametrize("name", ["store_matrix_x4", "store_matrix_x4_trans"])
def test_matrix_stores_are_laid_out_as_in_cute(cute: Facts, name: str) -> None:
    text = source([name, "shared_memory", "load_global", "store_global", "load_shared", "barrier_warp"])
    text += f"""
    __global__ void store(const __half* in, __half* out) {{
      __half* s = reinterpret_cast<__half*>(shared_memory());
      const int t = threadIdx.x;
      __half r[4][2];
      for (int i = 0; i < 8; ++i) r[i / 2][i % 2] = load_global(in + 8 * t + i);
      {name}(s + t * 8, r);
      barrier_warp();
      for (int i = t; i < 256; i += 32) store_global(out + i, load_shared(s + i));
    }}
    """
    bits = fragment(cute, name, 32)[:, ::16]  # CuTe counts bits
    out = np.zeros(256, np.float16)
    arguments = [Array((bits // 16).astype(np.float16), False), Array(out, True)]
    compile_source(text, ["store"]).launch("store", (1, 1, 1), (32, 1, 1), 1024, arguments)
    assert np.array_equal(out, np.arange(256))


# -- tiles in shared memory ------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("span", SPANS[1:])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_boxes_are_cutes_tiles(cute: Facts, operand: str, span: int, transposed: int) -> None:
    outer = ROWS if operand == "A" else COLUMNS
    at = places(cute, f"{operand}.{transposed}.{span}", outer)
    at = at.T if transposed else at
    boxes = BoxesAttr(at.shape, span // 2)
    assert all(boxes.offset(place, 2) == byte for place, byte in np.ndenumerate(at))


@pytest.mark.parametrize("span", SPANS[1:])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_boxes_of_bytes_are_cutes_tiles(cute: Facts, operand: str, span: int) -> None:
    at = places(cute, f"{operand}.8.{span}", ROWS if operand == "A" else COLUMNS)
    boxes = BoxesAttr(at.shape, span)
    assert all(boxes.offset(place, 1) == byte for place, byte in np.ndenumerate(at))
    assert cute[f"map {operand}.8.{span}"][0, 2] == span


@pytest.mark.parametrize("keys", [32, 96, 224])
def test_an_order_of_rows_is_that_of_the_columns(keys: int) -> None:
    """Column c of a product is row c of its tile; so an accumulator that counts its columns otherwise is made from rows
    in that order, which copies bring as dimensions of the array."""
    layout = accumulator("q", "x", 1, keys // 8, (4, 1), interleaved=True)
    boxes = BoxesAttr((1, keys, 128), 128, column_order(layout, "x"))
    rows = np.array([boxes.offset((0, x, 0), 1) // 128 for x in range(keys)])
    plain = accumulator("q", "x", 1, keys // 8, (4, 1))
    for (_, lane, warp, there), (*_, here) in zip(layout.elements(), plain.elements(), strict=True):
        assert rows[there["x"]] == here["x"], (lane, warp)
    array = np.arange(2 * 240 * 128).reshape(2, 240, 128)
    buffer = "memref<2x240x128xf8E4M3FN, #diagram.array<[b, x, d], level = device>>"
    map = TensorMapType((1, keys, 128), Parser(make_context(), buffer).parse_type(), boxes.order)
    sizes, strides = map.dimensions(array.shape, array.strides)
    seen = as_strided(array, sizes, strides)
    _, quads, near, _ = map.sides
    copied = [seen[0, :quads, first : first + near].reshape(-1, 128) for first in boxes.firsts]
    assert np.array_equal(np.concatenate(copied)[rows], array[0, :keys])
    assert map.multiple == ("x", 4)


@pytest.mark.parametrize("order", [[("x", 4, 2), ("x", 2, 1)], [("x", 2, 1), ("x", 8, 2)], [("x", 16, 1)]])
def test_orders_that_no_copies_bring(order: list[tuple[str, int, int]]) -> None:
    with pytest.raises(VerifyException, match="order"):
        BoxesAttr((16, 64), 64, [Mode(*digit) for digit in order])


COPY = """
__global__ void copy(const __grid_constant__ TensorMap map, __half* out) {
  unsigned char* const tile = shared_memory();
  uint64_t* const full = reinterpret_cast<uint64_t*>(tile + BYTES);
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, BYTES);
    for (int box = 0; box < COLUMNS / SPAN; ++box)
      tensor_load(tile + box * (ROWS * SPAN * 2), map, full, {box * SPAN, 0});
  }
  barrier_block();
  mbarrier_wait(full, 0);
  for (int i = t; i < BYTES / 2; i += 32) store_global(out + i, load_shared(reinterpret_cast<__half*>(tile) + i));
}
"""


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("span", SPANS[1:])
def test_tensor_copies_leave_cutes_tiles(cute: Facts, span: int, transposed: int) -> None:
    """A tensor copy with the swizzle that CuTe asks of a tensor map leaves each element where CuTe looks for it."""
    assert cute[f"map B.0.{span}"][0, 2] == span
    at = places(cute, f"B.{transposed}.{span}", COLUMNS)
    matrix = np.arange(COLUMNS * SUM).astype(np.uint16).view(np.float16).reshape(COLUMNS, SUM)
    stored = np.ascontiguousarray(matrix.T if transposed else matrix)
    rows, columns = stored.shape
    names = ["shared_memory", "mbarrier_init", "mbarrier_init_fence", "mbarrier_arrive_expect", "mbarrier_wait"]
    names += ["tensor_load", "barrier_block", "store_global", "load_shared"]
    head = f"constexpr int ROWS = {rows}, COLUMNS = {columns}, SPAN = {span // 2}, BYTES = {stored.nbytes};\n"
    out = np.zeros(stored.size, np.float16)
    arguments = [MappedArray(Array(stored, False), (rows, span // 2), span), Array(out, True)]
    module = compile_source(source(names) + head + COPY, ["copy"])
    module.launch("copy", (1, 1, 1), (32, 1, 1), stored.nbytes + 1024, arguments)
    assert np.array_equal(out.view(np.uint16), scattered(matrix, at).view(np.uint16))


# -- descriptors -----------------------------------------------------------------------------------

DESCRIBE = """
__global__ void describe(uint64_t* out) {
  if (threadIdx.x == 0) store_global(out, matrix_descriptor<SPAN>(matrix_start(shared_memory(), LEADING), STRIDE));
}
"""


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("span", SPANS[1:])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_descriptors_are_cutes(cute: Facts, operand: str, span: int, transposed: int) -> None:
    """A tile of boxes, as the printer describes it: of rows of `span` bytes, groups of 8 of them, chunk after chunk."""
    outer = ROWS if operand == "A" else COLUMNS
    leading = SUM * span if transposed else 0
    head = f"constexpr int SPAN = {span}, LEADING = {leading}, STRIDE = {8 * span};\n"
    out = np.zeros(1, np.uint64)
    module = compile_source(
        source(["matrix_start", "matrix_descriptor", "shared_memory", "store_global"]) + head + DESCRIBE, ["describe"]
    )
    module.launch("describe", (1, 1, 1), (32, 1, 1), 1024, [Array(out, True)])
    steps = cute[f"step {operand}.{transposed}.{span}"]
    used = -1 if transposed and 2 * outer > span else ~LEADING
    assert {int(bits) & used for bits in steps[:, 2]} == {int(out.view(np.int64)[0]) & used}
    inside = span // 32  # steps of 16 along k within a row
    here = [i * 16 * span if transposed else i // inside * outer * span + i % inside * 32 for i in range(SUM // DEPTH)]
    assert steps[:, 1].tolist() == here


PRODUCT = """
__device__ uint64_t moved(uint64_t descriptor, const T* tile, int start) {
  return further(descriptor, start + int(matrix_start(tile, 0)) * 16);
}
__global__ void product(const T* a, const T* b, const T* fragments, const uint64_t* a_steps, const int* a_starts,
                        const uint64_t* b_steps, const int* b_starts, float* d, float* e) {
  T* const A = reinterpret_cast<T*>(shared_memory());
  T* const B = A + 64 * SUM;
  const int t = threadIdx.x;
  for (int i = t; i < 64 * SUM; i += 128) store_shared(A + i, load_global(a + i));
  for (int i = t; i < COLUMNS * SUM; i += 128) store_shared(B + i, load_global(b + i));
  fence_proxy_async();
  barrier_block();
  float x[COLUMNS / 8][2][2], y[COLUMNS / 8][2][2];
  T left[SUM / 16][2][2][2];
  for (int i = 0; i < SUM / 2; ++i)
    left[i / 8][i / 4 % 2][i / 2 % 2][i % 2] = load_global(fragments + t * (SUM / 2) + i);
  wgmma_fence();
  for (int k = 0; k < SUM / 16; ++k) {
    const uint64_t first = moved(load_global(a_steps + k), A, load_global(a_starts + k));
    const uint64_t second = moved(load_global(b_steps + k), B, load_global(b_starts + k));
    WGMMA<T, A_MN, B_MN>(x, first, second, k > 0);
    WGMMA<T, B_MN>(y, left[k], second, k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < COLUMNS / 2; ++i) store_global(d + t * (COLUMNS / 2) + i, x[i / 4][i / 2 % 2][i % 2]);
  for (int i = 0; i < COLUMNS / 2; ++i) store_global(e + t * (COLUMNS / 2) + i, y[i / 4][i / 2 % 2][i % 2]);
}
"""


@pytest.mark.parametrize(("a_mn", "b_mn"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("element", TYPES)
def test_products_of_cutes_tiles_and_descriptors(cute: Facts, element: str, a_mn: int, b_mn: int) -> None:
    """Tiles filled where CuTe says, described by CuTe's descriptors, or fragments filled by CuTe's table, give the
    product, exactly, in CuTe's registers, under every swizzle."""
    names = ["shared_memory", "load_global", "store_global", "store_shared", "fence_proxy_async", "barrier_block"]
    names += ["matrix_start", "further", "wgmma_fence", "wgmma_commit", "wgmma_wait", name_of(COLUMNS)]
    head = f"using T = {element};\nconstexpr int COLUMNS = {COLUMNS}, SUM = {SUM}, A_MN = {a_mn}, B_MN = {b_mn};\n"
    text = re.sub(r"\bWGMMA\b", name_of(COLUMNS), PRODUCT)
    module = compile_source(source(names) + head + text, ["product"])
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, (outer, SUM)).astype(TYPES[element]) for outer in (ROWS, COLUMNS))
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    chunks = a.reshape(ROWS, SUM // DEPTH, DEPTH).transpose(1, 2, 0).reshape(SUM // DEPTH, -1)
    fragments = np.ascontiguousarray(chunks[:, fragment(cute, f"{element}.a")].transpose(1, 0, 2))
    for span in SPANS:
        d, e = (np.zeros((128, COLUMNS // 2), np.float32) for _ in range(2))
        steps = [cute[f"step A.{a_mn}.{span}"], cute[f"step B.{b_mn}.{span}"]]
        arguments = [
            Array(scattered(a, places(cute, f"A.{a_mn}.{span}", ROWS)), False),
            Array(scattered(b, places(cute, f"B.{b_mn}.{span}", COLUMNS)), False),
            Array(fragments, False),
            *(Array(np.ascontiguousarray(each[:, i]).astype(type), False) for each in steps for i, type in FIELDS),
            Array(d, True),
            Array(e, True),
        ]
        module.launch("product", (1, 1, 1), (128, 1, 1), 2 * SUM * (ROWS + COLUMNS), arguments)
        for result in (d, e):
            assert np.array_equal(result, expected.T.ravel()[fragment(cute, f"{element}.c")]), span


PRODUCT_OF_BYTES = (
    PRODUCT.replace("T left[SUM / 16][2][2][2];", "T left[SUM / 32][2][2][4];")
    .replace("left[i / 8][i / 4 % 2][i / 2 % 2][i % 2]", "left[i / 16][i / 8 % 2][i / 4 % 2][i % 4]")
    .replace("SUM / 16", "SUM / 32")
    .replace("WGMMA<T, A_MN, B_MN>", "WGMMA<T, T>")
    .replace("WGMMA<T, B_MN>", "WGMMA<T, T>")
)


@pytest.mark.parametrize("element", BYTES)
def test_products_of_bytes_of_cutes_tiles_and_descriptors(cute: Facts, element: str) -> None:
    """As `test_products_of_cutes_tiles_and_descriptors`, of 8-bit operands, which are K-major."""
    names = ["shared_memory", "load_global", "store_global", "store_shared", "fence_proxy_async", "barrier_block"]
    name, sum = name_of(COLUMNS, 32), np.dtype(np.float32)
    text = PRODUCT_OF_BYTES
    if element == "int8_t":
        name, sum = f"{name}_s32", np.dtype(np.int32)
        text = text.replace("float* d, float* e", "int* d, int* e").replace("float x[", "ExactSum x[")
        text = re.sub(r"\b([xy]\[i / 4\].*)\);", r"int32_t(\1));", text)
    names += ["matrix_start", "further", "wgmma_fence", "wgmma_commit", "wgmma_wait", name]
    head = f"using T = {element};\nconstexpr int COLUMNS = {COLUMNS}, SUM = {SUM};\n"
    text = re.sub(r"\bWGMMA\b", name, text)
    module = compile_source(source(names) + head + text, ["product"])
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, (outer, SUM)).astype(BYTES[element]) for outer in (ROWS, COLUMNS))
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    chunks = a.reshape(ROWS, SUM // 32, 32).transpose(1, 2, 0).reshape(SUM // 32, -1)
    fragments = np.ascontiguousarray(chunks[:, fragment(cute, f"{element}.a")].transpose(1, 0, 2))
    for span in SPANS:
        d, e = (np.zeros((128, COLUMNS // 2), sum) for _ in range(2))
        steps = [cute[f"step A.8.{span}"], cute[f"step B.8.{span}"]]
        arguments = [
            Array(scattered(a, places(cute, f"A.8.{span}", ROWS)), False),
            Array(scattered(b, places(cute, f"B.8.{span}", COLUMNS)), False),
            Array(fragments, False),
            *(Array(np.ascontiguousarray(each[:, i]).astype(type), False) for each in steps for i, type in FIELDS),
            Array(d, True),
            Array(e, True),
        ]
        module.launch("product", (1, 1, 1), (128, 1, 1), SUM * (ROWS + COLUMNS), arguments)
        for result in (d, e):
            assert np.array_equal(result, expected.T.ravel()[fragment(cute, f"{element}.c")]), span
