// What a printed kernel's primitives call on the host, and the language it is written in.
// The bodies are in emulator.cpp and asynchronous.cpp, which are compiled once; this header stays light, because every
// kernel compiles it anew.
#pragma once

#include <stddef.h>

#include "cuda_language.h"
#include "cuda_numbers.h"

#ifndef TREADLE_CHECKS
#define TREADLE_CHECKS 1
#endif

namespace emu {

enum Operation : int {
  LOAD_GLOBAL,
  STORE_GLOBAL,
  LOAD_SHARED,
  STORE_SHARED,
  COPY_ASYNC,         // its reads of global memory
  COPY_ASYNC_SHARED,  // its writes to shared memory
  LOAD_MATRIX,
  MMA,
  SHUFFLE_XOR,
  SHUFFLE,
  BARRIER_WARP,
  BARRIER_BLOCK,
  BARRIER_NAMED,
  BARRIER_CLUSTER,
  MBARRIER_WAIT,
  TENSOR_LOAD,
  TENSOR_STORE,
  WGMMA,
  WGMMA_FENCE,
  WGMMA_COMMIT,
  WGMMA_WAIT,
  STORE_MATRIX,
  ELECT,
  REGISTERS,
  LOAD_CLUSTER,       // of the shared memory of another block
  TENSOR_MULTICAST,   // what a tensor_load brings to other blocks
  BARRIER_ARRIVE,     // at a named barrier
  VOTE,               // of a warp
  UNIFORM,            // a number that all lanes of a warp have
  ADD_GLOBAL,         // added to what lies there
  OPERATIONS
};

enum Element : int { F16, BF16, TF32, E4M3, E5M2, S8, U8 };

inline float eight_bit(uint8_t bits, int element) {
  if (element == S8 || element == U8) return element == S8 ? float(int8_t(bits)) : float(bits);
  return element == E4M3 ? eight_bit_to_float(bits, 3, 7, false) : eight_bit_to_float(bits, 2, 15, true);
}

// Where a kernel calls the primitive that calls the function here. An optimising compiler may make two places of one
// call, or one of two, so only what is compiled as it is written knows.
#if !defined(__OPTIMIZE__) && (defined(__x86_64__) || defined(__aarch64__))
#define TREADLE_SITE __builtin_return_address(1)
#else
#define TREADLE_SITE nullptr
#endif

// One lane's part of a collective. It lies on the lane's stack while the lane waits.
struct Request {
  Operation operation;
  int line;
  void* out;
  const void* a;
  const void* b;
  int option;  // the shuffle's mask or lane, the number of matrices (negative: transposed), the element type
  const void* site = TREADLE_SITE;  // tells apart the calls of a line
};

// Waits for the other threads that take part; `out` is filled when it returns.
void meet(const Request& request);

extern unsigned char* shared_base;
extern unsigned char zeros[64], sink[64];  // where refused accesses go
inline unsigned char* shared_memory() { return shared_base; }

// Each says where the access goes: to p if it is sound, else to bytes that harm nobody.
const void* checked_global_read(const void* p, unsigned bytes, bool valid, int line);
void* checked_global_write(void* p, unsigned bytes, bool valid, int line);
void* checked_global_add(void* p, unsigned bytes, bool valid, int line);
const void* checked_shared_read(const void* p, unsigned bytes, bool valid, int line);
void* checked_shared_write(void* p, unsigned bytes, bool valid, int line);

#if TREADLE_CHECKS
inline const void* global_read(const void* p, unsigned bytes, bool valid, int line) {
  return checked_global_read(p, bytes, valid, line);
}
inline void* global_write(void* p, unsigned bytes, bool valid, int line) {
  return checked_global_write(p, bytes, valid, line);
}
inline void* global_add(void* p, unsigned bytes, bool valid, int line) {
  return checked_global_add(p, bytes, valid, line);
}
inline const void* shared_read(const void* p, unsigned bytes, bool valid, int line) {
  return checked_shared_read(p, bytes, valid, line);
}
inline void* shared_write(void* p, unsigned bytes, bool valid, int line) {
  return checked_shared_write(p, bytes, valid, line);
}
#else
inline const void* global_read(const void* p, unsigned, bool valid, int) {
  return valid ? p : zeros;
}
inline void* global_write(void* p, unsigned, bool valid, int) { return valid ? p : sink; }
inline void* global_add(void* p, unsigned, bool valid, int) { return valid ? p : sink; }
inline const void* shared_read(const void* p, unsigned, bool valid, int) {
  return valid ? p : zeros;
}
inline void* shared_write(void* p, unsigned, bool valid, int) { return valid ? p : sink; }
#endif

// Whether what leaves a thread's registers was made of an accumulator in flight.
template <class T>
inline void look_at(const T&, int) {}
void look_at_floats(const float* values, int count, int line);
inline void look_at(const float& value, int line) { look_at_floats(&value, 1, line); }
template <template <class, int> class Vector, int N>
inline void look_at(const Vector<float, N>& values, int line) { look_at_floats(values.at, N, line); }

template <class T>
inline T load_global_if(const T* p, bool valid, int line) {
  T value;
  memcpy(&value, global_read(p, sizeof(T), valid, line), sizeof(T));
  return value;
}
template <class T>
inline T load_global(const T* p, int line) {
  return emu::load_global_if(p, true, line);
}
template <class T>
inline void store_global_if(T* p, const T& value, bool valid, int line) {
  if (TREADLE_CHECKS && valid) look_at(value, line);
  memcpy(global_write(p, sizeof(T), valid, line), &value, sizeof(T));
}
template <class T>
inline void store_global(T* p, const T& value, int line) {
  emu::store_global_if(p, value, true, line);
}
// Additions to global memory take what is below the smallest normal number for zero.
inline float flushed(float value) { return fabsf(value) < 1.17549435e-38f ? copysignf(0.0f, value) : value; }
inline float sum_of(float a, float b) { return flushed(flushed(a) + flushed(b)); }
inline int sum_of(int a, int b) { return int(unsigned(a) + unsigned(b)); }
template <template <class, int> class Vector, class T, int N>
inline void add_global_if(Vector<T, N>* p, const Vector<T, N>& value, bool valid, int line) {
  if (TREADLE_CHECKS && valid) look_at(value, line);
  void* at = global_add(p, sizeof(Vector<T, N>), valid, line);
  Vector<T, N> sums;
  memcpy(&sums, at, sizeof(sums));
  for (int i = 0; i < N; ++i) sums.at[i] = sum_of(sums.at[i], value.at[i]);
  memcpy(at, &sums, sizeof(sums));
}
template <class T>
inline T load_shared_if(const T* p, bool valid, int line) {
  T value;
  memcpy(&value, shared_read(p, sizeof(T), valid, line), sizeof(T));
  return value;
}
template <class T>
inline T load_shared(const T* p, int line) {
  return emu::load_shared_if(p, true, line);
}
template <class T>
inline void store_shared_if(T* p, const T& value, bool valid, int line) {
  if (TREADLE_CHECKS && valid) look_at(value, line);
  memcpy(shared_write(p, sizeof(T), valid, line), &value, sizeof(T));
}
template <class T>
inline void store_shared(T* p, const T& value, int line) {
  emu::store_shared_if(p, value, true, line);
}

inline void barrier_block(int line) { meet({BARRIER_BLOCK, line, nullptr, nullptr, nullptr, 0}); }
inline void barrier_warp(int line) { meet({BARRIER_WARP, line, nullptr, nullptr, nullptr, 0}); }

template <class T>
inline T shuffle_xor(T value, int mask, int line) {
  if (TREADLE_CHECKS) look_at(value, line);
  T result;
  meet({SHUFFLE_XOR, line, &result, &value, nullptr, mask});
  return result;
}

template <class T>
inline T shuffle(T value, int source, int line) {
  if (TREADLE_CHECKS) look_at(value, line);
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  meet({SHUFFLE, line, &bits, &bits, nullptr, source});
  memcpy(&value, &bits, sizeof(T));
  return value;
}

inline bool any_lane(bool holds, int line) {
  uint32_t own = holds, any = 0;
  meet({VOTE, line, &any, &own, nullptr, 0});
  return any != 0;
}

inline int uniform(int number, int line) {
  meet({UNIFORM, line, nullptr, nullptr, nullptr, number});
  return number;
}

template <int COUNT, bool TRANSPOSED>
inline void load_matrix(void* registers, const void* row, int line) {
  meet({LOAD_MATRIX, line, registers, row, nullptr, TRANSPOSED ? -COUNT : COUNT});
}

inline void mma_m16n8k16(void* d, const __half (&a)[2][2][2], const __half (&b)[2][2], int line) {
  meet({MMA, line, d, a, b, F16});
}
inline void mma_m16n8k16(void* d, const __nv_bfloat16 (&a)[2][2][2],
                         const __nv_bfloat16 (&b)[2][2], int line) {
  meet({MMA, line, d, a, b, BF16});
}
// Half of that depth, and nothing in the other half.
template <class T>
inline void mma_m16n8k8(void* d, const T (&a)[2][2], const T (&b)[2], int line) {
  T whole_a[2][2][2] = {}, whole_b[2][2] = {};
  memcpy(whole_a, a, sizeof(a)), memcpy(whole_b, b, sizeof(b));
  mma_m16n8k16(d, whole_a, whole_b, line);
}
template <class T> constexpr Element eight_bit_element();
template <> constexpr Element eight_bit_element<__nv_fp8_e4m3>() { return E4M3; }
template <> constexpr Element eight_bit_element<__nv_fp8_e5m2>() { return E5M2; }
template <> constexpr Element eight_bit_element<int8_t>() { return S8; }
template <> constexpr Element eight_bit_element<uint8_t>() { return U8; }
constexpr int RIGHT_ELEMENT = 16;  // the right operand's type may differ: it stands in the upper bits of the option

template <class A, class B>
inline void mma_m16n8k32(void* d, const A (&a)[2][2][4], const B (&b)[2][4], int line) {
  meet({MMA, line, d, a, b, eight_bit_element<A>() + RIGHT_ELEMENT * eight_bit_element<B>()});
}
template <class A, class B>
inline void mma_m16n8k32_s32(void* d, const A (&a)[2][2][4], const B (&b)[2][4], int line) {
  mma_m16n8k32(d, a, b, line);
}
inline void mma_m16n8k8_tf32(void* d, const float (&a)[2][2], const float (&b)[2], int line) {
  meet({MMA, line, d, a, b, TF32});
}

void start_copy(void* shared, const void* global, unsigned bytes, bool valid, int line);
template <int BYTES>
inline void copy_async(void* shared, const void* global, bool valid, int line) {
  start_copy(shared, global, BYTES, valid, line);
}
// A lane that has nothing to copy where the others of its warp do, asynchronously or not.
void take_no_part(unsigned bytes, bool asynchronous, int line);
void copy_async_commit();
void copy_async_wait(int pending);

// ex2.approx.ftz and its kin take and give zero for subnormals.
inline float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
inline float exp2_approx(float x) { return flush(exp2f(flush(x))); }
inline float log2_approx(float x) { return log2f(flush(x)); }
inline float rcp_approx(float x) { return flush(1.0f / flush(x)); }

// Calls a kernel with arguments whose values lie at the given addresses.
template <class T>
inline T argument(void* at) {
  T value;
  memcpy(&value, at, sizeof(value));
  return value;
}
template <int... I>
struct Indices {};
template <int N, int... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <int... I>
struct Count<0, I...> {
  using type = Indices<I...>;
};
template <class... A, int... I>
inline void call(void (*kernel)(A...), void** arguments, Indices<I...>) {
  kernel(argument<A>(arguments[I])...);
}
template <class... A>
inline void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, typename Count<sizeof...(A)>::type());
}

// The size of each parameter, so that the driver can refuse arguments that do not fit.
template <class... A>
inline int parameter_sizes(void (*)(A...), int* sizes) {
  const int all[] = {int(sizeof(A))..., 0};
  for (int i = 0; i < int(sizeof...(A)); ++i) sizes[i] = all[i];
  return sizeof...(A);
}

}  // namespace emu

inline void __syncthreads(int line = __builtin_LINE()) { emu::barrier_block(line); }
inline void __syncwarp(unsigned = 0xffffffffu, int line = __builtin_LINE()) {
  emu::barrier_warp(line);
}

#include "emulator_hopper.h"

#define TREADLE_EXPORT extern "C" __attribute__((visibility("default")))
// `resident`: blocks that share a multiprocessor, by the launch bounds.
#define TREADLE_KERNEL(name, resident)                                                   \
  TREADLE_EXPORT void treadle_call_##name(void** arguments) {                            \
    emu::call(name, arguments);                                                          \
  }                                                                                      \
  TREADLE_EXPORT int treadle_parameters_##name(int* sizes, int room) {                   \
    int all[256];                                                                        \
    const int count = emu::parameter_sizes(name, all);                                   \
    for (int i = 0; i < count && i < room; ++i) sizes[i] = all[i];                       \
    return count;                                                                        \
  }                                                                                      \
  TREADLE_EXPORT int treadle_resident_##name() {                                         \
    return resident;                                                                     \
  }
