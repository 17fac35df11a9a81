// primitive: clip_to_byte
// The integer of 8 bits nearest to x, with a sign (int8_t) or without (uint8_t).
template <class T>
__device__ __forceinline__ T clip_to_byte(int32_t x) {
  constexpr int32_t LEAST = T(-1) < T(0) ? -128 : 0, MOST = LEAST + 255;
  return static_cast<T>(x < LEAST ? LEAST : x > MOST ? MOST : x);
}

// primitive: widen_bytes
// Integers of 8 bits, two or four of them, as f16, exactly: in the lower bits of 1024, which an f16 counts by ones; less
// 1024. Of those with a sign, x + 128 is; less 1152.
template <int N, class T>
__device__ __forceinline__ void widen_bytes(__half* wide, const T* from) {
#ifndef TREADLE_EMULATOR
  constexpr bool SIGNED = T(-1) < T(0);
  uint32_t bytes = 0;
  memcpy(&bytes, from, N);
  if (SIGNED) bytes ^= 0x80808080u;
  UNROLL for (int pair = 0; pair < N / 2; ++pair) {
    const uint32_t word = __byte_perm(bytes, 0x64646464u, pair == 0 ? 0x4140 : 0x4342);
    __half2 numbers;
    memcpy(&numbers, &word, sizeof(numbers));
    numbers = __hsub2(numbers, __half2half2(__ushort_as_half(SIGNED ? 0x6480 : 0x6400)));
    memcpy(wide + 2 * pair, &numbers, sizeof(numbers));
  }
#else
  for (int i = 0; i < N; ++i) wide[i] = static_cast<__half>(static_cast<float>(from[i]));
#endif
}

// primitive: ExactSum; needs: pack, unpack
// A sum of integers in a register, which a product of a warpgroup may be making: the emulator sees who reads it then.
#ifndef TREADLE_EMULATOR
using ExactSum = int32_t;
#else
using ExactSum = emu::ExactSum;
template <int N>
Vec<int32_t, N> pack(const ExactSum* elements) {
  Vec<int32_t, N> together;
  for (int i = 0; i < N; ++i) together.at[i] = elements[i];
  return together;
}
template <int N>
void unpack(ExactSum* elements, const Vec<int32_t, N>& together) {
  for (int i = 0; i < N; ++i) elements[i] = together.at[i];
}
#endif

// primitive: mma_m16n8k32_s32; needs: as_register
// d += a b on the warp's tensor core: a (16 x 32) and b (32 x 8) of integers of 8 bits, with a sign or without, d (16 x 8)
// of 32 bits, in which sums wrap. Lane l holds
//   a[k16][m8][k1] at row 8 m8 + l / 4, column 16 k16 + 4 (l % 4) + k1,
//   b[k16][k1]     at row 16 k16 + 4 (l % 4) + k1, column l / 4,
//   d[m8][n1]      at row 8 m8 + l / 4, column 2 (l % 4) + n1. PTX ISA 9.7.14.5.10, mma.
template <class A, class B>
__device__ __forceinline__ void mma_m16n8k32_s32(int32_t (&d)[2][2], const A (&a)[2][2][4], const B (&b)[2][4] AND_LINE) {
#ifndef TREADLE_EMULATOR
#define MMA_OF_BYTES(LEFT, RIGHT) \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." LEFT "." RIGHT ".s32 " \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[1][0]), "+r"(d[1][1]) \
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])), \
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])))
  constexpr bool LEFT_IS_SIGNED = A(-1) < A(0), RIGHT_IS_SIGNED = B(-1) < B(0);
  if constexpr (LEFT_IS_SIGNED && RIGHT_IS_SIGNED)
    MMA_OF_BYTES("s8", "s8");
  else if constexpr (LEFT_IS_SIGNED)
    MMA_OF_BYTES("s8", "u8");
  else if constexpr (RIGHT_IS_SIGNED)
    MMA_OF_BYTES("u8", "s8");
  else
    MMA_OF_BYTES("u8", "u8");
#undef MMA_OF_BYTES
#else
  emu::mma_m16n8k32_s32(d, a, b, line);
#endif
}
