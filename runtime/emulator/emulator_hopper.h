// What the primitives of sm_90a call on the host: barriers in shared memory, tensor copies, products of a
// warpgroup. Their meaning is in mbarriers.hpp, tensor_copies.hpp and warpgroups.hpp.
#pragma once

// A tensor map as the emulator has it: its arguments, where the driver's own is opaque. Of 128 bytes, as the
// driver's is; runtime/tensor_maps.py writes it.
struct alignas(64) TensorMap {
  uint64_t address;
  uint64_t sizes[5];    // elements, innermost first
  uint64_t strides[4];  // bytes, of the dimensions but the innermost
  uint32_t box[5];      // elements
  uint16_t rank, element_bytes;
  uint16_t swizzle_bytes;  // 0, 32, 64 or 128
  uint16_t magic;          // so that anything else is refused
  uint8_t unused[20];
};
static_assert(sizeof(TensorMap) == 128, "the driver's tensor map has 128 bytes");
constexpr uint16_t TENSOR_MAP_MAGIC = 0x7d3a;

namespace emu {

void mbarrier_init(void* barrier, unsigned count, int line);
void mbarrier_init_fence();
void mbarrier_arrive(void* barrier, unsigned bytes, bool expects, int line);
void copy_async_arrive(void* barrier, int line);
int block_in_cluster();
void barrier_cluster_arrive(int line);
void mbarrier_arrive_at(void* barrier, int block, int line);
const void* cluster_read(const void* p, int block, unsigned bytes, int line);
void fence_proxy_async();
void start_tensor_load(void* shared, const TensorMap& map, void* barrier, const int* at, int rank, int line);
void start_tensor_load(void* shared, const TensorMap& map, void* barrier, const int* at, int rank, unsigned blocks,
                       int line);
void start_tensor_store(const TensorMap& map, const void* shared, const int* at, int rank, int line);
void tensor_store_commit();
void tensor_store_wait(int pending, bool reads_only);

struct BarrierWait {
  const void* barrier;
  unsigned parity;
};
inline void mbarrier_wait(const void* barrier, unsigned parity, int line) {
  const BarrierWait wait{barrier, parity};
  meet({MBARRIER_WAIT, line, nullptr, &wait, nullptr, 0});
}
// Two numbers of 15 bits as one; what has more, or is negative, is as wrong as the largest.
inline int as_one(int name, int threads) {
  constexpr int MOST = 0x7fff;
  if (name < 0 || name > MOST) name = MOST;
  if (threads < 0 || threads > MOST) threads = MOST;
  return name << 16 | threads;
}
inline void barrier_named(int id, int threads, int line) {
  meet({BARRIER_NAMED, line, nullptr, nullptr, nullptr, as_one(id, threads)});
}
inline void arrive_named(int id, int threads, int line) {
  meet({BARRIER_ARRIVE, line, nullptr, nullptr, nullptr, as_one(id, threads)});
}
inline void barrier_cluster_wait(int line) { meet({BARRIER_CLUSTER, line, nullptr, nullptr, nullptr, 0}); }
template <class T>
inline T load_cluster(const T* p, int block, int line) {
  T value;
  memcpy(&value, cluster_read(p, block, sizeof(T), line), sizeof(T));
  return value;
}
inline bool elect_one(int line) {
  int elected = 0;
  meet({ELECT, line, &elected, nullptr, nullptr, 0});
  return elected != 0;
}
inline void registers_give(int count, int line) { meet({REGISTERS, line, nullptr, nullptr, nullptr, -count}); }
inline void registers_take(int count, int line) { meet({REGISTERS, line, nullptr, nullptr, nullptr, count}); }
template <int COUNT, bool TRANSPOSED>
inline void store_matrix(void* row, const void* registers, int line) {
  meet({STORE_MATRIX, line, row, registers, nullptr, TRANSPOSED ? -COUNT : COUNT});
}

// One lane's part of a product of its warpgroup: d (64 x columns) += or = a (64 x 32 bytes) b.
struct Product {
  void* d;         // floats, or sums of integers
  const void* a;  // registers, or null for the descriptor
  uint64_t a_matrix, b_matrix;
  int columns;
  Element element;
  bool a_transposed, b_transposed, accumulate;
  Element right;  // of b, where its type may differ: 8-bit operands

  Product(void* d, const void* a, uint64_t a_matrix, uint64_t b_matrix, int columns, Element element,
          bool a_transposed, bool b_transposed, bool accumulate, Element right)
      : d(d), a(a), a_matrix(a_matrix), b_matrix(b_matrix), columns(columns), element(element),
        a_transposed(a_transposed), b_transposed(b_transposed), accumulate(accumulate), right(right) {}
  Product(void* d, const void* a, uint64_t a_matrix, uint64_t b_matrix, int columns, Element element,
          bool a_transposed, bool b_transposed, bool accumulate)
      : Product(d, a, a_matrix, b_matrix, columns, element, a_transposed, b_transposed, accumulate, element) {}
};
inline void wgmma(const Product& product, int line) {
  meet({WGMMA, line, nullptr, &product, nullptr, 0});
}
inline void wgmma_fence(int line) { meet({WGMMA_FENCE, line, nullptr, nullptr, nullptr, 0}); }
inline void wgmma_commit(int line) { meet({WGMMA_COMMIT, line, nullptr, nullptr, nullptr, 0}); }
inline void wgmma_wait(int pending, int line) {
  meet({WGMMA_WAIT, line, nullptr, nullptr, nullptr, pending});
}

template <class T> constexpr Element element_of();
template <> constexpr Element element_of<__half>() { return F16; }
template <> constexpr Element element_of<__nv_bfloat16>() { return BF16; }
template <> constexpr Element element_of<__nv_fp8_e4m3>() { return E4M3; }
template <> constexpr Element element_of<__nv_fp8_e5m2>() { return E5M2; }
template <> constexpr Element element_of<int8_t>() { return S8; }
template <> constexpr Element element_of<uint8_t>() { return U8; }

void tell_unfinished(const void* sum, uint32_t bits);
// A register of an accumulator of integers. A product in flight leaves the bits of a poison there, which are those of a
// sum, too: so who reads them has it looked up whether this register is one that a product still makes.
class ExactSum {
 public:
  ExactSum() = default;
  ExactSum(int32_t value) : value_(value) {}
  ExactSum(const ExactSum& other) : value_(other) {}
  ExactSum& operator=(const ExactSum& other) { return value_ = other, *this; }
  operator int32_t() const {
    if (__builtin_expect(is_poison(uint32_t(value_)), 0)) tell_unfinished(this, uint32_t(value_));
    return value_;
  }

 private:
  int32_t value_;
};
static_assert(sizeof(ExactSum) == 4, "the registers of an accumulator have 32 bits");

extern unsigned char* shared_base;
// Shared memory is at address 0 of its window here, so descriptors hold offsets.
inline uint32_t shared_address(const void* p) {
  return uint32_t(static_cast<const unsigned char*>(p) - shared_base);
}

}  // namespace emu
