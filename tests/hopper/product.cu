// A matrix product written by hand with the primitives of sm_90a: C (m x n) = A (m x k) B, f32 sums rounded to T. One warp
// asks for tensor copies into a ring of stages; two warpgroups multiply 64 rows each, round, and store a tensor.
// The test defines T, COLUMNS (of a block), STAGES, WGMMA and, if B is stored k x n instead of n x k, B_MN as 1.
constexpr int ROWS = 128, DEPTH = 64, CHUNK = 64;  // a chunk of 64 elements is a row of the swizzle
constexpr int A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2;
constexpr int RING = STAGES * (A_BYTES + B_BYTES), OUT_BYTES = 64 * COLUMNS * 2;

extern "C" __global__ void __launch_bounds__(384, 1) product(const __grid_constant__ TensorMap A,
                                                             const __grid_constant__ TensorMap B,
                                                             const __grid_constant__ TensorMap C, int k) {
  unsigned char* const A_tile = shared_memory();
  unsigned char* const B_tile = A_tile + STAGES * A_BYTES;
  uint64_t* const full = reinterpret_cast<uint64_t*>(A_tile + RING);
  uint64_t* const empty = full + STAGES;
  const int thread = threadIdx.x, group = uniform(thread / 128), m0 = blockIdx.y * ROWS, n0 = blockIdx.x * COLUMNS;
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(&full[stage], 1);
      mbarrier_init(&empty[stage], 2);
    }
    mbarrier_init_fence();
  }
  barrier_block();
  if (group == 0) {
    registers_give<40>();
    if (thread == 0) {
      uint32_t parity = 1;
      for (int k0 = 0, stage = 0; k0 < k; k0 += DEPTH) {
        mbarrier_wait(&empty[stage], parity);
        mbarrier_arrive_expect(&full[stage], A_BYTES + B_BYTES);
        tensor_load(A_tile + stage * A_BYTES, A, &full[stage], {k0, m0});
        if constexpr (B_MN) {
          for (int n = 0; n < COLUMNS; n += CHUNK)
            tensor_load(B_tile + stage * B_BYTES + n * DEPTH * 2, B, &full[stage], {n0 + n, k0});
        } else {
          tensor_load(B_tile + stage * B_BYTES, B, &full[stage], {k0, n0});
        }
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  } else {
    registers_take<232>();
    float sums[COLUMNS / 8][2][2] = {};
    const int rows = (group - 1) * 64;
    const uint64_t a = matrix_descriptor<128>(matrix_start(A_tile + rows * 128, 0), 1024);
    const uint64_t b = matrix_descriptor<128>(matrix_start(B_tile, B_MN ? CHUNK * 128 : 0), 1024);
    uint32_t parity = 0;
    int before = 0;
    for (int k0 = 0, stage = 0; k0 < k; k0 += DEPTH) {
      mbarrier_wait(&full[stage], parity);
      wgmma_fence();
      UNROLL for (int k16 = 0; k16 < DEPTH / 16; ++k16)
        WGMMA<T, 0, B_MN>(sums, further(a, stage * A_BYTES + k16 * 32),
                          further(b, stage * B_BYTES + k16 * (B_MN ? 16 * 128 : 32)), true);
      wgmma_commit();
      wgmma_wait<1>();
      if (k0 > 0 && thread % 128 == 0) mbarrier_arrive(&empty[before]);
      before = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    wgmma_wait<0>();
    keep(sums);
    // Every chunk of 64 columns, swizzled: matrices of 8 x 8 by the lanes of a warp, 16 rows each.
    T* const out = reinterpret_cast<T*>(A_tile + RING + 1024 + (group - 1) * OUT_BYTES);
    const int lane = thread % 32, row = thread % 128 / 32 * 16 + lane % 16;
    UNROLL for (int n16 = 0; n16 < COLUMNS / 16; ++n16) {
      T pairs[4][2];
      UNROLL for (int i = 0; i < 4; ++i)
        store_pair(pairs[i], sums[2 * n16 + i / 2][i % 2][0], sums[2 * n16 + i / 2][i % 2][1]);
      const int chunk = n16 % 4 * 2 + lane / 16;
      store_matrix_x4(out + n16 / 4 * 64 * CHUNK + row * CHUNK + (chunk ^ row % 8) * 8, pairs);
    }
    fence_proxy_async();
    if (group == 1) barrier_named<1>(128); else barrier_named<2>(128);
    if (thread % 128 == 0) {
      for (int n = 0; n < COLUMNS; n += CHUNK) tensor_store(C, out + n * 64, {n0 + n, m0 + rows});
      tensor_store_commit();
      tensor_store_wait<0>();
    }
  }
}
