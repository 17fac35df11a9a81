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

// The block's dynamic shared memory.
__device__ __forceinline__ unsigned char* shared_memory() {
#ifndef TREADLE_EMULATOR
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return shared_bytes;
#else
  return emu::shared_memory();
#endif
}

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

// One load from global memory. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_global(const T* p AND_LINE) {
#ifndef TREADLE_EMULATOR
  return same_bits<T>(*reinterpret_cast<const Word<T>*>(p));
#else
  return emu::load_global(p, line);
#endif
}

// One load from global memory where valid, zeros elsewhere. Every lane calls it. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_global_if(const T* p, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  if constexpr (sizeof(T) < 4) {
    // A whole register: of half of one the other half would be alive from the beginning of the kernel.
    uint32_t wide = 0;
    if (valid) wide = *reinterpret_cast<const Word<T>*>(p);
    asm("" : "+r"(wide));
    return same_bits<T>(static_cast<Word<T>>(wide));
  } else {
    Word<T> word{};
    if (valid) word = *reinterpret_cast<const Word<T>*>(p);
    return same_bits<T>(word);
  }
#else
  return emu::load_global_if(p, valid, line);
#endif
}

#ifndef TREADLE_EMULATOR
// One store of 1 to 16 bytes to global memory. As a structure the compiler sometimes stores each word of a vector
// by itself: then a warp asks for each sector as often as it has words of it. PTX ISA 9.7.9, st.
template <class W>
__device__ __forceinline__ void store_word(W* p, W word) {
  const size_t at = __cvta_generic_to_global(p);
  if constexpr (sizeof(W) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word.x), "r"(word.y), "r"(word.z),
                 "r"(word.w)
                 : "memory");
  } else if constexpr (sizeof(W) == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(word.x), "r"(word.y) : "memory");
  } else {
    *p = word;
  }
}
#endif

// One store to global memory. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_global(T* p, T value AND_LINE) {
#ifndef TREADLE_EMULATOR
  store_word(reinterpret_cast<Word<T>*>(p), same_bits<Word<T>>(value));
#else
  emu::store_global(p, value, line);
#endif
}

// One store to global memory where valid. Every lane calls it. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_global_if(T* p, T value, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (valid) store_word(reinterpret_cast<Word<T>*>(p), same_bits<Word<T>>(value));
#else
  emu::store_global_if(p, value, valid, line);
#endif
}

// One load from shared memory. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_shared(const T* p AND_LINE) {
#ifndef TREADLE_EMULATOR
  return same_bits<T>(*reinterpret_cast<const Word<T>*>(p));
#else
  return emu::load_shared(p, line);
#endif
}

// One store to shared memory. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_shared(T* p, T value AND_LINE) {
#ifndef TREADLE_EMULATOR
  *reinterpret_cast<Word<T>*>(p) = same_bits<Word<T>>(value);
#else
  emu::store_shared(p, value, line);
#endif
}

// All threads of the block meet; what they wrote before is seen after. PTX ISA 9.7.13.1, bar.sync.
__device__ __forceinline__ void barrier_block(LINE) {
#ifndef TREADLE_EMULATOR
  __syncthreads();
#else
  emu::barrier_block(line);
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

#ifndef TREADLE_EMULATOR
// A pointer into shared memory as PTX wants it: 32 bits.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
#endif

// Starts to copy 4, 8 or 16 bytes from global to shared memory; writes zeros where not valid.
// PTX ISA 9.7.9.25.3.1, cp.async.
template <int BYTES, class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global, bool valid AND_LINE) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
#ifndef TREADLE_EMULATOR
  const uint32_t target = shared_address(shared);
  const int read = valid ? BYTES : 0;
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target),
                 "l"(__cvta_generic_to_global(global)), "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(target),
                 "l"(__cvta_generic_to_global(global)), "r"(read), "n"(BYTES)
                 : "memory");
  }
#else
  emu::copy_async<BYTES>(shared, global, valid, line);
#endif
}

// Closes this thread's group of copies. PTX ISA 9.7.9.25.3.2, cp.async.commit_group.
__device__ __forceinline__ void copy_async_commit() {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emu::copy_async_commit();
#endif
}

// Waits until at most PENDING of this thread's newest groups are under way. The data is then seen by
// this thread; a barrier shows it to others. PTX ISA 9.7.9.25.3.3, cp.async.wait_group.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
  emu::copy_async_wait(PENDING);
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

// Starts to copy a vector to shared memory where the hardware can, which is from 4 bytes on, else copies it;
// zeros where not valid.
template <class V>
__device__ __forceinline__ void copy_async_or_now(V* shared, const V* global, bool valid AND_LINE) {
  if constexpr (sizeof(V) >= 4) {
    copy_async<sizeof(V)>(shared, global, valid AND_THIS_LINE);
  } else {
    store_shared(shared, load_global_if(global, valid AND_THIS_LINE) AND_THIS_LINE);
  }
}

// The stage of a tile that begins so many bytes after its first.
template <class T>
__device__ __forceinline__ T* stage_at(T* tile, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(tile) + bytes);
}

// What is left, but at most so much.
__device__ __forceinline__ int at_most(int most, int64_t left) {
  return left < most ? int(left) : most;
}

// Deals a tile to the threads of a block, slot by slot of WIDTH neighbours, so that a warp asks for whole sectors of 32
// bytes and no two warps for one: where lines begin inside a sector, the slots before and behind them are nobody's.
// Lines are rows, or columns if those are what lies together. Elements that have no neighbours go in any order.
// Lines apart of whole 128 bytes are turned: the slots before one hold what is in its last sector, and a phase meets
// every bank once. Columns are dealt four at a time, by sectors of them that lie in different words of a tile's rows.
template <class T, int WIDTH>
struct sector_order {
  struct Slot {
    int row, column;
    bool is_there;
  };
  static constexpr int SECTOR = 32 / int(sizeof(T));
  bool turned;        // lines are columns
  bool by_columns;    // columns that lie apart, which are dealt four at a time
  int lines, length;  // lines, and elements of one
  int offset;         // elements of a sector before lines that nearly touch
  int first, skew;    // of others, before the first; more of them with each line
  int span;           // from line to line, in elements; of others slots of a line, whole sectors of them
  int last;           // the line that comes first in memory, of lines that nearly touch
  int count;          // slots, whole warps of them

  __device__ __forceinline__ sector_order(const T* tile, int rows, int columns, int64_t row_stride,
                                          int64_t column_stride) {
    const int64_t down = row_stride < 0 ? -row_stride : row_stride;
    const int64_t along = column_stride < 0 ? -column_stride : column_stride;
    turned = column_stride != 1 && (row_stride == 1 || down < along);
    lines = turned ? columns : rows, length = turned ? rows : columns;
    const int64_t stride = turned ? column_stride : row_stride, apart = turned ? along : down;
    const bool together = column_stride == 1 || row_stride == 1;
    skew = together ? int(stride & (SECTOR - 1)) : 0;
    first = together ? int(reinterpret_cast<size_t>(tile) / sizeof(T) % SECTOR) : 0;
    const bool near = (first || skew) && apart >= length && apart < length + SECTOR;
    by_columns = WIDTH == 1 && turned && row_stride == 1 && !near;
    const bool is_whole = !together || (lines > 1 && length % (4 * SECTOR) == 0);
    const int before = first || skew ? SECTOR - WIDTH : 0;  // at most, in the sector that a line begins in
    span = near ? int(apart) : is_whole ? length : (length + before + SECTOR - 1) / SECTOR * SECTOR;
    last = near && stride < 0 ? lines - 1 : 0;
    offset = near ? int(reinterpret_cast<size_t>(tile + last * stride) / sizeof(T) % SECTOR) : 0;
    if (near) first = skew = 0;
    const int all = by_columns ? (lines + 3) / 4 * 4 : lines;
    const int elements = near ? offset + (lines - 1) * span + length : all * span;
    count = length > 0 && lines > 0 ? ((elements + WIDTH - 1) / WIDTH + 31) / 32 * 32 : 0;
  }

  __device__ __forceinline__ Slot operator[](int slot) const {
    const int at = slot * WIDTH - offset, step = by_columns ? 4 * span : span;
    int line = at / step, place = at - line * step;
    if (by_columns) {
      const int of = place / SECTOR & 3;
      line = 4 * line + (sizeof(T) == 2 ? of >> 1 | (of & 1) << 1 : of);
      place = place / (4 * SECTOR) * SECTOR + (place & (SECTOR - 1));
    }
    place -= (first + line * skew) & (SECTOR - 1);
    if (place < 0) place += span;  // behind the line, if that is not of whole 128 bytes
    if (at < 0 || line >= lines || place >= length) return {0, 0, false};
    const int from = last ? last - line : line;
    return turned ? Slot{place, from, true} : Slot{from, place, true};
  }
};

// What copy_async_or_now does, zeros where not valid, by the threads that take part. Every lane calls it.
template <class V>
__device__ __forceinline__ void copy_async_if(V* shared, const V* global, bool is_there, bool valid = true AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (is_there) copy_async_or_now(shared, global, valid);
#else
  if (is_there) return copy_async_or_now(shared, global, valid, line);
  emu::take_no_part(sizeof(V), sizeof(V) >= 4, line);
#endif
}

// One load from shared memory by the threads that take part, zeros elsewhere. Every lane calls it.
template <class T>
__device__ __forceinline__ T load_shared_if(const T* p, bool is_there AND_LINE) {
#ifndef TREADLE_EMULATOR
  T value{};
  if (is_there) value = load_shared(p);
  return value;
#else
  return emu::load_shared_if(p, is_there, line);
#endif
}

// One store to shared memory by the threads that take part. Every lane calls it.
template <class T>
__device__ __forceinline__ void store_shared_if(T* p, T value, bool is_there AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (is_there) store_shared(p, value);
#else
  emu::store_shared_if(p, value, is_there, line);
#endif
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

// How many places of a lane along an axis are before `end`, which is counted from the first of them. A digit of SIZE
// values moves the place by STRIDE; the slowest comes first, and no digit carries into another.
template <int SIZE, int STRIDE, int... FASTER>
__device__ constexpr int places_before(int end) {
  if constexpr (sizeof...(FASTER) == 0) {
    const int before = (end + STRIDE - 1) / STRIDE;
    return before < SIZE ? before : SIZE;
  } else {
    constexpr int EACH = places_before<FASTER...>(1 << 30);
    const int whole = end / STRIDE;
    const int before = whole * EACH + places_before<FASTER...>(end - whole * STRIDE);
    return before < SIZE * EACH ? before : SIZE * EACH;
  }
}

// A bit for each place of a lane along an axis, the WORD-th 32 of them: set if the place is before `end`. Both count
// from the first place, DIGITS are those of `places_before`.
template <int WORD, int... DIGITS, class T>
__device__ __forceinline__ uint32_t bits_before(T end) {
  constexpr T FAR = 1 << 30;
  const int before = places_before<DIGITS...>(int(end < 0 ? 0 : end < FAR ? end : FAR)) - 32 * WORD;
  return before <= 0 ? 0u : before < 32 ? (1u << before) - 1u : ~0u;
}

// Launch: row blocks along x, each of 256 threads; 16640 bytes of dynamic shared memory (24832 for softmax_rows_kernel_aligned_16, 24832 for softmax_rows_kernel_strided).
// The entry depends on the bytes of which the addresses, the strides and the rows of all arrays are multiples: softmax_rows_kernel (32), softmax_rows_kernel_aligned_16 (16); softmax_rows_kernel_strided takes any strides.
// The rows of all arrays are aligned to so many bytes; 0: they have any strides.
template <int ALIGNED>
__device__ __forceinline__ void softmax_rows_kernel_body(
    const float* __restrict__ A, int64_t A_row, int64_t A_x,
    float* __restrict__ P, int64_t P_row, int64_t P_x,
    int64_t row,
    int64_t x) {
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = thread / 32;
  (void)lane, (void)warp;
  float* const m_new_shared = reinterpret_cast<float*>(shared_memory() + 0);  // [row, x_warp]: 8, rows 8 apart
  float* const l_shared = reinterpret_cast<float*>(shared_memory() + 128);  // [row, x_warp]: 8, rows 8 apart
  float* const A_staged = reinterpret_cast<float*>(shared_memory() + 256);  // [row, x]: 2 stages of 2048, rows 2048 apart
  // tiling: one block for each piece: row in pieces of 1
  const int64_t row0 = int64_t(blockIdx.x);
  const int32_t extent_x = int32_t(x);
  float m = -INFINITY;
  float l = 0.0f;
  const int64_t x_full = x - (uint32_t(x) % 2048);
  copy_async_commit();
  const int64_t x0_ahead = 0;
  const bool is_there = x0_ahead < x_full;
  if (is_there) {
    float* const A_staged_ahead = A_staged;
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        UNROLL_4 for (int first = 0; first < 2048; first += 256 * width) {
          const int i = first + thread * width;
          const int x_i = i;
          copy_async_or_now(vec<width>(&A_staged_ahead[x_i]), vec<width>(&A[row0 * A_row + x_i + x0_ahead]), true);
        }
      } else {
        const float* const there = &A[row0 * A_row + x0_ahead * A_x];
        const sector_order<float, width> slots(there, 1, 2048, 0, A_x);
        for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
          const auto [row_i, x_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&A_staged_ahead[x_i]), vec<width>(there + x_i * A_x), is_there_2);
        }
      }
    }  // A[row, x] to shared memory
  }
  copy_async_commit();
  // streaming: x in pieces of 2048
  for (int64_t x0 = 0; x0 < x_full; x0 += 2048) {
    const int64_t turn = x0 / 2048;
    const int64_t stage = uint32_t(turn) % 2;
    copy_async_wait<0>();
    barrier_block();
    const int64_t x0_ahead_2 = x0 + 2048;
    const bool is_there_2 = x0_ahead_2 < x_full;
    if (is_there_2) {
      const int64_t place = uint32_t(turn + 1) % 2;
      float* const A_staged_ahead = stage_at(A_staged, place * 8192);
      {
        constexpr int width = width_of<float, 4>(ALIGNED);
        if constexpr (ALIGNED >= 32) {
          UNROLL_4 for (int first = 0; first < 2048; first += 256 * width) {
            const int i = first + thread * width;
            const int x_i = i;
            copy_async_or_now(vec<width>(&A_staged_ahead[x_i]), vec<width>(&A[row0 * A_row + x_i + x0_ahead_2]), true);
          }
        } else {
          const float* const there = &A[row0 * A_row + x0_ahead_2 * A_x];
          const sector_order<float, width> slots(there, 1, 2048, 0, A_x);
          for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
            const auto [row_i, x_i, is_there_3] = slots[i_2];
            copy_async_if(vec<width>(&A_staged_ahead[x_i]), vec<width>(there + x_i * A_x), is_there_3);
          }
        }
      }  // A[row, x] to shared memory
    }
    copy_async_commit();
    float* const A_staged_now = stage_at(A_staged, stage * 8192);
    float A_piece[2][4];
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      unpack(A_piece[x1024], load_shared(vec<4>(&A_staged_now[x1024 * 1024 + lane * 4 + warp * 128])));
    float m_new;
    m_new = -INFINITY;
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        m_new = maximum(m_new, A_piece[x1024][x1]);
    {
      m_new = maximum(m_new, shuffle_xor(m_new, 1));
      m_new = maximum(m_new, shuffle_xor(m_new, 2));
      m_new = maximum(m_new, shuffle_xor(m_new, 4));
      m_new = maximum(m_new, shuffle_xor(m_new, 8));
      m_new = maximum(m_new, shuffle_xor(m_new, 16));
    }
    if (lane == 0) store_shared(&m_new_shared[warp], m_new);
    barrier_block();
    float m_new_2[8];
    UNROLL for (int x_warp1 = 0; x_warp1 < 8; x_warp1 += 4)
      unpack(&m_new_2[x_warp1], load_shared(vec<4>(&m_new_shared[x_warp1])));
    float m_new_3;
    m_new_3 = m;
    UNROLL for (int x_warp1 = 0; x_warp1 < 8; ++x_warp1)
      m_new_3 = maximum(m_new_3, m_new_2[x_warp1]);
    float m_safe;
    m_safe = maximum(m_new_3, -3.4028235e+38f);
    float e[2][4];
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        e[x1024][x1] = exp2_approx((A_piece[x1024][x1] - m_safe) * 1.442695f);
    float repair;
    repair = exp2_approx((m - m_safe) * 1.442695f);
    float l_new;
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        l_new = x1024 == 0 && x1 == 0 ? fmaf(l, repair, e[x1024][x1]) : l_new + e[x1024][x1];
    m = m_new_3;
    l = l_new;
  }
  copy_async_wait<0>();
  // streaming: the last piece of x, which is smaller
  if (x_full < x) {
    float A_piece[2][4];
    if constexpr (ALIGNED < 32) {
      {
        constexpr int width = width_of<float, 4>(ALIGNED);
        float* const A_staged_2 = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        const int x_count = at_most(2048, x - x_full);
        const float* const there = &A[row0 * A_row + x_full * A_x];
        const sector_order<float, width> slots(there, 1, x_count, 0, A_x);
        for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
          const auto [row_i, x_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&A_staged_2[x_i]), vec<width>(there + x_i * A_x), is_there_2);
        }
        if (x_count < 2048)
          for (int i_3 = thread; i_3 < 2048; i_3 += 256)
            store_shared_if(vec<1>(&A_staged_2[i_3 % 2048]), Vec<float, 1>{}, i_3 % 2048 >= x_count);
      }  // A[row, x] to a tile
      copy_async_commit();
      copy_async_wait<0>();
      barrier_block();
    }
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          UNROLL for (int x1 = 0; x1 < 4; x1 += width)
            unpack(&A_piece[x1024][x1], load_global_if(vec<width>(&A[row0 * A_row + (x1024 * 1024 + x1 + lane * 4 + warp * 128) * A_x + x_full * A_x]), x_full + x1024 * 1024 + x1 + lane * 4 + warp * 128 < x));
      } else {
        float* const A_staged_2 = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          unpack(A_piece[x1024], load_shared(vec<4>(&A_staged_2[x1024 * 1024 + lane * 4 + warp * 128])));
      }
    }  // A[row, x] to registers
    float A_piece_2[2][4];
    const uint32_t A_piece_kept = bits_before<0, 2, 1024, 4, 1>(x - (x_full + lane * 4 + warp * 128));
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece_2[x1024][x1] = A_piece_kept & 1u << (x1024 * 4 + x1) ? A_piece[x1024][x1] : -INFINITY;
    float m_new;
    m_new = -INFINITY;
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        m_new = maximum(m_new, A_piece_2[x1024][x1]);
    {
      m_new = maximum(m_new, shuffle_xor(m_new, 1));
      m_new = maximum(m_new, shuffle_xor(m_new, 2));
      m_new = maximum(m_new, shuffle_xor(m_new, 4));
      m_new = maximum(m_new, shuffle_xor(m_new, 8));
      m_new = maximum(m_new, shuffle_xor(m_new, 16));
    }
    barrier_block();
    if (lane == 0) store_shared(&m_new_shared[warp], m_new);
    barrier_block();
    float m_new_2[8];
    UNROLL for (int x_warp1 = 0; x_warp1 < 8; x_warp1 += 4)
      unpack(&m_new_2[x_warp1], load_shared(vec<4>(&m_new_shared[x_warp1])));
    float m_new_3;
    m_new_3 = m;
    UNROLL for (int x_warp1 = 0; x_warp1 < 8; ++x_warp1)
      m_new_3 = maximum(m_new_3, m_new_2[x_warp1]);
    float m_safe;
    m_safe = maximum(m_new_3, -3.4028235e+38f);
    float e[2][4];
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        e[x1024][x1] = exp2_approx((A_piece[x1024][x1] - m_safe) * 1.442695f);
    float repair;
    repair = exp2_approx((m - m_safe) * 1.442695f);
    l = l * repair;
    const uint32_t e_kept = bits_before<0, 2, 1024, 4, 1>(x - (x_full + lane * 4 + warp * 128));
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        e[x1024][x1] = e_kept & 1u << (x1024 * 4 + x1) ? e[x1024][x1] : 0.0f;
    float l_new;
    l_new = l;
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        l_new = l_new + e[x1024][x1];
    m = m_new_3;
    l = l_new;
  }
  {
    l = l + shuffle_xor(l, 1);
    l = l + shuffle_xor(l, 2);
    l = l + shuffle_xor(l, 4);
    l = l + shuffle_xor(l, 8);
    l = l + shuffle_xor(l, 16);
  }
  if (lane == 0) store_shared(&l_shared[warp], l);
  barrier_block();
  float l_2[8];
  UNROLL for (int x_warp1 = 0; x_warp1 < 8; x_warp1 += 4)
    unpack(&l_2[x_warp1], load_shared(vec<4>(&l_shared[x_warp1])));
  float l_3;
  l_3 = 0.0f;
  UNROLL for (int x_warp1 = 0; x_warp1 < 8; ++x_warp1)
    l_3 = l_3 + l_2[x_warp1];
  l_3 = (m == -INFINITY) ? ((extent_x > 0) ? NAN : l_3) : l_3;
  l_3 = logf(l_3);
  const int64_t x_full_2 = x - (uint32_t(x) % 2048);
  // streaming: x in pieces of 2048
  for (int64_t x0 = 0; x0 < x_full_2; x0 += 2048) {
    float A_piece[2][4];
    if constexpr (ALIGNED < 32) {
      barrier_block();
      {
        constexpr int width = width_of<float, 4>(ALIGNED);
        float* const A_staged_2 = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        const float* const there = &A[row0 * A_row + x0 * A_x];
        const sector_order<float, width> slots(there, 1, 2048, 0, A_x);
        for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
          const auto [row_i, x_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&A_staged_2[x_i]), vec<width>(there + x_i * A_x), is_there_2);
        }
      }  // A[row, x] to a tile
      copy_async_commit();
      copy_async_wait<0>();
      barrier_block();
    }
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          UNROLL for (int x1 = 0; x1 < 4; x1 += width)
            unpack(&A_piece[x1024][x1], load_global(vec<width>(&A[row0 * A_row + (x1024 * 1024 + x1 + lane * 4 + warp * 128) * A_x + x0 * A_x])));
      } else {
        float* const A_staged_2 = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          unpack(A_piece[x1024], load_shared(vec<4>(&A_staged_2[x1024 * 1024 + lane * 4 + warp * 128])));
      }
    }  // A[row, x] to registers
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece[x1024][x1] = exp2_approx(fmaf(A_piece[x1024][x1] - m, 1.442695f, l_3 * -1.442695f));
    if constexpr (ALIGNED < 32) {
      barrier_block();
      {
        float* const P_staged = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          store_shared(vec<4>(&P_staged[x1024 * 1024 + lane * 4 + warp * 128]), pack<4>(A_piece[x1024]));
      }
      barrier_block();
      {
        constexpr int width = width_of<float, 4>(ALIGNED);
        float* const P_staged = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        float* const there = &P[row0 * P_row + x0 * P_x];
        const sector_order<float, width> slots(there, 1, 2048, 0, P_x);
        for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
          const auto [row_i, x_i, is_there_2] = slots[i_2];
          store_global_if(vec<width>(there + x_i * P_x), load_shared_if(vec<width>(&P_staged[x_i]), is_there_2), is_there_2);
        }
      }  // P[row, x] from a tile
    }
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          UNROLL for (int x1 = 0; x1 < 4; x1 += width)
            store_global(vec<width>(&P[row0 * P_row + (x1024 * 1024 + x1 + lane * 4 + warp * 128) * P_x + x0 * P_x]), pack<width>(&A_piece[x1024][x1]));
      }
    }  // P[row, x] from registers
  }
  // streaming: the last piece of x, which is smaller
  if (x_full_2 < x) {
    float A_piece[2][4];
    if constexpr (ALIGNED < 32) {
      barrier_block();
      {
        constexpr int width = width_of<float, 4>(ALIGNED);
        float* const A_staged_2 = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        const int x_count = at_most(2048, x - x_full_2);
        const float* const there = &A[row0 * A_row + x_full_2 * A_x];
        const sector_order<float, width> slots(there, 1, x_count, 0, A_x);
        for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
          const auto [row_i, x_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&A_staged_2[x_i]), vec<width>(there + x_i * A_x), is_there_2);
        }
        if (x_count < 2048)
          for (int i_3 = thread; i_3 < 2048; i_3 += 256)
            store_shared_if(vec<1>(&A_staged_2[i_3 % 2048]), Vec<float, 1>{}, i_3 % 2048 >= x_count);
      }  // A[row, x] to a tile
      copy_async_commit();
      copy_async_wait<0>();
      barrier_block();
    }
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          UNROLL for (int x1 = 0; x1 < 4; x1 += width)
            unpack(&A_piece[x1024][x1], load_global_if(vec<width>(&A[row0 * A_row + (x1024 * 1024 + x1 + lane * 4 + warp * 128) * A_x + x_full_2 * A_x]), x_full_2 + x1024 * 1024 + x1 + lane * 4 + warp * 128 < x));
      } else {
        float* const A_staged_2 = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          unpack(A_piece[x1024], load_shared(vec<4>(&A_staged_2[x1024 * 1024 + lane * 4 + warp * 128])));
      }
    }  // A[row, x] to registers
    UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
      UNROLL for (int x1 = 0; x1 < 4; ++x1)
        A_piece[x1024][x1] = exp2_approx(fmaf(A_piece[x1024][x1] - m, 1.442695f, l_3 * -1.442695f));
    if constexpr (ALIGNED < 32) {
      barrier_block();
      {
        float* const P_staged = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          store_shared(vec<4>(&P_staged[x1024 * 1024 + lane * 4 + warp * 128]), pack<4>(A_piece[x1024]));
      }
      barrier_block();
      {
        constexpr int width = width_of<float, 4>(ALIGNED);
        float* const P_staged = reinterpret_cast<float*>(shared_memory() + 16640);  // [row, x]: 2048, rows 2048 apart
        const int x_count = at_most(2048, x - x_full_2);
        float* const there = &P[row0 * P_row + x_full_2 * P_x];
        const sector_order<float, width> slots(there, 1, x_count, 0, P_x);
        for (int i_2 = thread; i_2 < slots.count; i_2 += 256) {
          const auto [row_i, x_i, is_there_2] = slots[i_2];
          store_global_if(vec<width>(there + x_i * P_x), load_shared_if(vec<width>(&P_staged[x_i]), is_there_2), is_there_2);
        }
      }  // P[row, x] from a tile
    }
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        UNROLL for (int x1024 = 0; x1024 < 2; ++x1024)
          UNROLL for (int x1 = 0; x1 < 4; x1 += width)
            store_global_if(vec<width>(&P[row0 * P_row + (x1024 * 1024 + x1 + lane * 4 + warp * 128) * P_x + x_full_2 * P_x]), pack<width>(&A_piece[x1024][x1]), x_full_2 + x1024 * 1024 + x1 + lane * 4 + warp * 128 < x);
      }
    }  // P[row, x] from registers
  }
}

extern "C" __global__ void __launch_bounds__(256, 6) softmax_rows_kernel(
    const float* __restrict__ A, int64_t A_row,
    float* __restrict__ P, int64_t P_row,
    int64_t row,
    int64_t x) {
  softmax_rows_kernel_body<32>(A, A_row, 1, P, P_row, 1, row, x);
}

extern "C" __global__ void __launch_bounds__(256, 1) softmax_rows_kernel_aligned_16(
    const float* __restrict__ A, int64_t A_row,
    float* __restrict__ P, int64_t P_row,
    int64_t row,
    int64_t x) {
  softmax_rows_kernel_body<16>(A, A_row, 1, P, P_row, 1, row, x);
}

extern "C" __global__ void __launch_bounds__(256, 1) softmax_rows_kernel_strided(
    const float* __restrict__ A, int64_t A_row, int64_t A_x,
    float* __restrict__ P, int64_t P_row, int64_t P_x,
    int64_t row,
    int64_t x) {
  softmax_rows_kernel_body<0>(A, A_row, A_x, P, P_row, P_x, row, x);
}
