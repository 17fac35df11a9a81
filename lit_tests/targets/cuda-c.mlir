// RUN: xdsl-opt -p 'coalescing' -t 'cuda-c{checked=false}' %s | filecheck %s
// RUN: not xdsl-opt -t 'cuda-c{checked=false}' %s 2>&1 | filecheck %s --check-prefix=NARROW
// RUN: not xdsl-opt -p coalescing -t cuda-c %s 2>&1 | filecheck %s --check-prefix=CHECKED
// RUN: not xdsl-opt -t cuda-c %S/../passes/tiling.mlir 2>&1 | filecheck %s --check-prefix=NONE

// CHECKED: 'cuda.kernel' @integers_kernel: 'cuda.warpgroup_product' reads %A, which does not hold what was written there
// NARROW: an access to device memory without widths: run coalescing before printing
// NONE: the module has no cuda.kernel: run convert-hierarchy-to-cuda before printing

// Names from axes and values, comments from rewrites, and one body for all alignments: rows that begin anywhere go
// through shared memory.

#layout = #cuda.layout<register = [n:4:1], lane = [n:32:4], warp = [n:2:128]>
!X = memref<?x?xf32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!x = tensor<1x256xf32, #diagram.array<[m, n], level = register, layout = #layout>>

// CHECK: // CUDA C printed by treadle, for nvcc -std=c++17 -fmad=false: where a product and a sum are one operation, it
// CHECK-NEXT: // says fmaf. How it was derived:
// CHECK-NEXT: //   fusion %Y into @scale: recolour; convex
// CHECK: template <int ALIGNED>
// CHECK-NEXT: __device__ __forceinline__ void scale_kernel_body(
// CHECK-NEXT: const float* __restrict__ X, int64_t X_m, int64_t X_n,
// CHECK-NEXT: float* __restrict__ Y, int64_t Y_m, int64_t Y_n,
// CHECK-NEXT: float factor,
// CHECK-NEXT: int64_t m,
// CHECK-NEXT: int64_t n) {
// CHECK-NEXT: const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = thread / 32;
// CHECK: const int64_t m0 = int64_t(blockIdx.x);
// CHECK-NEXT: // streaming: n in pieces of 256
// CHECK-NEXT: for (int64_t n0 = 0; n0 < n; n0 += 256) {
// CHECK-NEXT: float x[4];
// CHECK-NEXT: if constexpr (ALIGNED < 32) {
// CHECK-NEXT: barrier_block();
// CHECK: float* const X_staged = {{.*}}shared_memory() + 0);
// CHECK: copy_async_if(vec<width>(&X_staged[
// CHECK: copy_async_wait<0>();
// CHECK-NEXT: barrier_block();
// CHECK: constexpr int width = width_of<float, 4>(ALIGNED);
// CHECK-NEXT: if constexpr (ALIGNED >= 32) {
// CHECK-NEXT: UNROLL for (int n1 = 0; n1 < 4; n1 += width)
// CHECK-NEXT: unpack(&x[n1], load_global_if({{.*}}X[{{.*}}m0 * X_m{{.*}}n0{{.*}} < n));
// CHECK-NEXT: } else {
// CHECK-NEXT: float* const X_staged = {{.*}}shared_memory() + 0);
// CHECK-NEXT: unpack(x, load_shared(vec<4>(&X_staged[
// CHECK: UNROLL for (int n1 = 0; n1 < 4; ++n1)
// CHECK-NEXT: x[n1] = x[n1] * factor;
// CHECK-NEXT: if constexpr (ALIGNED < 32) {
// CHECK-NEXT: barrier_block();
// CHECK: store_shared(vec<4>(&Y_staged[{{.*}}pack<4>(x));
// CHECK: barrier_block();
// CHECK: store_global_if({{.*}}load_shared_if(vec<width>(&Y_staged[
// CHECK: if constexpr (ALIGNED >= 32) {
// CHECK: store_global_if({{.*}}Y[{{.*}}pack<width>(&x[n1])
// CHECK: extern "C" __global__ void __launch_bounds__(64) scale_kernel(
// CHECK: scale_kernel_body<32>(X, X_m, 1, Y, Y_m, 1, factor, m, n);
// CHECK: extern "C" __global__ void __launch_bounds__(64, 1) scale_kernel_aligned_16(
// CHECK: scale_kernel_body<16>(X, X_m, 1, Y, Y_m, 1, factor, m, n);
// CHECK: extern "C" __global__ void __launch_bounds__(64, 1) scale_kernel_strided(
// CHECK: scale_kernel_body<0>(X, X_m, X_n, Y, Y_m, Y_n, factor, m, n);
cuda.kernel @scale_kernel (%X: !X, %Y: !X, %factor: f32, %m: index, %n: index) threads 64 shared 0 {
  %m0 = cuda.block_index
  %zero = arith.constant 0 : index
  %piece = arith.constant 256 : index
  scf.for %n0 = %zero to %n step %piece {
    %x = cuda.load %X[%m0, %n0] bounds [n < %n] : !X -> !x
    %y = diagram.map (%a = %x : !x, %c = %factor : f32) -> !x {
      %b = arith.mulf %a, %c : f32
      diagram.yield %b : f32
    }
    cuda.store %y into %Y[%m0, %n0] bounds [n < %n] : !x, !X
  } {comment = "streaming: n in pieces of 256"}
}

func.func @scale(%X: !X, %Y: !X, %factor: f32, %m: index, %n: index)
    attributes {derivation = [#hierarchy.step<"fusion", "%Y into @scale", "recolour", "convex">]} {
  %aligned = cuda.alignment %X, %Y : !X, !X
  cuda.launch @scale_kernel grid %m aligned %aligned (%X, %Y, %factor, %m, %n) : !X, !X, f32, index, index
  func.return
}
!list = memref<96xi32, #diagram.array<[k], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
!table = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[k], level = device>>
!value = tensor<1xi32, #diagram.array<[k], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [2]>>>

// A list of pieces: a loop in which each thread asks of one; a place of the counts of warps for every other turn.
// CHECK: void listed_kernel_body(
// CHECK: int count = 0;
// CHECK-NEXT: for (int64_t k0_of_block = 0, counts = 0; k0_of_block < k; k0_of_block += 4096, counts ^= 32) {
// CHECK-NEXT: const int64_t k0 = k0_of_block + int64_t(threadIdx.x) * 64;
// CHECK: unpack(&t, load_global_if(vec<width>(&T[k0 * T_k]), k0 < k));
// CHECK: count = append_kept<2>(list + 64, list + counts, {{.*}} && k0 < k, int(k0), count);
// CHECK: barrier_block();
// CHECK-NEXT: const int64_t some = count_before(list + 64, count, k);
// CHECK-NEXT: const int64_t first = int64_t(load_shared(list + 64 + 0));
// CHECK-NEXT: const int64_t last = int64_t(some < count ? load_shared(list + 64 + some) : int(k) + int(some - count) * 64);
cuda.kernel @listed_kernel (%T: !table, %k: index) threads 64 shared 384 {
  %list = cuda.shared at 0 : !list
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = cuda.select %list from %zero to %k step 64 (%k0: index) {
    %t = cuda.load %T[%k0] bounds [k < %k] : !table -> !value
    %found = tensor.extract %t[%zero] : !value
    %there = arith.index_cast %found : i32 to index
    %kept = arith.cmpi sgt, %there, %zero : index
    cuda.keep %kept
  } : !list
  cuda.barrier
  %some = cuda.selected_before %list[%k] of %count : !list
  %first = cuda.selected %list[%zero] step 64 : !list
  %last = cuda.selected %list[%some] step 64 of %count then %k : !list
}

func.func @host_of_listed(%T: !table, %k: index) {
  %aligned = cuda.alignment %T : !table
  cuda.launch @listed_kernel grid %k aligned %aligned (%T, %k) : !table, index
  func.return
}

// Sums of integers that warpgroups make are registers of their own type, read as numbers.

!Ai = memref<64x64xi8, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!Bi = memref<48x64xui8, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [48, 64], span = 64>>>
!Ci = tensor<64x48xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:6:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
!Cf = tensor<64x48xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:6:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// CHECK: void integers_kernel_body(
// CHECK: ExactSum C_started[6][2][2];
// CHECK: wgmma_fence();
// CHECK-NEXT: UNROLL for (int k32 = 0; k32 < 2; ++k32) {
// CHECK-NEXT: wgmma_m64n48k32_s32<int8_t, uint8_t>(C_started, further(a, k32 * 32), further(b, k32 * 32), k32 > 0);
// CHECK: wgmma_wait<0>();
// CHECK-NEXT: keep(C_started);
// CHECK: float F[6][2][2];
// CHECK: F[n8][m8_2][n1] = float(int32_t(C_started[n8][m8_2][n1]));
cuda.kernel @integers_kernel (%n: index) threads 256 shared 7168 {
  %A = cuda.shared at 0 : !Ai
  %B = cuda.shared at 4096 : !Bi
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %C_started = cuda.warpgroup_product %A, %B over [k] : !Ai, !Bi -> !Ci
    %C = cuda.warpgroup_wait %C_started pending 0 : !Ci
    %F = diagram.map (%c = %C : !Ci) -> !Cf {
      %f = arith.sitofp %c : i32 to f32
      diagram.yield %f : f32
    }
  }
}

func.func @host_of_integers(%X: !X, %n: index) {
  %aligned = cuda.alignment %X : !X
  cuda.launch @integers_kernel grid %n aligned %aligned (%n) : index
  func.return
}

// Zeros that are multiplied by a number of each row are one number for nvcc: as many registers before the products.
// What products leave is not.

!Ah = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!Bh = memref<48x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [48, 64], span = 64>>>
!at_m = tensor<64xi32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = [m:4:16]>>>
!by_m = tensor<64xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = [m:4:16]>>>

// CHECK: void repaired_kernel_body(
// CHECK: float zeros[6][2][2] = {};
// CHECK: zeros[n8][m8_2][n1] = zeros[n8][m8_2][n1] * factor[m8_2];
// CHECK-NEXT: keep(zeros);
// CHECK: wgmma_m64n48k16<__half, 0, 0>(zeros,
// CHECK: wgmma_wait<0>();
// CHECK-NEXT: keep(zeros);
// CHECK: zeros[n8][m8_2][n1] = zeros[n8][m8_2][n1] * factor[m8_2];
// CHECK-NOT: keep(zeros);
// CHECK: wgmma_m64n48k16<__half, 0, 0>(zeros,
cuda.kernel @repaired_kernel (%n: index) threads 256 shared 14336 {
  %A = cuda.shared at 0 : !Ah
  %B = cuda.shared at 8192 : !Bh
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %zeros = diagram.fill 0.0 : f32 -> !Cf
    %at = cuda.index %n -> !at_m
    %factor = diagram.map (%position = %at : !at_m) -> !by_m {
      %number = arith.sitofp %position : i32 to f32
      diagram.yield %number : f32
    }
    %begin = diagram.map (%sum = %zeros : !Cf, %of_row = %factor : !by_m) -> !Cf {
      %product = arith.mulf %sum, %of_row : f32
      diagram.yield %product : f32
    }
    %C_started = cuda.warpgroup_product %A, %B into %begin over [k] : !Ah, !Bh -> !Cf
    %C = cuda.warpgroup_wait %C_started pending 0 : !Cf
    %again = diagram.map (%sum = %C : !Cf, %of_row = %factor : !by_m) -> !Cf {
      %product = arith.mulf %sum, %of_row : f32
      diagram.yield %product : f32
    }
    %D_started = cuda.warpgroup_product %A, %B into %again over [k] : !Ah, !Bh -> !Cf
    %D = cuda.warpgroup_wait %D_started pending 0 : !Cf
  }
}

func.func @host_of_repaired(%X: !X, %n: index) {
  %aligned = cuda.alignment %X : !X
  cuda.launch @repaired_kernel grid %n aligned %aligned (%n) : index
  func.return
}
