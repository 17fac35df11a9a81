// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | xdsl-opt | filecheck %s

!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!B = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[n, k], level = device>>
!K = memref<?x64xf8E4M3FN, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
!A_map = !cuda.tensor_map<[64, 64], !A>
!A_rows = !cuda.tensor_map<[8, 64], !A>
!A_row = !cuda.tensor_map<[1, 64], !A>
!B_map = !cuda.tensor_map<[32, 64], !B>
!As = memref<64x128xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 64>>>
!Bs = memref<32x128xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 128], span = 64>>>
!a = tensor<64x128xf16, #diagram.array<[m, k], level = register, layout = #cuda.layout<register = [k:8:16, k:2:8, m:2:8, k:2:1], lane = [m:8:1, k:4:2], warp = [m:4:16]>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// Sums of 8-bit products are promoted.

!A8 = memref<64x256xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 256], span = 128>>>
!B8 = memref<32x256xf8E5M2, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 256], span = 128>>>

// CHECK-LABEL: cuda.kernel @promoted
// CHECK:      %C = cuda.promoted_product %A_shared, %B_shared into %zero over [k] promote 128 : memref<64x256xf8E4M3FN, {{.*}}>, memref<32x256xf8E5M2, {{.*}}> -> tensor<64x32xf32,
// CHECK-NEXT: %D = cuda.promoted_product %A_shared, %B_shared into %C over [k] promote 96 {note = 13 : i32} :
cuda.kernel @promoted () threads 256 shared 24576 {
  %A_shared = cuda.shared at 0 : !A8
  %B_shared = cuda.shared at 16384 : !B8
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %zero = diagram.fill 0.0 : f32 -> !C
    %C = cuda.promoted_product %A_shared, %B_shared into %zero over [k] promote 128 : !A8, !B8 -> !C
    %D = cuda.promoted_product %A_shared, %B_shared into %C over [k] promote 96 {note = 13 : i32} : !A8, !B8 -> !C
  }
}

// An order of the rows of a tile, which its tensor map has, too; and the size that this asks for.

// CHECK-LABEL: cuda.kernel @ordered (%K_map: !cuda.tensor_map<[32, 64], order = [x:2:2, x:8:4, x:2:1], memref<?x64xf8E4M3FN,
// CHECK-NEXT: %K_shared = cuda.shared at 0 : memref<32x64xf8E4M3FN, {{.*}} layout = #cuda.boxes<extents = [32, 64], span = 64, order = [x:2:2, x:8:4, x:2:1]>>>
cuda.kernel @ordered (%K_map: !cuda.tensor_map<[32, 64], order = [x:2:2, x:8:4, x:2:1], !K>) threads 128 shared 2048 {
  %K_shared = cuda.shared at 0 : memref<32x64xf8E4M3FN, #diagram.array<[x, d], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64, order = [x:2:2, x:8:4, x:2:1]>>>
}
// CHECK-LABEL: func.func @asked
// CHECK: %mappable = cuda.mappable %K {multiples = {x = 4 : i64}} : memref<?x64xf8E4M3FN,
func.func @asked(%K: !K) {
  %mappable = cuda.mappable %K {multiples = {x = 4 : i64}} : !K
  func.return
}

// Rows that lie where data say.

!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
!row = !cuda.tensor_map<[1, 1, 1, 64], !pages>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>

// CHECK-LABEL: cuda.kernel @gathered
// CHECK:      cuda.tensor_gather %map[%b, %x, %b, %b] into %K signals %ring[%x] at "table[b, x // 16], x % 16, h, d" with (table = %table : memref<?x?xi32, {{.*}}>) {note = 14 : i32} : !cuda.tensor_map<[1, 16, 1, 64], {{.*}}>, memref<1x64x1x128xf16, {{.*}}>, !cuda.ring<1>
// CHECK-NEXT: cuda.tensor_gather %map[%b, %x, %b, %b] into %K signals %ring[%x] at "table[b, x // 16], x % 16, h, d" with (table = %table : memref<?x?xi32, {{.*}}>) bounds [x >= %b, x < %x] inside "table[b, x // 16]" of [%n] by %row : !cuda.tensor_map<[1, 16, 1, 64], {{.*}}>, memref<1x64x1x128xf16, {{.*}}>, !cuda.ring<1>, !cuda.tensor_map<[1, 1, 1, 64], {{.*}}>
cuda.kernel @gathered (%map: !page, %row: !row, %table: !table, %b: index, %x: index, %n: index) threads 256 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.ready %ring : !cuda.ring<1>
  cuda.roles registers 0, 0 producer {
    cuda.tensor_gather %map[%b, %x, %b, %b] into %K signals %ring[%x] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) {note = 14 : i32} : !page, !Ks, !cuda.ring<1>
    cuda.tensor_gather %map[%b, %x, %b, %b] into %K signals %ring[%x] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) bounds [x >= %b, x < %x] inside "table[b, x // 16]" of [%n] by %row : !page, !Ks, !cuda.ring<1>, !row
  } consumers 1 {
  }
}

// Consumers take turns.

// CHECK-LABEL: cuda.kernel @turns
// CHECK: consumers 3 {
// CHECK-NEXT: cuda.order_begin
// CHECK-NEXT: cuda.order_wait {note = 12 : i32}
// CHECK-NEXT: cuda.order_arrive
// CHECK-NEXT: cuda.order_end
cuda.kernel @turns () threads 512 shared 0 {
  cuda.roles registers 0, 0 producer {
  } consumers 3 {
    cuda.order_begin
    cuda.order_wait {note = 12 : i32}
    cuda.order_arrive
    cuda.order_end
  }
}

// Rows from a position on are zeros, though the array goes on.

// CHECK-LABEL: cuda.kernel @before
// CHECK: cuda.tensor_load %A_map[%m, %m] into %A_shared signals %A_ring[%m] before %stop by %A_rows, %A_row {note = 11 : i32} : !cuda.tensor_map<[64, 64], {{.*}}>, memref<64x128xf16, {{.*}}>, !cuda.ring<1>, !cuda.tensor_map<[8, 64], {{.*}}>, !cuda.tensor_map<[1, 64],
cuda.kernel @before (%A_map: !A_map, %A_rows: !A_rows, %A_row: !A_row, %m: index, %stop: index) threads 256 shared 16400 {
  %A_shared = cuda.shared at 0 : !As
  %A_ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m, %m] into %A_shared signals %A_ring[%m] before %stop by %A_rows, %A_row {note = 11 : i32} : !A_map, !As, !cuda.ring<1>, !A_rows, !A_row
}

// Rows before a position, too.

// CHECK-LABEL: cuda.kernel @within
// CHECK: cuda.tensor_load %A_map[%m, %m] into %A_shared signals %A_ring[%m] from %begin before %stop by %A_rows, %A_row : !cuda.tensor_map<[64, 64], {{.*}}>, memref<64x128xf16, {{.*}}>, !cuda.ring<1>, !cuda.tensor_map<[8, 64], {{.*}}>, !cuda.tensor_map<[1, 64],
// CHECK-NEXT: cuda.tensor_load %A_map[%m, %m] into %A_shared signals %A_ring[%m] from %begin by %A_rows, %A_row : !cuda.tensor_map<[64, 64],
cuda.kernel @within (%A_map: !A_map, %A_rows: !A_rows, %A_row: !A_row, %m: index, %begin: index, %stop: index) threads 256 shared 16400 {
  %A_shared = cuda.shared at 0 : !As
  %A_ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m, %m] into %A_shared signals %A_ring[%m] from %begin before %stop by %A_rows, %A_row : !A_map, !As, !cuda.ring<1>, !A_rows, !A_row
  cuda.tensor_load %A_map[%m, %m] into %A_shared signals %A_ring[%m] from %begin by %A_rows, %A_row : !A_map, !As, !cuda.ring<1>, !A_rows, !A_row
}

// A producer acquires a turn, says what will come and starts the copy; a consumer awaits, multiplies and releases it.

// CHECK-LABEL: cuda.kernel @product (%A_map: !cuda.tensor_map<[64, 64], memref<?x?xf16, {{.*}}>>, %B_map: !cuda.tensor_map<[32, 64], {{.*}}>, %k: index) threads 256 shared 49216 {
// CHECK-NEXT: %A_shared = cuda.shared at 0 stages 2 : memref<64x128xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 64>>>
// CHECK-NEXT: %B_shared = cuda.shared at 32768 stages 2 : memref<32x128xf16,
// CHECK-NEXT: %A_ring = cuda.ring at 49152 consumers 1 : !cuda.ring<2>
// CHECK-NEXT: %B_ring = cuda.ring at 49184 consumers 1 {note = 1 : i32} : !cuda.ring<2>
// CHECK-NEXT: cuda.ready %A_ring, %B_ring : !cuda.ring<2>, !cuda.ring<2>
// CHECK-NEXT: %zero = arith.constant 0 : index
cuda.kernel @product (%A_map: !A_map, %B_map: !B_map, %k: index) threads 256 shared 49216 {
  %A_shared = cuda.shared at 0 stages 2 : !As
  %B_shared = cuda.shared at 32768 stages 2 : !Bs
  %A_ring = cuda.ring at 49152 consumers 1 : !cuda.ring<2>
  %B_ring = cuda.ring at 49184 consumers 1 {note = 1 : i32} : !cuda.ring<2>
  cuda.ready %A_ring, %B_ring : !cuda.ring<2>, !cuda.ring<2>
  %zero = arith.constant 0 : index
  // CHECK-NEXT: cuda.roles registers 0, 0 producer {
  cuda.roles registers 0, 0 producer {
    %A_to = cuda.stage %A_shared[%zero] : !As
    // CHECK: cuda.acquire %A_ring[%zero] : !cuda.ring<2>
    // CHECK-NEXT: cuda.expect %A_ring[%zero] bytes 16384 : !cuda.ring<2>
    // CHECK-NEXT: cuda.tensor_load %A_map[%zero, %k] into %A_to signals %A_ring[%zero] : !cuda.tensor_map<[64, 64], {{.*}}>, memref<64x128xf16, {{.*}}>, !cuda.ring<2>
    cuda.acquire %A_ring[%zero] : !cuda.ring<2>
    cuda.expect %A_ring[%zero] bytes 16384 : !cuda.ring<2>
    cuda.tensor_load %A_map[%zero, %k] into %A_to signals %A_ring[%zero] : !A_map, !As, !cuda.ring<2>
    // CHECK-NEXT: } consumers 1 {
  } consumers 1 {
    %A_now = cuda.stage %A_shared[%zero] : !As
    %B_now = cuda.stage %B_shared[%zero] : !Bs
    // CHECK: cuda.await %A_ring[%zero] : !cuda.ring<2>
    // CHECK-NEXT: %C_started = cuda.warpgroup_product %A_now, %B_now over [k] : memref<64x128xf16, {{.*}}>, memref<32x128xf16, {{.*}}> -> tensor<64x32xf32,
    // CHECK-NEXT: %C = cuda.warpgroup_wait %C_started pending 1 {note = 2 : i32} : tensor<64x32xf32,
    // CHECK-NEXT: %a = diagram.fill
    // CHECK-NEXT: %D_started = cuda.warpgroup_product %a, %B_now into %C over [k] : tensor<64x128xf16, {{.*}}>, memref<32x128xf16, {{.*}}> -> tensor<64x32xf32,
    // CHECK-NEXT: cuda.warpgroup_drain pending 1 {note = 3 : i32}
    // CHECK-NEXT: cuda.release %A_ring[%zero] : !cuda.ring<2>
    cuda.await %A_ring[%zero] : !cuda.ring<2>
    %C_started = cuda.warpgroup_product %A_now, %B_now over [k] : !As, !Bs -> !C
    %C = cuda.warpgroup_wait %C_started pending 1 {note = 2 : i32} : !C
    %a = diagram.fill 0.0 : f16 -> !a
    %D_started = cuda.warpgroup_product %a, %B_now into %C over [k] : !a, !Bs -> !C
    cuda.warpgroup_drain pending 1 {note = 3 : i32}
    cuda.release %A_ring[%zero] : !cuda.ring<2>
  }
}

// Integers of 8 bits, with a sign or without, have exact sums in i32.

!Ai = memref<64x64xui8, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!Bi = memref<48x64xi8, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [48, 64], span = 64>>>
!Ci = tensor<64x48xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:6:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// CHECK-LABEL: cuda.kernel @integers
// CHECK:      %C_started = cuda.warpgroup_product %A_shared, %B_shared over [k] : memref<64x64xui8, {{.*}}>, memref<48x64xi8, {{.*}}> -> tensor<64x48xi32,
// CHECK-NEXT: %C = cuda.warpgroup_wait %C_started pending 0 : tensor<64x48xi32,
// CHECK-NEXT: %D = cuda.warpgroup_product %A_shared, %B_shared into %C over [k] :
cuda.kernel @integers () threads 256 shared 7168 {
  %A_shared = cuda.shared at 0 : !Ai
  %B_shared = cuda.shared at 4096 : !Bi
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %C_started = cuda.warpgroup_product %A_shared, %B_shared over [k] : !Ai, !Bi -> !Ci
    %C = cuda.warpgroup_wait %C_started pending 0 : !Ci
    %D = cuda.warpgroup_product %A_shared, %B_shared into %C over [k] : !Ai, !Bi -> !Ci
  }
}

// CHECK-LABEL: func.func @host
// CHECK-NEXT: %mappable = cuda.mappable %A, %B : memref<?x?xf16,
// CHECK-NEXT: %A_map = cuda.tensor_map %A : !cuda.tensor_map<[64, 64], memref<?x?xf16,
func.func @host(%A: !A, %B: !B) {
  %mappable = cuda.mappable %A, %B : !A, !B
  %A_map = cuda.tensor_map %A : !A_map
  func.return
}

// A tile that leaves by a tensor copy: written, fenced, met, copied, and awaited before it may be written again.

!R = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!R_map = !cuda.tensor_map<[64, 32], !R>
!Rs = memref<64x32xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>>
!Rh = memref<64x16xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 16], span = 16>>>
!r = tensor<64x32xf16, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>

// CHECK-LABEL: cuda.kernel @leaves (%R_map: !cuda.tensor_map<[64, 32], {{.*}}>, %m0: index) threads 256 shared 6144 {
cuda.kernel @leaves (%R_map: !R_map, %m0: index) threads 256 shared 6144 {
  %R_staged = cuda.shared at 0 : !Rs
  %R_half = cuda.shared at 4096 : !Rh
  // CHECK: %blocks = cuda.grid_size {note = 7 : i32}
  %blocks = cuda.grid_size {note = 7 : i32}
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %r = diagram.fill 0.000000e+00 : f16 -> !r
    // CHECK: cuda.write %r into %R_staged : tensor<64x32xf16, {{.*}}>, memref<64x32xf16, {{.*}}>
    // CHECK-NEXT: cuda.tensor_fence {note = 3 : i32}
    // CHECK-NEXT: cuda.barrier
    // CHECK-NEXT: cuda.tensor_store %R_staged into %R_map[%m0, %m0] {note = 4 : i32} : memref<64x32xf16, {{.*}}>, !cuda.tensor_map<[64, 32], {{.*}}>
    // CHECK-NEXT: cuda.tensor_wait pending 0 {note = 5 : i32}
    cuda.write %r into %R_staged : !r, !Rs
    cuda.tensor_fence {note = 3 : i32}
    cuda.barrier
    cuda.tensor_store %R_staged into %R_map[%m0, %m0] {note = 4 : i32} : !Rs, !R_map
    cuda.tensor_wait pending 0 {note = 5 : i32}
    // CHECK-NEXT: cuda.write %r part 1 of 2 into %R_half {note = 6 : i32} : tensor<64x32xf16, {{.*}}>, memref<64x16xf16, {{.*}}>
    cuda.write %r part 1 of 2 into %R_half {note = 6 : i32} : !r, !Rh
  }
}

// Each of two warpgroups sends its own rows.

!R2s = memref<128x32xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [128, 32], span = 32>>>

// CHECK-LABEL: cuda.kernel @leaves_by_groups
// CHECK:      cuda.barrier by groups {note = 15 : i32}
// CHECK-NEXT: cuda.tensor_store %R_staged into %R_map[%m0, %m0] by groups {note = 16 : i32} : memref<128x32xf16, {{.*}}>, !cuda.tensor_map<[64, 32], {{.*}}>
// CHECK-NEXT: cuda.tensor_wait pending 0 by groups {note = 17 : i32}
cuda.kernel @leaves_by_groups (%R_map: !R_map, %m0: index) threads 384 shared 8192 {
  %R_staged = cuda.shared at 0 : !R2s
  cuda.roles registers 0, 0 producer {
  } consumers 2 {
    cuda.barrier by groups {note = 15 : i32}
    cuda.tensor_store %R_staged into %R_map[%m0, %m0] by groups {note = 16 : i32} : !R2s, !R_map
    cuda.tensor_wait pending 0 by groups {note = 17 : i32}
  }
}

// What is acquired beside a turn of another ring.

// CHECK-LABEL: cuda.kernel @beside
// CHECK: cuda.acquire_beside %Q_ring[%t], %K_ring[%u] {note = 18 : i32} : !cuda.ring<1>, !cuda.ring<2>
cuda.kernel @beside (%t: index, %u: index) threads 256 shared 48 {
  %Q_ring = cuda.ring at 0 consumers 1 : !cuda.ring<1>
  %K_ring = cuda.ring at 16 consumers 1 : !cuda.ring<2>
  cuda.roles registers 0, 0 producer {
    cuda.acquire_beside %Q_ring[%t], %K_ring[%u] {note = 18 : i32} : !cuda.ring<1>, !cuda.ring<2>
  } consumers 1 {
  }
}

// Lanes of the producer fill the stages of a ring, and arrive behind their copies.

// CHECK-LABEL: cuda.kernel @by_lanes
// CHECK: %b_ring = cuda.ring at 512 consumers 1 by warps filled by lanes : !cuda.ring<2>
// CHECK: cuda.arrive %b_ring[%zero] {note = 13 : i32} : !cuda.ring<2>
!b = memref<?xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
!bs = memref<64xf32, #diagram.array<[n], level = shared, layout = #cuda.rows<extents = [64], pitch = 64>>>
cuda.kernel @by_lanes (%b: !b) threads 256 shared 544 {
  %b_shared = cuda.shared at 0 stages 2 : !bs
  %b_ring = cuda.ring at 512 consumers 1 by warps filled by lanes : !cuda.ring<2>
  %zero = arith.constant 0 : index
  cuda.ready %b_ring : !cuda.ring<2>
  cuda.roles registers 0, 0 producer {
    %b_to = cuda.stage %b_shared[%zero] : !bs
    cuda.acquire %b_ring[%zero] : !cuda.ring<2>
    cuda.copy async %b[%zero] into %b_to widths [1] : !b, !bs
    cuda.arrive %b_ring[%zero] {note = 13 : i32} : !cuda.ring<2>
  } consumers 1 {
    cuda.await %b_ring[%zero] : !cuda.ring<2>
    cuda.release %b_ring[%zero] : !cuda.ring<2>
  }
}
