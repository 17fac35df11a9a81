// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | filecheck %s --check-prefix=GENERIC

!Q = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
!Qs = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!Ks = memref<32x64xf16, #diagram.array<[x, d], level = shared, layout = #cuda.rows<extents = [32, 64], pitch = 72>>>
!S = tensor<64x32xf32, #diagram.array<[q, x], level = register, layout = #cuda.layout<register = [x:4:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>>>
!q = tensor<64x64xf16, #diagram.array<[q, d], level = register, layout = #cuda.layout<register = [d:4:16, d:2:8, q:2:8, d:2:1], lane = [q:8:1, d:4:2], warp = [q:4:16]>>>
!r = tensor<64xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
!w = tensor<64xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:1], lane = [q:8:2, 4], warp = [q:4:16]>>>
!i = tensor<64xi32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
!m = tensor<64xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
!part = tensor<2xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, 2]>>>
!parts = tensor<2x2xf32, #diagram.array<[q, x_warp], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, x_warp:2:1]>>>
!M = memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>

// A kernel's arguments, its threads and the shared memory that it takes; tiles with stages, and one in place of others.

// CHECK-LABEL: cuda.kernel @everything (%Q: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %scale: f32, %q: index, %x: index) threads 128 shared 24576 attributes {note = "kept"} {
// CHECK-NEXT: %Q_shared = cuda.shared at 0 : memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
// CHECK-NEXT: %K_shared = cuda.shared at 8192 stages 2 : memref<32x64xf16, #diagram.array<[x, d], level = shared, layout = #cuda.rows<extents = [32, 64], pitch = 72>>>
// CHECK-NEXT: %O_shared = cuda.shared at 0 alias {note = 4 : i32} : memref<64x64xf16,
// CHECK-NEXT: %block = cuda.block_index
// CHECK-NEXT: %zero = arith.constant 0 : index
// CHECK-NEXT: %K_now = cuda.stage %K_shared[%zero] {note = 5 : i32} : memref<32x64xf16,
// GENERIC: "cuda.kernel"() <{sym_name = "everything", threads = #builtin.int<128>, shared_bytes = #builtin.int<24576>}> ({
// GENERIC-NEXT: ^bb{{[0-9]+}}(%Q: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %scale: f32, %q: index, %x: index):
// GENERIC-NEXT: %Q_shared = "cuda.shared"() <{offset = #builtin.int<0>, stages = #builtin.int<1>}> : () -> memref<64x64xf16,
// GENERIC-NEXT: %K_shared = "cuda.shared"() <{offset = #builtin.int<8192>, stages = #builtin.int<2>}>
// GENERIC-NEXT: %O_shared = "cuda.shared"() <{offset = #builtin.int<0>, stages = #builtin.int<1>, alias}> {note = 4 : i32}
// GENERIC-NEXT: %block = "cuda.block_index"() : () -> index
// GENERIC: %K_now = "cuda.stage"(%K_shared, %zero) {note = 5 : i32} : (memref<32x64xf16,
cuda.kernel @everything (%Q: !Q, %scale: f32, %q: index, %x: index) threads 128 shared 24576 attributes {note = "kept"} {
  %Q_shared = cuda.shared at 0 : !Qs
  %K_shared = cuda.shared at 8192 stages 2 : !Ks
  %O_shared = cuda.shared at 0 alias {note = 4 : i32} : !Qs
  %block = cuda.block_index
  %zero = arith.constant 0 : index
  %K_now = cuda.stage %K_shared[%zero] {note = 5 : i32} : !Ks

  // Copies to and from shared memory: every part of the syntax, and none of it.

  // CHECK-NEXT: cuda.copy %Q[%block, %zero] into %Q_shared bounds [q < %q] widths [8, 2, 1] {note = 1 : i32} : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<64x64xf16,
  // CHECK-NEXT: cuda.copy async %Q[%block, %zero] into %Q_shared bounds [q < %q, d < %x] partial : memref<?x64xf16,
  // CHECK-NEXT: cuda.copy %Q[%block, %zero] into %Q_shared : memref<?x64xf16,
  // CHECK-NEXT: cuda.copy %O_shared into %Q[%block, %zero] bounds [q < %q] : memref<64x64xf16, {{.*}}, memref<?x64xf16,
  // CHECK-NEXT: cuda.copy %Q[%block, %zero] into %Q_shared bounds [q >= %block, q < %q] : memref<?x64xf16,
  // CHECK-NEXT: cuda.copy %Q[%block, %zero] into %Q_shared bounds [q < %q] inside "q - 2 * d, d - 1" of [%x, %q] partial : memref<?x64xf16,
  // CHECK-NEXT: cuda.commit
  // CHECK-NEXT: cuda.wait pending 1 {note = 8 : i32}
  // CHECK-NEXT: cuda.barrier
  // GENERIC: "cuda.copy"(%Q, %Q_shared, %block, %zero, %q) <{bounds = ["q"], widths = [#builtin.int<8>, #builtin.int<2>, #builtin.int<1>], operandSegmentSizes = array<i32: 1, 1, 2, 1, 0, 0, 0>}> {note = 1 : i32}
  // GENERIC-NEXT: "cuda.copy"(%Q, %Q_shared, %block, %zero, %q, %x) <{bounds = ["q", "d"], asynchronous, operandSegmentSizes = array<i32: 1, 1, 2, 2, 0, 0, 0>, partial}>
  // GENERIC-NEXT: "cuda.copy"(%Q, %Q_shared, %block, %zero) <{bounds = [], operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 0, 0>}>
  // GENERIC-NEXT: "cuda.copy"(%O_shared, %Q, %block, %zero, %q) <{bounds = ["q"], operandSegmentSizes = array<i32: 1, 1, 2, 1, 0, 0, 0>}>
  // GENERIC-NEXT: "cuda.copy"(%Q, %Q_shared, %block, %zero, %q, %block) <{bounds = ["q"], begun = ["q"], operandSegmentSizes = array<i32: 1, 1, 2, 1, 1, 0, 0>}>
  // GENERIC-NEXT: "cuda.copy"(%Q, %Q_shared, %block, %zero, %q, %x, %q) <{bounds = ["q"], inside = #diagram.place<"q - 2 * d, d - 1">, operandSegmentSizes = array<i32: 1, 1, 2, 1, 0, 2, 0>, partial}>
  // GENERIC-NEXT: "cuda.commit"() : () -> ()
  // GENERIC-NEXT: "cuda.wait"() <{pending = #builtin.int<1>}> {note = 8 : i32} : () -> ()
  // GENERIC-NEXT: "cuda.barrier"() : () -> ()
  cuda.copy %Q[%block, %zero] into %Q_shared bounds [q < %q] widths [8, 2, 1] {note = 1 : i32} : !Q, !Qs
  cuda.copy async %Q[%block, %zero] into %Q_shared bounds [q < %q, d < %x] partial : !Q, !Qs
  cuda.copy %Q[%block, %zero] into %Q_shared : !Q, !Qs
  cuda.copy %O_shared into %Q[%block, %zero] bounds [q < %q] : !Qs, !Q
  cuda.copy %Q[%block, %zero] into %Q_shared bounds [q < %q, q >= %block] : !Q, !Qs
  cuda.copy %Q[%block, %zero] into %Q_shared bounds [q < %q] inside "q - 2 * d, d - 1" of [%x, %q] partial : !Q, !Qs
  cuda.commit
  cuda.wait pending 1 {note = 8 : i32}
  cuda.barrier

  // Fragments: from shared memory and to it, products of tiles and of fragments, on every kind of instruction.

  // CHECK-NEXT: %a = cuda.read %Q_shared : memref<64x64xf16, {{.*}} -> tensor<64x64xf16, #diagram.array<[q, d], level = register, layout = #cuda.layout<register = [d:4:16, d:2:8, q:2:8, d:2:1], lane = [q:8:1, d:4:2], warp = [q:4:16]>>>
  // CHECK-NEXT: cuda.write %a into %O_shared : tensor<64x64xf16, {{.*}}, memref<64x64xf16,
  // CHECK-NEXT: %none = diagram.fill 0.000000e+00 : f32 -> tensor<64x32xf32, #diagram.array<[q, x], level = register, layout = #cuda.layout<register = [x:4:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>>>
  // CHECK-NEXT: %S = cuda.product %Q_shared, %K_now into %none over [d] using m16n8k16 : memref<64x64xf16, {{.*}}, memref<32x64xf16, {{.*}} -> tensor<64x32xf32,
  // CHECK-NEXT: %T = cuda.product %a, %K_now into %S over [d] using m16n8k16 : tensor<64x64xf16, {{.*}}, memref<32x64xf16, {{.*}} -> tensor<64x32xf32,
  // CHECK-NEXT: %U = cuda.product %Q_shared, %K_now into %T over [d] using fma {note = 2 : i32} : memref<64x64xf16,
  // CHECK-NEXT: %U_1 = cuda.product %Q_shared, %K_now into %T over [d] subloop 32 using m16n8k16 : memref<64x64xf16,
  // CHECK-NEXT: %V = cuda.mask %U where x from %zero < %x else 0xff800000 : f32 {note = 6 : i32} : tensor<64x32xf32,
  // CHECK-NEXT: %V_1 = cuda.mask %U where x from %zero >= %q < %x else 0.000000e+00 : f32 : tensor<64x32xf32,
  // CHECK-NEXT: %ends = cuda.index %zero -> tensor<64xi32, #diagram.array<[q],
  // CHECK-NEXT: %V_2 = cuda.mask %U where x from %zero >= %q < %ends else 0.000000e+00 : f32 : tensor<64x32xf32, {{.*}}, index, tensor<64xi32, #diagram.array<[q],
  // CHECK-NEXT: %r = diagram.reduce max %V over [x] {partial} : tensor<64x32xf32, {{.*}} -> tensor<64xf32,
  // CHECK-NEXT: %t = cuda.combine max %r lanes [1, 2] {note = 7 : i32} : tensor<64xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
  // CHECK-NEXT: %grown = cuda.exceeds %t limit 256.0 {note = 12 : i32} : tensor<64xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
  // CHECK-NEXT: %w = cuda.exchange %t {note = 10 : i32} : tensor<64xf32, {{.*}}layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>> -> tensor<64xf32, {{.*}}layout = #cuda.layout<register = [q:2:1], lane = [q:8:2, 4], warp = [q:4:16]>>>
  // CHECK-NEXT: %part = diagram.fill 0.000000e+00 : f32 -> tensor<2xf32,
  // CHECK-NEXT: %parts = cuda.parts %part {note = 11 : i32} : tensor<2xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, 2]>>> -> tensor<2x2xf32, #diagram.array<[q, x_warp], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, x_warp:2:1]>>>
  // GENERIC: %S = "cuda.product"(%Q_shared, %K_now, %none) <{over = "d", instruction = "m16n8k16"}>
  // GENERIC: %U_1 = "cuda.product"(%Q_shared, %K_now, %T) <{over = "d", instruction = "m16n8k16", subloop = #builtin.int<32>}>
  // GENERIC: %V = "cuda.mask"(%U, %zero, %x) <{axis = "x", other = 0xff800000 : f32}> {note = 6 : i32}
  // GENERIC-NEXT: %V_1 = "cuda.mask"(%U, %zero, %x, %q) <{axis = "x", other = 0.000000e+00 : f32}>
  // GENERIC: %V_2 = "cuda.mask"(%U, %zero, %ends, %q) <{axis = "x", other = 0.000000e+00 : f32}> : (tensor<64x32xf32, {{.*}}, index, tensor<64xi32,
  // GENERIC: %t = "cuda.combine"(%r) <{kind = "max", lanes = [#builtin.int<1>, #builtin.int<2>]}> {note = 7 : i32}
  // GENERIC-NEXT: %grown = "cuda.exceeds"(%t) <{limit = 2.560000e+02 : f32}> {note = 12 : i32} : (tensor<64xf32, {{.*}}) -> i1
  // GENERIC: %parts = "cuda.parts"(%part) {note = 11 : i32} : (tensor<2xf32, {{.*}}) -> tensor<2x2xf32,
  %a = cuda.read %Q_shared : !Qs -> !q
  cuda.write %a into %O_shared : !q, !Qs
  %none = diagram.fill 0.0 : f32 -> !S
  %S = cuda.product %Q_shared, %K_now into %none over [d] using m16n8k16 : !Qs, !Ks -> !S
  %T = cuda.product %a, %K_now into %S over [d] using m16n8k16 : !q, !Ks -> !S
  %U = cuda.product %Q_shared, %K_now into %T over [d] using fma {note = 2 : i32} : !Qs, !Ks -> !S
  %U_1 = cuda.product %Q_shared, %K_now into %T over [d] subloop 32 using m16n8k16 : !Qs, !Ks -> !S
  %V = cuda.mask %U where x from %zero < %x else 0xFF800000 : f32 {note = 6 : i32} : !S
  %V_1 = cuda.mask %U where x from %zero >= %q < %x else 0.0 : f32 : !S
  %ends = cuda.index %zero -> !i
  %V_2 = cuda.mask %U where x from %zero >= %q < %ends else 0.0 : f32 : !S, index, !i
  %r = diagram.reduce max %V over [x] {partial} : !S -> !r
  %t = cuda.combine max %r lanes [1, 2] {note = 7 : i32} : !r
  %grown = cuda.exceeds %t limit 256.0 {note = 12 : i32} : !r
  %w = cuda.exchange %t {note = 10 : i32} : !r -> !w
  %part = diagram.fill 0.0 : f32 -> !part
  %parts = cuda.parts %part {note = 11 : i32} : !part -> !parts

  // Positions, which lie along one axis.

  // CHECK-NEXT: %i = cuda.index %zero {note = 9 : i32} -> tensor<64xi32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
  // GENERIC: %i = "cuda.index"(%zero) {note = 9 : i32} : (index) -> tensor<64xi32,
  %i = cuda.index %zero {note = 9 : i32} -> !i
}

// Fragments from and to device memory. Lanes that lie along no axis hold copies.

// CHECK-LABEL: cuda.kernel @rows (%A: memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, %q: index) threads 128 shared 0 resident 4 fallback {
// CHECK-NEXT: %zero = arith.constant 0 : index
// CHECK-NEXT: %a = cuda.load %A[%zero] bounds [q < %q] partial widths [2, 1] : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>> -> tensor<64xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>>>
// CHECK-NEXT: %b = cuda.load %A[%zero] : memref<?xf16,
// CHECK-NEXT: %c = cuda.load %A[%zero] bounds [q >= %zero, q < %q] widths [1] : memref<?xf16,
// CHECK-NEXT: cuda.store %a into %A[%zero] bounds [q < %q] partial widths [1] through #cuda.staged<at = 0, below = 16, rows = #cuda.rows<extents = [64], pitch = 64>> : tensor<64xf16, {{.*}}, memref<?xf16,
// CHECK-NEXT: cuda.store %b into %A[%zero] : tensor<64xf16,
// GENERIC: %a = "cuda.load"(%A, %zero, %q) <{bounds = ["q"], widths = [#builtin.int<2>, #builtin.int<1>], operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, partial}>
// GENERIC: "cuda.store"(%b, %A, %zero) <{bounds = [], operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}>
cuda.kernel @rows (%A: !M, %q: index) threads 128 shared 0 resident 4 fallback {
  %zero = arith.constant 0 : index
  %a = cuda.load %A[%zero] bounds [q < %q] partial widths [2, 1] : !M -> !m
  %b = cuda.load %A[%zero] : !M -> !m
  %c = cuda.load %A[%zero] bounds [q >= %zero, q < %q] widths [1] : !M -> !m
  cuda.store %a into %A[%zero] bounds [q < %q] partial widths [1] through #cuda.staged<at = 0, below = 16, rows = #cuda.rows<extents = [64], pitch = 64>> : !m, !M
  cuda.store %b into %A[%zero] : !m, !M
}

// CHECK-LABEL: func.func @host(%A: memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, %n: index) {
// CHECK-NEXT: %w = cuda.alignment %A, %A {by_element = array<i64: 1>} : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, memref<?xf16,
// CHECK-NEXT: cuda.launch @rows grid %n aligned %w(%A, %n) {note = 3 : i32} : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, index
// GENERIC: %w = "cuda.alignment"(%A, %A) <{by_element = array<i64: 1>}> : (memref<?xf16,
// GENERIC-NEXT: "cuda.launch"(%n, %w, %A, %n) <{kernel = @rows}> {note = 3 : i32}
func.func @host(%A: !M, %n: index) {
  %w = cuda.alignment %A, %A {by_element = array<i64: 1>} : !M, !M
  cuda.launch @rows grid %n aligned %w(%A, %n) {note = 3 : i32} : !M, index
  func.return
}

// Attributes by themselves.

// CHECK-LABEL: func.func @attributes() attributes
// CHECK-SAME: a = #cuda.layout<register = [], lane = [32], warp = []>
// CHECK-SAME: b = #cuda.modes<[q:8:1, 4, x:2:16]>
// CHECK-SAME: c = #cuda.rows<extents = [1, 20], pitch = 24>
// CHECK-SAME: d = #cuda.rows<extents = [], pitch = 8>
func.func @attributes() attributes {
  a = #cuda.layout<register = [x:1:5], lane = [32], warp = []>,
  b = #cuda.modes<[q:8:1, 4, x:2:16]>,
  c = #cuda.rows<extents = [1, 20], pitch = 24>,
  d = #cuda.rows<extents = [], pitch = 8>
} {
  func.return
}

// A list of pieces: made by the block, read by turns.

!list = memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
!table = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[x], level = device>>
!one = tensor<1xi32, #diagram.array<[x], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [4]>>>
// CHECK-LABEL: cuda.kernel @list
// CHECK: %count = cuda.select %pieces from %zero to %n step 64 (%x0: index) {
// CHECK-NEXT: %t = cuda.load %T[%x0] bounds [x < %n]
// CHECK-NEXT: %one = tensor.extract %t[%zero]
// CHECK-NEXT: %there = arith.trunci %one : i32 to i1
// CHECK-NEXT: cuda.keep %there
// CHECK-NEXT: } {note = 1 : i32} : memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: %before = cuda.selected_before %pieces[%n] of %count {note = 2 : i32} : memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
// CHECK-NEXT: %first = cuda.selected %pieces[%zero] step 64 {note = 3 : i32} : memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
// CHECK-NEXT: %last = cuda.selected %pieces[%count] step 64 of %count then %n : memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
// GENERIC: %count = "cuda.select"(%pieces, %zero, %n) <{step = #builtin.int<64>}> ({
// GENERIC: "cuda.keep"(%there) : (i1) -> ()
// GENERIC: %before = "cuda.selected_before"(%pieces, %n, %count) {note = 2 : i32}
// GENERIC: %last = "cuda.selected"(%pieces, %count, %count, %n) <{step = #builtin.int<64>, operandSegmentSizes = array<i32: 1, 1, 1, 1>}>
cuda.kernel @list (%T: !table, %n: index) threads 128 shared 384 {
  %pieces = cuda.shared at 0 : !list
  %zero = arith.constant 0 : index
  %count = cuda.select %pieces from %zero to %n step 64 (%x0: index) {
    %t = cuda.load %T[%x0] bounds [x < %n] : !table -> !one
    %one = tensor.extract %t[%zero] : !one
    %there = arith.trunci %one : i32 to i1
    cuda.keep %there
  } {note = 1 : i32} : !list
  cuda.barrier
  %before = cuda.selected_before %pieces[%n] of %count {note = 2 : i32} : !list
  %first = cuda.selected %pieces[%zero] step 64 {note = 3 : i32} : !list
  %last = cuda.selected %pieces[%count] step 64 of %count then %n : !list
}

// What is read where data say.

!P = memref<?x4x64xf16, strided<[?, ?, 1], offset: ?>, #diagram.array<[p, s, d], level = device>>
!n = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[m], level = device>>

// CHECK-LABEL: cuda.kernel @scattered
// CHECK: cuda.copy async %P[%block, %zero] into %Q_shared at "n[q // 4], q % 4, d" with (n = %n : memref<?xi32, strided<[1], offset: ?>, #diagram.array<[m], level = device>>) bounds [q < %q] inside "n[q // 4]" of [%p] : memref<?x4x64xf16, {{.*}}, memref<64x64xf16,
// GENERIC: "cuda.copy"(%P, %Q_shared, %block, %zero, %q, %p, %n) <{bounds = ["q"], inside = #diagram.place<"n[q // 4]">, place = #diagram.place<"n[q // 4], q % 4, d">, names = ["n"], asynchronous, operandSegmentSizes = array<i32: 1, 1, 2, 1, 0, 1, 1>}>
cuda.kernel @scattered (%P: !P, %n: !n, %q: index, %p: index) threads 128 shared 8192 {
  %Q_shared = cuda.shared at 0 : !Qs
  %block = cuda.block_index
  %zero = arith.constant 0 : index
  cuda.copy async %P[%block, %zero] into %Q_shared at "n[q // 4], q % 4, d" with (n = %n : !n) bounds [q < %q] inside "n[q // 4]" of [%p] : !P, !Qs
}

// What is added where data say.

!sum = memref<?x64xf32, strided<[?, 1], offset: ?>, #diagram.array<[r, d], level = device>>
!entry = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[t], level = device>>
!row = tensor<1x64xf32, #diagram.array<[t, d], level = register, layout = #cuda.layout<register = [d:2:1], lane = [d:32:2], warp = []>>>

// CHECK-LABEL: cuda.kernel @added
// CHECK: cuda.store %zeros into %S[%block, %zero] at "n[t], d" with (n = %n : memref<?xi32, strided<[1], offset: ?>, #diagram.array<[t], level = device>>) inside "n[t]" of [%r] widths [2, 1] : tensor<1x64xf32, {{.*}}, memref<?x64xf32,
// GENERIC: "cuda.store"(%zeros, %S, %block, %zero, %r, %n) <{bounds = [], inside = #diagram.place<"n[t]">, place = #diagram.place<"n[t], d">, names = ["n"], widths = [#builtin.int<2>, #builtin.int<1>], operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 1, 1>}>
cuda.kernel @added (%S: !sum, %n: !entry, %r: index) threads 32 shared 0 {
  %block = cuda.block_index
  %zero = arith.constant 0 : index
  %zeros = diagram.fill 0.0 : f32 -> !row
  cuda.store %zeros into %S[%block, %zero] at "n[t], d" with (n = %n : !entry) inside "n[t]" of [%r] widths [2, 1] : !row, !sum
}

// What lies along one axis lies along another, in the same registers.

!lies = tensor<4x64xf32, #diagram.array<[b, j], level = register, layout = #cuda.layout<register = [j:2:1], lane = [j:32:2], warp = [b:4:1]>>>
!named = tensor<4x64xf32, #diagram.array<[b, i], level = register, layout = #cuda.layout<register = [i:2:1], lane = [i:32:2], warp = [b:4:1]>>>

// CHECK-LABEL: cuda.kernel @renamed
// CHECK: %i = cuda.rename %zeros (j as i) {note = "kept"} : tensor<4x64xf32, {{.*}}> -> tensor<4x64xf32, #diagram.array<[b, i], level = register, layout = #cuda.layout<register = [i:2:1], lane = [i:32:2], warp = [b:4:1]>>>
// GENERIC: "cuda.rename"(%zeros) <{old = ["j"], new = ["i"]}> {note = "kept"} :
cuda.kernel @renamed () threads 128 shared 0 {
  %zeros = diagram.fill 0.0 : f32 -> !lies
  %i = cuda.rename %zeros (j as i) {note = "kept"} : !lies -> !named
}
