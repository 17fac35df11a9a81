// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-overlap-pieces' %s | filecheck %s --check-prefix=TWICE
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-overlap-pieces{twice=false}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-overlap-pieces{twice=false early=false apart=false}' %s | filecheck %s --check-prefix=OFF

#boxes = #cuda.boxes<extents = [64, 64], span = 64>
!Q = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
!K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
!Q_map = !cuda.tensor_map<[64, 64], !Q>
!K_map = !cuda.tensor_map<[64, 64], !K>
!Qs = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
!Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
!s = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>>>
!A = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!A_map = !cuda.tensor_map<[128, 64], !A>
!As = memref<128x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [128, 64], span = 64>>>
!Bs = memref<128x64xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [128, 64], span = 64>>>
!B = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!B_map = !cuda.tensor_map<[128, 64], !B>
!c = tensor<128x64xf16, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:8:16]>>>

// The tile has two places: turn by turn of its ring, which are pieces, the one and the other. Each warp gives them back.

// TWICE-LABEL: cuda.kernel @scores
// TWICE-SAME: shared 32832 {
// TWICE: %Q_shared = cuda.shared at 0 stages 2 :
// TWICE-NEXT: %K_shared = cuda.shared at 16384 stages 2 :
// TWICE-NEXT: %Q_ring = cuda.ring at 32768 consumers 1 by warps : !cuda.ring<2>
// TWICE-NEXT: %K_ring = cuda.ring at 32800 consumers 1 : !cuda.ring<2>
// TWICE: cuda.ready %Q_ring, %K_ring : !cuda.ring<2>, !cuda.ring<2>
// TWICE: %Q_turn = arith.addi %none, %Q_done : index
// TWICE-NEXT: %[[two:[0-9]+]] = arith.constant 2 : index
// TWICE-NEXT: %stage = arith.remui %Q_turn, %[[two]] {narrow} : index
// TWICE-NEXT: %Q_to = cuda.stage %Q_shared[%stage] :
// TWICE-NEXT: cuda.acquire %Q_ring[%Q_turn] : !cuda.ring<2>
// TWICE-NEXT: cuda.expect %Q_ring[%Q_turn] bytes 8192 : !cuda.ring<2>
// TWICE-NEXT: cuda.tensor_load %Q_map[%q0, %none] into %Q_to signals %Q_ring[%Q_turn] :
// TWICE-NEXT: scf.for %k = %none to %turns step %one {
// TWICE: } consumers 1 {
// TWICE: %Q_now = cuda.stage %Q_shared[%{{stage_[0-9]+}}] :
// TWICE-NEXT: cuda.await %Q_ring[%{{Q_turn_[0-9]+}}] : !cuda.ring<2>
// TWICE: cuda.warpgroup_product %Q_now, %K_now over [d] :
// TWICE: cuda.release %K_ring
// TWICE: }
// TWICE-NEXT: cuda.release %Q_ring[%{{Q_turn_[0-9]+}}] : !cuda.ring<2>

// The tile of the next piece comes behind the first turn of the ring beside it, when that has the last turn of this piece
// back. Only pieces with a turn count, and await it; nobody gives it back.

// CHECK-LABEL: cuda.kernel @scores
// CHECK: scf.for %number = %block to %pieces step %blocks iter_args(%Q_done = %none, %K_done = %none, %Q_shared_done = %{{[0-9]+}})
// CHECK-NOT: %Q_ring
// CHECK: %[[first:[0-9]+]] = arith.constant 0 : index
// CHECK-NEXT: %[[one:[0-9]+]] = arith.constant 1 : index
// CHECK-NEXT: %turn_beside = arith.addi %[[one]], %K_done : index
// CHECK-NEXT: scf.for %k = %none to %turns step %one {
// CHECK: cuda.tensor_load %K_map[%x0, %none] into %K_to signals %K_ring[%K_turn]
// CHECK-NEXT: %[[is_first:[0-9]+]] = arith.cmpi eq, %k, %[[first]] : index
// CHECK-NEXT: scf.if %[[is_first]] {
// CHECK-NEXT: cuda.acquire_beside %Q_ring[%Q_shared_done], %K_ring[%turn_beside] : !cuda.ring<1>, !cuda.ring<2>
// CHECK-NEXT: cuda.expect %Q_ring[%Q_shared_done] bytes 8192 : !cuda.ring<1>
// CHECK-NEXT: cuda.tensor_load %Q_map[%q0, %none] into %Q_shared signals %Q_ring[%Q_shared_done] :
// CHECK: %[[has:[0-9]+]] = arith.cmpi ult, %{{[0-9]+}}, %turns : index
// CHECK: %[[count:[0-9]+]] = arith.select %[[has]], %{{[0-9]+}}, %{{[0-9]+}} : index
// CHECK-NEXT: %[[next:[0-9]+]] = arith.addi %Q_shared_done, %[[count]] : index
// CHECK-NEXT: scf.yield %Q_next, %K_next, %[[next]] : index, index, index
// CHECK: } consumers 1 {
// CHECK: %[[any:[0-9]+]] = arith.cmpi ult, %{{[0-9]+}}, %turns : index
// CHECK-NEXT: scf.if %[[any]] {
// CHECK-NEXT: cuda.await %Q_ring[%Q_shared_done_1] : !cuda.ring<1>
// CHECK-NEXT: }
// CHECK: cuda.release %K_ring
// CHECK-NOT: cuda.release %Q_ring

// OFF-LABEL: cuda.kernel @scores
// OFF: cuda.acquire %Q_ring[%Q_turn]
// OFF: cuda.release %Q_ring
// OFF: cuda.tensor_store %C_shared into %C_map[%m0_1, %none] :
// OFF-NOT: cuda-overlap-pieces

cuda.kernel @scores (%Q_map: !Q_map, %K_map: !K_map, %turns: index, %pieces: index) threads 256 shared 24624 {
  %Q_shared = cuda.shared at 0 : !Qs
  %K_shared = cuda.shared at 8192 stages 2 : !Ks
  %Q_ring = cuda.ring at 24576 consumers 1 : !cuda.ring<1>
  %K_ring = cuda.ring at 24592 consumers 1 : !cuda.ring<2>
  %block = cuda.block_index
  %blocks = cuda.grid_size
  %none = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %rows = arith.constant 64 : index
  cuda.ready %Q_ring, %K_ring : !cuda.ring<1>, !cuda.ring<2>
  cuda.roles registers 0, 0 producer {
    %Q_all, %K_all = scf.for %number = %block to %pieces step %blocks iter_args(%Q_done = %none, %K_done = %none) -> (index, index) {
      %q0 = arith.muli %number, %rows : index
      %Q_turn = arith.addi %none, %Q_done : index
      cuda.acquire %Q_ring[%Q_turn] : !cuda.ring<1>
      cuda.expect %Q_ring[%Q_turn] bytes 8192 : !cuda.ring<1>
      cuda.tensor_load %Q_map[%q0, %none] into %Q_shared signals %Q_ring[%Q_turn] : !Q_map, !Qs, !cuda.ring<1>
      scf.for %k = %none to %turns step %one {
        %x0 = arith.muli %k, %rows : index
        %K_turn = arith.addi %k, %K_done : index
        %stage = arith.remui %K_turn, %two : index
        %K_to = cuda.stage %K_shared[%stage] : !Ks
        cuda.acquire %K_ring[%K_turn] : !cuda.ring<2>
        cuda.expect %K_ring[%K_turn] bytes 8192 : !cuda.ring<2>
        cuda.tensor_load %K_map[%x0, %none] into %K_to signals %K_ring[%K_turn] : !K_map, !Ks, !cuda.ring<2>
      }
      %Q_next = arith.addi %Q_done, %one : index
      %K_next = arith.addi %K_done, %turns : index
      scf.yield %Q_next, %K_next : index, index
    } {narrow}
  } consumers 1 {
    %Q_all, %K_all = scf.for %number = %block to %pieces step %blocks iter_args(%Q_done = %none, %K_done = %none) -> (index, index) {
      %Q_turn = arith.addi %none, %Q_done : index
      cuda.await %Q_ring[%Q_turn] : !cuda.ring<1>
      scf.for %k = %none to %turns step %one {
        %K_turn = arith.addi %k, %K_done : index
        cuda.await %K_ring[%K_turn] : !cuda.ring<2>
        %stage = arith.remui %K_turn, %two : index
        %K_now = cuda.stage %K_shared[%stage] : !Ks
        %S_started = cuda.warpgroup_product %Q_shared, %K_now over [d] : !Qs, !Ks -> !s
        %S = cuda.warpgroup_wait %S_started pending 0 : !s
        cuda.release %K_ring[%K_turn] : !cuda.ring<2>
      }
      cuda.release %Q_ring[%Q_turn] : !cuda.ring<1>
      %Q_next = arith.addi %Q_done, %one : index
      %K_next = arith.addi %K_done, %turns : index
      scf.yield %Q_next, %K_next : index, index
    } {narrow}
  }
}
// What is read behind the loop is brought behind it. Each warpgroup sends its own rows: it meets among itself, and boxes
// of the map are its share.

// CHECK-LABEL: cuda.kernel @send
// CHECK-SAME: %C_map: !cuda.tensor_map<[64, 64],
// CHECK: cuda.roles registers 0, 0 producer {
// CHECK: scf.for %number = %block
// CHECK-NOT: %C_ring
// CHECK: scf.for %k
// CHECK: cuda.tensor_load %A_map
// CHECK: cuda.acquire %C_ring
// CHECK-NEXT: cuda.expect %C_ring
// CHECK-NEXT: cuda.tensor_load %C_in
// CHECK: } consumers 2 {
// CHECK: cuda.tensor_wait pending 0 by groups
// CHECK-NEXT: cuda.barrier by groups
// CHECK-NEXT: cuda.write %c into %C_shared
// CHECK-NEXT: cuda.tensor_fence
// CHECK-NEXT: cuda.barrier by groups
// CHECK-NEXT: cuda.tensor_store %C_shared into %C_map[%m0_1, %none] by groups :
// CHECK: {narrow}
// CHECK-NEXT: cuda.tensor_wait pending 0 by groups
// CHECK: func.func @host
// CHECK-SAME: #hierarchy.step<"cuda-overlap-pieces", "@scores", "what a piece holds is free once the ring has its last turn back that all products with it read beside it", "%Q_shared comes with the turns of %K_ring">
// CHECK-SAME: #hierarchy.step<"cuda-overlap-pieces", "@send", "what is awaited behind all loops may be brought behind all that they await", "%C_ring turns behind those of loops">
// CHECK-SAME: #hierarchy.step<"cuda-overlap-pieces", "@send", "a warpgroup sends the rows that it has written, and writes there again when they are read", "2 warpgroups do not meet at the end of a piece">
// CHECK: %C_map = cuda.tensor_map %C : !cuda.tensor_map<[64, 64],

cuda.kernel @send (%A_map: !A_map, %C_in: !B_map, %C_map: !B_map, %turns: index, %pieces: index) threads 384 shared 65616 {
  %A_shared = cuda.shared at 0 stages 2 : !As
  %C_brought = cuda.shared at 32768 : !Bs
  %C_shared = cuda.shared at 49152 : !Bs
  %A_ring = cuda.ring at 65536 consumers 2 : !cuda.ring<2>
  %C_ring = cuda.ring at 65568 consumers 2 : !cuda.ring<1>
  %block = cuda.block_index
  %blocks = cuda.grid_size
  %none = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %rows = arith.constant 128 : index
  cuda.ready %A_ring, %C_ring : !cuda.ring<2>, !cuda.ring<1>
  cuda.roles registers 0, 0 producer {
    %A_all, %C_all = scf.for %number = %block to %pieces step %blocks iter_args(%A_done = %none, %C_done = %none) -> (index, index) {
      %m0 = arith.muli %number, %rows : index
      %C_turn = arith.addi %none, %C_done : index
      cuda.acquire %C_ring[%C_turn] : !cuda.ring<1>
      cuda.expect %C_ring[%C_turn] bytes 16384 : !cuda.ring<1>
      cuda.tensor_load %C_in[%m0, %none] into %C_brought signals %C_ring[%C_turn] : !B_map, !Bs, !cuda.ring<1>
      scf.for %k = %none to %turns step %one {
        %A_turn = arith.addi %k, %A_done : index
        %stage = arith.remui %A_turn, %two : index
        %A_to = cuda.stage %A_shared[%stage] : !As
        cuda.acquire %A_ring[%A_turn] : !cuda.ring<2>
        cuda.expect %A_ring[%A_turn] bytes 16384 : !cuda.ring<2>
        cuda.tensor_load %A_map[%m0, %none] into %A_to signals %A_ring[%A_turn] : !A_map, !As, !cuda.ring<2>
      }
      %A_next = arith.addi %A_done, %turns : index
      %C_next = arith.addi %C_done, %one : index
      scf.yield %A_next, %C_next : index, index
    } {narrow}
  } consumers 2 {
    %A_all, %C_all = scf.for %number = %block to %pieces step %blocks iter_args(%A_done = %none, %C_done = %none) -> (index, index) {
      %m0 = arith.muli %number, %rows : index
      scf.for %k = %none to %turns step %one {
        %A_turn = arith.addi %k, %A_done : index
        cuda.await %A_ring[%A_turn] : !cuda.ring<2>
        cuda.release %A_ring[%A_turn] : !cuda.ring<2>
      }
      %C_turn = arith.addi %none, %C_done : index
      cuda.await %C_ring[%C_turn] : !cuda.ring<1>
      cuda.release %C_ring[%C_turn] : !cuda.ring<1>
      %c = diagram.fill 0.000000e+00 : f16 -> !c
      cuda.tensor_wait pending 0
      cuda.barrier
      cuda.write %c into %C_shared : !c, !Bs
      cuda.tensor_fence
      cuda.barrier
      cuda.tensor_store %C_shared into %C_map[%m0, %none] : !Bs, !B_map
      %A_next = arith.addi %A_done, %turns : index
      %C_next = arith.addi %C_done, %one : index
      scf.yield %A_next, %C_next : index, index
    } {narrow}
    cuda.tensor_wait pending 0
  }
}

func.func @host(%Q: !Q, %K: !K, %A: !A, %B: !B, %C: !B, %turns: index, %pieces: index) {
  %Q_map = cuda.tensor_map %Q : !Q_map
  %K_map = cuda.tensor_map %K : !K_map
  cuda.launch @scores grid %pieces aligned %pieces (%Q_map, %K_map, %turns, %pieces) : !Q_map, !K_map, index, index
  %A_map = cuda.tensor_map %A : !A_map
  %B_map = cuda.tensor_map %B : !B_map
  %C_map = cuda.tensor_map %C : !B_map
  cuda.launch @send grid %pieces aligned %pieces (%A_map, %B_map, %C_map, %turns, %pieces) : !A_map, !B_map, !B_map, index, index
  func.return
}
