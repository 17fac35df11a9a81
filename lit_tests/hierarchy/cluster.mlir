// RUN: xdsl-opt %s | xdsl-opt | filecheck %s --check-prefix PRINTED
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-choose-sizes' | filecheck %s --check-prefix SIZES
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-choose-sizes,hierarchy-expand-streams,convert-hierarchy-to-cuda' | filecheck %s

// Groups that the blocks of a cluster share: each has a part of the axis that a group holds whole.

!A = tensor<?x131072xf32, #diagram.array<[row, x]>>
!Ad = tensor<?x131072xf32, #diagram.array<[row, x], level = device>>
!Ar = tensor<?x131072xf32, #diagram.array<[row, x], level = register>>
!Om = memref<?x131072xf32, #diagram.array<[row, x], level = device>>
!At = tensor<1x131072xf32, #diagram.array<[row, x], level = register>>
!mr = tensor<?xf32, #diagram.array<[row], level = register>>
!mt = tensor<1xf32, #diagram.array<[row], level = register>>

// Decorated: how many blocks share rows that none can hold, the model says.

// SIZES: hierarchy.kernel @decorated
// SIZES-SAME: schedule #hierarchy.schedule<group = [row = 1], whole = [x = 131072], warps = [row = 1, x = 8], cluster = [x = 16384]>

func.func @decorated(%A: !A) -> !A attributes {sizes = #diagram.sizes<row = 512>} {
  %O = hierarchy.kernel @decorated (%a = %A : !A as !Ad) -> (!A)
      schedule #hierarchy.schedule<group = [row = ?], whole = [x = 131072]> {
    %m = diagram.reduce max %a over [x] : !Ad -> !mr
    %o = diagram.map (%v = %a : !Ad, %w = %m : !mr) -> !Ar {
      %d = arith.subf %v, %w : f32
      diagram.yield %d : f32
    }
    hierarchy.yield %o : !Ar
  }
  func.return %O : !A
}

// Explicit: each block loads its part, reduces it, writes what it has to its shared memory, and reads that of all.

// PRINTED: schedule #hierarchy.schedule<group = [row = 1], whole = [x = 131072], warps = [x = 8], cluster = [x = 65536]>

// CHECK-LABEL: cuda.kernel @explicit_kernel (
// CHECK-SAME: threads 256 shared 256 cluster 2
// CHECK-NEXT: %mt_shared = cuda.shared at 0 : memref<1x8xf32, #diagram.array<[row, x_warp], level = shared,
// CHECK-NEXT: %mt_shared_1 = cuda.shared at 128 : memref<1xf32, #diagram.array<[row], level = shared,
// CHECK-NEXT: %row0 = cuda.cluster_index {comment = "tiling: one cluster of 2 blocks for each piece: row in pieces of 1"}
// CHECK-NEXT: %x_block = cuda.block_in_cluster
// CHECK-NEXT: %[[PART:.*]] = arith.constant 65536 : index
// CHECK-NEXT: %x0 = arith.muli %x_block, %[[PART]] : index
// CHECK-NEXT: %At = cuda.load %a[%row0, %x0] : memref<?x131072xf32, {{.*}} -> tensor<1x65536xf32,
// CHECK-NEXT: %mt = diagram.reduce max %At over [x] {partial} : tensor<1x65536xf32,
// CHECK-NEXT: %mt_1 = cuda.combine max %mt lanes [1, 2, 4, 8, 16] : tensor<1xf32,
// CHECK-NEXT: %mt_2 = cuda.parts %mt_1 : tensor<1xf32,
// CHECK-NEXT: cuda.write %mt_2 into %mt_shared : tensor<1x8xf32,
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: %mt_3 = cuda.read %mt_shared : memref<1x8xf32,
// CHECK-NEXT: %mt_4 = diagram.reduce max %mt_3 over [x_warp] : tensor<1x8xf32,
// CHECK-NEXT: cuda.write %mt_4 into %mt_shared_1 : tensor<1xf32,
// CHECK-NEXT: cuda.cluster_arrive
// CHECK-NEXT: cuda.cluster_wait
// CHECK-NEXT: %[[FIRST:.*]] = arith.constant 0 : index
// CHECK-NEXT: %mt_5 = cuda.read_cluster %mt_shared_1 of %[[FIRST]] : memref<1xf32,
// CHECK-NEXT: %[[SECOND:.*]] = arith.constant 1 : index
// CHECK-NEXT: %mt_6 = cuda.read_cluster %mt_shared_1 of %[[SECOND]] : memref<1xf32,
// CHECK-NEXT: cuda.cluster_arrive
// CHECK-NEXT: %mt_7 = diagram.map (%a_1 = %mt_5 : tensor<1xf32, {{.*}}, %b = %mt_6 : tensor<1xf32,
// CHECK-NEXT:   arith.maximumf %a_1, %b : f32
// CHECK: %O_t = diagram.map (%v = %At : tensor<1x65536xf32, {{.*}}, %w = %mt_7 : tensor<1xf32,
// CHECK: cuda.store %O_t into %o[%row0, %x0] : tensor<1x65536xf32, {{.*}}, memref<?x131072xf32,
// CHECK-NEXT: cuda.cluster_wait
// CHECK-LABEL: func.func @explicit(
// CHECK: %[[ROWS:.*]] = memref.dim %A, %{{.*}}
// CHECK: %[[BLOCKS:.*]] = arith.constant 2 : index
// CHECK-NEXT: %[[GRID:.*]] = arith.muli %[[ROWS]], %[[BLOCKS]] : index
// CHECK: cuda.launch @explicit_kernel grid %[[GRID]] aligned

func.func @explicit(%A: !A) -> !A attributes {sizes = #diagram.sizes<row = 512>} {
  %O = hierarchy.kernel @explicit (%a = %A : !A as !Ad) saves (%o : !Om) -> (!A)
      schedule #hierarchy.schedule<group = [row = 1], whole = [x = 131072], warps = [x = 8], cluster = [x = 65536]> {
    hierarchy.group [row = 1] {
      %At = hierarchy.load %a : !Ad -> !At
      %mt = diagram.reduce max %At over [x] : !At -> !mt
      %O_t = diagram.map (%v = %At : !At, %w = %mt : !mt) -> !At {
        %d = arith.subf %v, %w : f32
        diagram.yield %d : f32
      }
      hierarchy.save %O_t into %o : !At, !Om
    }
    hierarchy.yield
  }
  func.return %O : !A
}
