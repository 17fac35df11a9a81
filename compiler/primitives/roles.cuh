// primitive: uniform; from: sm_90
// A number that is the same in all lanes of the warp, known to be so: it lives in a uniform register.
__device__ __forceinline__ int uniform(int number) {
#ifndef TREADLE_EMULATOR
  return __shfl_sync(0xffffffffu, number, 0);
#else
  return number;
#endif
}

// primitive: barrier_named; from: sm_90
// So many threads of the block, whole warps, meet at barrier ID (1 to 15; 0 is barrier_block's). PTX ISA 9.7.13.1, bar.sync.
template <int ID>
__device__ __forceinline__ void barrier_named(int threads AND_LINE) {
  static_assert(1 <= ID && ID < 16);
#ifndef TREADLE_EMULATOR
  asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
#else
  emu::barrier_named(ID, threads, line);
#endif
}

// primitive: barrier_named_arrive; from: sm_90
// Counts as having come to barrier ID, and does not wait. PTX ISA 9.7.13.1, bar.arrive.
template <int ID>
__device__ __forceinline__ void barrier_named_arrive(int threads AND_LINE) {
  static_assert(1 <= ID && ID < 16);
#ifndef TREADLE_EMULATOR
  asm volatile("bar.arrive %0, %1;" ::"n"(ID), "r"(threads) : "memory");
#else
  emu::arrive_named(ID, threads, line);
#endif
}

// primitive: elect_one; from: sm_90
// True in one lane of a warp whose lanes are all here. PTX ISA 9.7.13.14, elect.sync.
__device__ __forceinline__ bool elect_one(LINE) {
#ifndef TREADLE_EMULATOR
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred here;\n"
      "elect.sync _|here, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, here;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
#else
  return emu::elect_one(line);
#endif
}

// primitive: registers_give; from: sm_90
// The warpgroup keeps COUNT registers a thread and gives back the rest. PTX ISA 9.7.19.5, setmaxnreg.dec.
template <int COUNT>
__device__ __forceinline__ void registers_give(LINE) {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
#ifndef TREADLE_EMULATOR
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#else
  emu::registers_change(COUNT, line);
#endif
}

// primitive: registers_take; from: sm_90
// The warpgroup waits until it has COUNT registers a thread. PTX ISA 9.7.19.5, setmaxnreg.inc.
template <int COUNT>
__device__ __forceinline__ void registers_take(LINE) {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
#ifndef TREADLE_EMULATOR
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#else
  emu::registers_change(COUNT, line);
#endif
}

// primitive: store_matrix_x4; needs: shared_address, as_register; from: sm_90
// Four 8x8 matrices of 16-bit elements to shared memory: lane l gives row l % 8 of matrix l / 8; each lane holds
// elements [l / 4][2 (l % 4) + 0, 1] of each. PTX ISA 9.7.14.5.16, stmatrix.
template <class T>
__device__ __forceinline__ void store_matrix_x4(T* row, const T (&registers)[4][2] AND_LINE) {
  static_assert(sizeof(T) == 2);
#ifndef TREADLE_EMULATOR
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(as_register(registers[0])), "r"(as_register(registers[1])), "r"(as_register(registers[2])),
               "r"(as_register(registers[3]))
               : "memory");
#else
  emu::store_matrix<4, false>(row, registers, line);
#endif
}

// primitive: store_matrix_x4_trans; needs: shared_address, as_register; from: sm_90
// Four 8x8 matrices of 16-bit elements to shared memory: lane l gives row l % 8 of matrix l / 8; each lane holds
// elements [2 (l % 4) + 0, 1][l / 4] of each. PTX ISA 9.7.14.5.16, stmatrix.trans.
template <class T>
__device__ __forceinline__ void store_matrix_x4_trans(T* row, const T (&registers)[4][2] AND_LINE) {
  static_assert(sizeof(T) == 2);
#ifndef TREADLE_EMULATOR
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(as_register(registers[0])), "r"(as_register(registers[1])), "r"(as_register(registers[2])),
               "r"(as_register(registers[3]))
               : "memory");
#else
  emu::store_matrix<4, true>(row, registers, line);
#endif
}
