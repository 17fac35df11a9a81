// What a machine sustains, each thing alone: copies, reads from L2, tensor-core products of single warps and of
// warpgroups, exp2; and what a launch adds. Stands behind the primitives that products of warpgroups take.
#include <cuda_fp16.h>
#include <stdint.h>

// Four pieces of a thread are on their way at a time: with one, 2.72 TB/s of an H100's 2.99 were reached.
extern "C" __global__ void copy(const uint4* from, uint4* to, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 found[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) found[j] = from[i + j * stride];
#pragma unroll
    for (int j = 0; j < 4; ++j) to[i + j * stride] = found[j];
  }
  for (; i < count; i += stride) to[i] = from[i];
}

// Every block reads the whole array (a power of two) in every turn, past its own L1: after the first turn it comes from
// L2. Each begins elsewhere: of what processors read alike and at a time L2 would be asked once.
extern "C" __global__ void read_l2(const uint4* from, uint4* to, int64_t count, int64_t turns) {
  uint4 all = {};
  const int64_t first = count / gridDim.x * blockIdx.x / 8 * 8;
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (int64_t i = threadIdx.x; i < count; i += 4 * int64_t(blockDim.x)) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint4 found;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                     : "l"(from + ((first + i + j * int64_t(blockDim.x)) & (count - 1))));
        all.x ^= found.x ^ found.y ^ found.z ^ found.w;
      }
    }
  }
  if (all.x == 1) to[threadIdx.x] = all;
}

// Bits of numbers that have nothing to do with each other, of two f16 between 1 and 2, either sign.
__device__ inline uint32_t any_pair(uint32_t of) {
  of = (of ^ 61u ^ (of >> 16)) * 0x9e3779b1u;
  of = (of ^ (of >> 15)) * 0x85ebca6bu;
  return ((of ^ (of >> 13)) & 0x83ff83ffu) | 0x3c003c00u;
}

// One thread that is busy for so many clocks: the time of two lengths tells what a launch adds.
extern "C" __global__ void busy(float* out, int64_t clocks) {
  const int64_t start = clock64();
  while (clock64() - start < clocks) {
  }
  if (clocks < 0) out[0] = 0;
}

// Eight accumulators, so that no product waits for the one before it. Of zeros they would draw less power than of numbers,
// and so run at a higher clock.
extern "C" __global__ void product(float* out, int64_t turns) {
  float sums[8][4] = {};
  uint32_t lhs[4], rhs[2];
  for (int i = 0; i < 4; ++i) lhs[i] = any_pair(8 * threadIdx.x + i);
  for (int i = 0; i < 2; ++i) rhs[i] = any_pair(8 * threadIdx.x + 4 + i);
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
  __shared__ alignas(1024) uint32_t lhs[64 * 32], rhs[256 * 32];
  for (int i = threadIdx.x; i < 64 * 32; i += blockDim.x) lhs[i] = any_pair(i);
  for (int i = threadIdx.x; i < 256 * 32; i += blockDim.x) rhs[i] = any_pair(64 * 32 + i);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  float sums[32][2][2] = {};
  const uint64_t a = matrix_descriptor<128>(matrix_start(reinterpret_cast<const __half*>(lhs), 16), 1024);
  const uint64_t b = matrix_descriptor<128>(matrix_start(reinterpret_cast<const __half*>(rhs), 16), 1024);
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
