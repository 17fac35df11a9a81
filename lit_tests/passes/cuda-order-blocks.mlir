// RUN: xdsl-opt -p 'set-machine{name=a100},cuda-order-blocks' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},cuda-order-blocks{kernel=few section=1 longest=last},cuda-order-blocks{kernel=even section=8 longest=none}' %s | filecheck %s --check-prefix=ASKED

!A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[k, d], level = device>>
!As = memref<64x64xf16, #diagram.array<[k, d], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64>>>

// The last piece of a row copies most: blocks take the columns from the last to the first, in sections of rows.

// CHECK-LABEL: cuda.kernel @growing
// CHECK: %block = cuda.block_index
// CHECK-NEXT: %columns = arith.constant 16 : index
// CHECK-NEXT: %pieces = cuda.grid_size
// CHECK-NEXT: %[[together:[0-9]+]] = arith.constant 77 : index
// CHECK: %section = arith.muli %{{[0-9]+}}, %[[together]] : index
// CHECK: %rows = arith.minsi %[[together]], %{{[0-9]+}} : index
// CHECK: %[[from_end:[0-9]+]] = arith.divui %{{[0-9]+}}, %rows {narrow} : index
// CHECK: %[[last:[0-9]+]] = arith.subi %columns, %{{[0-9]+}} : index
// CHECK-NEXT: arith.subi %[[last]], %[[from_end]] : index
// CHECK: %piece = arith.addi
// CHECK-NEXT: %column = arith.remui %piece, %columns : index
// CHECK-NEXT: %row = arith.divui %piece, %columns : index
cuda.kernel @growing (%A: !A) threads 128 shared 8192 {
  %A_shared = cuda.shared at 0 : !As
  %block = cuda.block_index
  %columns = arith.constant 16 : index
  %column = arith.remui %block, %columns : index
  %row = arith.divui %block, %columns : index
  %size = arith.constant 64 : index
  %zero = arith.constant 0 : index
  %begin = arith.muli %row, %size : index
  %end = arith.muli %column, %size : index
  scf.for %k0 = %zero to %end step %size {
    %from = arith.addi %begin, %k0 : index
    cuda.copy %A[%from, %zero] into %A_shared : !A, !As
  }
}

// What is asked for is done, however many pieces there are, and of the kernel that is named alone.

// ASKED-LABEL: cuda.kernel @growing
// ASKED-NOT: cuda.grid_size
// ASKED-LABEL: cuda.kernel @even
// ASKED: %pieces = cuda.grid_size
// ASKED-NEXT: %[[together:[0-9]+]] = arith.constant 8 : index
// ASKED-NOT: arith.subi %columns
// ASKED: %column = arith.remui %piece, %columns : index
// ASKED-LABEL: func.func @host
// ASKED-SAME: "16,000 pieces, 108 at a time: in sections of 8 rows">
// ASKED-LABEL: cuda.kernel @few
// ASKED: %pieces = cuda.grid_size
// ASKED: %[[last:[0-9]+]] = arith.subi %pieces, %{{[0-9]+}} : index
// ASKED-NEXT: arith.subi %[[last]], %{{[0-9]+}} : index
// ASKED: "108 pieces, 108 at a time: in sections of 1 rows, the longest first">

// Pieces that are alike keep their numbers.

// CHECK-LABEL: cuda.kernel @even
// CHECK-NOT: cuda.grid_size
cuda.kernel @even (%A: !A) threads 128 shared 8192 {
  %A_shared = cuda.shared at 0 : !As
  %block = cuda.block_index
  %columns = arith.constant 16 : index
  %column = arith.remui %block, %columns : index
  %row = arith.divui %block, %columns : index
  %size = arith.constant 64 : index
  %zero = arith.constant 0 : index
  %begin = arith.muli %row, %size : index
  cuda.copy %A[%begin, %zero] into %A_shared : !A, !As
}

// CHECK-LABEL: func.func @host
// CHECK-SAME: #hierarchy.step<"cuda-order-blocks", "@growing", "groups are independent", "16,000 pieces, 108 at a time: in sections of 77 rows, the longest first">
// CHECK-NOT: @even"
func.func @host(%A: !A) {
  %blocks = arith.constant 16000 : index
  cuda.launch @growing grid %blocks aligned %blocks (%A) : !A
  cuda.launch @even grid %blocks aligned %blocks (%A) : !A
  func.return
}

// Of as many pieces as the machine takes at a time all begin at once.

// CHECK-LABEL: cuda.kernel @few
// CHECK-NOT: cuda.grid_size
cuda.kernel @few (%A: !A) threads 128 shared 8192 {
  %A_shared = cuda.shared at 0 : !As
  %block = cuda.block_index
  %size = arith.constant 64 : index
  %zero = arith.constant 0 : index
  %end = arith.muli %block, %size : index
  scf.for %k0 = %zero to %end step %size {
    cuda.copy %A[%k0, %zero] into %A_shared : !A, !As
  }
}

func.func @host_of_few(%A: !A) {
  %blocks = arith.constant 108 : index
  cuda.launch @few grid %blocks aligned %blocks (%A) : !A
  func.return
}
