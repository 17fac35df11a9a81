"""Device primitives: gathered with what they need, assembled by nvcc, laid out as CUTLASS says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cute_facts import printed_with_cute
from numpy.typing import NDArray

from tools import find_cuobjdump
from treadle.compiler import primitives
from treadle.compiler.primitives import primitive_names, source, wgmma
from treadle.dialects import cuda
from treadle.runtime.emulator import Array, compile_source

PRIMITIVES = Path(primitives.__file__).parent
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

# One use of each primitive, in a kernel with 16-byte aligned pointers `h` to half, `b` to bfloat16,
# `f` to float, and the same with a `2` to write to; `s` is shared memory, `t` the thread.
USES = {
    "shared_memory": "f2[t] = shared_memory()[t];",
    "load_global": "reinterpret_cast<V*>(h2)[t] = load_global(reinterpret_cast<const V*>(h) + t);",
    "load_global_if": ("reinterpret_cast<V*>(h2)[t] = load_global_if(reinterpret_cast<const V*>(h) + t, t < 3);"),
    "store_global": "V v; for (auto& x : v.at) x = h[t]; store_global(reinterpret_cast<V*>(h2) + t, v);",
    "store_global_if": "store_global_if(f2 + t, f[t], t < 3);",
    "add_global_if": (
        "int* n = reinterpret_cast<int*>(h2); Vec<int, 2> one; one.at[0] = one.at[1] = t; add_global_if(vec<1>(f2), "
        "pack<1>(f + t), t < 3); add_global_if(vec<4>(f2), pack<4>(f), true); add_global_if(vec<2>(f2), pack<2>(f), "
        "true); add_global_if(vec<2>(n), one, t < 5);"
    ),
    "load_shared": "reinterpret_cast<V*>(h2)[t] = load_shared(reinterpret_cast<const V*>(s) + t);",
    "store_shared": "V v; for (auto& x : v.at) x = h[t]; store_shared(reinterpret_cast<V*>(s) + t, v);",
    "barrier_block": "barrier_block();",
    "barrier_warp": "barrier_warp();",
    "divide_together": (
        "float two[2] = {f[0], f[1]}, four[4] = {f[2], f[3], f[4], f[5]};"
        "divide_together(0.5f, two); divide_together(1.0f, four); f2[t] = two[0] + two[1] + four[0] + four[3];"
    ),
    "divide_in_groups": (
        "float eight[8], two[2] = {f[8], f[9]}, eights[8], twos[2]; for (int i = 0; i < 8; ++i) eight[i] = f[i];"
        "const bool holds = divide_in_groups<4>(0.25f, eight, eights) && divide_in_groups<2>(1.0f, two, twos);"
        "f2[t] = holds ? eights[t % 8] + twos[0] : 0.0f;"
    ),
    "shuffle_xor": "f2[t] = shuffle_xor(f[t], 4) + shuffle_xor(t, 8);",
    "shuffle": "f2[t] = shuffle(f[t], t / 4 % 32) + float(shuffle(h[t], 7));",
    "any_lane": "f2[t] = any_lane(f[t] > 1.0f) ? 1.0f : 0.0f;",
    "append_kept": (
        "int* list = reinterpret_cast<int*>(s);"
        "f2[t] = append_kept<1>(list + 32, list, t % 3 == 0, int(t), append_kept<1>(list + 32, list + 1, true, 2, 0));"
    ),
    "count_before": "f2[t] = float(count_before(reinterpret_cast<const int*>(s), 7, t));",
    "pick": "h2[t] = pick(t < 3, h[t], h[t + 1]); f2[t] = pick(t < 3, f[t], f[t + 1]);",
    "mma_m16n8k16": (
        "__half a[2][2][2], c[2][2]; __nv_bfloat16 x[2][2][2], y[2][2]; float d[2][2] = {};"
        "memcpy(a, h, 16); memcpy(c, h + 8, 8); memcpy(x, b, 16); memcpy(y, b + 8, 8);"
        "mma_m16n8k16(d, a, c); mma_m16n8k16(d, x, y); memcpy(f2, d, 16);"
    ),
    "mma_m16n8k8": (
        "__half a[2][2], c[2]; __nv_bfloat16 x[2][2], y[2]; float d[2][2] = {};"
        "memcpy(a, h, 8); memcpy(c, h + 4, 4); memcpy(x, b, 8); memcpy(y, b + 4, 4);"
        "mma_m16n8k8(d, a, c); mma_m16n8k8(d, x, y); memcpy(f2, d, 16);"
    ),
    **{
        name: "".join(
            f"{{ {left} a[2][2][4]; {right} c[2][4]; float d[2][2] = {{}}; memcpy(a, h, 16); memcpy(c, h + 8, 8);"
            f"memcpy(d, f, 16); {name}(d, a, c); memcpy(f2, d, 16); }}"
            for left in ("__nv_fp8_e4m3", "__nv_fp8_e5m2")
            for right in ("__nv_fp8_e4m3", "__nv_fp8_e5m2")
        )
        for name in ("mma_m16n8k32", "mma_m16n8k32_in_f16")
    },
    "mma_m16n8k8_tf32": (
        "float a[2][2], c[2], d[2][2] = {}; memcpy(a, f, 16); memcpy(c, f + 4, 8);"
        "mma_m16n8k8_tf32(d, a, c); memcpy(f2, d, 16);"
    ),
    "copy_async": ("copy_async<16>(s + 8 * t, h, t < 3); copy_async<8>(s, h, true); copy_async<4>(s, h, true);"),
    "copy_async_commit": "copy_async_commit();",
    "copy_async_wait": "copy_async_wait<0>(); copy_async_wait<3>();",
    "vec": "V v = *vec<8>(h + 8 * t); *vec<8>(h2 + 8 * t) = v;",
    "pack": "float x[4] = {f[0], f[1], f[2], f[3]}; store_global(vec<4>(f2), pack<4>(x));",
    "unpack": "__half x[8]; unpack(x, load_global(vec<8>(h))); for (auto y : x) f2[t] += to_float(y);",
    "width_of": "constexpr int width = width_of<__half, 8>(16) + width_of<float, 4>(2); f2[t] = float(width);",
    "swizzled": "f2[t] = h[swizzled<64, 3, 0, 8>(t / 64, t % 64)];",
    "swizzled_down": (
        "f2[t] = s[swizzled_down<64, 3, 0, 8, 8>(t / 64, t % 64, 16)] + s[swizzled_down<64, 2, 1, 8, 4>(t, 0, 4)];"
    ),
    "advance": "const float* p = f; advance(p, 4 * int64_t(t)); f2[t] = p[0];",
    "kept": "f2[t] = f[kept(t)] + f[kept(int64_t(t))];",
    "slot_behind": "slot_behind(f2, t, 2)[0] = f[t];",
    "behind": "f2[t] = behind(f, t, 2)[0];",
    "stage_at": "f2[t] = stage_at(s, t * 128)[0];",
    "copy_async_or_now": (
        "copy_async_or_now(vec<8>(s + 8 * t), vec<8>(h), t < 3); copy_async_or_now(vec<1>(s), vec<1>(h), true);"
    ),
    "widen_pair": (
        "__nv_fp8_e4m3 x[2] = {__nv_fp8_e4m3(f[0]), __nv_fp8_e4m3(f[1])}; __nv_fp8_e5m2 y[2]; memcpy(y, x, 2);"
        "widen_pair(h2, x); widen_pair(h2 + 2, y);"
    ),
    "clip_to_byte": "f2[t] = float(clip_to_byte<int8_t>(t - 40) + clip_to_byte<uint8_t>(t - 40));",
    "widen_bytes": (
        "int8_t x[4] = {int8_t(t), int8_t(-t), 3, -4}; widen_bytes<4>(h2, x); widen_bytes<2>(h2 + 4, x + 2);"
        "uint8_t y[4] = {uint8_t(t), 2, 3, 255}; widen_bytes<4>(h2 + 6, y); widen_bytes<2>(h2 + 10, y + 2);"
    ),
    "mma_m16n8k32_s32": (
        "int8_t a[2][2][4], c[2][4]; int32_t d[2][2] = {}; memcpy(a, h, 16); memcpy(c, h + 8, 8);"
        "uint8_t x[2][2][4], y[2][4]; memcpy(x, a, 16); memcpy(y, c, 8); mma_m16n8k32_s32(d, a, c);"
        "mma_m16n8k32_s32(d, x, c); mma_m16n8k32_s32(d, a, y); mma_m16n8k32_s32(d, x, y); memcpy(f2, d, 16);"
    ),
    "narrow_pair": (
        "__nv_fp8_e4m3 x[2]; __nv_fp8_e5m2 y[2]; narrow_pair(x, f[0], f[1]); narrow_pair(y, f[2], f[3]);"
        "f2[0] = to_float(x[0]) + to_float(x[1]) + to_float(y[0]) + to_float(y[1]);"
    ),
    "narrow_four": (
        "__nv_fp8_e4m3 x[4]; __nv_fp8_e5m2 y[4]; narrow_four(x, f[0], f[1], f[2], f[3]);"
        "narrow_four(y, f[0], f[1], f[2], f[3]); UNROLL for (int i = 0; i < 4; ++i)"
        "  f2[i] = to_float(x[i]) + to_float(y[i]);"
    ),
    "at_most": "f2[t] = float(at_most(7, int64_t(t)));",
    "within": "f2[t] = float(within(int64_t(t) - 3, 7));",
    "places_before": "f2[t] = float(places_before<16, 8, 2, 1>(t));",
    "bits_before": "f2[t] = float(bits_before<0, 16, 8, 2, 1>(t) + bits_before<1, 64, 1>(int64_t(t)));",
    "sector_order": (
        "const sector_order<__half, 1> order(h + t, 8, 65, 65, 1); const auto [row, column, is_there] = order[t];"
        "f2[t] = h[row * 65 + column + is_there + order.count];"
    ),
    "run_order": (
        "const run_order<__half, 1, 8, 65> order(8, 65, 65, 1); const int run = order.run(t);"
        "const auto [row, column, is_there] = order.find(t, run, h + t);"
        "f2[t] = h[row * 65 + column + is_there + order.count(run)];"
    ),
    "copy_async_if": (
        "copy_async_if(vec<8>(s + 8 * t), vec<8>(h), t < 9); copy_async_if(vec<1>(s), vec<1>(h), t < 9, t < 3);"
    ),
    "before_in_sector": "f2[t] = f[before_in_sector(f + t, 1) + before_in_sector(h + t, 2)];",
    "load_shared_if": "reinterpret_cast<V*>(h2)[t] = load_shared_if(reinterpret_cast<const V*>(s) + t, t < 3);",
    "store_shared_if": ("V v; for (auto& x : v.at) x = h[t]; store_shared_if(reinterpret_cast<V*>(s) + t, v, t < 3);"),
    "divide": "f2[t] = divide(f[t], f[t + 1]);",
    "exp2_approx": "f2[t] = exp2_approx(f[t]);",
    "log2_approx": "f2[t] = log2_approx(f[t]);",
    "rcp_approx": "f2[t] = rcp_approx(f[t]);",
    "maximum": "f2[t] = maximum(f[t], f[t + 1]);",
    "minimum": "f2[t] = minimum(f[t], f[t + 1]);",
    "wrapped_sum": "f2[t] = wrapped_sum(int(f[t]), int(f[t + 1]));",
    "wrapped_difference": "f2[t] = wrapped_difference(int(f[t]), int(f[t + 1]));",
    "wrapped_product": "f2[t] = wrapped_product(int(f[t]), int(f[t + 1]));",
    "random_words": "f2[t] = float(random_words(uint32_t(t), 3, 5) & 7);",
    "random_word": "f2[t] = float(random_word(t, 3, 5));",
    "random_bits": "f2[t] = float(random_bits(t, 3, 5));",
    "quotient": "f2[t] = quotient(int(f[t]), int(f[t + 1]));",
    "remainder_of": "f2[t] = remainder_of(int(f[t]), int(f[t + 1]));",
    **{
        name: f"f2[t] = {name}(int(f[t]), int(f[t + 1]));"
        for name in ("floored_quotient", "shifted_left", "shifted_right", "shifted_right_unsigned")
    },
    "floored_quotient_wide": "f2[t] = floored_quotient_wide(int(f[t]), 7);",
    "to_integer": "f2[t] = to_integer(f[t]);",
    "reciprocal": "f2[t] = reciprocal(f[t]);",
    "to_float": "f2[t] = to_float(h[t]) + to_float(b[t]) + to_float(f[t]) + to_float(t);",
    "from_float": (
        "h2[t] = from_float<__half>(f[t]); b2[t] = from_float<__nv_bfloat16>(f[t]);"
        "f2[t] = from_float<float>(f[t]) + from_float<int32_t>(f[t]);"
    ),
    "store_pair": (
        "__half p[2]; store_pair(p, f[0], f[1]); memcpy(h2, p, 4);"
        "__nv_bfloat16 q[2]; store_pair(q, f[0], f[1]); memcpy(b2, q, 4);"
        "float r[2]; store_pair(r, f[0], f[1]); f2[1] = r[1];"
        "int32_t i[2]; store_pair(i, f[0], f[1]); f2[2] = i[1];"
    ),
}
for _count in (1, 2, 4):
    for _kind in ("", "_trans"):
        USES[f"load_matrix_x{_count}{_kind}"] = (
            f"__half r[{_count}][2]; load_matrix_x{_count}{_kind}(r, s + 8 * t);memcpy(h2, r, sizeof(r));"
        )
USES |= {  # of sm_90a; `q` is a barrier, `map` a tensor map
    "mbarrier_init": "mbarrier_init(q, 2);",
    "mbarrier_init_fence": "mbarrier_init_fence();",
    "mbarrier_arrive": "mbarrier_arrive(q);",
    "copy_async_arrive": "copy_async_arrive(q);",
    "mbarrier_arrive_expect": "mbarrier_arrive_expect(q, 1024);",
    "mbarrier_wait": "mbarrier_wait(q, t & 1); mbarrier_wait(q + 1, t & 1);",
    "fence_proxy_async": "fence_proxy_async();",
    "uniform": "f2[t] = uniform(t / 32);",
    "barrier_named": "barrier_named<3>(128);",
    "barrier_named_arrive": "barrier_named_arrive<3>(128);",
    "barrier_numbered": "barrier_numbered(3 + t / 128, 128);",
    "barrier_numbered_arrive": "barrier_numbered_arrive(3 + t / 128, 128);",
    "elect_one": "if (elect_one()) f2[0] = 1.0f;",
    "registers_give": "registers_give<40>();",
    "registers_take": "registers_take<232>();",
    "store_matrix_x4": "__half r[4][2]; memcpy(r, h, 16); store_matrix_x4(s + 8 * t, r);",
    "store_matrix_x4_trans": "__half r[4][2]; memcpy(r, h, 16); store_matrix_x4_trans(s + 8 * t, r);",
    "store_matrix_x2": "__half r[2][2]; memcpy(r, h, 8); store_matrix_x2(s + 8 * t, r);",
    "store_matrix_x2_trans": "__half r[2][2]; memcpy(r, h, 8); store_matrix_x2_trans(s + 8 * t, r);",
    "tensor_map_prefetch": "tensor_map_prefetch(map);",
    "tensor_load": (
        "tensor_load(s, map, q, {t, 1}); tensor_load(s, map, q, {t, 1, 2}); tensor_load(s, map, q, {t, 1, 2, 3});"
        "tensor_load(s, map, q, {t, 1, 2, 3, 4});"
    ),
    "tensor_load_before": (
        "tensor_load_before<64, 1>(s, map, map, map, q, {0, t}, int64_t(t) + 40);"
        "tensor_load_before<176, 1>(s, map, map, map, q, {0, t, 1, 2}, int64_t(t) + 99);"
    ),
    "tensor_load_within": (
        "tensor_load_within<64, 1>(s, map, map, map, q, {0, t}, int64_t(t) + 4, int64_t(t) + 40);"
        "tensor_load_within<176, 1>(s, map, map, map, q, {0, t, 1, 2}, int64_t(t), int64_t(t) + 99);"
    ),
    "tensor_load_run": (
        "tensor_load_run<16, 1>(s, map, map, q, {0, t}, 0, int64_t(t) - 4);"
        "tensor_load_run<8, 2>(s, map, map, q, {0, t, 1, 2}, int64_t(t), 99);"
    ),
    "coordinate": "f2[t] = float(coordinate(int64_t(t) << 31));",
    "tensor_load_multicast": (
        "tensor_load_multicast(s, map, q, {t, 1}, 3); tensor_load_multicast(s, map, q, {t, 1, 2}, uint16_t(t));"
        "tensor_load_multicast(s, map, q, {t, 1, 2, 3}, 3); tensor_load_multicast(s, map, q, {t, 1, 2, 3, 4}, 3);"
    ),
    "block_in_cluster": "f2[t] = float(block_in_cluster());",
    "barrier_cluster_arrive": "barrier_cluster_arrive();",
    "barrier_cluster_wait": "barrier_cluster_wait();",
    "mbarrier_arrive_at": "mbarrier_arrive_at(q, t % 2);",
    "load_cluster": (
        "f2[t] = load_cluster(reinterpret_cast<const float*>(s) + t, 1); h2[t] = load_cluster(s + t, 1);"
        "reinterpret_cast<V*>(h2)[t] = load_cluster(reinterpret_cast<const V*>(s) + t, 1);"
        "reinterpret_cast<Vec<float, 2>*>(f2)[t] = load_cluster(reinterpret_cast<const Vec<float, 2>*>(s) + t, 1);"
    ),
    "in_boxes_down": "f2[t] = s[in_boxes_down<64, 80, 2, 16>(t / 8, t % 8 * 8, 32, 64)];",
    "copy_to_boxes": (
        "copy_to_boxes<8, 64, 80, 128, 128>(s, h, {0, 77}, {0, 120}, 120, t);"
        "copy_to_boxes<2, 64, 80, 64, 128>(s, h, {t, 77}, {0, 64}, 640, t);"
    ),
    "store_to_boxes": (
        "store_to_boxes<1, 64, 80, 64, 128, 16>(s, h, {0, 77}, {0, 64}, t, 1, t);"
        "const auto* e = reinterpret_cast<const __nv_fp8_e4m3*>(h);"
        "store_to_boxes<1, 32, 16, 96, 32, 8>(reinterpret_cast<__nv_fp8_e4m3*>(s), e, {0, 16}, {t, 90}, 1, 100, t);"
    ),
    "unroll_by": "unroll_by(sizeof(float)) for (int i = 0; i < 8; ++i) f2[t + i] = f[t];",
    "in_boxes": "f2[t] = s[in_boxes<64, 8, 2>(t / 64, t % 64)] + s[in_boxes<16, 4, 2>(t, 8)];",
    "tensor_store": (
        "tensor_store(map, s, {t, 1}); tensor_store(map, s, {t, 1, 2}); tensor_store(map, s, {t, 1, 2, 3});"
        "tensor_store(map, s, {t, 1, 2, 3, 4});"
    ),
    "tensor_store_commit": "tensor_store_commit();",
    "tensor_store_wait": "tensor_store_wait<0>(); tensor_store_wait<1>();",
    "matrix_start": "f2[t] = float(matrix_start(s, 0) + matrix_start(s, 16));",
    "matrix_descriptor": "f2[t] = float(matrix_descriptor<128>(t, 1024) + matrix_descriptor<64>(t, 512));",
    "further": "f2[t] = float(further(uint64_t(t) << 32, 64));",
    "wgmma_fence": "wgmma_fence();",
    "wgmma_commit": "wgmma_commit();",
    "wgmma_wait": "wgmma_wait<0>(); wgmma_wait<1>();",
    "settle": "float x[2] = {f[0], f[1]}; settle(x, t >> 31); memcpy(f2, x, 8);",
    "copy_apart": (
        "float x[2][2] = {{f[0], f[1]}, {f[2], f[3]}}, y[2][2]; copy_apart(y, x, t >> 31); memcpy(f2, y, 16);"
        "__half p[2][2], r[2][2]; memcpy(p, h, 8); copy_apart(r, p, t >> 31); memcpy(h2, r, 8);"
    ),
    "keep": "float x[2][2] = {}; keep(x); __half p[2][2]; memcpy(p, h, 8); keep(p); memcpy(h2, p, 8);",
    "promote": "float x[4][2][2] = {}, y[2][2][2]; memcpy(y, f, 32); promote<2>(x, y); memcpy(f2, x, sizeof(x));",
}
for _width in wgmma.WIDTHS:
    USES[wgmma.name_of(_width)] = (
        f"float d[{_width // 8}][2][2] = {{}}; __half a[2][2][2]; memcpy(a, h, 16); __nv_bfloat16 x[2][2][2];"
        f"memcpy(x, b, 16); const uint64_t m = reinterpret_cast<const uint64_t*>(f)[0]; wgmma_fence();"
        f"wgmma_m64n{_width}k16<__half, 0, 1>(d, m, m, t > 3);"
        f"wgmma_m64n{_width}k16<__nv_bfloat16, 1, 0>(d, m, m, true);"
        f"wgmma_m64n{_width}k16<__half, 1>(d, a, m, true); wgmma_m64n{_width}k16<__nv_bfloat16, 0>(d, x, m, true);"
        f"wgmma_commit(); wgmma_wait<0>(); keep(d); memcpy(f2, d, sizeof(d));"
    )
    USES[wgmma.name_of(_width, 32)] = (
        f"float d[{_width // 8}][2][2] = {{}}; __nv_fp8_e4m3 a[2][2][4]; memcpy(a, h, 16); __nv_fp8_e5m2 x[2][2][4];"
        f"memcpy(x, b, 16); const uint64_t m = reinterpret_cast<const uint64_t*>(f)[0]; wgmma_fence();"
        f"wgmma_m64n{_width}k32<__nv_fp8_e4m3, __nv_fp8_e5m2>(d, m, m, t > 3);"
        f"wgmma_m64n{_width}k32<__nv_fp8_e4m3, __nv_fp8_e4m3>(d, a, m, true);"
        f"wgmma_m64n{_width}k32<__nv_fp8_e5m2, __nv_fp8_e5m2>(d, x, m, true);"
        f"wgmma_commit(); wgmma_wait<0>(); keep(d); memcpy(f2, d, sizeof(d));"
    )
for _width in wgmma.WIDTHS_OF_INTEGERS:
    USES[f"{wgmma.name_of(_width, 32)}_s32"] = (
        f"ExactSum d[{_width // 8}][2][2] = {{}}; int8_t a[2][2][4]; uint8_t x[2][2][4]; memcpy(a, h, 16);"
        f"const uint64_t m = reinterpret_cast<const uint64_t*>(f)[0]; wgmma_fence();"
        f"wgmma_m64n{_width}k32_s32<int8_t, int8_t>(d, m, m, t > 3);"
        f"wgmma_m64n{_width}k32_s32<int8_t, uint8_t>(d, a, m, true); memcpy(x, h, 16);"
        f"wgmma_m64n{_width}k32_s32<uint8_t, int8_t>(d, x, m, true);"
        f"wgmma_commit(); wgmma_wait<0>(); keep(d); memcpy(f2, &d[0][0][0], sizeof(d));"
    )
KERNEL = """
__global__ void use_{name}(const __half* h, const __nv_bfloat16* b, const float* f,
                           __half* h2, __nv_bfloat16* b2, float* f2) {{
  using V = Vec<__half, 8>;
  [[maybe_unused]] const int t = threadIdx.x;
  [[maybe_unused]] __half* s = reinterpret_cast<__half*>(shared_memory());
  {use}
}}
"""
HOPPER_KERNEL = KERNEL.replace(
    "float* f2) {{", "float* f2,\n                           const __grid_constant__ TensorMap map) {{"
).replace("  {use}", "  [[maybe_unused]] uint64_t* q = reinterpret_cast<uint64_t*>(s);\n  {use}")
SHARED = frozenset(primitive_names("sm_80"))


def file_of(arch: str, names: Sequence[str] | None = None) -> str:
    """A kernel for each of these primitives, or all of an architecture."""
    names = primitive_names(arch) if names is None else names
    return source(names) + "".join(
        (KERNEL if name in SHARED else HOPPER_KERNEL).format(name=name, use=USES.get(name, "")) for name in names
    )


def test_every_primitive_is_tried_here() -> None:
    assert set(USES) == set(primitive_names())


def test_every_instruction_cites_its_section() -> None:
    """Of what is written in assembly, or by an intrinsic of CUDA that stands for one instruction."""
    blocks = re.split(r"(?m)^(?=// primitive: )", "".join(path.read_text() for path in PRIMITIVES.glob("*.cuh")))
    blocks += [text() for name, text, _ in wgmma.blocks() if re.fullmatch(r"wgmma_m64n64k\w+", name)]
    assembled = [block for block in blocks if re.search(r'asm\b[^"]*"[^"]|__shfl|__sync', block)]
    assert len(assembled) > 40
    assert [block.splitlines()[0] for block in assembled if "PTX ISA" not in block] == []


HOPPER_FILES = ("rings", "clusters", "roles", "warpgroups", "promoted", "order", "tensor_maps", "tensor_stores")


def test_every_operation_of_hopper_cites_its_section() -> None:
    found = [each for each in cuda.Cuda.operations if each.__module__.rsplit(".", 1)[-1] in HOPPER_FILES]
    assert len(found) > 20
    assert [each.name for each in found if "PTX ISA" not in str(each.__doc__)] == []


def test_source_gives_each_block_once_and_what_it_needs_before_it() -> None:
    text = source(["load_matrix_x4", "copy_async", "load_matrix_x4"])
    assert text.count("void load_matrix_x4(") == 1
    assert text.count("uint32_t shared_address(") == 1
    assert text.index("shared_address(") < text.index("load_matrix_x4(") < text.index("copy_async(")
    assert text.startswith("#ifndef TREADLE_EMULATOR\n#include")
    assert "primitive:" not in text
    assert "mma" not in text


@pytest.mark.parametrize("name", primitive_names())
def test_a_primitive_names_all_that_it_needs(name: str) -> None:
    """What it calls of ours is defined in its text."""
    text = re.sub(r"//.*", "", source([name]))
    for other in ("shared_address", "as_register", "as_tf32", "same_bits", "Word", *primitive_names()):
        if re.search(rf"(?<!::)\b{other}[<(]", text):
            assert re.search(
                rf"(?:__forceinline__|constexpr) [\w*<>, ]+ {other}\(|(?:using|struct) {other} [={{]|define {other}\(",
                text,
            ), other


def test_every_block_says_what_it_does() -> None:
    for file in Path(primitives.__file__).parent.glob("*.cuh"):
        for block in re.split(r"(?m)^// primitive: ", file.read_text())[1:]:
            name, _, text = block.partition("\n")
            assert name == "prelude" or re.match(r"(?:#ifndef.*\n)?// \w", text), name


def test_an_unknown_primitive_is_named_and_its_neighbour_offered() -> None:
    with pytest.raises(KeyError, match=r"load_globl.*did you mean 'load_global'"):
        source(["load_globl"])
    with pytest.raises(KeyError, match="known: shared_memory, load_global"):
        source(["xyzzy"])


def test_the_host_compiles_every_primitive() -> None:
    compile_source(file_of("sm_90a"), [f"use_{name}" for name in primitive_names()])


def assemble(folder: Path, arch: str, text: str | None = None) -> Path:
    (folder / "file.cu").write_text(text or file_of(arch))
    command = ["nvcc", "-std=c++17", f"-arch={arch}", "-cubin", "-Werror=all-warnings"]
    result = subprocess.run(
        [*command, "file.cu", "-o", "file.cubin"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return folder / "file.cubin"


@needs_nvcc
def test_nvcc_assembles_every_primitive(tmp_path: Path) -> None:
    assert assemble(tmp_path, "sm_80").stat().st_size > 0


# ptxas takes most of its time for products of warpgroups, which differ in their widths only: those of 64, 128, 192 and
# 256 columns are assembled every day beside all other primitives, and each with --all.
RARE = [wgmma.name_of(width, depth) for width in wgmma.WIDTHS if width % 64 for depth in (16, 32)]
RARE += [f"{wgmma.name_of(width, 32)}_s32" for width in wgmma.WIDTHS_OF_INTEGERS if width % 64]
COMMON = [name for name in primitive_names("sm_90a") if name not in RARE]
HELPERS = [name for name in COMMON if re.match("wgmma_[a-z]+$|keep|vec|shared_memory|tensor_map_prefetch", name)]
PARTS = [COMMON, *(pytest.param([*HELPERS, *RARE[i::4]], marks=pytest.mark.full) for i in range(4))]


@needs_nvcc
@pytest.mark.parametrize("names", PARTS, ids=["common", "rare 0", "rare 1", "rare 2", "rare 3"])
def test_nvcc_assembles_every_primitive_of_hopper(tmp_path: Path, names: list[str]) -> None:
    text = file_of("sm_90a", names)
    assert text.count("__global__ void use_") == len(names)
    assert assemble(tmp_path, "sm_90a", text).stat().st_size > 0


def sass(cubin: Path) -> dict[str, set[str]]:
    """The SASS instructions of each kernel."""
    cuobjdump = find_cuobjdump()
    if cuobjdump is None:
        pytest.skip("cuobjdump is not installed")
    command = [cuobjdump, "-sass", str(cubin)]
    dump = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = defaultdict(set)
    kernel = ""
    for line in dump.stdout.splitlines():
        if named := re.search(r"Function : _Z(\d+)use_(\w+)", line):
            kernel = named[2][: int(named[1]) - len("use_")]
        if code := re.match(r"\s+/\*[0-9a-f]{4}\*/\s+(?:@!?\w+ )?([A-Z0-9_.]+)", line):
            found[kernel].add(code[1])
    return found


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The SASS instructions of each primitive's kernel, assembled for sm_80."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    return sass(assemble(tmp_path_factory.mktemp("sass"), "sm_80"))


@pytest.mark.parametrize(
    ("primitive", "instruction"),
    [
        ("load_global", "LDG.E.128"),
        ("load_global_if", "LDG.E.128"),
        ("store_global", "STG.E.128"),
        ("load_shared", "LDS.128"),
        ("store_shared", "STS.128"),
        ("barrier_block", "BAR.SYNC.DEFER_BLOCKING"),
        ("shuffle_xor", "SHFL.BFLY"),
        ("shuffle", "SHFL.IDX"),
        ("any_lane", "VOTE.ANY"),
        ("load_matrix_x4", "LDSM.16.M88.4"),
        ("load_matrix_x2", "LDSM.16.M88.2"),
        ("load_matrix_x1", "LDSM.16.M88"),
        ("load_matrix_x4_trans", "LDSM.16.MT88.4"),
        ("load_matrix_x2_trans", "LDSM.16.MT88.2"),
        ("load_matrix_x1_trans", "LDSM.16.MT88"),
        ("mma_m16n8k16", "HMMA.16816.F32"),
        ("mma_m16n8k16", "HMMA.16816.F32.BF16"),
        ("mma_m16n8k8_tf32", "HMMA.1688.F32.TF32"),
        ("copy_async", "LDGSTS.E.BYPASS.128"),
        ("copy_async", "LDGSTS.E.64"),
        ("copy_async", "LDGSTS.E"),
        ("copy_async_commit", "LDGDEPBAR"),
        ("copy_async_wait", "DEPBAR.LE"),
        ("exp2_approx", "MUFU.EX2"),
        ("log2_approx", "MUFU.LG2"),
        ("rcp_approx", "MUFU.RCP"),
        ("maximum", "FMNMX.NAN"),
        ("minimum", "FMNMX.NAN"),
        ("store_pair", "F2FP.PACK_AB"),
        ("store_pair", "F2FP.BF16.PACK_AB"),
    ],
)
def test_a_primitive_is_one_instruction(instructions: dict[str, set[str]], primitive: str, instruction: str) -> None:
    assert instruction in instructions[primitive]


@needs_nvcc
@pytest.mark.parametrize(("arch", "wanted"), [("sm_89", "QMMA.16832.F32"), ("sm_90a", "HMMA.16816.F32")])
def test_a_product_of_8_bits_adds_where_it_accumulates(tmp_path: Path, arch: str, wanted: str) -> None:
    """Where ptxas makes f16 products of the instruction, which begin at zero, it adds each result by itself."""
    name = "mma_m16n8k32"
    text = source([name, "shared_memory", "word"]) + KERNEL.format(name=name, use=USES[name])
    codes = sass(assemble(tmp_path, arch, text))[name]
    assert any(code.startswith(wanted) for code in codes), codes
    assert not {code for code in codes if code.startswith("FADD")}, codes


def test_no_primitive_spills(instructions: dict[str, set[str]]) -> None:
    for name, codes in instructions.items():
        assert not {code for code in codes if re.match("LDL|STL", code)}, name


MOVE = """
__global__ void use_{name}(const {type}* h, {type}* h2, {type}* h3) {{
  const int t = threadIdx.x;
  {type}* s = reinterpret_cast<{type}*>(shared_memory());
  store_shared(s + t, load_global(h + t));
  store_global(h2 + t, load_shared(s + t + 1));
  store_global_if(h3 + t, load_global_if(h + t + 64, t < 7), t < 9);
}}
"""
# Results of one product as an operand of the next, without a detour through halves or memory.
CHAIN = """
__global__ void use_chain(float* out) {
  __half* s = reinterpret_cast<__half*>(shared_memory());
  __half a[2][2][2], b[2][2];
  float d[2][2][2] = {}, e[2][2] = {};
  load_matrix_x4(a, s + 8 * threadIdx.x);
  for (int j = 0; j < 2; ++j) {
    load_matrix_x2_trans(b, s + 8 * threadIdx.x + 256 * j);
    mma_m16n8k16(d[j], a, b);
  }
  for (int k8 = 0; k8 < 2; ++k8)
    for (int m8 = 0; m8 < 2; ++m8) store_pair(a[k8][m8], d[k8][m8][0], d[k8][m8][1]);
  mma_m16n8k16(e, a, b);
  for (int i = 0; i < 4; ++i) store_global(out + 32 * i + threadIdx.x, e[i / 2][i % 2]);
}
"""
WIDTHS = {
    "Vec<float, 4>": ".128",
    "Vec<float, 2>": ".64",
    "float": "",
    "Vec<float, 1>": "",
    "Vec<__half, 8>": ".128",
    "Vec<__nv_bfloat16, 4>": ".64",
    "Vec<__half, 2>": "",
    "__half": ".U16",
    "Vec<int32_t, 4>": ".128",
    "int64_t": ".64",
}


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_moves_as_one_is_one_instruction(tmp_path: Path, arch: str) -> None:
    kernels = {f"move{i}": each for i, each in enumerate(WIDTHS)}
    text = source(primitive_names("sm_80")) + CHAIN
    text += "".join(MOVE.format(name=name, type=each) for name, each in kernels.items())
    found = sass(assemble(tmp_path, arch, text))
    assert not {code for code in found.pop("chain") if re.match("PRMT|LDL|STL", code)}
    for name, codes in found.items():
        width = WIDTHS[kernels[name]]
        moves = {code for code in codes if re.match("(LD|ST)[GSL]", code)}
        assert moves == {f"LDG.E{width}", f"STG.E{width}", f"LDS{width}", f"STS{width}"}, name


# ---- The layouts of fragments, against CUTLASS's own tables

LAYOUTS = """
#include <cstdio>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm89.hpp>
using namespace cute;
template <class L> void show(const char* name, L layout) {
  for (int t = 0; t < size<0>(layout); ++t)
    for (int v = 0; v < size<1>(layout); ++v) printf("%s %d %d %d\\n", name, t, v, int(layout(t, v)));
}
template <class Op> void show_mma(const char* a, const char* b, const char* c) {
  using Traits = MMA_Traits<Op>;
  show(a, typename Traits::ALayout{});
  show(b, typename Traits::BLayout{});
  show(c, typename Traits::CLayout{});
}
int main() {
  show_mma<SM80_16x8x16_F32F16F16F32_TN>("__half.a", "__half.b", "__half.c");
  show_mma<SM80_16x8x16_F32BF16BF16F32_TN>("__nv_bfloat16.a", "__nv_bfloat16.b", "__nv_bfloat16.c");
  show_mma<SM80_16x8x8_F32TF32TF32F32_TN>("float.a", "float.b", "float.c");
  show_mma<SM89_16x8x32_F32E4M3E4M3F32_TN>("__nv_fp8_e4m3.a", "__nv_fp8_e4m3.b", "__nv_fp8_e4m3.c");
  show_mma<SM89_16x8x32_F32E5M2E5M2F32_TN>("__nv_fp8_e5m2.a", "__nv_fp8_e5m2.b", "__nv_fp8_e5m2.c");
  show_mma<SM80_16x8x32_S32S8S8S32_TN>("int8_t.a", "int8_t.b", "int8_t.c");
  show("load_matrix_x1", Copy_Traits<SM75_U32x1_LDSM_N>::DstLayout{});
  show("load_matrix_x2", Copy_Traits<SM75_U32x2_LDSM_N>::DstLayout{});
  show("load_matrix_x4", Copy_Traits<SM75_U32x4_LDSM_N>::DstLayout{});
  show("load_matrix_x1_trans", Copy_Traits<SM75_U16x2_LDSM_T>::DstLayout{});
  show("load_matrix_x2_trans", Copy_Traits<SM75_U16x4_LDSM_T>::DstLayout{});
  show("load_matrix_x4_trans", Copy_Traits<SM75_U16x8_LDSM_T>::DstLayout{});
}
"""
Layouts = dict[str, NDArray[np.int64]]


@pytest.fixture(scope="module")
def layouts() -> Layouts:
    """CuTe's layouts by name: for each lane and value, the index in the matrix."""
    rows: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for line in printed_with_cute(LAYOUTS):
        name, lane, value, index = line.split()
        rows[name].append((int(lane), int(value), int(index)))
    return {name: np.array(sorted(each))[:, 2].reshape(32, -1) for name, each in rows.items()}


PRODUCT = """
__global__ void product(const T* a, const T* b, SUM* d) {
  const int t = threadIdx.x;
  T x A_SHAPE, y B_SHAPE;
  SUM z[2][2] = {};
  for (unsigned i = 0; i < sizeof(x) / sizeof(T); ++i)
    reinterpret_cast<T*>(x)[i] = load_global(a + t * (sizeof(x) / sizeof(T)) + i);
  for (unsigned i = 0; i < sizeof(y) / sizeof(T); ++i)
    reinterpret_cast<T*>(y)[i] = load_global(b + t * (sizeof(y) / sizeof(T)) + i);
  MMA(z, x, y);
  for (int i = 0; i < 4; ++i) store_global(d + 4 * t + i, z[i / 2][i % 2]);
}
"""


MULTIPLIED: dict[str, tuple[str, int, tuple[str, str], type]] = {
    "__half": ("mma_m16n8k16", 16, ("[2][2][2]", "[2][2]"), np.float16),
    "__nv_bfloat16": ("mma_m16n8k16", 16, ("[2][2][2]", "[2][2]"), ml_dtypes.bfloat16),
    "float": ("mma_m16n8k8_tf32", 8, ("[2][2]", "[2]"), np.float32),
    "__nv_fp8_e4m3": ("mma_m16n8k32", 32, ("[2][2][4]", "[2][4]"), ml_dtypes.float8_e4m3fn),
    "__nv_fp8_e5m2": ("mma_m16n8k32", 32, ("[2][2][4]", "[2][4]"), ml_dtypes.float8_e5m2),
    "int8_t": ("mma_m16n8k32_s32", 32, ("[2][2][4]", "[2][4]"), np.int8),
}
"""By C type: the primitive, its depth, the arrays of its operands, and what numpy calls the type."""


WAYS = [(element, name) for element, (name, *_) in MULTIPLIED.items()]
WAYS += [(element, f"{name}_in_f16") for element, name in WAYS if "fp8" in element]


@pytest.mark.parametrize(("element", "name"), WAYS)
def test_fragments_of_a_product_are_laid_out_as_in_cute(layouts: Layouts, element: str, name: str) -> None:
    """Fragments filled by CuTe's tables give the product of the matrices, in CuTe's place."""
    _, k, shapes, dtype = MULTIPLIED[element]
    text = PRODUCT.replace("A_SHAPE", shapes[0]).replace("B_SHAPE", shapes[1])
    text = re.sub(r"\bT\b", element, text).replace("MMA", name)
    made = np.dtype(np.int32 if element == "int8_t" else np.float32)
    text = text.replace("SUM", "int32_t" if element == "int8_t" else "float")
    rng = np.random.default_rng(1)
    a = rng.integers(-8, 9, (16, k)).astype(dtype)
    b = rng.integers(-8, 9, (8, k)).astype(dtype)
    # CuTe counts down the columns of (m, k), (n, k) and (m, n).
    fragment_a = a.T.ravel()[layouts[f"{element}.a"]]
    fragment_b = b.T.ravel()[layouts[f"{element}.b"]]
    d = np.zeros((32, 4), made)
    module = compile_source(source([name, "load_global", "store_global"]) + text, ["product"])
    arguments = [Array(fragment_a, False), Array(fragment_b, False), Array(d, True)]
    module.launch("product", (1, 1, 1), (32, 1, 1), 0, arguments)
    expected = a.astype(made) @ b.astype(made).T
    assert np.array_equal(d, expected.T.ravel()[layouts[f"{element}.c"]])


@pytest.mark.parametrize("name", [name for name in primitive_names() if "load_matrix" in name])
def test_matrix_loads_are_laid_out_as_in_cute(layouts: Layouts, name: str) -> None:
    count = int(name.removeprefix("load_matrix_x")[0])
    text = source([name, "shared_memory", "load_global", "store_global", "store_shared", "barrier_warp"])
    text += f"""
    __global__ void load(const __half* in, __half* out) {{
      __half* s = reinterpret_cast<__half*>(shared_memory());
      const int t = threadIdx.x;
      for (int i = t; i < {64 * count}; i += 32) store_shared(s + i, load_global(in + i));
      barrier_warp();
      __half r[{count}][2];
      {name}(r, s + t % {8 * count} * 8);
      for (int i = 0; i < {2 * count}; ++i) store_global(out + {2 * count} * t + i, r[i / 2][i % 2]);
    }}
    """
    given = np.arange(64 * count).astype(np.float16)
    out = np.zeros((32, 2 * count), np.float16)
    arguments = [Array(given, False), Array(out, True)]
    compile_source(text, ["load"]).launch("load", (1, 1, 1), (32, 1, 1), 1024, arguments)
    bits = layouts[name][:, ::16]  # CuTe counts bits
    assert np.array_equal(out, given[bits // 16])
