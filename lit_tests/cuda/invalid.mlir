// RUN: xdsl-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: the modes of a lane have 16 values, a warp has 32 lanes
func.func private @f() attributes {a = #cuda.layout<register = [], lane = [q:16:1], warp = []>}

// -----

// CHECK: a swizzle has two numbers: bits and shift
func.func private @f() attributes {a = #cuda.rows<extents = [8, 64], pitch = 64, swizzle = [3]>}

// -----

// CHECK: a swizzle has no negative bits or shift
func.func private @f() attributes {a = #cuda.rows<extents = [8, 64], pitch = 64, swizzle = [3, -1]>}

// -----

// CHECK: a block of 48 threads: use a multiple of 32 up to 1024
cuda.kernel @k () threads 48 shared 0 {
}

// -----

// CHECK: a block of 2048 threads: use a multiple of 32 up to 1024
cuda.kernel @k () threads 2048 shared 0 {
}

// -----

// CHECK: argument 0 is a buffer at level shared, not 'device'
cuda.kernel @k (%A: memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>) threads 32 shared 0 {
}

// -----

// CHECK: axis name 'a kernel' is not an identifier
cuda.kernel @"a kernel" () threads 32 shared 0 {
}

// -----

// CHECK: the tile is memref<8x64xf16, #diagram.array<[q, d], level = device>>: expected a tile in shared memory
%A = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = device>>

// -----

// CHECK: a tile at byte 8: tiles are aligned to 16 bytes
%A = cuda.shared at 8 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>

// -----

// CHECK: a tile with 0 stages: it has 1 or more
%A = cuda.shared at 0 stages 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>

// -----

// CHECK: is not a tile in shared memory: it has no #cuda.rows
%A = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared>>

// -----

// CHECK: the tile has 2 axes, its #cuda.rows 1
%A = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [64], pitch = 64>>>

// -----

// CHECK: the tile has 8 elements along 'q', but its #cuda.rows only 4
%A = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [4, 64], pitch = 64>>>

// -----

// CHECK: rows of 64 elements lie 56 apart
%A = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 56>>>

// -----

// CHECK: the tile is swizzled by 3 bits, but a row of 72 elements is no multiple of 8 chunks of 16 bytes: its chunks would leave it
%A = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 72, swizzle = [3, 0]>>>

// -----

// CHECK: a stage is taken of a tile made by cuda.shared
func.func @f(%A: memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>, %i: index) {
  %B = cuda.stage %A[%i] : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// CHECK: fewer than no groups cannot be pending
cuda.wait pending -1

// -----

// Accesses to device memory.

// CHECK: the tile has axes [d, q], its buffer [q, d]
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<64x8xf16, #diagram.array<[d, q], level = shared, layout = #cuda.rows<extents = [64, 8], pitch = 8>>>
  cuda.copy %A[%i, %i] into %T : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<64x8xf16, #diagram.array<[d, q], level = shared, layout = #cuda.rows<extents = [64, 8], pitch = 8>>>
  func.return
}

// -----

// CHECK: a tile of f32 of a buffer of f16
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf32, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy %A[%i, %i] into %T : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf32, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// CHECK: 1 offsets for 2 axes
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy %A[%i] into %T : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// CHECK: bounded axis 'x' is not an axis of the buffer
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy %A[%i, %i] into %T bounds [x < %i] : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// CHECK: bounded axis 'x' is not an axis of the buffer
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy %A[%i, %i] into %T bounds [x >= %i] : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// CHECK: 1 beginnings for 0 axes that have one
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  "cuda.copy"(%A, %T, %i, %i, %i) <{bounds = [], operandSegmentSizes = array<i32: 1, 1, 2, 0, 1, 0, 0>}> : (memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>, index, index, index) -> ()
  func.return
}

// -----

// CHECK: 1 sizes for 2 positions in the array
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  "cuda.copy"(%A, %T, %i, %i, %i) <{bounds = [], inside = #diagram.place<"q, d">, operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 1, 0>}> : (memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>, index, index, index) -> ()
  func.return
}

// -----

// CHECK: 'x' of a position in the array is not an axis of the buffer
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy %A[%i, %i] into %T inside "q - x" of [%i] : memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// CHECK: only a copy to shared memory can be asynchronous
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy async %T into %A[%i, %i] : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>, memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
  func.return
}

// -----

// CHECK: a copy has its own tile: only what goes to or from registers is staged
func.func @f(%A: memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>, %i: index) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.copy %T into %A[%i, %i] through #cuda.staged<at = 0, below = 16, rows = #cuda.rows<extents = [8, 64], pitch = 64>> : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>, memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[q, d], level = device>>
  func.return
}

// -----

// CHECK: the tile on the way has 1 axes, its #cuda.rows 2
func.func @f(%A: memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, %i: index) {
  %a = cuda.load %A[%i] through #cuda.staged<at = 0, below = 16, rows = #cuda.rows<extents = [8, 64], pitch = 64>> : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>> -> tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>
  func.return
}

// -----

// CHECK: a tile at byte 8: tiles are aligned to 16 bytes
func.func private @f() attributes {a = #cuda.staged<at = 8, below = 16, rows = #cuda.rows<extents = [64], pitch = 64>>}

// -----

// CHECK: no rows are aligned to fewer than 0 bytes
func.func private @f() attributes {a = #cuda.staged<at = 0, below = 0, rows = #cuda.rows<extents = [64], pitch = 64>>}

// -----

// CHECK: expected #cuda.rows
func.func private @f() attributes {a = #cuda.staged<at = 0, below = 16, rows = 4>}

// -----

// CHECK: the result is tensor<32xf16, #diagram.array<[q], level = register>>: expected a fragment, a tensor with a #cuda.layout
func.func @f(%A: memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, %i: index) {
  %a = cuda.load %A[%i] : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>> -> tensor<32xf16, #diagram.array<[q], level = register>>
  func.return
}

// -----

// CHECK: the result has no axis 'x', along which its layout spreads it
func.func @f(%A: memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, %i: index) {
  %a = cuda.load %A[%i] : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>> -> tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [x:32:1], warp = []>>>
  func.return
}

// -----

// CHECK: the result has 64 elements along 'q', but its layout reaches only 32
func.func @f(%A: memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>>, %i: index) {
  %a = cuda.load %A[%i] : memref<?xf16, strided<[1], offset: ?>, #diagram.array<[q], level = device>> -> tensor<64xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>
  func.return
}

// -----

// CHECK: a tile is read with the axes and sizes that it has
func.func @f() {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  %a = cuda.read %T : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>> -> tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>
  func.return
}

// -----

// CHECK: a tile is written with the axes and sizes that it has
func.func @f(%a: tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>) {
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  cuda.write %a into %T : tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>, memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  func.return
}

// -----

// Products.

!A = memref<16x16xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 16], pitch = 16>>>
!B = memref<8x16xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 16], pitch = 16>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: unknown instruction 'wgmma' (known: m16n8k32, m16n8k32_s32, m16n8k16, m16n8k8_tf32, fma)
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] using wgmma : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x16xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 16], pitch = 16>>>
!B = memref<8x16xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 16], pitch = 16>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: 'm16n8k8_tf32' does not take f16
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] using m16n8k8_tf32 : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x16xbf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 16], pitch = 16>>>
!B = memref<8x16xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 16], pitch = 16>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: operands are bf16 and f16
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] using fma : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x16xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 16], pitch = 16>>>
!B = memref<8x16xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 16], pitch = 16>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: axis 'n' is not in the left operand
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [n] using fma : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x16xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 16], pitch = 16>>>
!B = memref<8x16xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 16], pitch = 16>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: a product sums over one axis
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k, n] using fma : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 64], pitch = 64>>>
!B = memref<8x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: a subloop of 24: 'm16n8k16' takes multiples of 16
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] subloop 24 using m16n8k16 : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 64], pitch = 64>>>
!B = memref<8x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: a subloop of 48 does not cut the 64 of axis 'k' evenly
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] subloop 48 using m16n8k16 : !A, !B -> !C
  func.return
}

// -----

!A = memref<16x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 64], pitch = 64>>>
!B = memref<8x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: a subloop of 64 does not cut the 64 of axis 'k' evenly
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] subloop 64 using m16n8k16 : !A, !B -> !C
  func.return
}

// -----

!A = tensor<16x64xf16, #diagram.array<[m, k], level = register, layout = #cuda.layout<register = [k:4:16, k:2:8, m:2:8, k:2:1], lane = [m:8:1, k:4:2], warp = []>>>
!B = memref<8x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: the left operand is in registers, which a subloop cannot point at
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] subloop 16 using m16n8k16 : !A, !B -> !C
  func.return
}

// -----

// Masks.

!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: axis 'x' is not in the value
func.func @f(%C: !C, %i: index) {
  %D = cuda.mask %C where x from %i < %i else 0.0 : f32 : !C
  func.return
}

// -----

!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
// CHECK: 0 : i32 is not an element of f32
func.func @f(%C: !C, %i: index) {
  %D = cuda.mask %C where n from %i < %i else 0 : i32 : !C
  func.return
}

// -----

!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
!rows = tensor<8xi32, #diagram.array<[n], level = register, layout = #cuda.layout<register = [n:2:1], lane = [8, n:4:2], warp = []>>>
// CHECK: bounds of rows are i32 along other axes of the value, not tensor<8xi32, #diagram.array<[n],
func.func @f(%C: !C, %i: index, %rows: !rows) {
  %D = cuda.mask %C where n from %i < %rows else 0.0 : f32 : !C, !rows
  func.return
}

// -----

!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
!rows = tensor<16xi32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:1], lane = [m:8:2, 4], warp = []>>>
// CHECK: the bounds of rows lie in other threads or registers than the value: tensor<16xi32,
func.func @f(%C: !C, %i: index, %rows: !rows) {
  %D = cuda.mask %C where n from %i >= %rows < %i else 0.0 : f32 : !C, !rows, index
  func.return
}

// -----

// Exchanges between lanes.

!C = tensor<16xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = []>>>
// CHECK: unknown reduction 'xor' (known: add, mul, max, min)
func.func @f(%C: !C) {
  %D = cuda.combine xor %C lanes [1] : !C
  func.return
}

// -----

!C = tensor<16xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = []>>>
// CHECK: lanes differ in one bit of five, not in [3]
func.func @f(%C: !C) {
  %D = cuda.combine add %C lanes [3] : !C
  func.return
}

// -----

// Parts of a result that warps hold.

!m = tensor<2xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, 4]>>>
!p = tensor<4x2xf32, #diagram.array<[w, q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, w:4:1]>>>
// CHECK: parts have the axes and sizes of the value, and one axis more behind them
func.func @f(%m: !m) {
  %p = cuda.parts %m : !m -> !p
  func.return
}

// -----

!m = tensor<2xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, 4]>>>
!p = tensor<2x4xf16, #diagram.array<[q, w], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, w:4:1]>>>
// CHECK: parts are f32, as the value is
func.func @f(%m: !m) {
  %p = cuda.parts %m : !m -> !p
  func.return
}

// -----

!m = tensor<2xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, 4]>>>
!p = tensor<2x4xf32, #diagram.array<[q, w], level = register, layout = #cuda.layout<register = [w:4:1], lane = [32], warp = [q:2:1, 4]>>>
// CHECK: parts lie along 'w' by warps alone, one of each warp that has one
func.func @f(%m: !m) {
  %p = cuda.parts %m : !m -> !p
  func.return
}

// -----

!m = tensor<2xf32, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [q:2:1, 4]>>>
!p = tensor<2x4xf32, #diagram.array<[q, w], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [w:4:1, q:2:1]>>>
// CHECK: parts lie in the threads and registers of the value
func.func @f(%m: !m) {
  %p = cuda.parts %m : !m -> !p
  func.return
}

// -----

!r = tensor<16xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = []>>>
!w = tensor<16xf16, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:1], lane = [m:8:2, 4], warp = []>>>
// CHECK: an exchange moves elements and changes none: tensor<16xf32,
func.func @f(%r: !r) {
  %w = cuda.exchange %r : !r -> !w
  func.return
}

// -----

!r = tensor<64xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = [m:4:16]>>>
!w = tensor<64xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:32], lane = [m:8:1, 4], warp = [m:4:8]>>>
// CHECK: warps do not hold the same elements in both layouts: lanes exchange within a warp
func.func @f(%r: !r) {
  %w = cuda.exchange %r : !r -> !w
  func.return
}

// -----

// CHECK: numbers of f32 are compared with a limit, not of f16
!h = tensor<16xf16, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = []>>>
func.func @f(%h: !h) {
  %grown = cuda.exceeds %h limit 256.0 : !h
  func.return
}

// -----

// CHECK: the limit is a finite number, not inf
!r = tensor<16xf32, #diagram.array<[m], level = register, layout = #cuda.layout<register = [m:2:8], lane = [m:8:1, 4], warp = []>>>
func.func @f(%r: !r) {
  %grown = "cuda.exceeds"(%r) <{limit = 0x7F800000 : f32}> : (!r) -> i1
  func.return
}

// -----

// CHECK: the value is tensor<16xf32, #diagram.array<[m]>>: expected a fragment
func.func @f(%r: tensor<16xf32, #diagram.array<[m]>>) {
  %grown = cuda.exceeds %r limit 256.0 : tensor<16xf32, #diagram.array<[m]>>
  func.return
}

// -----

// CHECK: boxes of 48 elements do not divide a tile of [64, 64]
func.func private @f() attributes {a = #cuda.boxes<extents = [64, 64], span = 48>}

// -----

// CHECK: the tile has rows of 16 bytes in its boxes: 32, 64 or 128
cuda.kernel @k () threads 32 shared 0 {
  %t = cuda.shared at 0 : memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 8>>>
}

// -----

// CHECK: a tile at byte 512: in boxes it is aligned to 1024 bytes
cuda.kernel @k () threads 32 shared 0 {
  %t = cuda.shared at 512 : memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
}

// -----

// CHECK: sides of a box are 1 to 256 elements, not [512, 64]
func.func private @f(!cuda.tensor_map<[512, 64], memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>>)

// -----

// CHECK: the inner side of a box is 32, 64 or 128 bytes, not 256
func.func private @f(!cuda.tensor_map<[64, 128], memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>>)

// -----

// CHECK: a ring of 0 stages: it has 1 or more
func.func private @f(!cuda.ring<0>)

// -----

// CHECK: a turn is acquired beside one of another ring
cuda.kernel @k (%t: index) threads 32 shared 0 {
  %r = cuda.ring at 0 consumers 1 : !cuda.ring<2>
  cuda.acquire_beside %r[%t], %r[%t] : !cuda.ring<2>, !cuda.ring<2>
}

// -----

// CHECK: 'cuda.barrier' by groups: expected among two or more consumers of cuda.roles
cuda.kernel @k () threads 256 shared 0 {
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    cuda.barrier by groups
  }
}

// -----

// CHECK: 'cuda.tensor_wait' by groups: expected among two or more consumers of cuda.roles
cuda.kernel @k () threads 384 shared 0 {
  cuda.roles registers 0, 0 producer {
    cuda.tensor_wait pending 0 by groups
  } consumers 2 {
  }
}

// -----

// CHECK: 128 rows of a box are no 3 shares of 8 rows or more
!R = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!Rs = memref<128x32xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [128, 32], span = 32>>>
cuda.kernel @k (%R_map: !cuda.tensor_map<[64, 32], !R>, %m0: index) threads 512 shared 8192 {
  %R_staged = cuda.shared at 0 : !Rs
  cuda.roles registers 0, 0 producer {
  } consumers 3 {
    cuda.tensor_store %R_staged into %R_map[%m0, %m0] by groups : !Rs, !cuda.tensor_map<[64, 32], !R>
  }
}

// -----

// CHECK: lanes arrive at a ring that is not filled by lanes
cuda.kernel @k (%t: index) threads 32 shared 0 {
  %r = cuda.ring at 0 consumers 1 : !cuda.ring<2>
  cuda.arrive %r[%t] : !cuda.ring<2>
}

// -----

// CHECK: the lanes of a producer fill the stages of their own block: not those of a cluster
cuda.kernel @k () threads 128 shared 0 cluster 2 {
  %r = cuda.ring at 0 consumers 1 filled by lanes blocks 2 : !cuda.ring<2>
}

// -----

// CHECK: a barrier at byte 12: barriers are aligned to 8 bytes
cuda.kernel @k () threads 32 shared 0 {
  %r = cuda.ring at 12 consumers 1 : !cuda.ring<2>
}

// -----

// CHECK: a producer and 2 consumers are 384 threads, the kernel has 256
cuda.kernel @k () threads 256 shared 0 {
  cuda.roles registers 24, 240 producer {
  } consumers 2 {
  }
}

// -----

// CHECK: registers 40 + 2 x 240 are more than the 3 x 168 that the block begins with: consumers would wait for ever
cuda.kernel @k () threads 384 shared 0 {
  cuda.roles registers 40, 240 producer {
  } consumers 2 {
  }
}

// -----

// CHECK: 20 registers a thread: a multiple of 8 from 24 to 256
cuda.kernel @k () threads 384 shared 0 {
  cuda.roles registers 20, 240 producer {
  } consumers 2 {
  }
}

// -----

// CHECK: the result is not spread over warpgroups of 64 rows each, side by side along the rows
!A = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<32x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:4:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:2:32]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] : !A, !B -> !C
}

// -----

// CHECK: a product of i8 has 8 to 256 columns, 8, 16, 24, or a multiple of 16, not 40
!A = memref<64x64xi8, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<40x64xi8, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [40, 64], span = 64>>>
!C = tensor<64x40xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:5:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] : !A, !B -> !C
}

// -----

// CHECK: i8 is multiplied and f32 accumulated: expected floats of 8 or 16 bits and f32, or integers of 8 bits and i32
!A = memref<64x64xi8, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<32x64xi8, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] : !A, !B -> !C
}

// -----

// CHECK: f8E4M3FN is multiplied and i32 accumulated: expected floats of 8 or 16 bits and f32, or integers of 8 bits and i32
!A = memref<64x64xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<32x64xf8E4M3FN, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64>>>
!C = tensor<64x32xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] : !A, !B -> !C
}

// -----

// CHECK: operands are f8E4M3FN and i8
!A = memref<64x64xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<32x64xi8, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64>>>
!C = tensor<64x32xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] : !A, !B -> !C
}

// -----

// CHECK: operands of 8 bits lie along 'k', one along 'm'
!A = memref<64x64xi8, #diagram.array<[k, m], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<32x64xi8, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64>>>
!C = tensor<64x32xi32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] : !A, !B -> !C
}

// -----

// CHECK: boxes of [64, 32] into boxes of [64, 64]
!R = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
cuda.kernel @k (%R_map: !cuda.tensor_map<[64, 32], !R>, %m0: index) threads 128 shared 8192 {
  %R_staged = cuda.shared at 0 : memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
  cuda.tensor_store %R_staged into %R_map[%m0, %m0] : memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>, !cuda.tensor_map<[64, 32], !R>
}

// -----

// CHECK: fewer than no groups cannot be pending
cuda.kernel @k () threads 128 shared 0 {
  cuda.tensor_wait pending -1
}

// -----

// CHECK: part 0 of 3: the fragments cannot be cut so
cuda.kernel @k (%m0: index) threads 128 shared 4096 {
  %R_staged = cuda.shared at 0 : memref<64x32xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>>
  %r = diagram.fill 0.000000e+00 : f16 -> tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
  cuda.write %r part 0 of 3 into %R_staged : tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>, memref<64x32xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>>
}

// -----

// CHECK: 'cuda.order_wait' of a single warpgroup: there is nobody to take turns with
cuda.kernel @k () threads 256 shared 0 {
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    cuda.order_wait
  }
}

// -----

// CHECK: 'cuda.order_arrive' orders consumers: expected among the consumers of cuda.roles
cuda.kernel @k () threads 384 shared 0 {
  cuda.roles registers 0, 0 producer {
    cuda.order_arrive
  } consumers 2 {
  }
}

// -----

// CHECK: a cluster of 9 blocks: it has 2 to 8
cuda.kernel @k () threads 128 shared 0 cluster 9 {
}

// -----

// CHECK: 9 resident blocks of 256 threads: a multiprocessor holds one block at least, and 2,048 threads at most
cuda.kernel @k () threads 256 shared 0 resident 9 {
}

// -----

// CHECK: 0 resident blocks of 256 threads: a multiprocessor holds one block at least
cuda.kernel @k () threads 256 shared 0 resident 0 {
}

// -----

// CHECK: 'cuda.cluster_arrive' in a kernel without clusters: say `cluster` after its shared memory
cuda.kernel @k () threads 128 shared 0 {
  cuda.cluster_arrive
}

// -----

// CHECK: 'cuda.read_cluster' in a kernel without clusters
cuda.kernel @k () threads 32 shared 1024 {
  %zero = arith.constant 0 : index
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  %a = cuda.read_cluster %T of %zero : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>> -> tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>
}

// -----

// CHECK: a tile is read with the axes and sizes that it has
cuda.kernel @k () threads 32 shared 1024 cluster 2 {
  %zero = arith.constant 0 : index
  %T = cuda.shared at 0 : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
  %a = cuda.read_cluster %T of %zero : memref<8x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>> -> tensor<32xf16, #diagram.array<[q], level = register, layout = #cuda.layout<register = [], lane = [q:32:1], warp = []>>>
}

// -----

// CHECK: a tile in boxes is read by products and matrices of its own block
cuda.kernel @k () threads 128 shared 4096 cluster 2 {
  %zero = arith.constant 0 : index
  %T = cuda.shared at 0 : memref<64x32xf16, #diagram.array<[q, d], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>>
  %a = cuda.read_cluster %T of %zero : memref<64x32xf16, #diagram.array<[q, d], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>> -> tensor<64x32xf16, #diagram.array<[q, d], level = register, layout = #cuda.layout<register = [q:2:32, d:8:1], lane = [q:8:1, d:4:8], warp = [q:4:8]>>>
}

// -----

// CHECK: a ring that 3 blocks fill, in a kernel with clusters of 4
cuda.kernel @k () threads 128 shared 0 cluster 4 {
  %r = cuda.ring at 0 consumers 1 blocks 3 : !cuda.ring<2>
}

// -----

// CHECK: a ring that 2 blocks 4 apart fill, in a kernel with clusters of 4
cuda.kernel @k () threads 128 shared 0 cluster 4 {
  %r = cuda.ring at 0 consumers 1 blocks 2 step 4 : !cuda.ring<2>
}

// -----

// CHECK: a step is 1 or more, between the blocks that fill a ring
cuda.kernel @k () threads 128 shared 0 cluster 4 {
  %r = cuda.ring at 0 consumers 1 step 2 : !cuda.ring<2>
}

// -----

// CHECK: 1 blocks fill the stages of its ring, 2 copy the tile
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
cuda.kernel @k (%A_map: !cuda.tensor_map<[32, 64], !A>, %m0: index) threads 128 shared 8208 cluster 2 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] multicast : !cuda.tensor_map<[32, 64], !A>, !As, !cuda.ring<1>
}

// -----

// CHECK: a multicast goes to the blocks of a cluster: say `cluster` after the shared memory
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
cuda.kernel @k (%A_map: !cuda.tensor_map<[32, 64], !A>, %m0: index) threads 128 shared 8208 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] multicast : !cuda.tensor_map<[32, 64], !A>, !As, !cuda.ring<1>
}

// -----

// CHECK: boxes of [64, 64] into boxes of [64, 64] in 2 shares
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
cuda.kernel @k (%A_map: !cuda.tensor_map<[64, 64], !A>, %m0: index) threads 128 shared 8208 cluster 2 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 blocks 2 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] multicast : !cuda.tensor_map<[64, 64], !A>, !As, !cuda.ring<1>
}

// -----

// CHECK: 16 rows of a box are no 4 shares of 8 rows or more
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<16x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [16, 64], span = 64>>>
cuda.kernel @k (%A_map: !cuda.tensor_map<[4, 64], !A>, %m0: index) threads 128 shared 8208 cluster 4 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 blocks 4 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] multicast : !cuda.tensor_map<[4, 64], !A>, !As, !cuda.ring<1>
}

// -----

// CHECK: what is copied from or before a position comes by maps of boxes of [8, 64] and [1, 64], too
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!A_map = !cuda.tensor_map<[64, 64], !A>
cuda.kernel @k (%A_map: !A_map, %m0: index) threads 128 shared 8208 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] before %m0 by %A_map, %A_map : !A_map, !As, !cuda.ring<1>, !A_map, !A_map
}

// -----

// CHECK: what is copied from or before a position comes by maps of boxes of [8, 64] and [1, 64], too
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!A_map = !cuda.tensor_map<[64, 64], !A>
cuda.kernel @k (%A_map: !A_map, %m0: index) threads 128 shared 8208 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] from %m0 by %A_map : !A_map, !As, !cuda.ring<1>, !A_map
}

// -----

// CHECK: maps of rows serve what is copied `from` a position or `before` one
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!A_map = !cuda.tensor_map<[64, 64], !A>
cuda.kernel @k (%A_map: !A_map, %m0: index) threads 128 shared 8208 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  "cuda.tensor_load"(%A_map, %A, %r, %m0, %m0, %m0, %A_map) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 2, 0, 0, 1>}> : (!A_map, !As, !cuda.ring<1>, index, index, index, !A_map) -> ()
}

// -----

// CHECK: a row that is copied alone has 128 bytes, not 64
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x32xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>>
!A_rows = !cuda.tensor_map<[8, 32], !A>
!A_row = !cuda.tensor_map<[1, 32], !A>
cuda.kernel @k (%A_map: !cuda.tensor_map<[64, 32], !A>, %rows: !A_rows, %row: !A_row, %m0: index) threads 128 shared 4112 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 4096 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] before %m0 by %rows, %row : !cuda.tensor_map<[64, 32], !A>, !As, !cuda.ring<1>, !A_rows, !A_row
}

// -----

// CHECK: 12 of 12 rows of a box along one axis are no multiple of 8
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<12x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [12, 64], span = 64>>>
!A_rows = !cuda.tensor_map<[8, 64], !A>
!A_row = !cuda.tensor_map<[1, 64], !A>
cuda.kernel @k (%A_map: !cuda.tensor_map<[12, 64], !A>, %rows: !A_rows, %row: !A_row, %m0: index) threads 128 shared 4112 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 4096 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] before %m0 by %rows, %row : !cuda.tensor_map<[12, 64], !A>, !As, !cuda.ring<1>, !A_rows, !A_row
}

// -----

// CHECK: what blocks copy together begins and ends with the array, not at a position
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!A_map = !cuda.tensor_map<[32, 64], !A>
cuda.kernel @k (%A_map: !A_map, %m0: index) threads 128 shared 8208 cluster 2 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 blocks 2 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] before %m0 by %A_map, %A_map multicast : !A_map, !As, !cuda.ring<1>, !A_map, !A_map
}

// -----

// CHECK: sums of 48 products are promoted: expected a multiple of 32, which one step takes
!A = memref<64x128xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 128>>>
!B = memref<32x128xf8E4M3FN, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 128], span = 128>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %zero = diagram.fill 0.0 : f32 -> !C
  %C = cuda.promoted_product %A, %B into %zero over [k] promote 48 : !A, !B -> !C
}

// -----

// CHECK: sums of products of f16 are not promoted: only those of 8 bits lose digits
!A = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<32x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 64], span = 64>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %zero = diagram.fill 0.0 : f32 -> !C
  %C = cuda.promoted_product %A, %B into %zero over [k] promote 64 : !A, !B -> !C
}

// -----

// CHECK: expected 'promote', and how many products tensor cores add up
!A = memref<64x128xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 128>>>
!B = memref<32x128xf8E4M3FN, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 128], span = 128>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %zero = diagram.fill 0.0 : f32 -> !C
  %C = cuda.promoted_product %A, %B into %zero over [k] : !A, !B -> !C
}

// -----

// CHECK: expected 'into', and the accumulator that sums are added to
!A = memref<64x128xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 128>>>
!B = memref<32x128xf8E4M3FN, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 128], span = 128>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.promoted_product %A, %B over [k] promote 64 : !A, !B -> !C
}

// -----

// CHECK: sums are promoted by 'cuda.promoted_product'
!A = memref<64x128xf8E4M3FN, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 128], span = 128>>>
!B = memref<32x128xf8E4M3FN, #diagram.array<[n, k], level = shared, layout = #cuda.boxes<extents = [32, 128], span = 128>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 128 shared 0 {
  %A = cuda.shared at 0 : !A
  %B = cuda.shared at 8192 : !B
  %C = cuda.warpgroup_product %A, %B over [k] promote 64 : !A, !B -> !C
}

// -----

// CHECK: sums of products of f16 are not promoted: only those of 8 bits lose digits
!A = memref<16x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [16, 64], pitch = 64>>>
!B = memref<8x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [8, 64], pitch = 64>>>
!C = tensor<16x8xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>>>
func.func @f(%A: !A, %B: !B, %C: !C) {
  %D = cuda.product %A, %B into %C over [k] promote 32 using m16n8k16 : !A, !B -> !C
  func.return
}

// -----

// CHECK: a list of pieces is one line of i32
!list = memref<96xf32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
cuda.kernel @k (%n: index, %b: i1) threads 128 shared 512 {
  %pieces = cuda.shared at 0 : !list
  %count = cuda.select %pieces from %n to %n step 64 (%x0: index) {
    cuda.keep %b
  } : !list
}

// -----

// CHECK: a list has 64 numbers of warps, and room for pieces behind them
!list = memref<64xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [64], pitch = 64>>>
cuda.kernel @k (%n: index, %b: i1) threads 128 shared 512 {
  %pieces = cuda.shared at 0 : !list
  %count = cuda.select %pieces from %n to %n step 64 (%x0: index) {
    cuda.keep %b
  } : !list
}

// -----

// CHECK: pieces 0 apart: 1 at least
!list = memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
cuda.kernel @k (%n: index, %b: i1) threads 128 shared 512 {
  %pieces = cuda.shared at 0 : !list
  %count = cuda.select %pieces from %n to %n step 0 (%x0: index) {
    cuda.keep %b
  } : !list
}

// -----

// CHECK: the body is given where a piece begins
!list = memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
cuda.kernel @k (%n: index, %b: i1) threads 128 shared 512 {
  %pieces = cuda.shared at 0 : !list
  %count = cuda.select %pieces from %n to %n step 64 (%x0: i32) {
    cuda.keep %b
  } : !list
}

// -----

// CHECK: the body ends with cuda.keep
!list = memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
cuda.kernel @k (%n: index, %b: i1) threads 128 shared 512 {
  %pieces = cuda.shared at 0 : !list
  %count = cuda.select %pieces from %n to %n step 64 (%x0: index) {
    %u = arith.constant 0 : index
  } : !list
}

// -----

// CHECK: what is behind the list begins somewhere
!list = memref<96xi32, #diagram.array<[x], level = shared, layout = #cuda.rows<extents = [96], pitch = 96>>>
cuda.kernel @k (%n: index, %b: i1) threads 128 shared 512 {
  %pieces = cuda.shared at 0 : !list
  %x = "cuda.selected"(%pieces, %n, %n) <{step = #builtin.int<64>, operandSegmentSizes = array<i32: 1, 1, 1, 0>}> : (!list, index, index) -> index
}

// -----

// CHECK: a box of [16, 1, 1, 64] is no run of rows at
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[16, 1, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: at table[b, x // 8], x % 8, h, d runs have 8 rows, not 16
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 8], x % 8, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: neighbours along 'd' are no neighbours in the array
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, d, h" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: 64 runs of 1 rows: each of 32 lanes copies one at most
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 1, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: rows come one by one by a map of boxes of one row, not by
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
!row = !cuda.tensor_map<[1, 8, 1, 64], !pages>
cuda.kernel @k (%map: !page, %row: !row, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) by %row : !page, !Ks, !cuda.ring<1>, !row
}

// -----

// CHECK: copies come to multiples of 128 bytes: a run of [1, 1, 1, 32] elements has 64
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x32xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 32], span = 32>>>
!page = !cuda.tensor_map<[1, 16, 1, 32], !pages>
!row = !cuda.tensor_map<[1, 1, 1, 32], !pages>
cuda.kernel @k (%map: !page, %row: !row, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) by %row : !page, !Ks, !cuda.ring<1>, !row
}

// -----

// CHECK: is not a tile in shared memory in #cuda.boxes
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.rows<extents = [1, 64, 1, 128], pitch = 136>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: a tile has the format of its buffer
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xbf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: 'table[b, x // 16]' reads no input: name it after 'with'
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: 3 offsets for 4 axes
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: runs of 12 rows do not divide the 64 of the tile
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 12, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: rows with an order of their own are not gathered
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64, order = [x:2:2, x:16:4, x:2:1]>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: rows of the tile lie along several axes
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<2x32x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [2, 32, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: expected `at` and the positions of the rows
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: expected the types of the map, the tile, the ring, and of a map of rows
!pages = memref<?x16x?x128xf16, strided<[?, ?, ?, 1], offset: ?>, #diagram.array<[p, s, h, d], level = device>>
!table = memref<?x?xi32, strided<[?, 1], offset: ?>, #diagram.array<[b, m], level = device>>
!Ks = memref<1x64x1x128xf16, #diagram.array<[b, x, h, d], level = shared, layout = #cuda.boxes<extents = [1, 64, 1, 128], span = 64>>>
!page = !cuda.tensor_map<[1, 16, 1, 64], !pages>
cuda.kernel @k (%map: !page, %table: !table, %b: index) threads 128 shared 16400 {
  %K = cuda.shared at 0 : !Ks
  %ring = cuda.ring at 16384 consumers 1 : !cuda.ring<1>
  cuda.tensor_gather %map[%b, %b, %b, %b] into %K signals %ring[%b] at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) by %map : !page, !Ks, !cuda.ring<1>
}

// -----

// CHECK: a tile of 40 elements along 'k' lies in boxes that reach further, as its array does
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<64x40xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
cuda.kernel @k (%A_map: !cuda.tensor_map<[64, 64], !A>, %m0: index) threads 128 shared 8208 {
  %A = cuda.shared at 0 : !As
  %r = cuda.ring at 8192 consumers 1 : !cuda.ring<1>
  cuda.tensor_load %A_map[%m0, %m0] into %A signals %r[%m0] : !cuda.tensor_map<[64, 64], !A>, !As, !cuda.ring<1>
}

// -----

// CHECK: the tile has (64, 64) elements, its #cuda.boxes (64, 32)
cuda.kernel @k () threads 128 shared 8192 {
  %t = cuda.shared at 0 : memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 32], span = 32>>>
}

// -----

// CHECK: a product sums over 48 values along 'k', the boxes of an operand have 40
!A = memref<64x40xf16, #diagram.array<[m, k], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!B = memref<40x32xf16, #diagram.array<[k, n], level = shared, layout = #cuda.boxes<extents = [40, 32], span = 32>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k () threads 256 shared 16384 {
  %a = cuda.shared at 0 : !A
  %b = cuda.shared at 8192 : !B
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %c = cuda.warpgroup_product %a, %b over [k] : !A, !B -> !C
  }
}

// -----

// CHECK: a product sums over a multiple of 16 values along 'k', not 40
!a = tensor<64x40xf16, #diagram.array<[m, k], level = register, layout = #cuda.layout<register = [k:3:16, k:2:8, m:2:8, k:2:1], lane = [m:8:1, k:4:2], warp = [m:4:16]>>>
!B = memref<40x32xf16, #diagram.array<[k, n], level = shared, layout = #cuda.boxes<extents = [48, 32], span = 32>>>
!C = tensor<64x32xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>>>
cuda.kernel @k (%f: f16) threads 256 shared 16384 {
  %b = cuda.shared at 8192 : !B
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %a = diagram.fill 0.0 : f16 -> !a
    %c = cuda.warpgroup_product %a, %b over [k] : !a, !B -> !C
  }
}

// -----

// CHECK: under other names is tensor<64xf32, #diagram.array<[i], level = register, layout = #cuda.layout<register = [i:2:1], lane = [i:32:2], warp = []>>>, not
cuda.kernel @f () threads 32 shared 0 {
  %zeros = diagram.fill 0.0 : f32 -> tensor<64xf32, #diagram.array<[j], level = register, layout = #cuda.layout<register = [j:2:1], lane = [j:32:2], warp = []>>>
  %i = cuda.rename %zeros (j as i) : tensor<64xf32, #diagram.array<[j], level = register, layout = #cuda.layout<register = [j:2:1], lane = [j:32:2], warp = []>>> -> tensor<64xf32, #diagram.array<[i], level = register, layout = #cuda.layout<register = [i:2:32], lane = [i:32:1], warp = []>>>
}
