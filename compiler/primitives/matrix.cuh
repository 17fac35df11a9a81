// primitive: shared_address
#ifndef TREADLE_EMULATOR
// A pointer into shared memory as PTX wants it: 32 bits.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
#endif

// primitive: load_matrix_x$COUNT$TRANS; needs: shared_address
// each: COUNT = 4 | TRANS =  | DOTTED =  | IS_TRANS = false | MATRICES = Four 8x8 matrices |
//       ROWS = lane l gives row l % 8 of matrix l / 8 | ELEMENTS = [l / 4][2 (l % 4) + 0, 1] | BYTES = 16 |
//       PLACES = %0, %1, %2, %3 | WORDS = "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
// each: COUNT = 2 | TRANS =  | DOTTED =  | IS_TRANS = false | MATRICES = Two 8x8 matrices |
//       ROWS = lane l < 16 gives row l % 8 of matrix l / 8 | ELEMENTS = [l / 4][2 (l % 4) + 0, 1] | BYTES = 8 |
//       PLACES = %0, %1 | WORDS = "=r"(words[0]), "=r"(words[1])
// each: COUNT = 1 | TRANS =  | DOTTED =  | IS_TRANS = false | MATRICES = One 8x8 matrix | ROWS = lane l < 8 gives row l |
//       ELEMENTS = [l / 4][2 (l % 4) + 0, 1] | BYTES = 4 | PLACES = %0 | WORDS = "=r"(words[0])
// each: COUNT = 4 | TRANS = _trans | DOTTED = .trans | IS_TRANS = true | MATRICES = Four 8x8 matrices |
//       ROWS = lane l gives row l % 8 of matrix l / 8 | ELEMENTS = [2 (l % 4) + 0, 1][l / 4] | BYTES = 16 |
//       PLACES = %0, %1, %2, %3 | WORDS = "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
// each: COUNT = 2 | TRANS = _trans | DOTTED = .trans | IS_TRANS = true | MATRICES = Two 8x8 matrices |
//       ROWS = lane l < 16 gives row l % 8 of matrix l / 8 | ELEMENTS = [2 (l % 4) + 0, 1][l / 4] | BYTES = 8 |
//       PLACES = %0, %1 | WORDS = "=r"(words[0]), "=r"(words[1])
// each: COUNT = 1 | TRANS = _trans | DOTTED = .trans | IS_TRANS = true | MATRICES = One 8x8 matrix |
//       ROWS = lane l < 8 gives row l | ELEMENTS = [2 (l % 4) + 0, 1][l / 4] | BYTES = 4 | PLACES = %0 |
//       WORDS = "=r"(words[0])
// $MATRICES of 16-bit elements from shared memory: $ROWS;
// each lane gets elements $ELEMENTS of each. PTX ISA 9.7.14.5.15, ldmatrix$DOTTED.
template <class R, class T>
__device__ __forceinline__ void load_matrix_x$COUNT$TRANS(R& registers, const T* row AND_LINE) {
  static_assert(sizeof(R) == $BYTES && sizeof(T) <= 2);
#ifndef TREADLE_EMULATOR
  uint32_t words[$COUNT];
  asm volatile("ldmatrix.sync.aligned.m8n8.x$COUNT$DOTTED.shared.b16 {$PLACES}, [%$COUNT];"
               : $WORDS
               : "r"(shared_address(row))
               : "memory");
  memcpy(&registers, words, sizeof(words));
#else
  emu::load_matrix<$COUNT, $IS_TRANS>(&registers, row, line);
#endif
}

// primitive: as_register
#ifndef TREADLE_EMULATOR
// Two 16-bit or four 8-bit elements as the 32-bit register that they share.
template <class T, int N>
__device__ __forceinline__ uint32_t as_register(const T (&elements)[N]) {
  static_assert(sizeof(elements) == 4);
  uint32_t word;
  memcpy(&word, elements, sizeof(word));
  return word;
}
#endif

// primitive: mma_m16n8k16; needs: as_register
// d += a b on the warp's tensor core: 16-bit a (16 x 16) and b (16 x 8), f32 d (16 x 8). Lane l holds
//   a[k8][m8][k1] at row 8 m8 + l / 4, column 8 k8 + 2 (l % 4) + k1,
//   b[k8][k1]     at row 8 k8 + 2 (l % 4) + k1, column l / 4,
//   d[m8][n1]     at row 8 m8 + l / 4, column 2 (l % 4) + n1. PTX ISA 9.7.14.5.8, mma.
// Volatile, so that it does not sink into a branch that only some lanes take.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[2][2], const __half (&a)[2][2][2],
                                             const __half (&b)[2][2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k16(d, a, b, line);
#endif
}
__device__ __forceinline__ void mma_m16n8k16(float (&d)[2][2], const __nv_bfloat16 (&a)[2][2][2],
                                             const __nv_bfloat16 (&b)[2][2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k16(d, a, b, line);
#endif
}

// primitive: mma_m16n8k8; needs: as_register
// What mma_m16n8k16 does, of half the depth: a (16 x 8) and b (8 x 8). Lane l holds
//   a[m8][k1] at row 8 m8 + l / 4, column 2 (l % 4) + k1,
//   b[k1]     at row 2 (l % 4) + k1, column l / 4. PTX ISA 9.7.14.5.7, mma.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[2][2], const __half (&a)[2][2], const __half (&b)[2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0])), "r"(as_register(a[1])), "r"(as_register(b)));
#else
  emu::mma_m16n8k8(d, a, b, line);
#endif
}
__device__ __forceinline__ void mma_m16n8k8(float (&d)[2][2], const __nv_bfloat16 (&a)[2][2],
                                            const __nv_bfloat16 (&b)[2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0])), "r"(as_register(a[1])), "r"(as_register(b)));
#else
  emu::mma_m16n8k8(d, a, b, line);
#endif
}

// primitive: as_tf32
#ifndef TREADLE_EMULATOR
// Rounds to the 10 mantissa bits of tf32: to nearest, ties away from zero. PTX ISA 9.7.9, cvt.rna.
__device__ __forceinline__ uint32_t as_tf32(float x) {
  uint32_t word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
  return word;
}
#endif

// primitive: mma_m16n8k8_tf32; needs: as_tf32
// d += a b on the warp's tensor core: a (16 x 8) and b (8 x 8) rounded to tf32, f32 d. Lane l holds
//   a[k4][m8] at row 8 m8 + l / 4, column 4 k4 + l % 4,
//   b[k4]     at row 4 k4 + l % 4, column l / 4,
//   d[m8][n1] at row 8 m8 + l / 4, column 2 (l % 4) + n1. PTX ISA 9.7.14.5.7, mma.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[2][2], const float (&a)[2][2],
                                                 const float (&b)[2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_tf32(a[0][0])), "r"(as_tf32(a[0][1])), "r"(as_tf32(a[1][0])),
        "r"(as_tf32(a[1][1])), "r"(as_tf32(b[0])), "r"(as_tf32(b[1])));
#else
  emu::mma_m16n8k8_tf32(d, a, b, line);
#endif
}
