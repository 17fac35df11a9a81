// primitive: matrix_start; needs: shared_address; from: sm_90
// The lower half of what wgmma knows of an operand in shared memory: its address, and the bytes between its chunks
// (leading). PTX ISA 9.7.15.5.1.2.2.
__device__ __forceinline__ uint32_t matrix_start(const void* tile, int leading_bytes) {
#ifndef TREADLE_EMULATOR
  const uint32_t address = shared_address(tile);
#else
  const uint32_t address = emu::shared_address(tile);
#endif
  return (address & 0x3ffff) >> 4 | uint32_t((leading_bytes & 0x3ffff) >> 4) << 16;
}

// primitive: matrix_descriptor; from: sm_90
// What wgmma knows of an operand in shared memory: where it starts, the bytes between its groups of 8 rows (stride), its
// swizzle. What is added to the start, an address in units of 16 bytes, never reaches the upper half: so that is constant.
// PTX ISA 9.7.15.5.1.2.2.
template <int SWIZZLE_BYTES>
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t start, int stride_bytes) {
  static_assert(SWIZZLE_BYTES == 0 || SWIZZLE_BYTES == 32 || SWIZZLE_BYTES == 64 || SWIZZLE_BYTES == 128);
  constexpr uint32_t MODE = SWIZZLE_BYTES == 0 ? 0 : SWIZZLE_BYTES == 128 ? 1 : SWIZZLE_BYTES == 64 ? 2 : 3;
  return uint64_t(uint32_t((stride_bytes & 0x3ffff) >> 4) | MODE << 30) << 32 | start;
}

// primitive: further; from: sm_90
// The descriptor of an operand that begins so many bytes, a multiple of 16, further on; an address is in its lowest bits.
__device__ __forceinline__ uint64_t further(uint64_t descriptor, uint32_t bytes) { return descriptor + bytes / 16; }

// primitive: wgmma_fence; from: sm_90
// Before the first product of a group: what other instructions wrote to its registers is there.
// PTX ISA 9.7.15.7.1, wgmma.fence.
__device__ __forceinline__ void wgmma_fence(LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  emu::wgmma_fence(line);
#endif
}

// primitive: wgmma_commit; from: sm_90
// Closes the warpgroup's group of products. PTX ISA 9.7.15.7.2, wgmma.commit_group.
__device__ __forceinline__ void wgmma_commit(LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  emu::wgmma_commit(line);
#endif
}

// primitive: wgmma_wait; from: sm_90
// Waits until at most PENDING of the warpgroup's newest groups are in flight. PTX ISA 9.7.15.7.3, wgmma.wait_group.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait(LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#else
  emu::wgmma_wait(PENDING, line);
#endif
}

// primitive: copy_apart
// The same numbers in registers of their own, made by an instruction where it stands: ptxas lets both sides of a plain
// copy be one register, though a product that runs may read the one while the other is written. `zero` is 0, which it
// must not know.
template <class T>
__device__ __forceinline__ void copy_apart(T& to, const T& from, uint32_t zero) {
  static_assert(sizeof(T) == 4, "registers have 32 bits");
  uint32_t word;
  memcpy(&word, &from, sizeof(word));
  word |= zero;
  memcpy(&to, &word, sizeof(word));
}
template <class T, int N>
__device__ __forceinline__ void copy_apart(T (&to)[N], const T (&from)[N], uint32_t zero) {
  if constexpr (sizeof(T) < 4 && sizeof(from) == 4) {
    uint32_t word;
    memcpy(&word, from, sizeof(word));
    word |= zero;
    memcpy(to, &word, sizeof(word));
  } else {
    UNROLL for (int i = 0; i < N; ++i) copy_apart(to[i], from[i], zero);
  }
}

// primitive: keep
// The compiler may move no use of these registers across this place: products write them behind its back, or what is made
// of them later is to stay there.
#ifndef TREADLE_EMULATOR
__device__ __forceinline__ void keep(float& x) { asm volatile("" : "+f"(x)); }
__device__ __forceinline__ void keep(int32_t& x) { asm volatile("" : "+r"(x)); }
#else
template <class T> void keep(T&) {}
#endif
template <class T, int N>
__device__ __forceinline__ void keep(T (&registers)[N]) {
  if constexpr (sizeof(T) * N == 4 && sizeof(T) < 4) {
#ifndef TREADLE_EMULATOR
    uint32_t word;
    memcpy(&word, registers, sizeof(word));
    asm volatile("" : "+r"(word));
    memcpy(registers, &word, sizeof(word));
#endif
  } else {
    UNROLL for (int i = 0; i < N; ++i) keep(registers[i]);
  }
}

// primitive: settle; needs: shared_memory
// What lanes have summed is there from here on. Of turns that nvcc writes out, ptxas would add up one's elements when the
// sum is asked for, behind products of the next, and hold the elements of both till then. `zero` is 0, which neither must
// know: so the store cannot be left out, waits for the sums, and does nothing.
template <class T>
__device__ __forceinline__ void settle(const T& sums, int zero) {
#ifndef TREADLE_EMULATOR
  if (zero) memcpy(shared_memory(), &sums, sizeof(sums));
#endif
}

// primitive: promote
// Adds what tensor cores have added up of some columns, from FIRST eights of them on, to sums in f32.
template <int FIRST, int ALL, int N>
__device__ __forceinline__ void promote(float (&sums)[ALL][2][2], const float (&part)[N][2][2]) {
  static_assert(FIRST + N <= ALL);
  UNROLL for (int n8 = 0; n8 < N; ++n8)
    UNROLL for (int m8 = 0; m8 < 2; ++m8)
      UNROLL for (int n1 = 0; n1 < 2; ++n1) sums[FIRST + n8][m8][n1] += part[n8][m8][n1];
}

// primitive: same_type
// Whether two types are one; without a header of the standard library.
template <class A, class B> struct SameType { static constexpr bool value = false; };
template <class A> struct SameType<A, A> { static constexpr bool value = true; };
