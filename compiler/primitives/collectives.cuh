// primitive: barrier_block
// All threads of the block meet; what they wrote before is seen after. PTX ISA 9.7.13.1, bar.sync.
__device__ __forceinline__ void barrier_block(LINE) {
#ifndef TREADLE_EMULATOR
  __syncthreads();
#else
  emu::barrier_block(line);
#endif
}

// primitive: barrier_warp
// All lanes of the warp meet; what they wrote before is seen after. PTX ISA 9.7.13.2, bar.warp.sync.
__device__ __forceinline__ void barrier_warp(LINE) {
#ifndef TREADLE_EMULATOR
  __syncwarp();
#else
  emu::barrier_warp(line);
#endif
}

// primitive: shuffle_xor
// The value that lane ^ mask holds. It orders no memory. PTX ISA 9.7.9.6, shfl.sync.bfly.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask AND_LINE) {
  static_assert(sizeof(T) == 4, "a shuffle moves 32 bits");
#ifndef TREADLE_EMULATOR
  return __shfl_xor_sync(0xffffffffu, value, mask);
#else
  return emu::shuffle_xor(value, mask, line);
#endif
}

// primitive: shuffle
// The value that a lane of the warp holds. It orders no memory. PTX ISA 9.7.9.6, shfl.sync.idx.
template <class T>
__device__ __forceinline__ T shuffle(T value, int source AND_LINE) {
  static_assert(sizeof(T) <= 4, "a shuffle moves 32 bits");
#ifndef TREADLE_EMULATOR
  unsigned bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = __shfl_sync(0xffffffffu, bits, source);
  memcpy(&value, &bits, sizeof(T));
  return value;
#else
  return emu::shuffle(value, source, line);
#endif
}

// primitive: any_lane
// Whether something holds for any lane of the warp, all of which ask. It orders no memory. PTX ISA 9.7.13.8, vote.sync.any.
__device__ __forceinline__ bool any_lane(bool holds AND_LINE) {
#ifndef TREADLE_EMULATOR
  return __any_sync(0xffffffffu, holds);
#else
  return emu::any_lane(holds, line);
#endif
}

// primitive: pick
// One of two values of at most 32 bits, by one select: written in C, pairs would be taken apart and selected in halves.
// PTX ISA 9.7.6.3, selp.
template <class T>
__device__ __forceinline__ T pick(bool first, T one, T other) {
  static_assert(sizeof(T) <= 4, "a select takes 32 bits");
  unsigned picked = 0, left = 0;
  memcpy(&picked, &one, sizeof(T));
  memcpy(&left, &other, sizeof(T));
#ifndef TREADLE_EMULATOR
  asm("{\n"
      "  .reg .pred p;\n"
      "  setp.ne.u32 p, %3, 0;\n"
      "  selp.b32 %0, %1, %2, p;\n"
      "}"
      : "=r"(picked)
      : "r"(picked), "r"(left), "r"(unsigned(first)));
#else
  picked = first ? picked : left;
#endif
  memcpy(&one, &picked, sizeof(T));
  return one;
}
