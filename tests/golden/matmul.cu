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

// Moves a pointer into global memory by so many bytes. The addition stands where it is written: from a sum of steps the
// compiler would make products, and compute them in every turn of a loop. PTX ISA 9.7.1.1, add.
template <class T>
__device__ __forceinline__ void advance(const T*& p, int64_t bytes) {
#ifndef TREADLE_EMULATOR
  size_t address = __cvta_generic_to_global(p);
  asm("add.s64 %0, %0, %1;" : "+l"(address) : "l"(bytes));
  p = reinterpret_cast<const T*>(__cvta_global_to_generic(address));
#else
  p = reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(p) + bytes);
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

// Four 8x8 matrices of 16-bit elements from shared memory: lane l gives row l % 8 of matrix l / 8;
// each lane gets elements [l / 4][2 (l % 4) + 0, 1] of each. PTX ISA 9.7.14.5.15, ldmatrix.
template <class R, class T>
__device__ __forceinline__ void load_matrix_x4(R& registers, const T* row AND_LINE) {
  static_assert(sizeof(R) == 16 && sizeof(T) <= 2);
#ifndef TREADLE_EMULATOR
  uint32_t words[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
  memcpy(&registers, words, sizeof(words));
#else
  emu::load_matrix<4, false>(&registers, row, line);
#endif
}

// Four 8x8 matrices of 16-bit elements from shared memory: lane l gives row l % 8 of matrix l / 8;
// each lane gets elements [2 (l % 4) + 0, 1][l / 4] of each. PTX ISA 9.7.14.5.15, ldmatrix.trans.
template <class R, class T>
__device__ __forceinline__ void load_matrix_x4_trans(R& registers, const T* row AND_LINE) {
  static_assert(sizeof(R) == 16 && sizeof(T) <= 2);
#ifndef TREADLE_EMULATOR
  uint32_t words[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
  memcpy(&registers, words, sizeof(words));
#else
  emu::load_matrix<4, true>(&registers, row, line);
#endif
}

#ifndef TREADLE_EMULATOR
// Two 16-bit or four 8-bit elements as the 32-bit register that they share.
template <class T, int N>
__device__ __forceinline__ uint32_t as_register(const T (&elements)[N]) {
  static_assert(sizeof(elements) == 4);
  uint32_t word;
  memcpy(&word, elements, sizeof(word));
  return word;
}
#endif

// d += a b on the warp's tensor core: 16-bit a (16 x 16) and b (16 x 8), f32 d (16 x 8). Lane l holds
//   a[k8][m8][k1] at row 8 m8 + l / 4, column 8 k8 + 2 (l % 4) + k1,
//   b[k8][k1]     at row 8 k8 + 2 (l % 4) + k1, column l / 4,
//   d[m8][n1]     at row 8 m8 + l / 4, column 2 (l % 4) + n1. PTX ISA 9.7.14.5.8, mma.
// Volatile, so that it does not sink into a branch that only some lanes take.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[2][2], const __half (&a)[2][2][2],
                                             const __half (&b)[2][2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k16(d, a, b, line);
#endif
}
__device__ __forceinline__ void mma_m16n8k16(float (&d)[2][2], const __nv_bfloat16 (&a)[2][2][2],
                                             const __nv_bfloat16 (&b)[2][2] AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "r"(as_register(a[0][0])), "r"(as_register(a[0][1])), "r"(as_register(a[1][0])),
        "r"(as_register(a[1][1])), "r"(as_register(b[0])), "r"(as_register(b[1])));
#else
  emu::mma_m16n8k16(d, a, b, line);
#endif
}

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

// Elements that move at once where rows are aligned to so many bytes: at most MOST.
template <class T, int MOST>
__device__ constexpr int width_of(int aligned) {
  const int width = aligned < int(sizeof(T)) ? 1 : aligned / int(sizeof(T));
  return width < MOST ? width : MOST;
}

// Where an element of a tile lies: rows are PITCH elements apart, and the 16-byte chunks of a row, CHUNK
// elements each, change places by an XOR with the row, so that neighbouring rows use different banks.
template <int PITCH, int BITS, int SHIFT, int CHUNK>
__device__ __forceinline__ int swizzled(int row, int column) {
  const int chunk = column / CHUNK ^ (row >> SHIFT & ((1 << BITS) - 1));
  return row * PITCH + chunk * CHUNK + column % CHUNK;
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

// Where an element lies `down` rows, a multiple of STEP, below another: whole periods of the swizzle only add.
template <int PITCH, int BITS, int SHIFT, int CHUNK, int STEP>
__device__ __forceinline__ int swizzled_down(int row, int column, int down) {
  if constexpr (STEP % (1 << (BITS + SHIFT)) == 0) {
    return swizzled<PITCH, BITS, SHIFT, CHUNK>(row, column) + down * PITCH;
  } else {
    return swizzled<PITCH, BITS, SHIFT, CHUNK>(row + down, column);
  }
}

// A number that is there from here on: the compiler neither computes it anew in every turn of a loop nor, of one that a
// turn makes, what follows from it before the loop.
template <class T>
__device__ __forceinline__ T kept(T number) {
#ifndef TREADLE_EMULATOR
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(number));
  } else {
    asm volatile("" : "+r"(number));
  }
#endif
  return number;
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

// Rounds two floats into a pair of elements: one conversion for a 16-bit type. PTX ISA 9.7.9, cvt.rn.
template <class T>
__device__ __forceinline__ void store_pair(T (&pair)[2], float lo, float hi) {
  pair[0] = static_cast<T>(lo);
  pair[1] = static_cast<T>(hi);
}
#ifndef TREADLE_EMULATOR
__device__ __forceinline__ void store_pair(__half (&pair)[2], float lo, float hi) {
  const __half2 both = __floats2half2_rn(lo, hi);
  memcpy(pair, &both, sizeof(pair));
}
__device__ __forceinline__ void store_pair(__nv_bfloat16 (&pair)[2], float lo, float hi) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(lo, hi);
  memcpy(pair, &both, sizeof(pair));
}
#endif

// Launch: ceil(m / 32) * ceil(n / 32) blocks along x, each of 128 threads; 32768 bytes of dynamic shared memory.
// The entry depends on the bytes of which the addresses, the strides and the rows of all arrays are multiples: matmul_kernel (32), matmul_kernel_aligned_16 (16), matmul_kernel_aligned_4 (4); matmul_kernel_strided takes any strides.
// The rows of all arrays are aligned to so many bytes; 0: they have any strides.
template <int ALIGNED>
__device__ __forceinline__ void matmul_kernel_body(
    const __half* __restrict__ A, int64_t A_m, int64_t A_k,
    const __half* __restrict__ B, int64_t B_k, int64_t B_n,
    __half* __restrict__ C16, int64_t C16_m, int64_t C16_n,
    int64_t m,
    int64_t k,
    int64_t n) {
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = thread / 32;
  (void)lane, (void)warp;
  __half* const A_shared = reinterpret_cast<__half*>(shared_memory() + 0);  // [m, k]: 2 stages of 32 x 128, swizzled by 8 rows
  __half* const B_shared = reinterpret_cast<__half*>(shared_memory() + 16384);  // [k, n]: 2 stages of 128 x 32, swizzled by 4 rows
  __half* const C16_shared = reinterpret_cast<__half*>(shared_memory() + 0);  // [m, n]: 32 x 32, swizzled by 4 rows
  // tiling: one block for each piece: m in pieces of 32, n in pieces of 32
  const int64_t block = int64_t(blockIdx.x);
  const int64_t n_pieces = (n + 31) / 32;
  const int64_t block_2 = block / n_pieces;
  const int64_t n0 = (block % n_pieces) * 32;
  const int64_t m0 = block_2 * 32;
  float C[2][2][2] = {};
  const int64_t k_full = k - (uint32_t(k) % 128);
  copy_async_commit();
  const int64_t k0_ahead = 0;
  const bool is_there = k0_ahead < k_full;
  if (is_there) {
    __half* const A_ahead = A_shared;
    {
      constexpr int width = width_of<__half, 8>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        constexpr int m_step = 128 * width / 64;  // rows that the block copies at once
        const int m_i = thread * width / 64, k_i = thread * width % 64;
        const __half* there = &A[m_i * A_m + m0 * A_m + k_i + k0_ahead];
        UNROLL_8 for (int m_down = 0; m_down < 32; m_down += m_step) {
          UNROLL for (int k_along = 0; k_along < 128; k_along += 64)
            copy_async_or_now(vec<width>(&A_ahead[swizzled_down<128, 3, 0, 8, m_step>(m_i, k_i, m_down) + k_along]), vec<width>(there + k_along), m0 + m_i + m_down < m);
          there += m_step * A_m;
        }
      } else {
        const int m_count = at_most(32, m - m0);
        const __half* const there = &A[m0 * A_m + k0_ahead * A_k];
        const sector_order<__half, width> slots(there, m_count, 128, A_m, A_k);
        UNROLL_1 for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
          const auto [m_i, k_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&A_ahead[swizzled<128, 3, 0, 8>(m_i, k_i)]), vec<width>(there + m_i * A_m + k_i * A_k), is_there_2);
        }
        if (m_count < 32)
          for (int i_3 = thread; i_3 < 4096; i_3 += 128)
            store_shared_if(vec<1>(&A_ahead[swizzled<128, 3, 0, 8>(i_3 / 128, i_3 % 128)]), Vec<__half, 1>{}, i_3 / 128 >= m_count);
      }
    }  // A[m, k] to shared memory
    __half* const B_ahead = B_shared;
    {
      constexpr int width = width_of<__half, 8>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        constexpr int k_step = 128 * width / 32;  // rows that the block copies at once
        const int k_i = thread * width / 32, n_i = thread * width % 32;
        const __half* there = &B[k_i * B_k + k0_ahead * B_k + n_i + n0];
        UNROLL_8 for (int k_down = 0; k_down < 128; k_down += k_step) {
          copy_async_or_now(vec<width>(&B_ahead[swizzled_down<32, 2, 1, 8, k_step>(k_i, n_i, k_down)]), vec<width>(there), n0 + n_i < n);
          there += k_step * B_k;
        }
      } else {
        const int n_count = at_most(32, n - n0);
        const __half* const there = &B[k0_ahead * B_k + n0 * B_n];
        const sector_order<__half, width> slots(there, 128, n_count, B_k, B_n);
        UNROLL_1 for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
          const auto [k_i, n_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&B_ahead[swizzled<32, 2, 1, 8>(k_i, n_i)]), vec<width>(there + k_i * B_k + n_i * B_n), is_there_2);
        }
        if (n_count < 32)
          for (int i_3 = thread; i_3 < 4096; i_3 += 128)
            store_shared_if(vec<1>(&B_ahead[swizzled<32, 2, 1, 8>(i_3 / 32, i_3 % 32)]), Vec<__half, 1>{}, i_3 % 32 >= n_count);
      }
    }  // B[k, n] to shared memory
  }
  copy_async_commit();
  // streaming: k in pieces of 128
  const __half* A_next;
  int64_t A_down, A_turn;  // bytes
  if constexpr (ALIGNED >= 32) {
    constexpr int width = width_of<__half, 8>(ALIGNED);
    constexpr int m_step = 128 * width / 64;
    const int m_i = thread * width / 64, k_i = thread * width % 64;
    A_next = &A[m_i * A_m + m0 * A_m + k_i + 128];
    A_down = kept(m_step * A_m * int64_t(2));
    A_turn = kept((128 * A_k - (32 - m_step) * A_m) * int64_t(2));
  }  // where this thread copies from in the first turn: k = 128
  const __half* B_next;
  int64_t B_down;  // bytes
  if constexpr (ALIGNED >= 32) {
    constexpr int width = width_of<__half, 8>(ALIGNED);
    constexpr int k_step = 128 * width / 32;
    const int k_i = thread * width / 32, n_i = thread * width % 32;
    B_next = &B[k_i * B_k + 128 * B_k + n_i + n0];
    B_down = kept(k_step * B_k * int64_t(2));
  }  // where this thread copies from in the first turn: k = 128
  const int B_now_lane = kept(swizzled<32, 2, 1, 8>(lane % 16, warp % 2 * 16 + lane / 16 * 8));
  const int A_now_lane = kept(swizzled<128, 3, 0, 8>(warp / 2 * 16 + lane % 16, lane / 16 * 8));
  for (int64_t k0 = 0; k0 < k_full; k0 += 128) {
    const int64_t turn = k0 / 128;
    const int64_t stage = uint32_t(turn) % 2;
    copy_async_wait<0>();
    barrier_block();
    const int64_t k0_ahead_2 = k0 + 128;
    const bool is_there_2 = k0_ahead_2 < k_full;
    if (is_there_2) {
      const int64_t place = uint32_t(turn + 1) % 2;
      __half* const A_ahead = stage_at(A_shared, place * 8192);
      {
        constexpr int width = width_of<__half, 8>(ALIGNED);
        if constexpr (ALIGNED >= 32) {
          constexpr int m_step = 128 * width / 64;  // rows that the block copies at once
          const int m_i = thread * width / 64, k_i = thread * width % 64;
          UNROLL_8 for (int m_down = 0; m_down < 32; m_down += m_step) {
            UNROLL for (int k_along = 0; k_along < 128; k_along += 64)
              copy_async_or_now(vec<width>(&A_ahead[swizzled_down<128, 3, 0, 8, m_step>(m_i, k_i, m_down) + k_along]), vec<width>(A_next + k_along), m0 + m_i + m_down < m);
            advance(A_next, m_down + m_step < 32 ? A_down : A_turn);
          }
        } else {
          const int m_count = at_most(32, m - m0);
          const __half* const there = &A[m0 * A_m + k0_ahead_2 * A_k];
          const sector_order<__half, width> slots(there, m_count, 128, A_m, A_k);
          UNROLL_1 for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
            const auto [m_i, k_i, is_there_3] = slots[i_2];
            copy_async_if(vec<width>(&A_ahead[swizzled<128, 3, 0, 8>(m_i, k_i)]), vec<width>(there + m_i * A_m + k_i * A_k), is_there_3);
          }
          if (m_count < 32)
            for (int i_3 = thread; i_3 < 4096; i_3 += 128)
              store_shared_if(vec<1>(&A_ahead[swizzled<128, 3, 0, 8>(i_3 / 128, i_3 % 128)]), Vec<__half, 1>{}, i_3 / 128 >= m_count);
        }
      }  // A[m, k] to shared memory
      __half* const B_ahead = stage_at(B_shared, place * 8192);
      {
        constexpr int width = width_of<__half, 8>(ALIGNED);
        if constexpr (ALIGNED >= 32) {
          constexpr int k_step = 128 * width / 32;  // rows that the block copies at once
          const int k_i = thread * width / 32, n_i = thread * width % 32;
          UNROLL_8 for (int k_down = 0; k_down < 128; k_down += k_step) {
            copy_async_or_now(vec<width>(&B_ahead[swizzled_down<32, 2, 1, 8, k_step>(k_i, n_i, k_down)]), vec<width>(B_next), n0 + n_i < n);
            advance(B_next, B_down);
          }
        } else {
          const int n_count = at_most(32, n - n0);
          const __half* const there = &B[n0 * B_n + k0_ahead_2 * B_k];
          const sector_order<__half, width> slots(there, 128, n_count, B_k, B_n);
          UNROLL_1 for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
            const auto [k_i, n_i, is_there_3] = slots[i_2];
            copy_async_if(vec<width>(&B_ahead[swizzled<32, 2, 1, 8>(k_i, n_i)]), vec<width>(there + k_i * B_k + n_i * B_n), is_there_3);
          }
          if (n_count < 32)
            for (int i_3 = thread; i_3 < 4096; i_3 += 128)
              store_shared_if(vec<1>(&B_ahead[swizzled<32, 2, 1, 8>(i_3 / 32, i_3 % 32)]), Vec<__half, 1>{}, i_3 % 32 >= n_count);
        }
      }  // B[k, n] to shared memory
    }
    copy_async_commit();
    __half* const A_now = stage_at(A_shared, stage * 8192);
    __half* const B_now = stage_at(B_shared, stage * 8192);
    // C[m, n] += A_now[m, k] B_now[k, n], summed over k, on m16n8k16
    UNROLL for (int k16 = 0; k16 < 8; ++k16) {
      __half lhs[2][2][2];
      load_matrix_x4(lhs, &A_now[(A_now_lane ^ k16 % 4 * 16) + k16 / 4 * 64]);
      UNROLL for (int n8 = 0; n8 < 2; n8 += 2) {
        __half rhs[2][2][2];
        load_matrix_x4_trans(rhs, &B_now[(B_now_lane ^ n8 * 8) + k16 * 512]);
        mma_m16n8k16(C[n8], lhs, rhs[0]);
        mma_m16n8k16(C[n8 + 1], lhs, rhs[1]);
      }
    }
  }
  copy_async_wait<0>();
  // streaming: the last piece of k, which is smaller
  if (k_full < k) {
    barrier_block();
    {
      constexpr int width = width_of<__half, 8>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        constexpr int m_step = 128 * width / 64;  // rows that the block copies at once
        const int m_i = thread * width / 64, k_i = thread * width % 64;
        const __half* there = &A[m_i * A_m + m0 * A_m + k_i + k_full];
        UNROLL_8 for (int m_down = 0; m_down < 32; m_down += m_step) {
          UNROLL for (int k_along = 0; k_along < 128; k_along += 64)
            copy_async_or_now(vec<width>(&A_shared[swizzled_down<128, 3, 0, 8, m_step>(m_i, k_i, m_down) + k_along]), vec<width>(there + k_along), m0 + m_i + m_down < m && k_full + k_i + k_along < k);
          there += m_step * A_m;
        }
      } else {
        const int m_count = at_most(32, m - m0);
        const int k_count = at_most(128, k - k_full);
        const __half* const there = &A[m0 * A_m + k_full * A_k];
        const sector_order<__half, width> slots(there, m_count, k_count, A_m, A_k);
        UNROLL_1 for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
          const auto [m_i, k_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&A_shared[swizzled<128, 3, 0, 8>(m_i, k_i)]), vec<width>(there + m_i * A_m + k_i * A_k), is_there_2);
        }
        if (m_count < 32 || k_count < 128)
          for (int i_3 = thread; i_3 < 4096; i_3 += 128)
            store_shared_if(vec<1>(&A_shared[swizzled<128, 3, 0, 8>(i_3 / 128, i_3 % 128)]), Vec<__half, 1>{}, i_3 / 128 >= m_count || i_3 % 128 >= k_count);
      }
    }  // A[m, k] to shared memory
    {
      constexpr int width = width_of<__half, 8>(ALIGNED);
      if constexpr (ALIGNED >= 32) {
        constexpr int k_step = 128 * width / 32;  // rows that the block copies at once
        const int k_i = thread * width / 32, n_i = thread * width % 32;
        const __half* there = &B[k_i * B_k + k_full * B_k + n_i + n0];
        UNROLL_8 for (int k_down = 0; k_down < 128; k_down += k_step) {
          copy_async_or_now(vec<width>(&B_shared[swizzled_down<32, 2, 1, 8, k_step>(k_i, n_i, k_down)]), vec<width>(there), k_full + k_i + k_down < k && n0 + n_i < n);
          there += k_step * B_k;
        }
      } else {
        const int k_count = at_most(128, k - k_full);
        const int n_count = at_most(32, n - n0);
        const __half* const there = &B[k_full * B_k + n0 * B_n];
        const sector_order<__half, width> slots(there, k_count, n_count, B_k, B_n);
        UNROLL_1 for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
          const auto [k_i, n_i, is_there_2] = slots[i_2];
          copy_async_if(vec<width>(&B_shared[swizzled<32, 2, 1, 8>(k_i, n_i)]), vec<width>(there + k_i * B_k + n_i * B_n), is_there_2);
        }
        if (k_count < 128 || n_count < 32)
          for (int i_3 = thread; i_3 < 4096; i_3 += 128)
            store_shared_if(vec<1>(&B_shared[swizzled<32, 2, 1, 8>(i_3 / 32, i_3 % 32)]), Vec<__half, 1>{}, i_3 / 32 >= k_count || i_3 % 32 >= n_count);
      }
    }  // B[k, n] to shared memory
    copy_async_commit();
    copy_async_wait<0>();
    barrier_block();
    // C[m, n] += A_shared[m, k] B_shared[k, n], summed over k, on m16n8k16
    const int A_shared_lane = swizzled<128, 3, 0, 8>(warp / 2 * 16 + lane % 16, lane / 16 * 8);
    const int B_shared_lane = swizzled<32, 2, 1, 8>(lane % 16, warp % 2 * 16 + lane / 16 * 8);
    UNROLL for (int k16 = 0; k16 < 8; ++k16) {
      __half lhs[2][2][2];
      load_matrix_x4(lhs, &A_shared[(A_shared_lane ^ k16 % 4 * 16) + k16 / 4 * 64]);
      UNROLL for (int n8 = 0; n8 < 2; n8 += 2) {
        __half rhs[2][2][2];
        load_matrix_x4_trans(rhs, &B_shared[(B_shared_lane ^ n8 * 8) + k16 * 512]);
        mma_m16n8k16(C[n8], lhs, rhs[0]);
        mma_m16n8k16(C[n8 + 1], lhs, rhs[1]);
      }
    }
  }
  __half C16_2[2][2][2];
  UNROLL for (int n8 = 0; n8 < 2; ++n8)
    UNROLL for (int m8_2 = 0; m8_2 < 2; ++m8_2)
      store_pair(C16_2[n8][m8_2], C[n8][m8_2][0], C[n8][m8_2][1]);
  barrier_block();
  UNROLL for (int n8 = 0; n8 < 2; ++n8)
    UNROLL for (int m8_2 = 0; m8_2 < 2; ++m8_2)
      store_shared(vec<2>(&C16_shared[swizzled<32, 2, 1, 8>(m8_2 * 8 + lane / 4 + warp / 2 * 16, n8 * 8 + lane % 4 * 2 + warp % 2 * 16)]), pack<2>(C16_2[n8][m8_2]));
  barrier_block();
  {
    constexpr int width = width_of<__half, 8>(ALIGNED);
    if constexpr (ALIGNED >= 32) {
      constexpr int m_step = 128 * width / 32;  // rows that the block copies at once
      const int m_i = thread * width / 32, n_i = thread * width % 32;
      __half* there = &C16[m_i * C16_m + m0 * C16_m + n_i + n0];
      UNROLL_8 for (int m_down = 0; m_down < 32; m_down += m_step) {
        store_global_if(vec<width>(there), load_shared(vec<width>(&C16_shared[swizzled_down<32, 2, 1, 8, m_step>(m_i, n_i, m_down)])), m0 + m_i + m_down < m && n0 + n_i < n);
        there += m_step * C16_m;
      }
    } else {
      const int m_count = at_most(32, m - m0);
      const int n_count = at_most(32, n - n0);
      __half* const there = &C16[m0 * C16_m + n0 * C16_n];
      const sector_order<__half, width> slots(there, m_count, n_count, C16_m, C16_n);
      for (int i_2 = thread; i_2 < slots.count; i_2 += 128) {
        const auto [m_i, n_i, is_there_2] = slots[i_2];
        store_global_if(vec<width>(there + m_i * C16_m + n_i * C16_n), load_shared_if(vec<width>(&C16_shared[swizzled<32, 2, 1, 8>(m_i, n_i)]), is_there_2), is_there_2);
      }
    }
  }  // C16[m, n] from shared memory
}

extern "C" __global__ void __launch_bounds__(128, 4) matmul_kernel(
    const __half* __restrict__ A, int64_t A_m,
    const __half* __restrict__ B, int64_t B_k,
    __half* __restrict__ C16, int64_t C16_m,
    int64_t m,
    int64_t k,
    int64_t n) {
  matmul_kernel_body<32>(A, A_m, 1, B, B_k, 1, C16, C16_m, 1, m, k, n);
}

extern "C" __global__ void __launch_bounds__(128, 1) matmul_kernel_aligned_16(
    const __half* __restrict__ A, int64_t A_m,
    const __half* __restrict__ B, int64_t B_k,
    __half* __restrict__ C16, int64_t C16_m,
    int64_t m,
    int64_t k,
    int64_t n) {
  matmul_kernel_body<16>(A, A_m, 1, B, B_k, 1, C16, C16_m, 1, m, k, n);
}

extern "C" __global__ void __launch_bounds__(128, 1) matmul_kernel_aligned_4(
    const __half* __restrict__ A, int64_t A_m,
    const __half* __restrict__ B, int64_t B_k,
    __half* __restrict__ C16, int64_t C16_m,
    int64_t m,
    int64_t k,
    int64_t n) {
  matmul_kernel_body<4>(A, A_m, 1, B, B_k, 1, C16, C16_m, 1, m, k, n);
}

extern "C" __global__ void __launch_bounds__(128, 1) matmul_kernel_strided(
    const __half* __restrict__ A, int64_t A_m, int64_t A_k,
    const __half* __restrict__ B, int64_t B_k, int64_t B_n,
    __half* __restrict__ C16, int64_t C16_m, int64_t C16_n,
    int64_t m,
    int64_t k,
    int64_t n) {
  matmul_kernel_body<0>(A, A_m, A_k, B, B_k, B_n, C16, C16_m, C16_n, m, k, n);
}
