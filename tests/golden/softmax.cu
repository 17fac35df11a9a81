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

// 2^x in one instruction; subnormals count as zero. PTX ISA 9.7.3, ex2.approx.ftz.
__device__ __forceinline__ float exp2_approx(float x) {
#ifndef TREADLE_EMULATOR
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emu::exp2_approx(x);
#endif
}

// x / y to 2 ulp over the full range, without the branch of the correctly rounded division. PTX ISA 9.7.3, div.full.
// Volatile, so that it stays where it stands: behind a branch, what is divided and quotients take registers together.
__device__ __forceinline__ float divide(float x, float y) {
#ifndef TREADLE_EMULATOR
  float quotient;
  asm volatile("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
#else
  return x / y;
#endif
}

// The larger of two; NaN if either is, unlike fmaxf. PTX ISA 9.7.3, max.NaN.
__device__ __forceinline__ float maximum(float x, float y) {
#ifndef TREADLE_EMULATOR
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
#else
  return x > y || x != x ? x : y;
#endif
}

// Launch: ceil(row / 4) blocks along x, each of 128 threads; no dynamic shared memory.
// The entry depends on the bytes of which the addresses, the strides and the rows of all arrays are multiples: softmax_rows_kernel (16); softmax_rows_kernel_strided takes any strides.
// The rows of all arrays are aligned to so many bytes; 0: they have any strides.
template <int ALIGNED>
__device__ __forceinline__ void softmax_rows_kernel_body(
    const float* __restrict__ A, int64_t A_row, int64_t A_x,
    float* __restrict__ P, int64_t P_row, int64_t P_x,
    int64_t row,
    int64_t x) {
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = thread / 32;
  (void)lane, (void)warp;
  // tiling: one block for each piece: row in pieces of 4
  const int64_t block = int64_t(blockIdx.x);
  const int64_t row0 = block * 4;
  const int32_t extent_x = int32_t(x);
  float m = -INFINITY;
  float l = 0.0f;
  const int64_t x_full = x - (uint32_t(x) % 1024);
  // streaming: x in pieces of 1024
  for (int64_t x0 = 0; x0 < x_full; x0 += 1024) {
    float A_piece[8][4];
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      UNROLL for (int x128 = 0; x128 < 8; ++x128)
        UNROLL for (int x1 = 0; x1 < 4; x1 += width)
          unpack(&A_piece[x128][x1], load_global_if(vec<width>(&A[warp * A_row + row0 * A_row + (x128 * 128 + x1 + lane * 4) * A_x + x0 * A_x]), row0 + warp < row));
    }  // A[row, x] to registers
    float m_new;
    m_new = m;
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        m_new = maximum(m_new, A_piece[x128][x1]);
    {
      m_new = maximum(m_new, shuffle_xor(m_new, 1));
      m_new = maximum(m_new, shuffle_xor(m_new, 2));
      m_new = maximum(m_new, shuffle_xor(m_new, 4));
      m_new = maximum(m_new, shuffle_xor(m_new, 8));
      m_new = maximum(m_new, shuffle_xor(m_new, 16));
    }
    float m_safe;
    m_safe = (m_new == -INFINITY) ? 0.0f : m_new;
    float e[8][4];
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        e[x128][x1] = exp2_approx((A_piece[x128][x1] - m_safe) * 1.442695f);
    float repair;
    repair = exp2_approx((((m == -INFINITY) ? m_safe : m) - m_safe) * 1.442695f);
    l = l * repair;
    float l_new;
    l_new = l;
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        l_new = l_new + e[x128][x1];
    m = m_new;
    l = l_new;
  }
  // streaming: the last piece of x, which is smaller
  if (x_full < x) {
    float A_piece[8][4];
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      UNROLL for (int x128 = 0; x128 < 8; ++x128)
        UNROLL for (int x1 = 0; x1 < 4; x1 += width)
          unpack(&A_piece[x128][x1], load_global_if(vec<width>(&A[warp * A_row + row0 * A_row + (x128 * 128 + x1 + lane * 4) * A_x + x_full * A_x]), row0 + warp < row && x_full + x128 * 128 + x1 + lane * 4 < x));
    }  // A[row, x] to registers
    float A_piece_2[8][4];
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece_2[x128][x1] = x_full + x128 * 128 + x1 + lane * 4 < x ? A_piece[x128][x1] : -INFINITY;
    float m_new;
    m_new = m;
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        m_new = maximum(m_new, A_piece_2[x128][x1]);
    {
      m_new = maximum(m_new, shuffle_xor(m_new, 1));
      m_new = maximum(m_new, shuffle_xor(m_new, 2));
      m_new = maximum(m_new, shuffle_xor(m_new, 4));
      m_new = maximum(m_new, shuffle_xor(m_new, 8));
      m_new = maximum(m_new, shuffle_xor(m_new, 16));
    }
    float m_safe;
    m_safe = (m_new == -INFINITY) ? 0.0f : m_new;
    float e[8][4];
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        e[x128][x1] = exp2_approx((A_piece[x128][x1] - m_safe) * 1.442695f);
    float repair;
    repair = exp2_approx((((m == -INFINITY) ? m_safe : m) - m_safe) * 1.442695f);
    l = l * repair;
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        e[x128][x1] = x_full + x128 * 128 + x1 + lane * 4 < x ? e[x128][x1] : 0.0f;
    float l_new;
    l_new = l;
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        l_new = l_new + e[x128][x1];
    m = m_new;
    l = l_new;
  }
  {
    l = l + shuffle_xor(l, 1);
    l = l + shuffle_xor(l, 2);
    l = l + shuffle_xor(l, 4);
    l = l + shuffle_xor(l, 8);
    l = l + shuffle_xor(l, 16);
  }
  l = (m == -INFINITY) ? ((extent_x > 0) ? NAN : l) : l;
  const int64_t x_full_2 = x - (uint32_t(x) % 1024);
  // streaming: x in pieces of 1024
  for (int64_t x0 = 0; x0 < x_full_2; x0 += 1024) {
    float A_piece[8][4];
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      UNROLL for (int x128 = 0; x128 < 8; ++x128)
        UNROLL for (int x1 = 0; x1 < 4; x1 += width)
          unpack(&A_piece[x128][x1], load_global_if(vec<width>(&A[warp * A_row + row0 * A_row + (x128 * 128 + x1 + lane * 4) * A_x + x0 * A_x]), row0 + warp < row));
    }  // A[row, x] to registers
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece[x128][x1] = exp2_approx((A_piece[x128][x1] - m) * 1.442695f);
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece[x128][x1] = divide(A_piece[x128][x1], l);
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      UNROLL for (int x128 = 0; x128 < 8; ++x128)
        UNROLL for (int x1 = 0; x1 < 4; x1 += width)
          store_global_if(vec<width>(&P[warp * P_row + row0 * P_row + (x128 * 128 + x1 + lane * 4) * P_x + x0 * P_x]), pack<width>(&A_piece[x128][x1]), row0 + warp < row);
    }  // P[row, x] from registers
  }
  // streaming: the last piece of x, which is smaller
  if (x_full_2 < x) {
    float A_piece[8][4];
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      UNROLL for (int x128 = 0; x128 < 8; ++x128)
        UNROLL for (int x1 = 0; x1 < 4; x1 += width)
          unpack(&A_piece[x128][x1], load_global_if(vec<width>(&A[warp * A_row + row0 * A_row + (x128 * 128 + x1 + lane * 4) * A_x + x_full_2 * A_x]), row0 + warp < row && x_full_2 + x128 * 128 + x1 + lane * 4 < x));
    }  // A[row, x] to registers
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece[x128][x1] = exp2_approx((A_piece[x128][x1] - m) * 1.442695f);
    UNROLL for (int x128 = 0; x128 < 8; ++x128)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece[x128][x1] = divide(A_piece[x128][x1], l);
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      UNROLL for (int x128 = 0; x128 < 8; ++x128)
        UNROLL for (int x1 = 0; x1 < 4; x1 += width)
          store_global_if(vec<width>(&P[warp * P_row + row0 * P_row + (x128 * 128 + x1 + lane * 4) * P_x + x_full_2 * P_x]), pack<width>(&A_piece[x128][x1]), row0 + warp < row && x_full_2 + x128 * 128 + x1 + lane * 4 < x);
    }  // P[row, x] from registers
  }
}

extern "C" __global__ void __launch_bounds__(128, 4) softmax_rows_kernel(
    const float* __restrict__ A, int64_t A_row,
    float* __restrict__ P, int64_t P_row,
    int64_t row,
    int64_t x) {
  softmax_rows_kernel_body<16>(A, A_row, 1, P, P_row, 1, row, x);
}

extern "C" __global__ void __launch_bounds__(128) softmax_rows_kernel_strided(
    const float* __restrict__ A, int64_t A_row, int64_t A_x,
    float* __restrict__ P, int64_t P_row, int64_t P_x,
    int64_t row,
    int64_t x) {
  softmax_rows_kernel_body<0>(A, A_row, A_x, P, P_row, P_x, row, x);
}
