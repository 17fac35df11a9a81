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

// Launch: ceil(n / 64) blocks along x, each of 64 threads; no dynamic shared memory (256 for sin2cos2_kernel_strided).
// The entry depends on the bytes of which the addresses, the strides and the rows of all arrays are multiples: sin2cos2_kernel (16); sin2cos2_kernel_strided takes any strides.
// The rows of all arrays are aligned to so many bytes; 0: they have any strides.
template <int ALIGNED>
__device__ __forceinline__ void sin2cos2_kernel_body(
    const float* __restrict__ x, int64_t x_n,
    float* __restrict__ one, int64_t one_n,
    int64_t n) {
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = thread / 32;
  (void)lane, (void)warp;
  // tiling: one block for each piece: n in pieces of 64
  const int64_t block = int64_t(blockIdx.x);
  const int64_t n0 = block * 64;
  float x_piece[4];
  if constexpr (ALIGNED < 16) {
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      float* const x_staged = reinterpret_cast<float*>(shared_memory() + 0);  // [n]: 64, rows 64 apart
      const int n_count = at_most(64, n - n0);
      const float* const there = &x[n0 * x_n];
      const sector_order<float, width> slots(there, 1, n_count, 0, x_n);
      for (int i_2 = thread; i_2 < slots.count; i_2 += 64) {
        const auto [row_i, n_i, is_there] = slots[i_2];
        copy_async_if(vec<width>(&x_staged[n_i]), vec<width>(there + n_i * x_n), is_there);
      }
      if (n_count < 64)
        for (int i_3 = thread; i_3 < 64; i_3 += 64)
          store_shared_if(vec<1>(&x_staged[i_3 % 64]), Vec<float, 1>{}, i_3 % 64 >= n_count);
    }  // x[n] to a tile
    copy_async_commit();
    copy_async_wait<0>();
    barrier_block();
  }
  {
    constexpr int width = width_of<float, 4>(ALIGNED);
    if constexpr (ALIGNED >= 16) {
      UNROLL for (int n1 = 0; n1 < 4; n1 += width)
        unpack(&x_piece[n1], load_global_if(vec<width>(&x[(n1 + lane % 16 * 4 + warp * 64) * x_n + n0 * x_n]), n1 + lane % 16 * 4 + warp * 64 < 64 && n0 + n1 + lane % 16 * 4 + warp * 64 < n));
    } else {
      float* const x_staged = reinterpret_cast<float*>(shared_memory() + 0);  // [n]: 64, rows 64 apart
      unpack(x_piece, lane % 16 * 4 + warp * 64 < 64 ? load_shared(vec<4>(&x_staged[lane % 16 * 4 + warp * 64])) : Vec<float, 4>{});
    }
  }  // x[n] to registers
  UNROLL for (int n1 = 0; n1 < 4; ++n1) {
    const float y = sinf(x_piece[n1]);
    const float y_2 = cosf(x_piece[n1]);
    x_piece[n1] = (y * y) + (y_2 * y_2);
  }
  if constexpr (ALIGNED < 16) {
    barrier_block();
    {
      float* const one_staged = reinterpret_cast<float*>(shared_memory() + 0);  // [n]: 64, rows 64 apart
      if (lane / 16 == 0 && lane % 16 * 4 + warp * 64 < 64) store_shared(vec<4>(&one_staged[lane % 16 * 4 + warp * 64]), pack<4>(x_piece));
    }
    barrier_block();
    {
      constexpr int width = width_of<float, 4>(ALIGNED);
      float* const one_staged = reinterpret_cast<float*>(shared_memory() + 0);  // [n]: 64, rows 64 apart
      const int n_count = at_most(64, n - n0);
      float* const there = &one[n0 * one_n];
      const sector_order<float, width> slots(there, 1, n_count, 0, one_n);
      for (int i_2 = thread; i_2 < slots.count; i_2 += 64) {
        const auto [row_i, n_i, is_there] = slots[i_2];
        store_global_if(vec<width>(there + n_i * one_n), load_shared_if(vec<width>(&one_staged[n_i]), is_there), is_there);
      }
    }  // one[n] from a tile
  }
  {
    constexpr int width = width_of<float, 4>(ALIGNED);
    if constexpr (ALIGNED >= 16) {
      UNROLL for (int n1 = 0; n1 < 4; n1 += width)
        store_global_if(vec<width>(&one[(n1 + lane % 16 * 4 + warp * 64) * one_n + n0 * one_n]), pack<width>(&x_piece[n1]), lane / 16 == 0 && n1 + lane % 16 * 4 + warp * 64 < 64 && n0 + n1 + lane % 16 * 4 + warp * 64 < n);
    }
  }  // one[n] from registers
}

extern "C" __global__ void __launch_bounds__(64, 32) sin2cos2_kernel(
    const float* __restrict__ x,
    float* __restrict__ one,
    int64_t n) {
  sin2cos2_kernel_body<16>(x, 1, one, 1, n);
}

extern "C" __global__ void __launch_bounds__(64, 1) sin2cos2_kernel_strided(
    const float* __restrict__ x, int64_t x_n,
    float* __restrict__ one, int64_t one_n,
    int64_t n) {
  sin2cos2_kernel_body<0>(x, x_n, one, one_n, n);
}
