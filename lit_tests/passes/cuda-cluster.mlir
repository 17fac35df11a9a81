// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-cluster{size=2}' --split-input-file %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-cluster{size=2 along="m"}' --split-input-file %s | filecheck %s --check-prefix=ROWS
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-cluster{size=2,2 along="m","n"}' --split-input-file --verify-diagnostics %s | filecheck %s --check-prefix=BOTH
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-cluster' --split-input-file %s | filecheck %s --check-prefix=MODEL
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-cluster{kernel=uneven size=2}' --split-input-file --verify-diagnostics %s | filecheck %s --check-prefix=ONE

!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!B = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[n, k], level = device>>
!A_map = !cuda.tensor_map<[64, 64], !A>
!B_map = !cuda.tensor_map<[64, 64], !B>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!Bs = memref<64x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>

// Blocks that differ in %column read A alike, and B each its own. How many columns there are is known at launch: there a
// kernel without clusters stands beside.

// CHECK-LABEL: cuda.kernel @product (%A_map: !cuda.tensor_map<[64, 64], {{[^%]*}}, %B_map: !cuda.tensor_map<[64, 64], {{[^%]*}}, %n: index) threads 256 shared 16416 {
// CHECK-NOT: multicast
// CHECK-LABEL: cuda.kernel @product_clusters (%A_map: !cuda.tensor_map<[32, 64], {{[^%]*}}, %B_map: !cuda.tensor_map<[64, 64], {{[^%]*}}, %n: index) threads 256 shared 16416 cluster 2 attributes {along = "n"} {
// CHECK: %A_ring = cuda.ring at 16384 consumers 1 blocks 2 : !cuda.ring<1>
// CHECK-NEXT: %B_ring = cuda.ring at 16400 consumers 1 : !cuda.ring<1>
// CHECK: cuda.expect %A_ring[%zero] bytes 8192 : !cuda.ring<1>
// CHECK-NEXT: cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] multicast : !cuda.tensor_map<[32, 64],
// CHECK: cuda.expect %B_ring[%zero] bytes 8192 : !cuda.ring<1>
// CHECK-NEXT: cuda.tensor_load %B_map[%n0, %zero] into %B_shared signals %B_ring[%zero] : !cuda.tensor_map<[64, 64],
// CHECK: } consumers 1 {
// CHECK: }
// CHECK-NEXT: cuda.cluster_arrive
// CHECK-NEXT: cuda.cluster_wait
// CHECK-NEXT: }

// CHECK-LABEL: func.func @host
// CHECK-SAME: #hierarchy.step<"cuda-cluster", "@product", "the blocks of a cluster bring together what they read alike", "clusters of 2 blocks along %column bring the stages of %A_ring together, where 2 divides the pieces along it; @product runs elsewhere">
// CHECK: %columns = arith.ceildivui %n, %piece : index
// CHECK-NEXT: %[[two:[0-9]+]] = arith.constant 2 : index
// CHECK-NEXT: %[[rest:[0-9]+]] = arith.remui %columns, %[[two]] : index
// CHECK-NEXT: %[[none:[0-9]+]] = arith.constant 0 : index
// CHECK-NEXT: %divides = arith.cmpi eq, %[[rest]], %[[none]] : index
// CHECK-NEXT: scf.if %divides {
// CHECK-NEXT: %A_map_1 = cuda.tensor_map %A : !cuda.tensor_map<[32, 64],
// CHECK-NEXT: cuda.launch @product_clusters grid %blocks aligned %blocks(%A_map_1, %B_map, %n) :
// CHECK-NEXT: } else {
// CHECK-NEXT: cuda.launch @product grid %blocks aligned %blocks(%A_map, %B_map, %n) :

// Blocks that differ in %row read B alike: the number of the cluster is split, and its blocks are two rows. The grid must
// consist of whole pairs of rows.

// ROWS-LABEL: cuda.kernel @product_clusters (%A_map: !cuda.tensor_map<[64, 64], {{[^%]*}}, %B_map: !cuda.tensor_map<[32, 64], {{[^%]*}}, %n: index) threads 256 shared 16416 cluster 2 attributes {along = "m"} {
// ROWS: %A_ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
// ROWS-NEXT: %B_ring = cuda.ring at 16400 consumers 1 blocks 2 : !cuda.ring<1>
// ROWS-NEXT: %place = cuda.block_in_cluster {comment = "clusters: 2 along m"}
// ROWS-NEXT: %cluster = cuda.cluster_index
// ROWS-NEXT: %piece = arith.constant 64 : index
// ROWS-NEXT: %columns = arith.ceildivui %n, %piece : index
// ROWS-NEXT: %column = arith.remui %cluster, %columns : index
// ROWS-NEXT: %row = arith.divui %cluster, %columns : index
// ROWS-NEXT: %[[two:[0-9]+]] = arith.constant 2 : index
// ROWS-NEXT: %[[first:[0-9]+]] = arith.muli %row, %[[two]] : index
// ROWS-NEXT: %[[own:[0-9]+]] = arith.addi %[[first]], %place : index
// ROWS-NEXT: %m0 = arith.muli %[[own]], %piece : index
// ROWS-NEXT: %n0 = arith.muli %column, %piece : index
// ROWS: cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] : !cuda.tensor_map<[64, 64],
// ROWS: cuda.tensor_load %B_map[%n0, %zero] into %B_shared signals %B_ring[%zero] multicast : !cuda.tensor_map<[32, 64],
// ROWS: cuda.cluster_arrive
// ROWS-NEXT: cuda.cluster_wait
// ROWS-LABEL: func.func @host
// ROWS: %columns = arith.ceildivui %n, %piece : index
// ROWS-NEXT: %[[pair:[0-9]+]] = arith.muli %{{[0-9]+}}, %columns : index
// ROWS-NEXT: %[[one:[0-9]+]] = arith.constant 1 : index
// ROWS-NEXT: %[[some:[0-9]+]] = arith.maxsi %[[pair]], %[[one]] : index
// ROWS-NEXT: %[[rest:[0-9]+]] = arith.remui %blocks, %[[some]] : index
// ROWS-NEXT: %[[none:[0-9]+]] = arith.constant 0 : index
// ROWS-NEXT: %divides = arith.cmpi eq, %[[rest]], %[[none]] : index
// ROWS: cuda.launch @product_clusters grid %blocks

// Two by two: A goes to the two blocks beside each other, B to the two that are 2 apart. There are half as many columns
// of clusters.

// BOTH-LABEL: cuda.kernel @product_clusters (%A_map: !cuda.tensor_map<[32, 64], {{[^%]*}}, %B_map: !cuda.tensor_map<[32, 64], {{[^%]*}}, %n: index) threads 256 shared 16416 cluster 4 attributes {along = "m and n"} {
// BOTH: %A_ring = cuda.ring at 16384 consumers 1 blocks 2 : !cuda.ring<1>
// BOTH-NEXT: %B_ring = cuda.ring at 16400 consumers 1 blocks 2 step 2 : !cuda.ring<1>
// BOTH-NEXT: %place = cuda.block_in_cluster {comment = "clusters: 2 along m by 2 along n"}
// BOTH-NEXT: %[[two:[0-9]+]] = arith.constant 2 : index
// BOTH-NEXT: %place_along_n = arith.remui %place, %[[two]] : index
// BOTH-NEXT: %place_along_m = arith.divui %place, %[[two]] : index
// BOTH-NEXT: %cluster = cuda.cluster_index
// BOTH: %columns = arith.ceildivui %n, %piece : index
// BOTH: %columns_1 = arith.divui %columns, %{{[0-9]+}} : index
// BOTH-NEXT: %column = arith.remui %cluster, %columns_1 : index
// BOTH: %[[first:[0-9]+]] = arith.muli %column, %{{[0-9]+}} : index
// BOTH-NEXT: %[[own:[0-9]+]] = arith.addi %[[first]], %place_along_n : index
// BOTH-NEXT: %row = arith.divui %cluster, %columns_1 : index
// BOTH: %[[first_row:[0-9]+]] = arith.muli %row, %{{[0-9]+}} : index
// BOTH-NEXT: %[[own_row:[0-9]+]] = arith.addi %[[first_row]], %place_along_m : index
// BOTH-NEXT: %m0 = arith.muli %[[own_row]], %piece : index
// BOTH-NEXT: %n0 = arith.muli %[[own]], %piece : index
// BOTH: cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] multicast : !cuda.tensor_map<[32, 64],
// BOTH: cuda.tensor_load %B_map[%n0, %zero] into %B_shared signals %B_ring[%zero] multicast : !cuda.tensor_map<[32, 64],
// BOTH-LABEL: func.func @host
// BOTH-SAME: "clusters of 4 blocks along %m0 and %column bring the stages of %A_ring, %B_ring together, where the pieces divide by 2 along %m0 and 2 along %column; @product runs elsewhere"

// Unasked, this product of one turn is worth no waiting for each other.

// ONE: there is no kernel @uneven (kernels are @product)

// MODEL-LABEL: cuda.kernel @product
// MODEL-NOT: cluster

cuda.kernel @product (%A_map: !A_map, %B_map: !B_map, %n: index) threads 256 shared 16416 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !Bs
  %A_ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  %B_ring = cuda.ring at 16400 consumers 1 : !cuda.ring<1>
  %block = cuda.block_index
  %piece = arith.constant 64 : index
  %columns = arith.ceildivui %n, %piece : index
  %column = arith.remui %block, %columns : index
  %row = arith.divui %block, %columns : index
  %m0 = arith.muli %row, %piece : index
  %n0 = arith.muli %column, %piece : index
  %zero = arith.constant 0 : index
  cuda.ready %A_ring, %B_ring : !cuda.ring<1>, !cuda.ring<1>
  cuda.roles registers 0, 0 producer {
    cuda.acquire %A_ring[%zero] : !cuda.ring<1>
    cuda.expect %A_ring[%zero] bytes 8192 : !cuda.ring<1>
    cuda.tensor_load %A_map[%m0, %zero] into %A_shared signals %A_ring[%zero] : !A_map, !As, !cuda.ring<1>
    cuda.acquire %B_ring[%zero] : !cuda.ring<1>
    cuda.expect %B_ring[%zero] bytes 8192 : !cuda.ring<1>
    cuda.tensor_load %B_map[%n0, %zero] into %B_shared signals %B_ring[%zero] : !B_map, !Bs, !cuda.ring<1>
  } consumers 1 {
    cuda.await %A_ring[%zero] : !cuda.ring<1>
    cuda.release %A_ring[%zero] : !cuda.ring<1>
    cuda.await %B_ring[%zero] : !cuda.ring<1>
    cuda.release %B_ring[%zero] : !cuda.ring<1>
  }
}
func.func @host(%A: !A, %B: !B, %n: index, %blocks: index) {
  %A_map = cuda.tensor_map %A : !A_map
  %B_map = cuda.tensor_map %B : !B_map
  cuda.launch @product grid %blocks aligned %blocks (%A_map, %B_map, %n) : !A_map, !B_map, index
  func.return
}

// -----

// 3 columns are no clusters of 2.

// CHECK-LABEL: cuda.kernel @uneven (
// CHECK-NOT: cluster 2
// CHECK: #hierarchy.step<"decline cuda-cluster", "@uneven", "the blocks of a cluster are pieces that differ in one coordinate alone", "a cluster of 2 blocks does not divide the 3 pieces along %column">

!A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!A_map = !cuda.tensor_map<[64, 64], !A>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
cuda.kernel @uneven (%A_map: !A_map, %columns: index) threads 256 shared 8208 {
  %A_shared = cuda.shared at 0 : !As
  %A_ring = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  %block = cuda.block_index
  %column = arith.remui %block, %columns : index
  %zero = arith.constant 0 : index
  cuda.ready %A_ring : !cuda.ring<1>
  cuda.roles registers 0, 0 producer {
    cuda.acquire %A_ring[%zero] : !cuda.ring<1>
    cuda.expect %A_ring[%zero] bytes 8192 : !cuda.ring<1>
    cuda.tensor_load %A_map[%zero, %zero] into %A_shared signals %A_ring[%zero] : !A_map, !As, !cuda.ring<1>
  } consumers 1 {
    cuda.await %A_ring[%zero] : !cuda.ring<1>
    cuda.release %A_ring[%zero] : !cuda.ring<1>
  }
}
func.func @host(%A: !A, %blocks: index) {
  %columns = arith.constant 3 : index
  %A_map = cuda.tensor_map %A : !A_map
  cuda.launch @uneven grid %blocks aligned %blocks (%A_map, %columns) : !A_map, index
  func.return
}

// -----

// Of what is left of its number nobody asks: there is no other coordinate.

// BOTH: along names axis 'n', which no array has; those of grids are column

// ROWS-LABEL: cuda.kernel @uneven (
// ROWS: "the grid has coordinates along column, not along m"

// As many turns as the column says: each block copies for itself.

// CHECK-LABEL: cuda.kernel @triangle (
// CHECK-NOT: cluster 2
// CHECK: #hierarchy.step<"decline cuda-cluster", "@triangle", "the blocks of a cluster bring together what they read alike", "%A_ring: blocks take different numbers of turns">

!A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!A_map = !cuda.tensor_map<[64, 64], !A>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
cuda.kernel @triangle (%A_map: !A_map) threads 256 shared 8208 {
  %A_shared = cuda.shared at 0 : !As
  %A_ring = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  %block = cuda.block_index
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  cuda.ready %A_ring : !cuda.ring<1>
  cuda.roles registers 0, 0 producer {
    scf.for %turn = %zero to %block step %one {
      cuda.acquire %A_ring[%turn] : !cuda.ring<1>
      cuda.expect %A_ring[%turn] bytes 8192 : !cuda.ring<1>
      cuda.tensor_load %A_map[%zero, %zero] into %A_shared signals %A_ring[%turn] : !A_map, !As, !cuda.ring<1>
    }
  } consumers 1 {
    scf.for %turn = %zero to %block step %one {
      cuda.await %A_ring[%turn] : !cuda.ring<1>
      cuda.release %A_ring[%turn] : !cuda.ring<1>
    }
  }
}
func.func @host(%A: !A, %blocks: index) {
  %A_map = cuda.tensor_map %A : !A_map
  cuda.launch @triangle grid %blocks aligned %blocks (%A_map) : !A_map
  func.return
}
