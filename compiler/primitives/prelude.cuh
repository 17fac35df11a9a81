// primitive: prelude
#ifndef TREADLE_EMULATOR
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>
#include <cstring>
#define LINE
#define AND_LINE
#define AND_THIS_LINE
#define UNROLL _Pragma("unroll")
#define UNROLL_1 _Pragma("unroll 1")
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL_8 _Pragma("unroll 8")
#else  // The emulator: the same file on the host. Each primitive is told its caller's line.
#include "emulator.h"
#define LINE int line = __builtin_LINE()
#define AND_LINE , LINE
#define AND_THIS_LINE , line
#define UNROLL
#define UNROLL_1
#define UNROLL_4
#define UNROLL_8
#endif

// N elements that move as one: a load or store of a Vec of 4, 8 or 16 bytes is one instruction.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T at[N];
};

// primitive: eight_bit
// The 8-bit formats. Conversions to them round to nearest, ties to even, and saturate; all numbers of both are f16 numbers.
#ifndef TREADLE_EMULATOR
#include <cuda_fp8.h>
#endif
