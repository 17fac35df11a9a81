// What plain CUDA C says that C++ does not: qualifiers, built-in variables, math functions.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

// A kernel that is not launched is then not compiled.
#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) alignas(n)
#define __grid_constant__

// Blocks run one after another, so one copy serves them all. Unlike dynamic shared memory it is not
// watched, and the primitives refuse it.
#define __shared__ static
#define __constant__ static

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Written by the scheduler whenever it resumes a thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

namespace emu {
template <class T>
inline T bits_as(const void* from) {
  T to;
  memcpy(&to, from, sizeof(to));
  return to;
}
}  // namespace emu
inline int __float_as_int(float x) { return emu::bits_as<int>(&x); }
inline unsigned __float_as_uint(float x) { return emu::bits_as<unsigned>(&x); }
inline float __int_as_float(int x) { return emu::bits_as<float>(&x); }
inline float __uint_as_float(unsigned x) { return emu::bits_as<float>(&x); }

#define TREADLE_MIN_MAX(T)                                 \
  inline T min(T a, T b) { return b < a ? b : a; }         \
  inline T max(T a, T b) { return a < b ? b : a; }
TREADLE_MIN_MAX(int)
TREADLE_MIN_MAX(unsigned)
TREADLE_MIN_MAX(long)
TREADLE_MIN_MAX(unsigned long)
TREADLE_MIN_MAX(long long)
TREADLE_MIN_MAX(unsigned long long)
#undef TREADLE_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
