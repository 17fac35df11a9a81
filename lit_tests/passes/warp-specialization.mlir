// RUN: xdsl-opt -p 'set-machine{name=a100},warp-specialization' %s | filecheck %s --check-prefix=AMPERE
// RUN: xdsl-opt -p 'set-machine{name=h100 arch=sm_90},warp-specialization' %s | filecheck %s --check-prefix=AMPERE
// RUN: xdsl-opt -p 'set-machine{name=h100},warp-specialization' %s | filecheck %s --check-prefix=HOPPER

// But on sm_90a the pass declines whatever the kernel is; there it says what is missing. No kernel changes, but that
// blocks without roles share a multiprocessor as they come.

!X = memref<?xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
!x = tensor<32xf32, #diagram.array<[n], level = register, layout = #cuda.layout<register = [], lane = [n:32:1], warp = []>>>

// AMPERE: cuda.kernel @streamed (%X: memref<?xf32, {{.*}}>, %n: index) threads 32 shared 0 {
// AMPERE-NEXT: %zero = arith.constant 0 : index
// AMPERE-NEXT: %piece = arith.constant 32 : index
// AMPERE-NEXT: scf.for %n0 = %zero to %n step %piece {
// AMPERE-NEXT: %x = cuda.load %X[%n0] widths [1] :
// AMPERE-NEXT: cuda.store %x into %X[%n0] widths [1] :
// HOPPER: cuda.kernel @streamed (%X: memref<?xf32, {{.*}}>, %n: index) threads 32 shared 0 {
cuda.kernel @streamed (%X: !X, %n: index) threads 32 shared 0 attributes {turns = #builtin.int<3>} {
  %zero = arith.constant 0 : index
  %piece = arith.constant 32 : index
  scf.for %n0 = %zero to %n step %piece {
    %x = cuda.load %X[%n0] widths [1] : !X -> !x
    cuda.store %x into %X[%n0] widths [1] : !x, !X
  }
}

cuda.kernel @whole (%X: !X, %n: index) threads 32 shared 0 {
  %zero = arith.constant 0 : index
  %x = cuda.load %X[%zero] widths [1] : !X -> !x
  cuda.store %x into %X[%zero] widths [1] : !x, !X
}

// AMPERE: func.func @host
// AMPERE-SAME: #hierarchy.step<"decline warp-specialization", "@streamed", "registers move between warps only on sm_90a", "the machine {{a100 is sm_80|h100 is sm_90}}">
// AMPERE-SAME: #hierarchy.step<"decline warp-specialization", "@whole", "registers move between warps only on sm_90a", "the machine {{a100 is sm_80|h100 is sm_90}}">
// AMPERE-NEXT: %aligned = cuda.alignment %X :
// AMPERE-NEXT: cuda.launch @streamed grid %n aligned %aligned(%X, %n) :
// AMPERE-NEXT: cuda.launch @whole grid %n aligned %aligned(%X, %n) :
// HOPPER: func.func @host
// HOPPER-SAME: #hierarchy.step<"decline warp-specialization", "@streamed",
// HOPPER-SAME: #hierarchy.step<"decline warp-specialization", "@whole", "a producer overlaps copies with computation", "no loop of the kernel copies tiles">
func.func @host(%X: !X, %n: index) {
  %aligned = cuda.alignment %X : !X
  cuda.launch @streamed grid %n aligned %aligned (%X, %n) : !X, index
  cuda.launch @whole grid %n aligned %aligned (%X, %n) : !X, index
  func.return
}

// A loop that copies two tiles and multiplies them: the copies go to the producer, each tile has a ring, and the launch
// takes the kernel with roles where its arrays have tensor maps.

!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!B = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[k, n], level = device>>
!C = memref<?x?xf32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!Bs = memref<64x32xf16, #diagram.array<[k, n], level = shared, layout = #cuda.rows<extents = [64, 32], pitch = 32, swizzle = [2, 1]>>>
!c = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// HOPPER: cuda.kernel @product_specialised (%C: memref<{{.*}}>, %k: index, %A_map: !cuda.tensor_map<[64, 64], {{.*}}>, %B_map: !cuda.tensor_map<[64, 32], {{.*}}>) threads 256 shared 49280 {
// HOPPER-NEXT: %A_shared = cuda.shared at 0 stages 4 : memref<64x64xf16, {{.*}} layout = #cuda.boxes<extents = [64, 64], span = 64>>>
// HOPPER-NEXT: %B_shared = cuda.shared at 32768 stages 4 : memref<64x32xf16, {{.*}} layout = #cuda.boxes<extents = [64, 32], span = 32>>>
// HOPPER-NEXT: %A_ring = cuda.ring at 49152 consumers 1 : !cuda.ring<4>
// HOPPER-NEXT: %B_ring = cuda.ring at 49216 consumers 1 : !cuda.ring<4>
// HOPPER-NEXT: %zero = arith.constant 0 : index
// HOPPER-NEXT: %piece = arith.constant 64 : index
// HOPPER-NEXT: %[[FIRST:.*]] = arith.constant 0 : index
// HOPPER-NEXT: %[[ONE:.*]] = arith.constant 1 : index
// HOPPER-NEXT: %turns = arith.ceildivui %k, %piece : index
// HOPPER-NEXT: cuda.ready %A_ring, %B_ring :
// HOPPER-NEXT: cuda.roles registers 0, 0 producer {
// HOPPER-NEXT: scf.for %turn = %[[FIRST]] to %turns step %[[ONE]] {
// HOPPER-NEXT: %k0 = arith.muli %turn, %piece : index
// HOPPER-NEXT: %[[COUNT:.*]] = arith.constant 4 : index
// HOPPER-NEXT: %stage = arith.remui %turn, %[[COUNT]] : index
// HOPPER-NEXT: %A_to = cuda.stage %A_shared[%stage] :
// HOPPER-NEXT: cuda.acquire %A_ring[%turn] :
// HOPPER-NEXT: cuda.expect %A_ring[%turn] bytes 8192 :
// HOPPER-NEXT: cuda.tensor_load %A_map[%zero, %k0] into %A_to signals %A_ring[%turn] :
// HOPPER: cuda.expect %B_ring[%turn] bytes 4096 :
// HOPPER-NEXT: cuda.tensor_load %B_map[%k0, %zero] into %B_to signals %B_ring[%turn] :
// HOPPER-NEXT: } {turns}
// HOPPER-NEXT: } consumers 1 {
// HOPPER-NEXT: %c = diagram.fill
// HOPPER-NEXT: %sum = scf.for %turn_1 = %[[FIRST]] to %turns step %[[ONE]] iter_args(%so_far = %c)
// HOPPER-NEXT: cuda.await %A_ring[%turn_1] :
// HOPPER: %A_now = cuda.stage %A_shared[%stage_2] :
// HOPPER: cuda.await %B_ring[%turn_1] :
// HOPPER: %B_now = cuda.stage %B_shared[%stage_3] :
// HOPPER-NEXT: %new = cuda.warpgroup_product %A_now, %B_now into %so_far over [k] :
// HOPPER-NEXT: %new_1 = cuda.warpgroup_wait %new pending 0 :
// HOPPER-NEXT: cuda.release %A_ring[%turn_1] :
// HOPPER-NEXT: cuda.release %B_ring[%turn_1] :
// HOPPER-NEXT: scf.yield %new_1 :
// HOPPER-NEXT: } {turns}
// HOPPER: cuda.store %sum into %C[%zero, %zero] :

// Instead of the old one stands another beside it, for arrays that have no tensor maps, whose lanes copy.

// HOPPER: cuda.kernel @product_by_lanes (%A: {{.*}}, %B: {{.*}}, %C: {{.*}}, %k: index) threads 256 shared 49280 attributes {without_maps} {
// HOPPER-NEXT: %A_shared = cuda.shared at 0 stages 4 : memref<64x64xf16, {{.*}} layout = #cuda.boxes<extents = [64, 64], span = 64>>>
// HOPPER: %A_ring = cuda.ring at 49152 consumers 1 filled by lanes : !cuda.ring<4>
// HOPPER: cuda.roles registers 0, 0 producer warps 4 {
// HOPPER: cuda.acquire %A_ring[%turn] : !cuda.ring<4>
// HOPPER-NEXT: cuda.copy async %A[%zero, %k0] into %A_to :
// HOPPER-NEXT: cuda.arrive %A_ring[%turn] : !cuda.ring<4>
// HOPPER: cuda.acquire %B_ring[%turn] : !cuda.ring<4>
// HOPPER-NEXT: cuda.copy async %B[%k0, %zero] into %B_to :
// HOPPER-NEXT: cuda.arrive %B_ring[%turn] : !cuda.ring<4>
// HOPPER: cuda.await %A_ring[%turn_1] fenced : !cuda.ring<4>
// HOPPER: cuda.await %B_ring[%turn_1] fenced : !cuda.ring<4>
// HOPPER: cuda.warpgroup_product %A_now, %B_now into %so_far over [k] :
// HOPPER-NOT: cuda.kernel @product (
cuda.kernel @product (%A: !A, %B: !B, %C: !C, %k: index) threads 128 shared 12288 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !Bs
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %c = diagram.fill 0.0 : f32 -> !c
  %sum = scf.for %k0 = %zero to %k step %piece iter_args(%so_far = %c) -> (!c) {
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared : !A, !As
    cuda.copy %B[%k0, %zero] into %B_shared : !B, !Bs
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !Bs -> !c
    scf.yield %new : !c
  }
  cuda.store %sum into %C[%zero, %zero] : !c, !C
}

// HOPPER: func.func @multiply
// HOPPER-SAME: #hierarchy.step<"warp-specialization", "@product", "a ring for each tile keeps the order of copies and uses", "1 producer and 1 consumer warpgroup; stages: 4 of %A_shared, 4 of %B_shared; where an array has an address or a stride that is no multiple of 16 bytes, @product_by_lanes runs instead, whose lanes copy, rows that are aligned to less than 4 element by element">
// HOPPER: %mappable = cuda.mappable %A, %B :
// HOPPER-NEXT: scf.if %mappable {
// HOPPER-NEXT: %A_map = cuda.tensor_map %A :
// HOPPER-NEXT: %B_map = cuda.tensor_map %B :
// HOPPER-NEXT: cuda.launch @product_specialised grid %k aligned %aligned(%C, %k, %A_map, %B_map) :
// HOPPER-NEXT: } else {
// HOPPER-NEXT: cuda.launch @product_by_lanes grid %k aligned %aligned(%A, %B, %C, %k) :
func.func @multiply(%A: !A, %B: !B, %C: !C, %k: index) {
  %aligned = cuda.alignment %A, %B, %C : !A, !B, !C
  cuda.launch @product grid %k aligned %aligned (%A, %B, %C, %k) : !A, !B, !C, index
  func.return
}

// Three blocks are to share a multiprocessor: a producer that starts tensor copies gives registers to the consumers, and
// the stages have a third of shared memory; lanes that copy keep theirs.

// HOPPER: cuda.kernel @small_specialised ({{.*}}) threads 256 shared 49280 resident 3 attributes {turns = #builtin.int<3>} {
// HOPPER: cuda.roles registers 32, 128 producer {
// HOPPER: cuda.kernel @small_by_lanes ({{.*}}) threads 256 shared 49280 attributes {turns = #builtin.int<1>, without_maps} {
// HOPPER: cuda.roles registers 0, 0 producer warps 4 {
cuda.kernel @small (%A: !A, %B: !B, %C: !C, %k: index) threads 128 shared 12288 attributes {turns = #builtin.int<3>} {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !Bs
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %c = diagram.fill 0.0 : f32 -> !c
  %sum = scf.for %k0 = %zero to %k step %piece iter_args(%so_far = %c) -> (!c) {
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared : !A, !As
    cuda.copy %B[%k0, %zero] into %B_shared : !B, !Bs
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !Bs -> !c
    scf.yield %new : !c
  }
  cuda.store %sum into %C[%zero, %zero] : !c, !C
}

// HOPPER: func.func @multiply_beside
// HOPPER-SAME: #hierarchy.step<"warp-specialization", "@small", "a ring for each tile keeps the order of copies and uses", "1 producer and 1 consumer warpgroup, 32 and 128 registers a thread of 3 blocks on a multiprocessor; stages: 4 of %A_shared, 4 of %B_shared;
func.func @multiply_beside(%A: !A, %B: !B, %C: !C, %k: index) {
  %aligned = cuda.alignment %A, %B, %C : !A, !B, !C
  cuda.launch @small grid %k aligned %aligned (%A, %B, %C, %k) : !A, !B, !C, index
  func.return
}

// The same of integers of 8 bits, along rows, with sums in i32.

!Xi = memref<?x?xi8, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!Wi = memref<?x?xi8, strided<[?, 1], offset: ?>, #diagram.array<[n, k], level = device>>
!Zi = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!Xs = memref<64x64xi8, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [2, 1]>>>
!Ws = memref<32x64xi8, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [32, 64], pitch = 64, swizzle = [2, 1]>>>
!zi = tensor<64x32xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// HOPPER: cuda.kernel @integers_specialised (%Z: memref<{{.*}}>, %k: index, %X_map: !cuda.tensor_map<[64, 64], memref<?x?xi8, {{.*}}>, %W_map: !cuda.tensor_map<[32, 64], memref<?x?xi8,
// HOPPER-NEXT: %X_shared = cuda.shared at 0 stages 4 : memref<64x64xi8, {{.*}} layout = #cuda.boxes<extents = [64, 64], span = 64>>>
// HOPPER: cuda.expect %X_ring[%turn] bytes 4096 :
// HOPPER: %z = diagram.fill 0 : i32 ->
// HOPPER: %new = cuda.warpgroup_product %X_now, %W_now into %so_far over [k] : memref<64x64xi8, {{.*}}>, memref<32x64xi8, {{.*}}> -> tensor<64x32xi32,
// HOPPER-NEXT: %new_1 = cuda.warpgroup_wait %new pending 0 :
// HOPPER: cuda.kernel @integers_by_lanes (%X: {{.*}}, %W: {{.*}}, %Z: {{.*}}, %k: index) threads 256 shared {{[0-9]+}} attributes {without_maps} {
// HOPPER-NOT: cuda.kernel @integers (
cuda.kernel @integers (%X: !Xi, %W: !Wi, %Z: !Zi, %k: index) threads 128 shared 6144 {
  %X_shared = cuda.shared at 0 : !Xs
  %W_shared = cuda.shared at 4096 : !Ws
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %z = diagram.fill 0 : i32 -> !zi
  %sum = scf.for %k0 = %zero to %k step %piece iter_args(%so_far = %z) -> (!zi) {
    cuda.barrier
    cuda.copy %X[%zero, %k0] into %X_shared : !Xi, !Xs
    cuda.copy %W[%zero, %k0] into %W_shared : !Wi, !Ws
    cuda.barrier
    %new = cuda.product %X_shared, %W_shared into %so_far over [k] using m16n8k32_s32 : !Xs, !Ws -> !zi
    scf.yield %new : !zi
  }
  cuda.store %sum into %Z[%zero, %zero] : !zi, !Zi
}

func.func @multiply_integers(%X: !Xi, %W: !Wi, %Z: !Zi, %k: index) {
  %aligned = cuda.alignment %X, %W, %Z : !Xi, !Wi, !Zi
  cuda.launch @integers grid %k aligned %aligned (%X, %W, %Z, %k) : !Xi, !Wi, !Zi, index
  func.return
}

// Loops that begin anywhere count their turns from 0 on; a second loop over the same ring counts on.

// HOPPER: cuda.kernel @masked_kernel_specialised
// HOPPER: %[[END:.*]] = arith.maxsi %until, %first : index
// HOPPER-NEXT: %[[FAR:.*]] = arith.subi %[[END]], %first : index
// HOPPER-NEXT: %turns = arith.ceildivui %[[FAR]], %piece : index
// HOPPER: %turns_1 = arith.ceildivui %{{.*}}, %piece : index
// HOPPER: scf.for %turn = %{{.*}} to %turns step
// HOPPER-NEXT: %[[STEP:.*]] = arith.muli %turn, %piece : index
// HOPPER-NEXT: %k0 = arith.addi %first, %[[STEP]] : index
// HOPPER: cuda.tensor_load %A_map[%zero, %k0] into %A_to signals %A_ring[%turn] :
// HOPPER: scf.for %turn_1 = %{{.*}} to %turns_1 step
// HOPPER: %turn_2 = arith.addi %turns, %turn_1 : index
// HOPPER: cuda.acquire %A_ring[%turn_2] :
// HOPPER: } consumers 1 {
cuda.kernel @masked_kernel (%A: !A, %B: !B, %C: !C, %first: index, %until: index, %k: index) threads 128 shared 12288 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !Bs
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %c = diagram.fill 0.0 : f32 -> !c
  %some = scf.for %k0 = %first to %until step %piece iter_args(%so_far = %c) -> (!c) {
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared : !A, !As
    cuda.copy %B[%k0, %zero] into %B_shared : !B, !Bs
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !Bs -> !c
    scf.yield %new : !c
  }
  %sum = scf.for %k0 = %until to %k step %piece iter_args(%so_far = %some) -> (!c) {
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared : !A, !As
    cuda.copy %B[%k0, %zero] into %B_shared : !B, !Bs
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !Bs -> !c
    scf.yield %new : !c
  }
  cuda.store %sum into %C[%zero, %zero] : !c, !C
}

func.func @mask(%A: !A, %B: !B, %C: !C, %first: index, %until: index, %k: index) {
  %aligned = cuda.alignment %A, %B, %C : !A, !B, !C
  cuda.launch @masked_kernel grid %k aligned %aligned (%A, %B, %C, %first, %until, %k) : !A, !B, !C, index, index, index
  func.return
}

// Numbers of columns, of which two arrays are read: the producer's lanes copy both, and they have one ring.

!b = memref<?xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
!bs = memref<32xf32, #diagram.array<[n], level = shared, layout = #cuda.rows<extents = [32], pitch = 32>>>
!bt = tensor<32xf32, #diagram.array<[n], level = register, layout = #cuda.layout<register = [n:4:8, n:2:1], lane = [8, n:4:2], warp = [4]>>>

// HOPPER: cuda.kernel @columns_specialised (%b: {{.*}}, %d: {{.*}}, %C: {{.*}}, %k: index, %A_map: {{.*}}, %B_map: {{.*}}) threads 256 shared 50368 {
// HOPPER: %b_shared = cuda.shared at 49152 stages 4 : memref<32xf32, {{.*}} layout = #cuda.rows<extents = [32], pitch = 32>>>
// HOPPER: %d_shared = cuda.shared at 49664 stages 4 :
// HOPPER: %b_ring = cuda.ring at 50304 consumers 1 by warps filled by lanes : !cuda.ring<4>
// HOPPER: cuda.ready %A_ring, %B_ring, %b_ring :
// HOPPER: producer {
// HOPPER: cuda.acquire %b_ring[%turn] :
// HOPPER-NEXT: cuda.copy async %b[%k0] into %b_to :
// HOPPER-NEXT: cuda.copy async %d[%k0] into %d_to :
// HOPPER-NEXT: cuda.arrive %b_ring[%turn] :
// HOPPER: } consumers 1 {
// HOPPER: cuda.await %b_ring[%turn_1] :
// HOPPER: %b_now = cuda.stage %b_shared[%[[B_STAGE:.*]]] :
// HOPPER-NEXT: %b_piece = cuda.read %b_now :
// HOPPER-NOT: cuda.release %b_ring
// HOPPER: %d_piece = cuda.read %d_now :
// HOPPER-NEXT: cuda.release %b_ring[%turn_1] :
cuda.kernel @columns (%A: !A, %B: !B, %b: !b, %d: !b, %C: !C, %k: index) threads 128 shared 12544 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !Bs
  %b_shared = cuda.shared at 12288 : !bs
  %d_shared = cuda.shared at 12416 : !bs
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %c = diagram.fill 0.0 : f32 -> !c
  %sum = scf.for %k0 = %zero to %k step %piece iter_args(%so_far = %c) -> (!c) {
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared : !A, !As
    cuda.copy %B[%k0, %zero] into %B_shared : !B, !Bs
    cuda.copy %b[%k0] into %b_shared : !b, !bs
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !Bs -> !c
    %b_piece = cuda.read %b_shared : !bs -> !bt
    %more = diagram.map (%s = %new : !c, %t = %b_piece : !bt) -> !c {
      %0 = arith.addf %s, %t : f32
      diagram.yield %0 : f32
    }
    cuda.copy %d[%k0] into %d_shared : !b, !bs
    cuda.barrier
    %d_piece = cuda.read %d_shared : !bs -> !bt
    %most = diagram.map (%s = %more : !c, %t = %d_piece : !bt) -> !c {
      %0 = arith.mulf %s, %t : f32
      diagram.yield %0 : f32
    }
    scf.yield %most : !c
  }
  cuda.store %sum into %C[%zero, %zero] : !c, !C
}

func.func @host_of_columns(%A: !A, %B: !B, %b: !b, %d: !b, %C: !C, %k: index) {
  %aligned = cuda.alignment %A, %B, %b, %d, %C : !A, !B, !b, !b, !C
  cuda.launch @columns grid %k aligned %aligned (%A, %B, %b, %d, %C, %k) : !A, !B, !b, !b, !C, index
  func.return
}
!list = memref<96xi32, #diagram.array<[k], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
!table = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[k], level = device>>
!value = tensor<1xi32, #diagram.array<[k], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [4]>>>

// Pieces that the block selects: all its threads list them before they have roles, and both roles read the list.
// HOPPER-LABEL: cuda.kernel @listed_specialised
// HOPPER: %list = cuda.shared at
// HOPPER: %count = cuda.select %list from %zero to %k step 64 (%k0: index) {
// HOPPER: cuda.barrier
// HOPPER: cuda.ready
// HOPPER: producer {
// HOPPER: scf.for %turn = %{{.*}} to %turns step
// HOPPER: %k0 = cuda.selected %list[%{{.*}}] step 64 :
// HOPPER: cuda.tensor_load %A_map[%zero, %k0] into
// HOPPER: } consumers 1 {
// HOPPER: scf.for %turn_2 = %{{.*}} to %turns step
// HOPPER: cuda.await %A_ring[%turn_2] :
cuda.kernel @listed (%A: !A, %B: !B, %T: !table, %C: !C, %k: index) threads 128 shared 12672 {
  %list = cuda.shared at 0 : !list
  %A_shared = cuda.shared at 384 : !As
  %B_shared = cuda.shared at 8576 : !Bs
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
  %c = diagram.fill 0.0 : f32 -> !c
  %sum = scf.for %turn = %zero to %count step %one iter_args(%so_far = %c) -> (!c) {
    %k0 = cuda.selected %list[%turn] step 64 : !list
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared : !A, !As
    cuda.copy %B[%k0, %zero] into %B_shared : !B, !Bs
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !Bs -> !c
    scf.yield %new : !c
  }
  cuda.store %sum into %C[%zero, %zero] : !c, !C
}

func.func @host_of_listed(%A: !A, %B: !B, %T: !table, %C: !C, %k: index) {
  %aligned = cuda.alignment %A, %B, %T, %C : !A, !B, !table, !C
  cuda.launch @listed grid %k aligned %aligned (%A, %B, %T, %C, %k) : !A, !B, !table, !C, index
  func.return
}

!pages = memref<?x16x?xf16, strided<[?, ?, 1], offset: ?>, #diagram.array<[p, s, n], level = device>>
!page_tile = memref<64x64xf16, #diagram.array<[k, n], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!wide = tensor<64x64xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// Rows that lie where data say: the lanes of a warp copy runs of 16, the rows of a page. The loop ends at a position
// that is no end of the pages, and products sum over the rows: those behind it become zeros, one by one.
// HOPPER-LABEL: cuda.kernel @paged_specialised (%C: memref
// HOPPER-SAME: %table: memref<?xi32,
// HOPPER-SAME: %A_map: !cuda.tensor_map<[64, 64], memref
// HOPPER-SAME: %pages_map: !cuda.tensor_map<[1, 16, 64], memref
// HOPPER-SAME: %pages_row: !cuda.tensor_map<[1, 1, 64], memref
// HOPPER: producer {
// HOPPER: scf.for %turn =
// HOPPER: cuda.acquire %B_ring[%turn] :
// HOPPER-NEXT: cuda.expect %B_ring[%turn] bytes 8192 :
// HOPPER-NEXT: cuda.tensor_gather %pages_map[%k0, %zero] into %B_to signals %B_ring[%turn] at "table[k // 16], k % 16, n" with (table = %table : {{.*}}) bounds [k < %k_end] by %pages_row :
// HOPPER: } consumers 1 {
// HOPPER: cuda.await %B_ring[%turn_1] :
// HOPPER: cuda.warpgroup_product %A_now, %B_now into
cuda.kernel @paged (%A: !A, %pages: !pages, %C: !C, %k: index, %k_used: index, %table: !table) threads 128 shared 16384 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !page_tile
  %zero = arith.constant 0 : index
  %step = arith.constant 64 : index
  %k_end = arith.minsi %k, %k_used : index
  %c = diagram.fill 0.0 : f32 -> !wide
  %sum = scf.for %k0 = %zero to %k_end step %step iter_args(%so_far = %c) -> (!wide) {
    cuda.barrier
    cuda.copy %A[%zero, %k0] into %A_shared bounds [k < %k] : !A, !As
    cuda.copy %pages[%k0, %zero] into %B_shared at "table[k // 16], k % 16, n" with (table = %table : !table) bounds [k < %k_end] : !pages, !page_tile
    cuda.barrier
    %new = cuda.product %A_shared, %B_shared into %so_far over [k] using m16n8k16 : !As, !page_tile -> !wide
    scf.yield %new : !wide
  }
  cuda.store %sum into %C[%zero, %zero] : !wide, !C
}

func.func @host_of_paged(%A: !A, %pages: !pages, %C: !C, %k: index, %table: !table) {
  %aligned = cuda.alignment %A, %pages, %C, %table : !A, !pages, !C, !table
  cuda.launch @paged grid %k aligned %aligned (%A, %pages, %C, %k, %k, %table) : !A, !pages, !C, index, index, !table
  func.return
}

// Rows of 40 numbers: 80 bytes, in boxes of 128, of which tensor copies fill the rest with zeros. So 40 numbers are
// summed by three products of 16, and what is held whole and summed down the rows of a tile, 40 of them, reaches to 48.

!Q40 = memref<?x40xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
!K40 = memref<40x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[d, x], level = device>>
!M40 = memref<?x?xf32, strided<[?, 1], offset: ?>, #diagram.array<[q, x], level = device>>
!Qs40 = memref<64x40xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [64, 40], pitch = 40>>>
!Ks40 = memref<40x64xf16, #diagram.array<[d, x], level = shared, layout = #cuda.rows<extents = [40, 64], pitch = 64, swizzle = [3, 0]>>>
!s40 = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>>>

// HOPPER-LABEL: cuda.kernel @heads_specialised (
// HOPPER-SAME: %Q_map: !cuda.tensor_map<[64, 64], memref<?x40xf16,
// HOPPER-SAME: %K_map: !cuda.tensor_map<[48, 64], memref<40x?xf16,
// HOPPER-NEXT: %Q_shared = cuda.shared at 0 : memref<64x40xf16, {{.*}} layout = #cuda.boxes<extents = [64, 64], span = 64>>>
// HOPPER-NEXT: %K_shared = cuda.shared at 8192 stages 4 : memref<40x64xf16, {{.*}} layout = #cuda.boxes<extents = [48, 64], span = 64>>>
// HOPPER: cuda.expect %Q_ring[{{.*}}] bytes 8192 :
// HOPPER: cuda.expect %K_ring[%turn] bytes 6144 :
// HOPPER: cuda.warpgroup_product %Q_shared, %K_now over [d] : memref<64x40xf16,
cuda.kernel @heads (%Q: !Q40, %K: !K40, %M: !M40, %x: index) threads 128 shared 10240 {
  %Q_shared = cuda.shared at 0 : !Qs40
  %K_shared = cuda.shared at 5120 : !Ks40
  %zero = arith.constant 0 : index
  %step = arith.constant 64 : index
  %none = diagram.fill 0.0 : f32 -> !s40
  cuda.copy %Q[%zero, %zero] into %Q_shared : !Q40, !Qs40
  %sum = scf.for %x0 = %zero to %x step %step iter_args(%so_far = %none) -> (!s40) {
    cuda.barrier
    cuda.copy %K[%zero, %x0] into %K_shared bounds [x < %x] : !K40, !Ks40
    cuda.barrier
    %s = cuda.product %Q_shared, %K_shared into %none over [d] using m16n8k16 : !Qs40, !Ks40 -> !s40
    %new = diagram.map (%a = %s : !s40, %b = %so_far : !s40) -> !s40 {
      %c = arith.addf %a, %b : f32
      diagram.yield %c : f32
    }
    scf.yield %new : !s40
  }
  cuda.store %sum into %M[%zero, %zero] : !s40, !M40
}

func.func @host_of_heads(%Q: !Q40, %K: !K40, %M: !M40, %x: index) {
  %aligned = cuda.alignment %Q, %K, %M : !Q40, !K40, !M40
  cuda.launch @heads grid %x aligned %aligned (%Q, %K, %M, %x) : !Q40, !K40, !M40, index
  func.return
}

// A left operand that is read before the loop, once for all its products, stays in registers: consumers read it by their
// warps, and give its place back before the first turn.

!Q64 = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
!K64 = memref<64x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[d, x], level = device>>
!Qs64 = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!Ks64 = memref<64x64xf16, #diagram.array<[d, x], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!q64 = tensor<64x64xf16, #diagram.array<[q, d], level = register, layout = #cuda.layout<register = [d:4:16, d:2:8, q:2:8, d:2:1], lane = [q:8:1, d:4:2], warp = [q:4:16]>>>

// HOPPER-LABEL: cuda.kernel @kept_specialised (
// HOPPER: %Q_shared = cuda.shared at 0 : memref<64x64xf16, {{.*}} layout = #cuda.boxes<extents = [64, 64], span = 64>>>
// HOPPER: %Q_ring = cuda.ring at 40960 consumers 1 by warps : !cuda.ring<1>
// HOPPER: } consumers 1 {
// HOPPER: cuda.await %Q_ring[%[[FIRST:.*]]] : !cuda.ring<1>
// HOPPER-NEXT: %q = cuda.read %Q_shared : memref<64x64xf16,
// HOPPER-NEXT: cuda.release %Q_ring[%[[FIRST]]] : !cuda.ring<1>
// HOPPER-NEXT: %sum = scf.for
// HOPPER: cuda.warpgroup_product %q, %K_now over [d] : tensor<64x64xf16,
// HOPPER-NOT: cuda.release %Q_ring
// HOPPER-LABEL: cuda.kernel @kept_by_lanes (
// HOPPER: %q = cuda.read %Q_shared : memref<64x64xf16,
// HOPPER: cuda.warpgroup_product %q, %K_now over [d] : tensor<64x64xf16,
cuda.kernel @kept (%Q: !Q64, %K: !K64, %M: !M40, %x: index) threads 128 shared 16384 {
  %Q_shared = cuda.shared at 0 : !Qs64
  %K_shared = cuda.shared at 8192 : !Ks64
  %zero = arith.constant 0 : index
  %step = arith.constant 64 : index
  %none = diagram.fill 0.0 : f32 -> !s40
  cuda.copy %Q[%zero, %zero] into %Q_shared : !Q64, !Qs64
  cuda.barrier
  %q = cuda.read %Q_shared : !Qs64 -> !q64
  %sum = scf.for %x0 = %zero to %x step %step iter_args(%so_far = %none) -> (!s40) {
    cuda.barrier
    cuda.copy %K[%zero, %x0] into %K_shared bounds [x < %x] : !K64, !Ks64
    cuda.barrier
    %s = cuda.product %q, %K_shared into %none over [d] using m16n8k16 : !q64, !Ks64 -> !s40
    %new = diagram.map (%a = %s : !s40, %b = %so_far : !s40) -> !s40 {
      %c = arith.addf %a, %b : f32
      diagram.yield %c : f32
    }
    scf.yield %new : !s40
  }
  cuda.store %sum into %M[%zero, %zero] : !s40, !M40
}

func.func @host_of_kept(%Q: !Q64, %K: !K64, %M: !M40, %x: index) {
  %aligned = cuda.alignment %Q, %K, %M : !Q64, !K64, !M40
  cuda.launch @kept grid %x aligned %aligned (%Q, %K, %M, %x) : !Q64, !K64, !M40, index
  func.return
}
