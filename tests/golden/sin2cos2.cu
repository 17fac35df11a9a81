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

#ifndef TREADLE_EMULATOR
// Word<T> is what one memory instruction moves for a T, whatever T is made of.
template <int BYTES> struct WordOf;
template <> struct WordOf<1> { using type = uint8_t; };
template <> struct WordOf<2> { using type = uint16_t; };
template <> struct WordOf<4> { using type = uint32_t; };
template <> struct WordOf<8> { using type = uint2; };
template <> struct WordOf<16> { using type = uint4; };
template <class T> using Word = typename WordOf<sizeof(T)>::type;

// By value: through a reference to memory the compiler would read byte by byte.
template <class To, class From>
__device__ __forceinline__ To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}
#endif

// One load from global memory where valid, zeros elsewhere. Every lane calls it. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_global_if(const T* p, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  Word<T> word{};
  if (valid) word = *reinterpret_cast<const Word<T>*>(p);
  return same_bits<T>(word);
#else
  return emu::load_global_if(p, valid, line);
#endif
}

// One store to global memory where valid. Every lane calls it. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_global_if(T* p, T value, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (valid) *reinterpret_cast<Word<T>*>(p) = same_bits<Word<T>>(value);
#else
  emu::store_global_if(p, value, valid, line);
#endif
}

// N elements from here on, as what moves at once; the address must allow it.
template <int N, class T>
__device__ __forceinline__ Vec<T, N>* vec(T* p) {
  return reinterpret_cast<Vec<T, N>*>(p);
}
template <int N, class T>
__device__ __forceinline__ const Vec<T, N>* vec(const T* p) {
  return reinterpret_cast<const Vec<T, N>*>(p);
}

// N elements of an array, as what moves at once.
template <int N, class T>
__device__ __forceinline__ Vec<T, N> pack(const T* elements) {
  Vec<T, N> together;
  UNROLL for (int i = 0; i < N; ++i) together.at[i] = elements[i];
  return together;
}

// What moved at once, into N elements of an array.
template <class T, int N>
__device__ __forceinline__ void unpack(T* elements, const Vec<T, N>& together) {
  UNROLL for (int i = 0; i < N; ++i) elements[i] = together.at[i];
}

// Elements that move at once where rows are aligned to so many bytes: at most MOST.
template <class T, int MOST>
__device__ constexpr int width_of(int aligned) {
  const int width = aligned < int(sizeof(T)) ? 1 : aligned / int(sizeof(T));
  return width < MOST ? width : MOST;
}

// Launch: ceil(n / 128) blocks along x, each of 128 threads; no dynamic shared memory.
// The entry depends on the bytes of which the addresses, the strides and the rows of all arrays are multiples: sin2cos2_kernel (16); sin2cos2_kernel_strided takes any strides.
// The rows of all arrays are aligned to so many bytes; 0: they have any strides.
template <int ALIGNED>
__device__ __forceinline__ void sin2cos2_kernel_body(
    const float* __restrict__ x, int64_t x_n,
    float* __restrict__ one, int64_t one_n,
    int64_t n) {
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = thread / 32;
  (void)lane, (void)warp;
  // tiling: one block for each piece: n in pieces of 128
  const int64_t block = int64_t(blockIdx.x);
  const int64_t n0 = block * 128;
  float x_piece[4];
  {
    constexpr int width = width_of<float, 4>(ALIGNED);
    UNROLL for (int n1 = 0; n1 < 4; n1 += width)
      unpack(&x_piece[n1], load_global_if(vec<width>(&x[(n1 + lane * 4 + warp * 128) * x_n + n0 * x_n]), n1 + lane * 4 + warp * 128 < 128 && n0 + n1 + lane * 4 + warp * 128 < n));
  }  // x[n] to registers
  UNROLL for (int n1 = 0; n1 < 4; ++n1) {
    const float y = sinf(x_piece[n1]);
    const float y_2 = cosf(x_piece[n1]);
    x_piece[n1] = (y * y) + (y_2 * y_2);
  }
  {
    constexpr int width = width_of<float, 4>(ALIGNED);
    UNROLL for (int n1 = 0; n1 < 4; n1 += width)
      store_global_if(vec<width>(&one[(n1 + lane * 4 + warp * 128) * one_n + n0 * one_n]), pack<width>(&x_piece[n1]), n1 + lane * 4 + warp * 128 < 128 && n0 + n1 + lane * 4 + warp * 128 < n);
  }  // one[n] from registers
}

extern "C" __global__ void __launch_bounds__(128, 10) sin2cos2_kernel(
    const float* __restrict__ x,
    float* __restrict__ one,
    int64_t n) {
  sin2cos2_kernel_body<16>(x, 1, one, 1, n);
}

extern "C" __global__ void __launch_bounds__(128) sin2cos2_kernel_strided(
    const float* __restrict__ x, int64_t x_n,
    float* __restrict__ one, int64_t one_n,
    int64_t n) {
  sin2cos2_kernel_body<0>(x, x_n, one, one_n, n);
}
