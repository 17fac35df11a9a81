// primitive: uniform; from: sm_90
// A number that is the same in all lanes of the warp, known to be so: it lives in a uniform register.
// PTX ISA 9.7.9.6, shfl.sync.idx.
__device__ __forceinline__ int uniform(int number AND_LINE) {
#ifndef TREADLE_EMULATOR
  return __shfl_sync(0xffffffffu, number, 0);
#else
  return emu::uniform(number, line);
#endif
}

// primitive: barrier_named$SUFFIX; from: sm_90
// each: SUFFIX =  | MODE = sync | HOST = barrier_named |
//       WHAT = So many threads of the block, whole warps, meet at barrier ID (1 to 15; 0 is barrier_block's)
// each: SUFFIX = _arrive | MODE = arrive | HOST = arrive_named |
//       WHAT = Counts as having come to barrier ID, and does not wait
// $WHAT. PTX ISA 9.7.13.1, bar.$MODE.
template <int ID>
__device__ __forceinline__ void barrier_named$SUFFIX(int threads AND_LINE) {
  static_assert(1 <= ID && ID < 16);
#ifndef TREADLE_EMULATOR
  asm volatile("bar.$MODE %0, %1;" ::"n"(ID), "r"(threads) : "memory");
#else
  emu::$HOST(ID, threads, line);
#endif
}

// primitive: barrier_numbered$SUFFIX; from: sm_90
// each: SUFFIX =  | MODE = sync | HOST = barrier_named |
//       WHAT = So many threads of the block, whole warps, meet at barrier id (1 to 15), one for all lanes of a warp
// each: SUFFIX = _arrive | MODE = arrive | HOST = arrive_named |
//       WHAT = Counts as having come to barrier id, one for all lanes of a warp, and does not wait
// $WHAT. PTX ISA 9.7.13.1, bar.$MODE.
__device__ __forceinline__ void barrier_numbered$SUFFIX(int id, int threads AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("bar.$MODE %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  emu::$HOST(id, threads, line);
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

// primitive: registers_$VERB; from: sm_90
// each: VERB = give | CHANGE = dec | WHAT = keeps COUNT registers a thread and gives back the rest
// each: VERB = take | CHANGE = inc | WHAT = waits until it has COUNT registers a thread
// The warpgroup $WHAT. PTX ISA 9.7.19.5, setmaxnreg.$CHANGE.
template <int COUNT>
__device__ __forceinline__ void registers_$VERB(LINE) {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
#ifndef TREADLE_EMULATOR
  asm volatile("setmaxnreg.$CHANGE.sync.aligned.u32 %0;" ::"n"(COUNT));
#else
  emu::registers_$VERB(COUNT, line);
#endif
}

// primitive: store_matrix_x4$TRANS; needs: shared_address, as_register; from: sm_90
// each: TRANS =  | DOTTED =  | IS_TRANS = false | ELEMENTS = [l / 4][2 (l % 4) + 0, 1]
// each: TRANS = _trans | DOTTED = .trans | IS_TRANS = true | ELEMENTS = [2 (l % 4) + 0, 1][l / 4]
// Four 8x8 matrices of 16-bit elements to shared memory: lane l gives row l % 8 of matrix l / 8; each lane holds
// elements $ELEMENTS of each. PTX ISA 9.7.14.5.16, stmatrix$DOTTED.
template <class T>
__device__ __forceinline__ void store_matrix_x4$TRANS(T* row, const T (&registers)[4][2] AND_LINE) {
  static_assert(sizeof(T) == 2);
#ifndef TREADLE_EMULATOR
  asm volatile("stmatrix.sync.aligned.m8n8.x4$DOTTED.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(as_register(registers[0])), "r"(as_register(registers[1])), "r"(as_register(registers[2])),
               "r"(as_register(registers[3]))
               : "memory");
#else
  emu::store_matrix<4, $IS_TRANS>(row, registers, line);
#endif
}

// primitive: store_matrix_x2$TRANS; needs: shared_address, as_register; from: sm_90
// each: TRANS =  | DOTTED =  | IS_TRANS = false
// each: TRANS = _trans | DOTTED = .trans | IS_TRANS = true
// Two of them: lanes 0 to 15 give the rows. PTX ISA 9.7.14.5.16, stmatrix$DOTTED.
template <class T>
__device__ __forceinline__ void store_matrix_x2$TRANS(T* row, const T (&registers)[2][2] AND_LINE) {
  static_assert(sizeof(T) == 2);
#ifndef TREADLE_EMULATOR
  asm volatile("stmatrix.sync.aligned.m8n8.x2$DOTTED.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
               "r"(as_register(registers[0])), "r"(as_register(registers[1]))
               : "memory");
#else
  emu::store_matrix<2, $IS_TRANS>(row, registers, line);
#endif
}
