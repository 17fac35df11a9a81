// What a machine sustains: copies, tensor-core products and exp2, each alone.
#include <cuda_fp16.h>
#include <stdint.h>

extern "C" __global__ void copy(const uint4* from, uint4* to, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

// Eight accumulators, so that no product waits for the one before it.
extern "C" __global__ void product(float* out, int64_t turns) {
  float sums[8][4] = {};
  uint32_t lhs[4] = {threadIdx.x, 1, 2, 3}, rhs[2] = {4, 5};
  for (int64_t turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
          : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "r"(rhs[0]), "r"(rhs[1]));
    }
  }
  float all = 0;
  for (int i = 0; i < 8; ++i) all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (all == 1.5f) out[threadIdx.x] = all;
}

extern "C" __global__ void exp2_rate(float* out, int64_t turns) {
  float values[8];
  for (int i = 0; i < 8; ++i) values[i] = float(threadIdx.x + i) * -0.01f;
  for (int64_t turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int i = 0; i < 8; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(values[i]));
  }
  float all = 0;
  for (int i = 0; i < 8; ++i) all += values[i];
  if (all == -1.5f) out[threadIdx.x] = all;
}
