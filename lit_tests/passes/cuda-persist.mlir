// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-persist' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-persist{section=8 longest=none}' %s | filecheck %s --check-prefix=ORDER
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-persist{section=8 longest=last}' %s | filecheck %s --check-prefix=UNEVEN
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-persist{kernel=apart turns=true},cuda-persist{kernel=beside turns=false}' %s | filecheck %s --check-prefix=ASKED

!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!A_map = !cuda.tensor_map<[64, 64], !A>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!Cs = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!c = tensor<64x64xf16, #diagram.array<[m, k], level = register, layout = #cuda.layout<register = [k:8:8, m:2:8, k:2:1], lane = [m:8:1, k:4:2], warp = [m:4:16]>>>

// Both roles loop over the pieces of their block. The turns of the ring count on, and so do stages. The result gets a
// place of its own, and is awaited only before it is written again.

// CHECK-LABEL: cuda.kernel @stream
// CHECK-SAME: (%A_map: !cuda.tensor_map<[64, 64], {{[^%]*}}, %C_map: !cuda.tensor_map<[64, 64], {{[^%]*}}, %pieces: index) threads 256 shared 24608 {
// CHECK-NEXT: %A_shared = cuda.shared at 0 stages 2 :
// CHECK-NEXT: %C_shared = cuda.shared at 16384 :
// CHECK-NEXT: %A_ring = cuda.ring at 24576 consumers 1 : !cuda.ring<2>
// CHECK-NEXT: %block = cuda.block_index
// CHECK-NEXT: %blocks = cuda.grid_size
// CHECK-NOT: arith.remui %block
// CHECK: %turns = arith.ceildivui %length, %piece : index
// CHECK-NEXT: cuda.roles registers 0, 0 producer {
// CHECK-NEXT: %[[none:[0-9]+]] = arith.constant 0 : index
// CHECK-NEXT: %{{[0-9]+}} = scf.for %number = %block to %pieces step %blocks iter_args(%A_ring_done = %[[none]]) -> (index) {
// CHECK-NEXT: %column = arith.remui %number, %columns {narrow} : index
// CHECK-NEXT: %row = arith.divui %number, %columns {narrow} : index
// CHECK-NEXT: %m0 = arith.muli %row, %piece : index
// CHECK-NEXT: scf.for %k0 = %zero to %length step %piece {
// CHECK-NEXT: %turn = arith.divui %k0, %piece : index
// CHECK-NEXT: %stages = arith.constant 2 : index
// CHECK-NEXT: %stage = arith.remui %turn, %stages : index
// CHECK-NEXT: %[[count:[0-9]+]] = arith.constant 2 : index
// CHECK-NEXT: %[[sum:[0-9]+]] = arith.addi %stage, %A_ring_done : index
// CHECK-NEXT: %stage_1 = arith.remui %[[sum]], %[[count]] : index
// CHECK-NEXT: %A_to = cuda.stage %A_shared[%stage_1] :
// CHECK-NEXT: %turn_1 = arith.addi %turn, %A_ring_done : index
// CHECK-NEXT: cuda.acquire %A_ring[%turn_1] : !cuda.ring<2>
// CHECK: cuda.tensor_load %A_map[%m0, %k0] into %A_to signals %A_ring[%turn_3] :
// CHECK: %[[next:[0-9]+]] = arith.addi %A_ring_done, %turns : index
// CHECK-NEXT: scf.yield %[[next]] : index
// CHECK: } consumers 1 {
// CHECK: scf.for %number_1 = %block to %pieces step %blocks
// CHECK: cuda.tensor_wait pending 0
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.write %c into %C_shared :
// CHECK-NEXT: cuda.tensor_fence
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.tensor_store %C_shared into %C_map[%m0_1, %zero] :
// CHECK: scf.yield
// CHECK-NEXT: }
// CHECK-NEXT: cuda.tensor_wait pending 0
// CHECK-NEXT: }

// Sections of 8 rows, column by column.

// ORDER: scf.for %number = %block to %pieces step %blocks
// ORDER-NEXT: %[[rows:[0-9]+]] = arith.constant 8 : index
// ORDER-NEXT: %[[all:[0-9]+]] = arith.muli %[[rows]], %columns : index
// ORDER-NEXT: %[[which:[0-9]+]] = arith.divui %number, %[[all]] {narrow} : index
// ORDER-NEXT: %section = arith.muli %[[which]], %[[rows]] : index
// ORDER: %piece_1 = arith.addi
// ORDER-NEXT: %column = arith.remui %piece_1, %columns {narrow} : index
// ORDER-NEXT: %row = arith.divui %piece_1, %columns {narrow} : index

// And from the last column to the first, dealt there and back.

// UNEVEN: %two_rounds = arith.addi %blocks, %blocks : index
// UNEVEN: %place_back = arith.subi %{{[0-9]+}}, %block : index
// UNEVEN: %taken = arith.addi %taken_in_whole, %taken_in_last : index
// UNEVEN: scf.for %piece_turn = %{{[0-9]+}} to %taken step
// UNEVEN: %[[both:[0-9]+]] = arith.addi %round, %section : index
// UNEVEN: %[[side:[0-9]+]] = arith.select %{{[0-9]+}}, %block, %place_back : index
// UNEVEN-NEXT: %place = arith.addi %{{[0-9]+}}, %[[side]] : index
// UNEVEN: %[[column:[0-9]+]] = arith.divui %place, %rows {narrow} : index
// UNEVEN: arith.subi %{{[0-9]+}}, %[[column]] : index
// UNEVEN: %piece_1 = arith.addi
// UNEVEN-NEXT: %column = arith.remui %piece_1, %columns {narrow} : index

cuda.kernel @stream (%A_map: !A_map, %C_map: !A_map) threads 256 shared 16416 {
  %A_shared = cuda.shared at 0 stages 2 : !As
  %C_shared = cuda.shared at 0 alias : !Cs
  %A_ring = cuda.ring at 16384 consumers 1 : !cuda.ring<2>
  %block = cuda.block_index
  %columns = arith.constant 4 : index
  %column = arith.remui %block, %columns : index
  %row = arith.divui %block, %columns : index
  %piece = arith.constant 64 : index
  %m0 = arith.muli %row, %piece : index
  %zero = arith.constant 0 : index
  %length = arith.constant 256 : index
  cuda.ready %A_ring : !cuda.ring<2>
  cuda.roles registers 0, 0 producer {
    scf.for %k0 = %zero to %length step %piece {
      %turn = arith.divui %k0, %piece : index
      %stages = arith.constant 2 : index
      %stage = arith.remui %turn, %stages : index
      %A_to = cuda.stage %A_shared[%stage] : !As
      cuda.acquire %A_ring[%turn] : !cuda.ring<2>
      cuda.expect %A_ring[%turn] bytes 8192 : !cuda.ring<2>
      cuda.tensor_load %A_map[%m0, %k0] into %A_to signals %A_ring[%turn] : !A_map, !As, !cuda.ring<2>
    }
  } consumers 1 {
    scf.for %k0 = %zero to %length step %piece {
      %turn = arith.divui %k0, %piece : index
      cuda.await %A_ring[%turn] : !cuda.ring<2>
      cuda.release %A_ring[%turn] : !cuda.ring<2>
    }
    %c = diagram.fill 1.000000e+00 : f16 -> !c
    cuda.barrier
    cuda.write %c into %C_shared : !c, !Cs
    cuda.tensor_fence
    cuda.barrier
    cuda.tensor_store %C_shared into %C_map[%m0, %zero] : !Cs, !A_map
    cuda.tensor_wait pending 0
  }
}

// As many pieces as processors: nothing would come after.

// CHECK-LABEL: cuda.kernel @few
// CHECK-NOT: cuda.grid_size
// CHECK-LABEL: cuda.kernel @beside (%A_map: {{.*}}, %pieces: index) threads 256 shared 0 resident 3
// CHECK: %blocks = cuda.grid_size
// CHECK: scf.for %number = %block to %pieces step %blocks
// CHECK-LABEL: cuda.kernel @few_beside
// CHECK: scf.for %number = %block to %pieces step %blocks
// CHECK-LABEL: cuda.kernel @apart
// CHECK-NOT: cuda.grid_size
// CHECK-LABEL: func.func @host
// CHECK-SAME: #hierarchy.step<"cuda-persist", "@stream", "groups are independent, and the turns of a ring count on from piece to piece", "132 blocks for 400 pieces
// CHECK-SAME: #hierarchy.step<"decline cuda-persist", "@few", "a block takes a second piece where there are more pieces than processors", "132 pieces, 132 processors">
// CHECK-SAME: #hierarchy.step<"cuda-persist", "@beside", "groups are independent, and the turns of a ring count on from piece to piece", "396 blocks for 400 pieces">
// CHECK-SAME: #hierarchy.step<"cuda-persist", "@few_beside", {{.*}}, "396 blocks for 396 pieces">
// CHECK-SAME: #hierarchy.step<"decline cuda-persist", "@apart", "each piece may have a block of its own", "so it was decided with the sizes: turns = 0">
// CHECK: %[[processors:[0-9]+]] = arith.constant 132 : index
// CHECK-NEXT: %grid = arith.minsi %many, %[[processors]] : index
// CHECK-NEXT: cuda.launch @stream grid %grid aligned %few(%A_map, %A_map, %many) :
// CHECK-NEXT: cuda.launch @few grid %few aligned %few(%A_map) :
// CHECK-NEXT: %[[places:[0-9]+]] = arith.constant 396 : index
// CHECK-NEXT: %grid_1 = arith.minsi %many, %[[places]] : index
// CHECK-NEXT: cuda.launch @beside grid %grid_1 aligned %few(%A_map, %many) :
// CHECK: cuda.launch @few_beside grid %{{.*}} aligned %few(%A_map, %fewer) :
// CHECK-NEXT: cuda.launch @apart grid %many aligned %few(%A_map) :
cuda.kernel @few (%A_map: !A_map) threads 256 shared 0 {
  %block = cuda.block_index
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
  }
}

// Three blocks share a processor: as many run at a time. Turns that were decided stay, however few pieces there are, and so
// do blocks of their own.

cuda.kernel @beside (%A_map: !A_map) threads 256 shared 0 resident 3 attributes {turns = #builtin.int<3>} {
  %block = cuda.block_index
  cuda.roles registers 24, 136 producer {
  } consumers 1 {
  }
}

cuda.kernel @few_beside (%A_map: !A_map) threads 256 shared 0 resident 3 attributes {turns = #builtin.int<3>} {
  %block = cuda.block_index
  cuda.roles registers 24, 136 producer {
  } consumers 1 {
  }
}

cuda.kernel @apart (%A_map: !A_map) threads 256 shared 0 attributes {turns = #builtin.int<0>} {
  %block = cuda.block_index
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
  }
}

// What is asked for of a kernel comes before what was decided with the sizes; others stay.

// ASKED-LABEL: cuda.kernel @stream
// ASKED-NOT: cuda.grid_size
// ASKED-LABEL: cuda.kernel @apart
// ASKED: scf.for %number = %block to %pieces step %blocks
// ASKED: #hierarchy.step<"cuda-persist", "@apart", {{.*}}, "132 blocks for 400 pieces">
// ASKED-SAME: #hierarchy.step<"decline cuda-persist", "@beside", "each piece may have a block of its own", "so it was asked for: turns=false">

func.func @host(%A: !A) {
  %many = arith.constant 400 : index
  %few = arith.constant 132 : index
  %fewer = arith.constant 396 : index
  %A_map = cuda.tensor_map %A : !A_map
  cuda.launch @stream grid %many aligned %few (%A_map, %A_map) : !A_map, !A_map
  cuda.launch @few grid %few aligned %few (%A_map) : !A_map
  cuda.launch @beside grid %many aligned %few (%A_map) : !A_map
  cuda.launch @few_beside grid %fewer aligned %few (%A_map) : !A_map
  cuda.launch @apart grid %many aligned %few (%A_map) : !A_map
  func.return
}
