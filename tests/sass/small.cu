// What the listings in this folder were made from: nvcc -std=c++17 -O3 -cubin -arch=sm_80 (and sm_90a), nvcc 13.0.88,
// then cuobjdump -sass without the encodings; and nvdisasm -c for small_labels.sass.
//
// A loop that multiplies, with a choice of two inner loops of 2 and 16 rounds, as a printed kernel has.
#include <cstdint>

extern "C" __global__ void multiply(const uint4* a, const uint16_t* b, float* out, int turns, int width) {
  __shared__ uint4 tile[512];
  float d[4] = {};
  for (int turn = 0; turn < turns; ++turn) {
    __syncthreads();
    if (width >= 8) {
#pragma unroll 1
      for (int round = 0; round < 2; ++round) tile[round * 32 + threadIdx.x] = a[turn * 64 + round * 32 + threadIdx.x];
    } else {
#pragma unroll 1
      for (int round = 0; round < 16; ++round)
        reinterpret_cast<uint16_t*>(tile)[round * 32 + threadIdx.x] = b[turn * 512 + round * 32 + threadIdx.x];
    }
    __syncthreads();
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(&tile[threadIdx.x]));
    uint32_t x[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at));
    for (int k = 0; k < 2; ++k)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                   "{%0, %1, %2, %3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[k]), "r"(x[k + 2]));
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = exp2f(d[i]);
}

// No loop that multiplies, and an array that finds no registers.
extern "C" __global__ void gather(const int* at, float* out) {
  float own[64];
#pragma unroll 1
  for (int i = 0; i < 64; ++i) own[at[i]] = out[i];
  out[threadIdx.x] = own[at[threadIdx.x]];
}
