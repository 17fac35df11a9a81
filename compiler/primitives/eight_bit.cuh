// primitive: widen_pair; needs: eight_bit
// Two 8-bit numbers as f16, exactly: one conversion from sm_89 on (PTX ISA 9.7.9, cvt). Before, f8E5M2 is the upper half
// of an f16; f8E4M3FN moved to the fields of an f16 is 2^8 too small, subnormals too, and its one NaN is put right.
__device__ __forceinline__ void widen_pair(__half* pair, const __nv_fp8_e4m3* from) {
#ifndef TREADLE_EMULATOR
  uint16_t both;
  memcpy(&both, from, sizeof(both));
  uint32_t word;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(word) : "h"(both));
#else
  const uint32_t spread = __byte_perm(both, 0, 0x1404), size = spread & 0x7f007f00u;
  const uint32_t small = (spread & 0x80008000u) | (size >> 1);
  __half2 numbers;
  memcpy(&numbers, &small, sizeof(numbers));
  numbers = __hmul2(numbers, __half2half2(__ushort_as_half(0x5c00)));
  memcpy(&word, &numbers, sizeof(word));
  word |= (((size + 0x01000100u) >> 15) & 0x00010001u) * 0x7fffu;
#endif
  memcpy(pair, &word, sizeof(word));
#else
  for (int i = 0; i < 2; ++i) pair[i] = static_cast<__half>(static_cast<float>(from[i]));
#endif
}
__device__ __forceinline__ void widen_pair(__half* pair, const __nv_fp8_e5m2* from) {
#ifndef TREADLE_EMULATOR
  uint16_t both;
  memcpy(&both, from, sizeof(both));
  const uint32_t word = __byte_perm(both, 0, 0x1404);
  memcpy(pair, &word, sizeof(word));
#else
  for (int i = 0; i < 2; ++i) pair[i] = static_cast<__half>(static_cast<float>(from[i]));
#endif
}

// primitive: narrow_pair; needs: eight_bit
// Rounds two floats into a pair of 8-bit numbers: one conversion from sm_89 on (PTX ISA 9.7.9, cvt.rn.satfinite).
__device__ __forceinline__ void narrow_pair(__nv_fp8_e4m3* pair, float lo, float hi) {
#if !defined(TREADLE_EMULATOR) && __CUDA_ARCH__ >= 890
  uint16_t both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(hi), "f"(lo));
  memcpy(pair, &both, sizeof(both));
#else
  pair[0] = static_cast<__nv_fp8_e4m3>(lo);
  pair[1] = static_cast<__nv_fp8_e4m3>(hi);
#endif
}
__device__ __forceinline__ void narrow_pair(__nv_fp8_e5m2* pair, float lo, float hi) {
#if !defined(TREADLE_EMULATOR) && __CUDA_ARCH__ >= 890
  uint16_t both;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(hi), "f"(lo));
  memcpy(pair, &both, sizeof(both));
#else
  pair[0] = static_cast<__nv_fp8_e5m2>(lo);
  pair[1] = static_cast<__nv_fp8_e5m2>(hi);
#endif
}

// primitive: narrow_four; needs: narrow_pair
// Rounds four floats into the four 8-bit numbers of a register: two conversions, the second beside the first
// (PTX ISA 9.7.9, cvt.rn.satfinite).
__device__ __forceinline__ void narrow_four(__nv_fp8_e4m3 (&four)[4], float a, float b, float c, float d) {
#if !defined(TREADLE_EMULATOR) && __CUDA_ARCH__ >= 890
  uint32_t word;
  asm("{\n.reg .b16 lower, upper;\n"
      "cvt.rn.satfinite.e4m3x2.f32 lower, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 upper, %4, %3;\n"
      "mov.b32 %0, {lower, upper};\n}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  memcpy(four, &word, sizeof(word));
#else
  narrow_pair(four, a, b);
  narrow_pair(four + 2, c, d);
#endif
}
__device__ __forceinline__ void narrow_four(__nv_fp8_e5m2 (&four)[4], float a, float b, float c, float d) {
#if !defined(TREADLE_EMULATOR) && __CUDA_ARCH__ >= 890
  uint32_t word;
  asm("{\n.reg .b16 lower, upper;\n"
      "cvt.rn.satfinite.e5m2x2.f32 lower, %2, %1;\n"
      "cvt.rn.satfinite.e5m2x2.f32 upper, %4, %3;\n"
      "mov.b32 %0, {lower, upper};\n}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  memcpy(four, &word, sizeof(word));
#else
  narrow_pair(four, a, b);
  narrow_pair(four + 2, c, d);
#endif
}

// primitive: mma_m16n8k32_in_f16; needs: widen_pair, mma_m16n8k16
// d += a b as mma_m16n8k32 has them, by two products of f16, which holds every 8-bit float: of the lower two of each
// four elements, then of the upper two.
template <class A, class B>
__device__ __forceinline__ void mma_m16n8k32_in_f16(float (&d)[2][2], const A (&a)[2][2][4],
                                                    const B (&b)[2][4] AND_LINE) {
  UNROLL for (int pair = 0; pair < 4; pair += 2) {
    __half lhs[2][2][2], rhs[2][2];
    UNROLL for (int k16 = 0; k16 < 2; ++k16) {
      UNROLL for (int m8 = 0; m8 < 2; ++m8) widen_pair(lhs[k16][m8], &a[k16][m8][pair]);
      widen_pair(rhs[k16], &b[k16][pair]);
    }
    mma_m16n8k16(d, lhs, rhs);
  }
}

// primitive: mma_m16n8k32; needs: mma_m16n8k32_in_f16, as_register; from: sm_89
// d += a b on the warp's tensor core: 8-bit a (16 x 32) and b (32 x 8), f32 d (16 x 8). Lane l holds
//   a[k16][m8][k1] at row 8 m8 + l / 4, column 16 k16 + 4 (l % 4) + k1,
//   b[k16][k1]     at row 16 k16 + 4 (l % 4) + k1, column l / 4,
//   d[m8][n1]      at row 8 m8 + l / 4, column 2 (l % 4) + n1. PTX ISA 9.7.14.5.10, mma.
// From 9.0 to 11.0 no tensor core takes 8 bits from a single warp: of the instruction ptxas 13.0 makes two products of
// f16 that begin at zero, and four additions to d, which it puts off: their sums took the registers of all else.
#if !defined(TREADLE_EMULATOR) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
template <class A, class B>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[2][2], const A (&a)[2][2][4], const B (&b)[2][4]) {
  mma_m16n8k32_in_f16(d, a, b);
}
#else
__device__ __forceinline__ void mma_m16n8k32(float (&d)[2][2], const __nv_fp8_e4m3 (&a)[2][2][4],
                                             const __nv_fp8_e4m3 (&b)[2][4] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k32(d, a, b, line);
#endif
}
__device__ __forceinline__ void mma_m16n8k32(float (&d)[2][2], const __nv_fp8_e4m3 (&a)[2][2][4],
                                             const __nv_fp8_e5m2 (&b)[2][4] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k32(d, a, b, line);
#endif
}
__device__ __forceinline__ void mma_m16n8k32(float (&d)[2][2], const __nv_fp8_e5m2 (&a)[2][2][4],
                                             const __nv_fp8_e4m3 (&b)[2][4] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k32(d, a, b, line);
#endif
}
__device__ __forceinline__ void mma_m16n8k32(float (&d)[2][2], const __nv_fp8_e5m2 (&a)[2][2][4],
                                             const __nv_fp8_e5m2 (&b)[2][4] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k32(d, a, b, line);
#endif
}
#endif
