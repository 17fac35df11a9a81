// What a machine sustains, each thing alone: copies, reads from L2, tensor-core products of single warps and of
// warpgroups, exp2; and what a launch adds. Stands behind the primitives that products of warpgroups take.
#include <cuda_fp16.h>
#include <stdint.h>

extern "C" __global__ void copy(const uint4* from, uint4* to, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

// Every block reads the whole array in every turn, past its own L1: after the first turn it comes from L2.
extern "C" __global__ void read_l2(const uint4* from, uint4* to, int64_t count, int64_t turns) {
  uint4 all = {};
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (int64_t i = threadIdx.x; i < count; i += 4 * int64_t(blockDim.x)) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint4 found;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                     : "l"(from + i + j * int64_t(blockDim.x)));
        all.x ^= found.x ^ found.y ^ found.z ^ found.w;
      }
    }
  }
  if (all.x == 1) to[threadIdx.x] = all;
}

// One thread that is busy for so many clocks: the time of two lengths tells what a launch adds.
extern "C" __global__ void busy(float* out, int64_t clocks) {
  const int64_t start = clock64();
  while (clock64() - start < clocks) {
  }
  if (clocks < 0) out[0] = 0;
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

// Products of one warpgroup, of 64 x 256, both operands in shared memory: so many turns of four along the depth.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(128) product_of_warpgroups(float* out, int64_t turns) {
  __shared__ alignas(1024) __half lhs[64 * 64], rhs[256 * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) lhs[i] = __half(0);
  for (int i = threadIdx.x; i < 256 * 64; i += blockDim.x) rhs[i] = __half(0);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  float sums[32][2][2] = {};
  const uint64_t a = matrix_descriptor<128>(matrix_start(lhs, 16), 1024);
  const uint64_t b = matrix_descriptor<128>(matrix_start(rhs, 16), 1024);
  for (int64_t turn = 0; turn < turns; ++turn) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_m64n256k16<__half, 0, 0>(sums, further(a, 32 * k), further(b, 32 * k), true);
    wgmma_commit();
    wgmma_wait<0>();
  }
  float all = 0;
  for (int i = 0; i < 32; ++i) all += sums[i][0][0] + sums[i][0][1] + sums[i][1][0] + sums[i][1][1];
  if (all == 1.5f) out[threadIdx.x] = all;
}
#endif
