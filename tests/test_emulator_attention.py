"""A whole kernel: attention with asynchronous copies in two stages, and what happens to it when one
synchronisation is taken away. Each of them is needed, so each must be missed."""

from __future__ import annotations

import ctypes
import os
import re
import shutil

import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.compiler.primitives import source
from treadle.runtime.emulator import (
    Array,
    EmulatedModule,
    EmulationError,
    LaunchReport,
    compile_source,
)

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
QUERIES, KEYS, DEPTH, TILE, PITCH = 128, 128, 64, 32, 72
KERNEL = """
constexpr int D = 64, Q = 64, K = 32, PITCH = 72, STAGE = 2 * K * PITCH;

__device__ void fetch(__half* to, const __half* k, const __half* v, int key, int keys) {
  const int t = threadIdx.x;
  for (int i = t; i < K * D / 8; i += 128) {
    const int row = i / 8, column = i % 8 * 8;
    const bool valid = key + row < keys;
    copy_async<16>(to + row * PITCH + column, k + (key + row) * D + column, valid);
    copy_async<16>(to + (K + row) * PITCH + column, v + (key + row) * D + column, valid);
  }
}

__global__ void attention(const __half* __restrict__ q, const __half* __restrict__ k,
                          const __half* __restrict__ v, __half* __restrict__ o, int keys,
                          float scale) {
  __half* query = reinterpret_cast<__half*>(shared_memory());
  __half* stages = query + Q * PITCH;
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, q0 = blockIdx.x * Q;
  for (int i = t; i < Q * D / 8; i += 128)
    copy_async<16>(query + i / 8 * PITCH + i % 8 * 8, q + (q0 + i / 8) * D + i % 8 * 8, true);
  fetch(stages, k, v, 0, keys);
  copy_async_commit();  // first commit
  float out[8][2][2] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int key = 0, stage = 0; key < keys; key += K, stage ^= 1) {
    if (key + K < keys) fetch(stages + (stage ^ 1) * STAGE, k, v, key + K, keys);
    copy_async_commit();  // later commit
    copy_async_wait<1>();  // wait
    barrier_block();  // data is there
    const __half *keys_here = stages + stage * STAGE, *values_here = keys_here + K * PITCH;
    float p[4][2][2] = {};
    for (int d = 0; d < D; d += 16) {
      __half a[2][2][2];
      load_matrix_x4(a, query + (16 * warp + lane % 16) * PITCH + d + lane / 16 * 8);
      for (int j = 0; j < 4; ++j) {
        __half b[2][2];
        load_matrix_x2(b, keys_here + (8 * j + lane % 8) * PITCH + d + lane / 8 % 2 * 8);
        mma_m16n8k16(p[j], a, b);
      }
    }
    for (int r = 0; r < 2; ++r) {
      float most = top[r];
      for (int j = 0; j < 4; ++j)
        for (int c = 0; c < 2; ++c) {
          const bool valid = key + 8 * j + 2 * (lane % 4) + c < keys;
          p[j][r][c] = valid ? p[j][r][c] * scale : -INFINITY;
          most = fmaxf(most, p[j][r][c]);
        }
      for (int mask = 1; mask < 4; mask *= 2) most = fmaxf(most, shuffle_xor(most, mask));
      const float fix = exp2_approx(top[r] - most);
      top[r] = most;
      sum[r] *= fix;
      for (int j = 0; j < 8; ++j)
        for (int c = 0; c < 2; ++c) out[j][r][c] *= fix;
      for (int j = 0; j < 4; ++j)
        for (int c = 0; c < 2; ++c) sum[r] += p[j][r][c] = exp2_approx(p[j][r][c] - most);
    }
    for (int s = 0; s < K; s += 16) {
      __half a[2][2][2];
      for (int k8 = 0; k8 < 2; ++k8)
        for (int r = 0; r < 2; ++r)
          store_pair(a[k8][r], p[s / 8 + k8][r][0], p[s / 8 + k8][r][1]);
      for (int j = 0; j < 8; ++j) {
        __half b[2][2];
        load_matrix_x2_trans(b, values_here + (s + lane % 16) * PITCH + 8 * j);
        mma_m16n8k16(out[j], a, b);
      }
    }
    barrier_block();  // data was used
  }
  for (int r = 0; r < 2; ++r) {
    for (int mask = 1; mask < 4; mask *= 2) sum[r] += shuffle_xor(sum[r], mask);
    for (int j = 0; j < 8; ++j) {
      Vec<__half, 2> pair;
      store_pair(pair.at, out[j][r][0] * reciprocal(sum[r]), out[j][r][1] * reciprocal(sum[r]));
      const int row = q0 + 16 * warp + 8 * r + lane / 4;
      store_global(reinterpret_cast<Vec<__half, 2>*>(o + row * D + 8 * j + 2 * (lane % 4)), pair);
    }
  }
}
"""
PRIMITIVES = source(
    [
        "shared_memory",
        "copy_async",
        "copy_async_commit",
        "copy_async_wait",
        "barrier_block",
        "shuffle_xor",
        "load_matrix_x4",
        "load_matrix_x2",
        "load_matrix_x2_trans",
        "mma_m16n8k16",
        "exp2_approx",
        "reciprocal",
        "store_pair",
        "store_global",
    ]
)
Matrix = NDArray[np.float16]


def inputs(keys: int) -> tuple[Matrix, Matrix, Matrix]:
    rng = np.random.default_rng(11)
    rows = (QUERIES, keys, keys)
    q, k, v = (rng.standard_normal((n, DEPTH)).astype(np.float16) for n in rows)
    return q, k, v


def run(module: EmulatedModule, keys: int, seed: int) -> tuple[Matrix, LaunchReport]:
    q, k, v = inputs(keys)
    out = np.zeros_like(q)
    scale = ctypes.c_float(float(np.log2(np.e)) / DEPTH**0.5)
    arrays = [Array(q, False), Array(k, False), Array(v, False), Array(out, True)]
    shared = (64 + 2 * 2 * TILE) * PITCH * 2
    grid = (QUERIES // 64, 1, 1)
    arguments = [*arrays, ctypes.c_int32(keys), scale]
    return out, module.launch("attention", grid, (128, 1, 1), shared, arguments, seed=seed)


def expected(keys: int) -> NDArray[np.float64]:
    q, k, v = (each.astype(np.float64) for each in inputs(keys))
    scores = np.exp(q @ k.T / DEPTH**0.5)
    return scores / scores.sum(1, keepdims=True) @ v


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("keys", [KEYS, 100, 7])
def test_attention(keys: int, seed: int, checks: bool) -> None:
    module = compile_source(PRIMITIVES + KERNEL, ["attention"], checks=checks)
    out, report = run(module, keys, seed)
    np.testing.assert_allclose(out, expected(keys), atol=2e-3)
    if checks:
        assert report.unwritten == {3: 0}
        assert report.bytes_stored == 2 * QUERIES * DEPTH
        assert sum(each.conflicts for each in report.operations) == 0


BREAKAGES = {
    "no first commit": (r"copy_async_commit\(\);  // first commit", ""),
    "no later commit": (r"copy_async_commit\(\);  // later commit", ""),
    "no wait": (r"copy_async_wait<1>\(\);", ""),
    "too lax a wait": (r"copy_async_wait<1>", "copy_async_wait<2>"),
    "no barrier before use": (r"barrier_block\(\);  // data is there", ""),
    "no barrier after use": (r"barrier_block\(\);  // data was used", ""),
    "one stage for two": (r"STAGE = 2 \* K \* PITCH", "STAGE = 0"),
    "reads keys beyond the end": (r"key \+ row < keys", "true"),
    "tiles overlap": (r"query \+ Q \* PITCH", "query + (Q - 1) * PITCH"),
    "a row too far": (r"row = q0 \+ 16", "row = q0 + 1 + 16"),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("breakage", BREAKAGES)
def test_broken_attention_is_caught(breakage: str, seed: int) -> None:
    pattern, replacement = BREAKAGES[breakage]
    broken, count = re.subn(pattern, replacement, KERNEL)
    assert count == 1
    module = compile_source(PRIMITIVES + broken, ["attention"])
    with pytest.raises(EmulationError):
        run(module, 100, seed)
