// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -t 'cuda-c{checked=false}' %s | filecheck %s --check-prefix=C
// RUN: xdsl-opt --print-op-generic %s | xdsl-opt | filecheck %s

!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!B = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[n, k], level = device>>
!A_map = !cuda.tensor_map<[32, 64], !A>
!B_map = !cuda.tensor_map<[32, 64], !B>
!As = memref<64x128xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 64>>>
!Bs = memref<32x128xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 128], span = 64>>>

// The blocks of a cluster bring one tile of A together, each half of it to both; B is each block's own.

// CHECK-LABEL: cuda.kernel @clusters (%A_map: !cuda.tensor_map<[32, 64], {{.*}}>, %B_map: {{.*}}, %k: index) threads 256 shared 49216 cluster 2 attributes {note = 8 : i32} {
cuda.kernel @clusters (%A_map: !A_map, %B_map: !B_map, %k: index) threads 256 shared 49216 cluster 2 attributes {note = 8 : i32} {
  %A_shared = cuda.shared at 0 stages 2 : !As
  %B_shared = cuda.shared at 32768 stages 2 : !Bs
  // CHECK: %A_ring = cuda.ring at 49152 consumers 1 by warps blocks 2 : !cuda.ring<2>
  %A_ring = cuda.ring at 49152 consumers 1 by warps blocks 2 : !cuda.ring<2>
  %B_ring = cuda.ring at 49184 consumers 1 : !cuda.ring<2>
  // CHECK: %number = cuda.block_in_cluster {note = 9 : i32}
  %number = cuda.block_in_cluster {note = 9 : i32}
  cuda.ready %A_ring, %B_ring : !cuda.ring<2>, !cuda.ring<2>
  %zero = arith.constant 0 : index
  cuda.roles registers 0, 0 producer {
    %A_to = cuda.stage %A_shared[%zero] : !As
    %B_to = cuda.stage %B_shared[%zero] : !Bs
    cuda.acquire %A_ring[%zero] : !cuda.ring<2>
    cuda.expect %A_ring[%zero] bytes 16384 : !cuda.ring<2>
    // CHECK: cuda.tensor_load %A_map[%zero, %k] into %A_to signals %A_ring[%zero] multicast {note = 10 : i32} : !cuda.tensor_map<[32, 64], {{.*}}>, memref<64x128xf16, {{.*}}>, !cuda.ring<2>
    // CHECK-NEXT: cuda.tensor_load %B_map[%number, %k] into %B_to signals %B_ring[%zero] : !cuda.tensor_map<[32, 64],
    cuda.tensor_load %A_map[%zero, %k] into %A_to signals %A_ring[%zero] multicast {note = 10 : i32} : !A_map, !As, !cuda.ring<2>
    cuda.tensor_load %B_map[%number, %k] into %B_to signals %B_ring[%zero] : !B_map, !Bs, !cuda.ring<2>
  } consumers 1 {
    cuda.await %A_ring[%zero] : !cuda.ring<2>
    cuda.release %A_ring[%zero] : !cuda.ring<2>
  }
  // CHECK: cuda.cluster_arrive {note = 11 : i32}
  // CHECK-NEXT: cuda.cluster_wait
  cuda.cluster_arrive {note = 11 : i32}
  cuda.cluster_wait
}

// In a cluster of four two blocks and two bring A together, those that are 2 apart; the pieces are counted by clusters.

// C-LABEL: void squares_body(
// C: const int64_t cluster = int64_t(blockIdx.x / 4);
// C: mbarrier_init(&A_ring[stage], 1);
// C-NEXT: mbarrier_init(&A_ring[2 + stage], 2);
// C: mbarrier_arrive_expect(&A_ring[0], 16384);
// C-NEXT: UNROLL for (int box = 0; box < 2; ++box)
// C-NEXT: tensor_load_multicast(A_to + block_in_cluster() / 2 * 2048 + box * 4096, A_map, &A_ring[0], {int(k) + box * 64, int(cluster + block_in_cluster() / 2 * 32)}, 5 << (block_in_cluster() % 2));
// C: if (thread % 128 < 2) mbarrier_arrive_at(&A_ring[2], block_in_cluster() % 2 + (thread % 128) * 2);
// C: extern "C" __global__ void __cluster_dims__(4, 1, 1)

// CHECK-LABEL: cuda.kernel @squares
// CHECK-SAME: threads 256 shared 32800 cluster 4 {
cuda.kernel @squares (%A_map: !A_map, %k: index) threads 256 shared 32800 cluster 4 {
  %A_shared = cuda.shared at 0 stages 2 : !As
  // CHECK: %A_ring = cuda.ring at 32768 consumers 1 blocks 2 step 2 : !cuda.ring<2>
  %A_ring = cuda.ring at 32768 consumers 1 blocks 2 step 2 : !cuda.ring<2>
  // CHECK-NEXT: %cluster = cuda.cluster_index {note = 12 : i32}
  %cluster = cuda.cluster_index {note = 12 : i32}
  cuda.ready %A_ring : !cuda.ring<2>
  %zero = arith.constant 0 : index
  cuda.roles registers 0, 0 producer {
    %A_to = cuda.stage %A_shared[%zero] : !As
    cuda.acquire %A_ring[%zero] : !cuda.ring<2>
    cuda.expect %A_ring[%zero] bytes 16384 : !cuda.ring<2>
    // CHECK: cuda.tensor_load %A_map[%cluster, %k] into %A_to signals %A_ring[%zero] multicast : !cuda.tensor_map<[32, 64],
    cuda.tensor_load %A_map[%cluster, %k] into %A_to signals %A_ring[%zero] multicast : !A_map, !As, !cuda.ring<2>
  } consumers 1 {
    cuda.await %A_ring[%zero] : !cuda.ring<2>
    cuda.release %A_ring[%zero] : !cuda.ring<2>
  }
  cuda.cluster_arrive
  cuda.cluster_wait
}

// A block reads what another one of its cluster has written to a tile, once all have come.

!X = memref<?x32xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
!Xs = memref<64x32xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [64, 32], pitch = 40>>>
!x = tensor<64x32xf16, #diagram.array<[q, d], level = register, layout = #cuda.layout<register = [q:2:32, d:8:1], lane = [q:8:1, d:4:8], warp = [q:4:8]>>>

// C-LABEL: void swapped_body(
// C: barrier_cluster_arrive();
// C-NEXT: barrier_cluster_wait();
// C: load_cluster(vec<8>(&X_shared[{{.*}}]), int({{.*}})));

// CHECK-LABEL: cuda.kernel @swapped
cuda.kernel @swapped (%X: !X, %Y: !X) threads 128 shared 5120 cluster 2 {
  %X_shared = cuda.shared at 0 : !Xs
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rows = arith.constant 64 : index
  %block = cuda.block_index
  %first = arith.muli %block, %rows : index
  %number = cuda.block_in_cluster
  %other = arith.subi %one, %number : index
  %mine = cuda.load %X[%first, %zero] widths [8] : !X -> !x
  cuda.write %mine into %X_shared : !x, !Xs
  cuda.cluster_arrive
  cuda.cluster_wait
  // CHECK: %theirs = cuda.read_cluster %X_shared of %other {note = 13 : i32} : memref<64x32xf16, {{.*}}> -> tensor<64x32xf16, #diagram.array<[q, d], level = register,
  %theirs = cuda.read_cluster %X_shared of %other {note = 13 : i32} : !Xs -> !x
  cuda.store %theirs into %Y[%first, %zero] widths [8] : !x, !X
  cuda.cluster_arrive
  cuda.cluster_wait
}
