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
// Rounds four floats into the four 8-bit numbers of a register: two conversions, the second beside the first.
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
