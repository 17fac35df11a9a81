"""Matrix instructions in the emulator: products against numpy, matrix loads against their definition."""

from __future__ import annotations

import ctypes
import os
import shutil

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.compiler.primitives import source
from treadle.runtime.emulator import Array, compile_source

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
# One warp computes a 16 x 8 tile of out = a b; a is m x k by rows, b is n x k by rows.
MATMUL_16 = (
    source(["load_global", "store_global", "mma_m16n8k16", "barrier_block"])
    + """
__global__ void matmul(const ELEMENT* a, const ELEMENT* b, float* out, int n, int k) {
  const int lane = threadIdx.x % 32;
  const int row = 16 * blockIdx.x, column = 8 * (blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32);
  float d[2][2] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    ELEMENT x[2][2][2], y[2][2];
    for (int k8 = 0; k8 < 2; ++k8)
      for (int k1 = 0; k1 < 2; ++k1) {
        const int at = k0 + 8 * k8 + 2 * (lane % 4) + k1;
        for (int m8 = 0; m8 < 2; ++m8)
          x[k8][m8][k1] = load_global(a + (row + 8 * m8 + lane / 4) * k + at);
        y[k8][k1] = load_global(b + (column + lane / 4) * k + at);
      }
    mma_m16n8k16(d, x, y);
  }
  for (int m8 = 0; m8 < 2; ++m8)
    for (int n1 = 0; n1 < 2; ++n1)
      store_global(out + (row + 8 * m8 + lane / 4) * n + column + 2 * (lane % 4) + n1, d[m8][n1]);
}
"""
)
HALF = """    if (k0 + 16 > k) {
      mma_m16n8k8(d, x[0], y[0]);
      break;
    }
"""
"""Where half a step is left, one of half the depth: what the other registers hold counts for nothing."""
MATMUL_TF32 = (
    source(["load_global", "store_global", "mma_m16n8k8_tf32"])
    + """
__global__ void matmul(const float* a, const float* b, float* out, int n, int k) {
  const int lane = threadIdx.x % 32;
  const int row = 16 * blockIdx.x, column = 8 * (blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32);
  float d[2][2] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    float x[2][2], y[2];
    for (int k4 = 0; k4 < 2; ++k4) {
      const int at = k0 + 4 * k4 + lane % 4;
      for (int m8 = 0; m8 < 2; ++m8) x[k4][m8] = load_global(a + (row + 8 * m8 + lane / 4) * k + at);
      y[k4] = load_global(b + (column + lane / 4) * k + at);
    }
    mma_m16n8k8_tf32(d, x, y);
  }
  for (int m8 = 0; m8 < 2; ++m8)
    for (int n1 = 0; n1 < 2; ++n1)
      store_global(out + (row + 8 * m8 + lane / 4) * n + column + 2 * (lane % 4) + n1, d[m8][n1]);
}
"""
)
ELEMENTS = {
    "__half": np.dtype(np.float16),
    "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
}


def rounded_to_tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """To 10 mantissa bits, to nearest, ties away from zero."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x1000) & ~np.uint64(0x1FFF)).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_matrix_product(element: str, seed: int) -> None:
    m, n, k = 32, 32, 48
    text = MATMUL_TF32 if element == "float" else MATMUL_16.replace("ELEMENT", element)
    rng = np.random.default_rng(5)
    a = rng.standard_normal((m, k)).astype(ELEMENTS[element])
    b = rng.standard_normal((n, k)).astype(ELEMENTS[element])
    out = np.zeros((m, n), np.float32)
    report = compile_source(text, ["matmul"]).launch(
        "matmul",
        (m // 16, n // 16, 1),
        (64, 1, 1),
        0,
        [Array(a, False), Array(b, False), Array(out, True), ctypes.c_int32(n), ctypes.c_int32(k)],
        seed=seed,
    )
    if element == "float":
        a, b = rounded_to_tf32(a), rounded_to_tf32(b)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)
    assert report.unwritten == {2: 0}
    products = sum(each.requests for each in report.operations if each.kind == "mma")
    assert products == (m // 16) * (n // 8) * (k // (8 if element == "float" else 16))


@pytest.mark.parametrize("element", ["__half", "__nv_bfloat16"])
@pytest.mark.parametrize("k", [8, 24, 40])
def test_half_a_step(element: str, k: int) -> None:
    """The lanes' other elements are those of the row behind, infinite ones among them."""
    text = MATMUL_16.replace("    mma_m16n8k16(d, x, y);", HALF + "    mma_m16n8k16(d, x, y);")
    body = text[text.index("__global__") :].replace("ELEMENT", element)
    text = source(["load_global", "store_global", "mma_m16n8k16", "mma_m16n8k8"]) + body
    rng = np.random.default_rng(5)
    a = rng.standard_normal((32, k)).astype(ELEMENTS[element])
    b = rng.standard_normal((16, k)).astype(ELEMENTS[element])
    a[16], b[8] = np.inf, np.nan
    out = np.zeros((32, 16), np.float32)
    behind = [np.concatenate([each.ravel(), np.full(16, np.inf, each.dtype)]) for each in (a, b)]
    arrays = [Array(behind[0], False), Array(behind[1], False), Array(out, True)]
    compile_source(text, ["matmul"]).launch(
        "matmul", (2, 1, 1), (64, 1, 1), 0, [*arrays, ctypes.c_int32(16), ctypes.c_int32(k)]
    )
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


def test_products_are_summed_exactly() -> None:
    """The large terms cancel; a sum in half precision, or in float in order, would lose the small."""
    a, b = np.zeros((16, 16), np.float16), np.zeros((8, 16), np.float16)
    a[:, :3] = [30000, 2.0**-14, -30000]
    b[:, :3] = [30000, 1, 30000]
    out = np.zeros((16, 8), np.float32)
    module = compile_source(MATMUL_16.replace("ELEMENT", "__half"), ["matmul"])
    scalars = [ctypes.c_int32(8), ctypes.c_int32(16)]
    arrays = [Array(a, False), Array(b, False), Array(out, True)]
    module.launch("matmul", (1, 1, 1), (32, 1, 1), 0, [*arrays, *scalars])
    assert np.all(out == 2.0**-14)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_load(count: int, transposed: bool) -> None:
    name = f"load_matrix_x{count}" + ("_trans" if transposed else "")
    text = source([name, "shared_memory", "load_global", "store_global", "store_shared", "barrier_block"])
    text += f"""
    __global__ void load(const __half* in, __half* out) {{
      __half* s = reinterpret_cast<__half*>(shared_memory());
      const int t = threadIdx.x;
      for (int i = t; i < 256; i += 32) store_shared(s + i, load_global(in + i));
      barrier_block();
      __half r[{count}][2];
      {name}(r, s + t % {8 * count} * 8);
      for (int m = 0; m < {count}; ++m)
        for (int i = 0; i < 2; ++i) store_global(out + (m * 32 + t) * 2 + i, r[m][i]);
    }}
    """
    given = np.arange(256, dtype=np.float16).reshape(4, 8, 8)
    out = np.zeros((count, 32, 2), np.float16)
    arguments = [Array(given, False), Array(out, True)]
    compile_source(text, ["load"]).launch("load", (1, 1, 1), (32, 1, 1), 512, arguments)
    lane, i = np.arange(32)[:, None], np.arange(2)[None, :]
    row, column = lane // 4, 2 * (lane % 4) + i
    for m in range(count):
        expected = given[m][column, row] if transposed else given[m][row, column]
        assert np.array_equal(out[m], expected)


def test_registers_may_have_any_shape() -> None:
    """Four registers fill the [2][2][2] of a product's left operand as they fill [4][2]."""
    text = source(["load_matrix_x4", "shared_memory", "store_global", "store_shared", "barrier_block"])
    text += """
    __global__ void load(__half* out) {
      __half* s = reinterpret_cast<__half*>(shared_memory());
      const int t = threadIdx.x;
      for (int i = t; i < 256; i += 32) store_shared(s + i, __half(float(i)));
      barrier_block();
      __half flat[4][2], deep[2][2][2];
      load_matrix_x4(flat, s + t * 8);
      load_matrix_x4(deep, s + t * 8);
      for (int r = 0; r < 4; ++r)
        for (int i = 0; i < 2; ++i)
          store_global(out + (t * 4 + r) * 2 + i, flat[r][i] - deep[r / 2][r % 2][i]);
    }
    """
    out = np.ones(256, np.float16)
    compile_source(text, ["load"]).launch("load", (1, 1, 1), (32, 1, 1), 512, [Array(out, True)])
    assert np.all(out == 0)
