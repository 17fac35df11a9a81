// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining{stages=3}' %s | filecheck %s --check-prefix=THREE

// Streams without products: pieces of rows come ahead of the turns that need them in registers, or through shared memory,
// or it is said why they do not.

#along = #cuda.layout<register = [x:4:1], lane = [x:32:4], warp = [x:4:128]>
#sum = #cuda.layout<register = [], lane = [32], warp = [4]>
#part = #cuda.layout<register = [], lane = [32], warp = [4]>
!A = memref<?x?xf32, strided<[?, 1], offset: ?>, #diagram.array<[row, x], level = device>>
!a = tensor<1x512xf32, #diagram.array<[row, x], level = register, layout = #along>>
!m = tensor<1xf32, #diagram.array<[row], level = register, layout = #sum>>

// A turn whose lanes exchange what they reduce, in 20 registers: those that 16 blocks leave, 32, hold a next piece, too.
// It is asked for before all else.
// CHECK:      cuda.kernel @held_kernel
// CHECK:      %has_turns = arith.cmpi ult, %zero, %x : index
// CHECK-NEXT: %a = diagram.fill 0.000000e+00 : f32
// CHECK-NEXT: %a_1 = scf.if %has_turns
// CHECK-NEXT:   %a_2 = cuda.load %A[%zero, %zero]
// CHECK:      scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none, %a_3 = %a_1)
// CHECK-NEXT:   %ahead = arith.constant 512 : index
// CHECK-NEXT:   %x0_ahead = arith.addi %x0, %ahead : index
// CHECK-NEXT:   %is_there = arith.cmpi ult, %x0_ahead, %x : index
// CHECK-NEXT:   %a_4 = scf.if %is_there
// CHECK-NEXT:     %a_5 = cuda.load %A[%zero, %x0_ahead]
// CHECK-NEXT:     scf.yield %a_5
// CHECK-NEXT:   } else {
// CHECK-NEXT:     scf.yield %a_3
// CHECK:        %new = diagram.reduce add %a_3 over [x] into %so_far
// CHECK-NEXT:   scf.yield %new, %a_4
// CHECK:      derivation = [#hierarchy.step<"pipelining", "@held_kernel", "loads depend on nothing the loop computes", "%A of the next turn in 4 registers">]

// Registers hold two pieces: where three are asked for, they lie in shared memory, as long as as many blocks have it.
// THREE:      cuda.kernel @held_kernel
// THREE-SAME: shared 6144
// THREE-NEXT: %A_staged = cuda.shared at 0 stages 3 : memref<1x512xf32
// THREE:      cuda.commit
// THREE:      cuda.copy async %A[%zero, %x0_ahead] into %A_staged_ahead {in_vectors}
// THREE:      scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none)
// THREE:        cuda.wait pending 1
// THREE-NEXT:   cuda.barrier
// THREE:        scf.if
// THREE:          cuda.copy async %A[%zero, %{{.*}}] into %{{.*}} {in_vectors}
// THREE:        cuda.commit
// THREE-NEXT:   %A_staged_now = cuda.stage %A_staged[%stage]
// THREE-NEXT:   %a = cuda.read %A_staged_now
// THREE-NEXT:   %new = diagram.reduce add %a over [x] into %so_far
// THREE:      derivation = [#hierarchy.step<"pipelining", "@held_kernel", "copies depend on nothing the loop computes", "3 stages of %A_staged, 2 ahead">]
cuda.kernel @held_kernel (%A: !A, %x: index) threads 128 shared 0 resident 16 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 512 : index
  %none = diagram.fill 0.0 : f32 -> !m
  %sum = scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none) -> (!m) {
    %a = cuda.load %A[%zero, %x0] : !A -> !a
    %new = diagram.reduce add %a over [x] into %so_far : !a -> !m
    scf.yield %new : !m
  } {registers = #builtin.int<20>}
}

func.func @held(%A: !A, %x: index) {
  cuda.launch @held_kernel grid %x aligned %x (%A, %x) : !A, index
  func.return
}

// One of 30 registers has none left for a next piece: it is copied ahead.
// CHECK:      cuda.kernel @copied_kernel
// CHECK-SAME: shared 4096
// CHECK-NEXT: %A_staged = cuda.shared at 0 stages 2 : memref<1x512xf32
// CHECK:      cuda.copy async %A[%zero, %x0_ahead] into %A_staged_ahead {in_vectors}
// CHECK:      scf.for %x0 = %zero to %x step %piece
// CHECK:        cuda.wait pending 0
// CHECK-NEXT:   cuda.barrier
// CHECK:          cuda.copy async %A[%zero, %x0_ahead_1] into %A_staged_ahead_1 {in_vectors}
// CHECK:        cuda.commit
// CHECK-NEXT:   %A_staged_now = cuda.stage %A_staged[%stage]
// CHECK-NEXT:   %a = cuda.read %A_staged_now
// CHECK:      cuda.wait pending 0
// CHECK:      derivation = [#hierarchy.step<"pipelining", "@copied_kernel", "copies depend on nothing the loop computes", "2 stages of %A_staged, 1 ahead">]
cuda.kernel @copied_kernel (%A: !A, %x: index) threads 128 shared 0 resident 16 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 512 : index
  %none = diagram.fill 0.0 : f32 -> !m
  %sum = scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none) -> (!m) {
    %a = cuda.load %A[%zero, %x0] : !A -> !a
    %new = diagram.reduce add %a over [x] into %so_far : !a -> !m
    scf.yield %new : !m
  } {registers = #builtin.int<30>}
}

func.func @copied(%A: !A, %x: index) {
  cuda.launch @copied_kernel grid %x aligned %x (%A, %x) : !A, index
  func.return
}

// Nor has it the memory: 16 blocks share that of a multiprocessor.
// CHECK:      cuda.kernel @crowded_kernel
// CHECK:      scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none)
// CHECK-NEXT:   %a = cuda.load %A[%zero, %x0]
// CHECK:      derivation = [#hierarchy.step<"decline pipelining", "@crowded_kernel", "an SM holds as many blocks", "30 registers of a thread, and 4 for %A of the next turn, of 32 beside 16 blocks; 2 stages take 10,240 bytes of shared memory a block, 16 have 9,472 each">]
// THREE:      derivation = [#hierarchy.step<"decline pipelining", "@crowded_kernel", "an SM holds as many blocks", "registers hold 2 stages; 3 stages take 12,288 bytes of shared memory a block, 16 have 9,472 each">]
cuda.kernel @crowded_kernel (%A: !A, %x: index) threads 128 shared 6144 resident 16 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 512 : index
  %none = diagram.fill 0.0 : f32 -> !m
  %sum = scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none) -> (!m) {
    %a = cuda.load %A[%zero, %x0] : !A -> !a
    %new = diagram.reduce add %a over [x] into %so_far : !a -> !m
    scf.yield %new : !m
  } {registers = #builtin.int<30>}
}

func.func @crowded(%A: !A, %x: index) {
  cuda.launch @crowded_kernel grid %x aligned %x (%A, %x) : !A, index
  func.return
}

// Lanes that keep to their own elements do not meet. Of one turn there is no next. And where the place of a load depends
// on what the turn before computes, it is not known ahead.
// CHECK:      derivation = [#hierarchy.step<"decline pipelining", "@apart_kernel", "no turn waits alone", "nvcc lays turns that do not meet side by side, with their loads of %A in front, 4 registers each">, #hierarchy.step<"decline pipelining", "@apart_kernel", "a turn has a next one", "the loop of %A has 1 turn">, #hierarchy.step<"decline pipelining", "@apart_kernel", "loads depend on nothing the loop computes", "those of %A do">, #hierarchy.step<"decline pipelining", "@apart_kernel", "what is ahead is loaded", "a turn loads nothing">]
!lanes = tensor<1xf32, #diagram.array<[row], level = register, layout = #part>>
cuda.kernel @apart_kernel (%A: !A, %x: index) threads 128 shared 0 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 512 : index
  %none = diagram.fill 0.0 : f32 -> !lanes
  %sum = scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %none) -> (!lanes) {
    %a = cuda.load %A[%zero, %x0] : !A -> !a
    %new = diagram.reduce add %a over [x] into %so_far {partial} : !a -> !lanes
    scf.yield %new : !lanes
  }
  %once = scf.for %x0 = %zero to %piece step %piece iter_args(%so_far = %sum) -> (!lanes) {
    %a = cuda.load %A[%zero, %x0] : !A -> !a
    %new = diagram.reduce add %a over [x] into %so_far : !a -> !lanes
    scf.yield %new : !lanes
  }
  %chased, %end = scf.for %x0 = %zero to %x step %piece iter_args(%so_far = %once, %at = %zero) -> (!lanes, index) {
    %a = cuda.load %A[%zero, %at] : !A -> !a
    %new = diagram.reduce add %a over [x] into %so_far : !a -> !lanes
    %there = arith.addi %at, %piece : index
    scf.yield %new, %there : !lanes, index
  }
  scf.for %x0 = %zero to %x step %piece {
    %there = arith.addi %x0, %piece : index
  }
}

func.func @apart(%A: !A, %x: index) {
  cuda.launch @apart_kernel grid %x aligned %x (%A, %x) : !A, index
  func.return
}
