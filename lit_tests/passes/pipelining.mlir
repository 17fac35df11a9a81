// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining{stages=3}' %s | filecheck %s --check-prefix=THREE
// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining{stages=1}' %s | filecheck %s --check-prefix=ONE
// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining{stages=40}' %s | filecheck %s --check-prefix=MANY

#rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
#wide = #cuda.layout<register = [x:8:8, d:16:4], lane = [x:8:1, d:4:1], warp = []>
!K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
!Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #rows>>
!f = tensor<64x64xf16, #diagram.array<[x, d], level = register, layout = #wide>>

// Q is copied and read before the loop, K in every turn of it, and a last piece of K after it.
cuda.kernel @step_kernel (%Q: !K, %K: !K, %x: index) threads 32 shared 16384 {
  %Q_shared = cuda.shared at 0 : !Ks
  %K_shared = cuda.shared at 8192 : !Ks
  %zero = arith.constant 0 : index
  cuda.copy %Q[%zero, %zero] into %Q_shared : !K, !Ks
  %piece = arith.constant 64 : index
  cuda.barrier
  %q = cuda.read %Q_shared : !Ks -> !f
  scf.for %x0 = %zero to %x step %piece {
    cuda.barrier
    cuda.copy %K[%x0, %zero] into %K_shared bounds [x < %x] : !K, !Ks
    cuda.barrier
    %k = cuda.read %K_shared : !Ks -> !f
  }
  %rest = arith.cmpi ult, %zero, %x : index
  scf.if %rest {
    cuda.barrier
    cuda.copy %K[%x, %zero] into %K_shared bounds [x < %x] : !K, !Ks
    cuda.barrier
    %last = cuda.read %K_shared : !Ks -> !f
  }
}

func.func @step(%Q: !K, %K: !K, %x: index) {
  cuda.launch @step_kernel grid %x aligned %x (%Q, %K, %x) : !K, !K, index
  func.return
}

// Two places for K; the copy of Q joins the oldest group, which is waited for where Q is read.
// CHECK:      cuda.kernel @step_kernel
// CHECK-SAME: shared 24576
// CHECK:      %Q_shared = cuda.shared at 0 : memref
// CHECK-NEXT: %K_shared = cuda.shared at 8192 stages 2 : memref
// CHECK:      cuda.copy async %Q[%zero, %zero] into %Q_shared
// CHECK:      cuda.commit
// CHECK:      %is_there = arith.cmpi ult, %x0_ahead, %x : index
// CHECK-NEXT: scf.if %is_there {
// CHECK:        %K_ahead = cuda.stage %K_shared[%place]
// CHECK-NEXT:   cuda.copy async %K[%x0_ahead, %zero] into %K_ahead bounds [x < %x]
// CHECK:      cuda.commit
// CHECK-NEXT: cuda.wait pending 1
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: %q = cuda.read %Q_shared
// CHECK-NEXT: scf.for %x0 = %zero to %x step %piece {
// CHECK-NEXT:   %turn = arith.divui %x0, %piece : index
// CHECK:        %stage = arith.remui %turn, %stages : index
// CHECK-NEXT:   cuda.wait pending 0
// CHECK-NEXT:   cuda.barrier
// CHECK:        scf.if %is_there_1 {
// CHECK:          cuda.copy async %K[%x0_ahead_1, %zero] into %K_ahead_1 bounds [x < %x]
// CHECK:        cuda.commit
// CHECK-NEXT:   %K_now = cuda.stage %K_shared[%stage]
// CHECK-NOT:    cuda.barrier
// CHECK:        %k = cuda.read %K_now
// CHECK-NEXT: } {pipelined}
// CHECK-NEXT: cuda.wait pending 0
// CHECK:      scf.if %rest {
// CHECK-NEXT:   cuda.barrier
// CHECK-NEXT:   cuda.copy async %K[%x, %zero] into %K_shared bounds [x < %x]
// CHECK-NEXT:   cuda.commit
// CHECK-NEXT:   cuda.wait pending 0
// CHECK-NEXT:   cuda.barrier
// CHECK-NEXT:   %last = cuda.read %K_shared
// CHECK:      derivation = [#hierarchy.step<"pipelining", "@step_kernel", "copies depend on nothing the loop computes", "2 stages of %K_shared, 1 ahead">]

// THREE:      shared 32768
// THREE:      %K_shared = cuda.shared at 8192 stages 3 : memref
// THREE:      cuda.wait pending 2
// THREE:      scf.for
// THREE:        cuda.wait pending 1
// THREE:        %{{.*}} = arith.constant 128 : index

// ONE:      cuda.copy %K[%x0, %zero] into %K_shared
// ONE-NOT:  async

// MANY-NOT: async
// MANY:     #hierarchy.step<"decline pipelining", "@step_kernel", "every stage has its place", "40 stages take 335,872 bytes of shared memory, a block has 166,912, and a turn reads all tiles at a time">

#small = #cuda.rows<extents = [16, 16], pitch = 16>
#in_rows = #cuda.layout<register = [k:8:1], lane = [m:16:1, k:2:8], warp = []>
#sums = #cuda.layout<register = [n:2:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<16x16xf16, #diagram.array<[m, k], level = shared, layout = #small>>
!Bs = memref<16x16xf16, #diagram.array<[k, n], level = shared, layout = #small>>
!a = tensor<16x16xf16, #diagram.array<[m, k], level = register, layout = #in_rows>>
!c = tensor<16x16xf32, #diagram.array<[m, n], level = register, layout = #sums>>

// A goes through registers to its tile: a turn loads it for the next one as soon as it has written its own. What the
// product stands before, here %late, may arrive while that runs, and stays.
cuda.kernel @loading_kernel (%A: !A, %m: index, %k: index) threads 32 shared 1024 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 512 : !Bs
  %zero = arith.constant 0 : index
  %piece = arith.constant 16 : index
  %none = diagram.fill 0.0 : f32 -> !c
  %C = scf.for %k0 = %zero to %k step %piece iter_args(%sum = %none) -> (!c) {
    %a = cuda.load %A[%zero, %k0] bounds [m < %m] : !A -> !a
    cuda.write %a into %A_shared : !a, !As
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %sum over [k] using m16n8k16 : !As, !Bs -> !c
    %late = cuda.load %A[%zero, %k0] bounds [m < %m] : !A -> !a
    cuda.write %late into %A_shared : !a, !As
    scf.yield %new : !c
  }
}

func.func @loading(%A: !A, %m: index, %k: index) {
  cuda.launch @loading_kernel grid %m aligned %m (%A, %m, %k) : !A, index, index
  func.return
}

// CHECK:      cuda.kernel @loading_kernel
// CHECK:      %has_turns = arith.cmpi ult, %zero, %k : index
// CHECK-NEXT: %a = diagram.fill 0.000000e+00 : f16
// CHECK-NEXT: %a_1 = scf.if %has_turns
// CHECK-NEXT:   %a_2 = cuda.load %A[%zero, %zero] bounds [m < %m]
// CHECK-NEXT:   scf.yield %a_2
// CHECK-NEXT: } else {
// CHECK-NEXT:   scf.yield %a
// CHECK:      scf.for %k0 = %zero to %k step %piece iter_args(%sum = %none, %a_3 = %a_1)
// CHECK-NEXT:   cuda.write %a_3 into %A_shared
// CHECK-NEXT:   %ahead = arith.constant 16 : index
// CHECK-NEXT:   %k0_ahead = arith.addi %k0, %ahead : index
// CHECK-NEXT:   %is_there = arith.cmpi ult, %k0_ahead, %k : index
// CHECK-NEXT:   %a_4 = scf.if %is_there
// CHECK-NEXT:     %a_5 = cuda.load %A[%zero, %k0_ahead] bounds [m < %m]
// CHECK-NEXT:     scf.yield %a_5
// CHECK-NEXT:   } else {
// CHECK-NEXT:     scf.yield %a_3
// CHECK:        cuda.barrier
// CHECK-NEXT:   %new = cuda.product %A_shared, %B_shared into %sum
// CHECK-NEXT:   %late = cuda.load %A[%zero, %k0]
// CHECK:        scf.yield %new, %a_4
// CHECK:      derivation = [#hierarchy.step<"pipelining", "@loading_kernel", "loads depend on nothing the loop computes", "%A of the next turn in 4 registers">]
!list = memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
!table = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[x], level = device>>
!value = tensor<1xi32, #diagram.array<[x], level = register, layout = #cuda.layout<register = [], lane = [32], warp = []>>>

// Where a piece begins that a list has is known ahead, too: the copies look it up for a later turn.
// CHECK:      cuda.kernel @listed_kernel
// CHECK:      scf.if %is_there {
// CHECK:        cuda.barrier
// CHECK-NEXT:   %x0_ahead = cuda.selected %list[%turn_ahead] step 64 :
// CHECK-NEXT:   cuda.copy async %K[%x0_ahead, %zero] into %K_ahead :
// CHECK:      scf.for %turn = %zero to %count step %one {
// CHECK:        scf.if %is_there_1 {
// CHECK:          %x0_ahead_1 = cuda.selected %list[%turn_ahead_1] step 64 :
// CHECK-NEXT:     cuda.copy async %K[%x0_ahead_1, %zero] into %K_ahead_1 :
cuda.kernel @listed_kernel (%K: !K, %T: !table, %k: index) threads 32 shared 8576 {
  %list = cuda.shared at 0 : !list
  %K_shared = cuda.shared at 384 : !Ks
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = cuda.select %list from %zero to %k step 64 (%k0: index) {
    %t = cuda.load %T[%k0] bounds [x < %k] : !table -> !value
    %found = tensor.extract %t[%zero] : !value
    %there = arith.index_cast %found : i32 to index
    %kept = arith.cmpi sgt, %there, %zero : index
    cuda.keep %kept
  } : !list
  cuda.barrier
  scf.for %turn = %zero to %count step %one {
    %x0 = cuda.selected %list[%turn] step 64 : !list
    cuda.barrier
    cuda.copy %K[%x0, %zero] into %K_shared : !K, !Ks
    cuda.barrier
    %read = cuda.read %K_shared : !Ks -> !f
  }
}

func.func @host_of_listed(%K: !K, %T: !table, %x: index) {
  cuda.launch @listed_kernel grid %x aligned %x (%K, %T, %x) : !K, !table, index
  func.return
}

// A turn of a kernel with roles that does nothing but add a product to its state: the product runs on into the next turn,
// which starts its own before it waits, and gives back what the turn before has read.

!L = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!L_map = !cuda.tensor_map<[64, 64], !L>
!Ls = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!Rs = memref<64x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!sum = tensor<64x64xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// CHECK-LABEL: cuda.kernel @running
// CHECK: } consumers 1 {
// CHECK: %has_turns = arith.cmpi ult, %zero, %turns : index
// CHECK-NEXT: %{{.*}} = scf.if %has_turns
// CHECK: %C_first = cuda.warpgroup_product %A_now, %B_now into %C over [k]
// CHECK-NEXT: %second = arith.addi %zero, %one : index
// CHECK-NEXT: %[[loop:[a-z_0-9]+]] = scf.for %[[turn:[a-z_0-9]+]] = %second to %turns step %one iter_args(%[[started:.*]] = %C_first) ->
// CHECK: cuda.await %A_ring[%[[turn]]] : !cuda.ring<4>
// CHECK: %[[next:.*]] = cuda.warpgroup_product %{{.*}}, %B_now into %[[started]] over [k]
// CHECK-NEXT: cuda.warpgroup_drain pending 1
// CHECK-NEXT: %turn_before = arith.subi %[[turn]], %one : index
// CHECK-NEXT: cuda.release %A_ring[%turn_before] : !cuda.ring<4>
// CHECK-NEXT: scf.yield %[[next]]
// CHECK: cuda.warpgroup_wait %[[loop]] pending 0
// CHECK: %last_turn = arith.addi
// CHECK-NEXT: cuda.release %A_ring[%last_turn] : !cuda.ring<4>
cuda.kernel @running (%A_map: !L_map, %turns: index) threads 256 shared 41024 {
  %A_shared = cuda.shared at 0 stages 4 : !Ls
  %B_now = cuda.shared at 32768 : !Rs
  %A_ring = cuda.ring at 40960 consumers 1 : !cuda.ring<4>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %piece = arith.constant 64 : index
  cuda.ready %A_ring : !cuda.ring<4>
  cuda.roles registers 0, 0 producer {
    scf.for %turn = %zero to %turns step %one {
      %stages = arith.constant 4 : index
      %stage = arith.remui %turn, %stages : index
      %k0 = arith.muli %turn, %piece : index
      %A_to = cuda.stage %A_shared[%stage] : !Ls
      cuda.acquire %A_ring[%turn] : !cuda.ring<4>
      cuda.expect %A_ring[%turn] bytes 8192 : !cuda.ring<4>
      cuda.tensor_load %A_map[%zero, %k0] into %A_to signals %A_ring[%turn] : !L_map, !Ls, !cuda.ring<4>
    }
  } consumers 1 {
    %C = diagram.fill 0.0 : f32 -> !sum
    %sum = scf.for %turn = %zero to %turns step %one iter_args(%C_so_far = %C) -> (!sum) {
      cuda.await %A_ring[%turn] : !cuda.ring<4>
      %stages = arith.constant 4 : index
      %stage = arith.remui %turn, %stages : index
      %A_now = cuda.stage %A_shared[%stage] : !Ls
      %C_first = cuda.warpgroup_product %A_now, %B_now into %C_so_far over [k] : !Ls, !Rs -> !sum
      %C_new = cuda.warpgroup_wait %C_first pending 0 : !sum
      cuda.release %A_ring[%turn] : !cuda.ring<4>
      scf.yield %C_new : !sum
    }
  }
}

// Two loops of one stream, the second of pieces whose elements are tested: the first turn that there is computes scores,
// whichever loop it is of. Each turn behind it, of both loops, starts the product of the turn before, and so does the first
// of the second loop; the last product stands behind both. Without `carry` each loop does all of this by itself; without
// `delay` each turn waits for its own product.

// RUN: xdsl-opt -p 'set-machine{name=h100},pipelining' %s | filecheck %s --check-prefix=CARRY
// RUN: xdsl-opt -p 'set-machine{name=h100},pipelining{carry=false}' %s | filecheck %s --check-prefix=EACH
// RUN: xdsl-opt -p 'set-machine{name=h100},pipelining{delay=false}' %s | filecheck %s --check-prefix=OWN

#scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
#shares = #cuda.layout<register = [x:4:16, x:2:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
#outputs = #cuda.layout<register = [e:8:8, q:2:8, e:2:1], lane = [q:8:1, e:4:2], warp = [q:4:16]>
#boxes = #cuda.boxes<extents = [64, 64], span = 64>
!keys = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
!values = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, e], level = device>>
!keys_map = !cuda.tensor_map<[64, 64], !keys>
!values_map = !cuda.tensor_map<[64, 64], !values>
!Q_tile = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
!K_tile = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
!V_tile = memref<64x64xf16, #diagram.array<[x, e], level = shared, layout = #boxes>>
!S = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
!P = tensor<64x64xf16, #diagram.array<[q, x], level = register, layout = #shares>>
!O = tensor<64x64xf32, #diagram.array<[q, e], level = register, layout = #outputs>>

// CARRY-LABEL: cuda.kernel @carried
// CARRY:       } consumers 1 {
// CARRY:       %turns = arith.addi %whole, %rest : index
// CARRY-NEXT:  %has_turns = arith.cmpi ult, %zero, %turns : index
// CARRY-NEXT:  %O = scf.if %has_turns
// CARRY-NEXT:    %begins_here = arith.cmpi ult, %zero, %whole : index
// CARRY-NEXT:    %[[sum:.*]], %[[left:.*]] = scf.if %begins_here
// CARRY-NEXT:      cuda.await %K_ring[%zero]
// CARRY:           cuda.warpgroup_product
// CARRY-NOT:       cuda.warpgroup_product
// CARRY:         } else {
// CARRY:           %[[first:.*]] = arith.addi %whole, %zero : index
// CARRY-NEXT:      cuda.await %K_ring[%[[first]]]
// CARRY:           cuda.warpgroup_product
// CARRY-NOT:       cuda.warpgroup_product
// CARRY:         %second = arith.addi %zero, %one : index
// CARRY-NEXT:    %[[of_whole:[a-zA-Z_0-9]+]], %[[left_of_whole:[a-zA-Z_0-9]+]] = scf.for %{{.*}} = %second to %whole step %one iter_args(%{{.*}} = %[[sum]], %{{.*}} = %[[left]])
// CARRY:         %{{.*}} = arith.addi %zero, %one : index
// CARRY-NEXT:    %has_begun = arith.cmpi ult, %zero, %whole : index
// CARRY-NEXT:    %start = arith.select %has_begun, %zero, %second_1 : index
// CARRY-NEXT:    %[[end:[a-zA-Z_0-9]+]], %[[left_at_end:[a-zA-Z_0-9]+]] = scf.for %[[turn:.*]] = %start to %rest step %one iter_args(%[[so_far:.*]] = %[[of_whole]], %[[before:.*]] = %[[left_of_whole]])
// CARRY:           cuda.await %K_ring
// CARRY:           %S_{{.*}} = cuda.warpgroup_product
// CARRY:           %number_before = arith.subi %[[turn]], %one : index
// CARRY-NEXT:      %[[last:.*]] = arith.addi %whole, %number_before : index
// CARRY-NEXT:      cuda.await %V_ring[%[[last]]]
// CARRY:           cuda.warpgroup_product %[[before]], %{{.*}} into %[[so_far]]
// CARRY-NEXT:      cuda.warpgroup_wait %{{.*}} pending 1
// CARRY:         cuda.warpgroup_product %[[left_at_end]], %{{.*}} into %[[end]]
// CARRY:       derivation = [#hierarchy.step<"pipelining", "@carried", "a turn needs the sum of the turn before only where it repairs it", "%O_new, %O_new of a turn during the next turn">, #hierarchy.step<"pipelining", "@carried", "the turns of a ring count on from loop to loop", "%O_new of the last turn of a loop during the first of the next, through 2 loops">]

// EACH-LABEL: cuda.kernel @carried
// EACH:       %has_turns = arith.cmpi ult, %zero, %whole : index
// EACH:         scf.for %{{.*}} = %second to %whole step %one
// EACH:       %has_turns_1 = arith.cmpi ult, %zero, %rest : index
// EACH:         scf.for %{{.*}} = %second_1 to %rest step %one
// EACH-NOT:   loop to loop

// OWN-LABEL: cuda.kernel @carried
// OWN:       %O = scf.for %{{.*}} = %zero to %whole step %one iter_args(%O_so_far = %none)
// OWN:         %O_started = cuda.warpgroup_product %P, %V_now into %O_so_far over [x]
// OWN-NEXT:    %O_new = cuda.warpgroup_wait %O_started pending 0
// OWN:       scf.for %{{.*}} = %zero to %rest step %one iter_args(%O_so_far_1 = %O)
// OWN:         %[[started:O_started[_0-9]*]] = cuda.warpgroup_product
// OWN-NEXT:    cuda.warpgroup_wait %[[started]] pending 0
// OWN-NOT:   of a turn during the next turn
cuda.kernel @carried (%K_map: !keys_map, %V_map: !values_map, %whole: index, %rest: index) threads 256 shared 41024 {
  %Q_shared = cuda.shared at 0 : !Q_tile
  %K_shared = cuda.shared at 8192 stages 2 : !K_tile
  %V_shared = cuda.shared at 24576 stages 2 : !V_tile
  %K_ring = cuda.ring at 40960 consumers 1 : !cuda.ring<2>
  %V_ring = cuda.ring at 40992 consumers 1 : !cuda.ring<2>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %piece = arith.constant 64 : index
  cuda.ready %K_ring, %V_ring : !cuda.ring<2>, !cuda.ring<2>
  cuda.roles registers 0, 0 producer {
    scf.for %turn = %zero to %whole step %one {
      %x0 = arith.muli %turn, %piece : index
      %stage = arith.remui %turn, %two : index
      %K_to = cuda.stage %K_shared[%stage] : !K_tile
      cuda.acquire %K_ring[%turn] : !cuda.ring<2>
      cuda.expect %K_ring[%turn] bytes 8192 : !cuda.ring<2>
      cuda.tensor_load %K_map[%x0, %zero] into %K_to signals %K_ring[%turn] : !keys_map, !K_tile, !cuda.ring<2>
      %V_to = cuda.stage %V_shared[%stage] : !V_tile
      cuda.acquire %V_ring[%turn] : !cuda.ring<2>
      cuda.expect %V_ring[%turn] bytes 8192 : !cuda.ring<2>
      cuda.tensor_load %V_map[%x0, %zero] into %V_to signals %V_ring[%turn] : !values_map, !V_tile, !cuda.ring<2>
    }
    scf.for %number = %zero to %rest step %one {
      %turn = arith.addi %whole, %number : index
      %x0 = arith.muli %turn, %piece : index
      %stage = arith.remui %turn, %two : index
      %K_to = cuda.stage %K_shared[%stage] : !K_tile
      cuda.acquire %K_ring[%turn] : !cuda.ring<2>
      cuda.expect %K_ring[%turn] bytes 8192 : !cuda.ring<2>
      cuda.tensor_load %K_map[%x0, %zero] into %K_to signals %K_ring[%turn] : !keys_map, !K_tile, !cuda.ring<2>
      %V_to = cuda.stage %V_shared[%stage] : !V_tile
      cuda.acquire %V_ring[%turn] : !cuda.ring<2>
      cuda.expect %V_ring[%turn] bytes 8192 : !cuda.ring<2>
      cuda.tensor_load %V_map[%x0, %zero] into %V_to signals %V_ring[%turn] : !values_map, !V_tile, !cuda.ring<2>
    }
  } consumers 1 {
    %none = diagram.fill 0.0 : f32 -> !O
    %O = scf.for %turn = %zero to %whole step %one iter_args(%O_so_far = %none) -> (!O) {
      cuda.await %K_ring[%turn] : !cuda.ring<2>
      %stage = arith.remui %turn, %two : index
      %K_now = cuda.stage %K_shared[%stage] : !K_tile
      %S_started = cuda.warpgroup_product %Q_shared, %K_now over [d] : !Q_tile, !K_tile -> !S
      %S = cuda.warpgroup_wait %S_started pending 0 : !S
      cuda.release %K_ring[%turn] : !cuda.ring<2>
      %P = diagram.cast %S : !S -> !P
      cuda.await %V_ring[%turn] : !cuda.ring<2>
      %V_stage = arith.remui %turn, %two : index
      %V_now = cuda.stage %V_shared[%V_stage] : !V_tile
      %O_started = cuda.warpgroup_product %P, %V_now into %O_so_far over [x] : !P, !V_tile -> !O
      %O_new = cuda.warpgroup_wait %O_started pending 0 : !O
      cuda.release %V_ring[%turn] : !cuda.ring<2>
      scf.yield %O_new : !O
    }
    %O_1 = scf.for %number = %zero to %rest step %one iter_args(%O_so_far = %O) -> (!O) {
      %turn = arith.addi %whole, %number : index
      cuda.await %K_ring[%turn] : !cuda.ring<2>
      %stage = arith.remui %turn, %two : index
      %K_now = cuda.stage %K_shared[%stage] : !K_tile
      %S_started = cuda.warpgroup_product %Q_shared, %K_now over [d] : !Q_tile, !K_tile -> !S
      %S = cuda.warpgroup_wait %S_started pending 0 : !S
      cuda.release %K_ring[%turn] : !cuda.ring<2>
      %P = diagram.cast %S : !S -> !P
      cuda.await %V_ring[%turn] : !cuda.ring<2>
      %V_stage = arith.remui %turn, %two : index
      %V_now = cuda.stage %V_shared[%V_stage] : !V_tile
      %O_started = cuda.warpgroup_product %P, %V_now into %O_so_far over [x] : !P, !V_tile -> !O
      %O_new = cuda.warpgroup_wait %O_started pending 0 : !O
      cuda.release %V_ring[%turn] : !cuda.ring<2>
      scf.yield %O_new : !O
    }
  }
}

func.func @host_of_carried(%K: !keys, %V: !values, %whole: index, %rest: index) {
  %K_map = cuda.tensor_map %K : !keys_map
  %V_map = cuda.tensor_map %V : !values_map
  cuda.launch @carried grid %whole aligned %whole (%K_map, %V_map, %whole, %rest) : !keys_map, !values_map, index, index
  func.return
}
