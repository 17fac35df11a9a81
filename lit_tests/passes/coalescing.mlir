// RUN: treadle-opt %s -p coalescing | filecheck %s
// RUN: treadle-opt %s -p 'coalescing{max-bytes=4}' | filecheck %s --check-prefix NARROW
// RUN: treadle-opt %s -p 'coalescing{minimize=sectors}' | filecheck %s --check-prefix SECTORS
// RUN: not treadle-opt %s -p 'coalescing{max-bytes=3}' 2>&1 | filecheck %s --check-prefix REFUSED
// RUN: not treadle-opt %s -p 'coalescing{minimize=lines}' 2>&1 | filecheck %s --check-prefix MINIMIZED
// RUN: not treadle-opt %s -p 'coalescing{minimise=sectors}' 2>&1 | filecheck %s --check-prefix SPELLED

// REFUSED: max-bytes=3: a vector has 2, 4, 8 or 16 bytes
// MINIMIZED: pass 'coalescing': minimize=lines: minimize is time or sectors
// SPELLED: pass 'coalescing' has no option 'minimise': did you mean minimize? (its options: max-bytes, minimize)

#pairs = #cuda.layout<register = [n:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = []>
#rows = #cuda.rows<extents = [32, 64], pitch = 64, swizzle = [3, 0]>
#odd = #cuda.rows<extents = [32, 48], pitch = 48, swizzle = [1, 2]>
!A = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!As = memref<32x64xf16, #diagram.array<[m, k], level = shared, layout = #rows>>
!B = memref<32x44xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, k], level = device>>
!Bs = memref<32x44xf16, #diagram.array<[m, k], level = shared, layout = #odd>>
!b = tensor<32x44xf16, #diagram.array<[m, k], level = register, layout = #cuda.layout<register = [m:8:4, k:2:32], lane = [k:32:1], warp = [m:4:1]>>>
!E = memref<8x64xf32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!e = tensor<8x64xf32, #diagram.array<[m, n], level = register, layout = #cuda.layout<register = [n:4:1], lane = [m:2:1, n:16:4], warp = [m:4:2]>>>
!C = memref<8x16xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!c = tensor<8x16xf16, #diagram.array<[m, n], level = register, layout = #pairs>>
!D = memref<8x15xf32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!d = tensor<8x15xf32, #diagram.array<[m, n], level = register, layout = #pairs>>

!N = memref<?xi32, strided<[1], offset: ?>, #diagram.array<[b], level = device>>
!n = tensor<1xi32, #diagram.array<[b], level = register, layout = #cuda.layout<register = [], lane = [32], warp = [4]>>>
#accumulator = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
#part = #cuda.layout<register = [n:2:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
!S = memref<?x?xf32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!Ls = memref<64x64xf16, #diagram.array<[m, k], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!Rs = memref<64x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>>>
!Fs = memref<16x64xf16, #diagram.array<[n, k], level = shared, layout = #cuda.rows<extents = [16, 64], pitch = 64, swizzle = [3, 0]>>>
!s = tensor<64x64xf32, #diagram.array<[m, n], level = register, layout = #accumulator>>
!f = tensor<64x16xf32, #diagram.array<[m, n], level = register, layout = #part>>

cuda.kernel @move (%A: !A, %B: !B, %C: !C, %D: !D, %E: !E) threads 128 shared 8192 {
  %zero = arith.constant 0 : index
  %As = cuda.shared at 0 : !As
  %Bs = cuda.shared at 4096 : !Bs

  // Whole rows of a copy: 16 bytes.
  // CHECK: cuda.copy %A[%zero, %zero] into %As widths [8, 2, 1] :
  // NARROW: cuda.copy %A[%zero, %zero] into %As widths [2, 1] :
  cuda.copy %A[%zero, %zero] into %As : !A, !As

  // A piece of 44: 4 elements divide it, 8 would reach past its end.
  // CHECK: cuda.copy %B[%zero, %zero] into %Bs widths [4, 2, 1] :
  // NARROW: cuda.copy %B[%zero, %zero] into %Bs widths [2, 1] :
  cuda.copy %B[%zero, %zero] into %Bs : !B, !Bs

  // Fragments: the neighbours that a thread holds. A request has whole rows by vectors of 16 bytes; by single elements
  // several ask for a sector. Then they go through a tile behind those of the kernel.
  // CHECK: %e = cuda.load %E[%zero, %zero] widths [4, 1] through #cuda.staged<at = 8192, below = 16, rows = #cuda.rows<extents = [8, 64], pitch = 64>> :
  // NARROW: %e = cuda.load %E[%zero, %zero] widths [1] through #cuda.staged<at = 8192, below = 64, {{.*}}>> :
  %e = cuda.load %E[%zero, %zero] : !E -> !e
  %Bs_1 = cuda.read %Bs : !Bs -> !b

  // Pairs of 16 bits ask for each sector twice wherever rows begin, and the kernel's own tiles are needed no more.
  // CHECK: %c = cuda.load %C[%zero, %zero] widths [2, 1] through #cuda.staged<at = 0, below = 64, rows = #cuda.rows<extents = [8, 16], pitch = 16, swizzle = [1, 2]>> :
  // NARROW: %c = cuda.load %C[%zero, %zero] widths [2, 1] through #cuda.staged<at = 0, below = 64, {{.*}}>> :
  %c = cuda.load %C[%zero, %zero] : !C -> !c

  // A pair could reach past the end of a piece of 15. The load follows another: they meet together, in tiles of their own.
  // CHECK: %d = cuda.load %D[%zero, %zero] widths [1] through #cuda.staged<at = 256, below = 64, rows = #cuda.rows<extents = [8, 15], {{.*}}>> :
  // CHECK: cuda.store %d into %D[%zero, %zero] widths [1] through #cuda.staged<at = 0, below = 64, rows = #cuda.rows<extents = [8, 15], {{.*}}>> :
  %d = cuda.load %D[%zero, %zero] : !D -> !d
  cuda.store %d into %D[%zero, %zero] : !d, !D
}

// Sums of words that nothing follows leave in whole lines, through a tile in the place of the operands: 64 rows of 64,
// 32 bytes more apart so that pairs of four rows lie in different banks. Of a quarter as many the block would issue more;
// where sectors are minimised, they leave so all the same.

// CHECK-LABEL: cuda.kernel @sums
// CHECK: cuda.store %sums into %S[%zero, %zero] widths [4, 2, 1] through #cuda.staged<at = 0, below = 64, rows = #cuda.rows<extents = [64, 64], pitch = 72>> :
// NARROW: cuda.store %sums into %S[%zero, %zero] widths [1] through #cuda.staged<at = 0, below = 64, {{.*}}> :
cuda.kernel @sums (%S: !S) threads 128 shared 16384 {
  %zero = arith.constant 0 : index
  %As = cuda.shared at 0 : !Ls
  %Bs = cuda.shared at 8192 : !Rs
  %none = diagram.fill 0.000000e+00 : f32 -> !s
  %sums = cuda.product %As, %Bs into %none over [k] using m16n8k16 : !Ls, !Rs -> !s
  cuda.barrier
  cuda.store %sums into %S[%zero, %zero] : !s, !S
}

// SECTORS-LABEL: cuda.kernel @few_sums
// SECTORS: cuda.store %few into %S[%zero, %zero] widths [4, 2, 1] through #cuda.staged<at = 0, below = 64, rows = #cuda.rows<extents = [64, 16], pitch = 16, swizzle = [2, 0]>> :
// CHECK-LABEL: cuda.kernel @few_sums
// CHECK: cuda.store %few into %S[%zero, %zero] widths [2, 1] through #cuda.staged<at = 0, below = 32, {{.*}}> :
cuda.kernel @few_sums (%S: !S) threads 128 shared 16384 {
  %zero = arith.constant 0 : index
  %As = cuda.shared at 0 : !Ls
  %Bs = cuda.shared at 8192 : !Fs
  %none = diagram.fill 0.000000e+00 : f32 -> !f
  %few = cuda.product %As, %Bs into %none over [k] using m16n8k16 : !Ls, !Fs -> !f
  cuda.barrier
  cuda.store %few into %S[%zero, %zero] : !f, !S
}

// Each of four warps asks for the number of the block, since a barrier would cost more; a residual comes in pairs, 8 bytes
// a lane, where rows begin with sectors. Where sectors are minimised, the block copies both: the number once, and lines of
// the residual, 16 bytes a thread, in every variant.

// CHECK-LABEL: cuda.kernel @beside
// CHECK: cuda.load %length[%zero] widths [1] :
// CHECK: cuda.load %R[%zero, %zero] widths [2, 1] through #cuda.staged<at = 0, below = 32, rows = #cuda.rows<extents = [64, 64], pitch = 72>> :
// SECTORS-LABEL: cuda.kernel @beside
// SECTORS-SAME: attributes {fewest_sectors}
// SECTORS: cuda.load %length[%zero] widths [1] through #cuda.staged<at = 16384, below = 64, rows = #cuda.rows<extents = [1], pitch = 4>> :
// SECTORS: cuda.load %R[%zero, %zero] widths [4, 2, 1] through #cuda.staged<at = 0, below = 64, rows = #cuda.rows<extents = [64, 64], pitch = 72>> :
cuda.kernel @beside (%length: !N, %R: !S) threads 128 shared 16384 {
  %zero = arith.constant 0 : index
  %As = cuda.shared at 0 : !Ls
  %Bs = cuda.shared at 8192 : !Rs
  %count = cuda.load %length[%zero] : !N -> !n
  %none = diagram.fill 0.000000e+00 : f32 -> !s
  %sums = cuda.product %As, %Bs into %none over [k] using m16n8k16 : !Ls, !Rs -> !s
  cuda.barrier
  %r = cuda.load %R[%zero, %zero] : !S -> !s
}

// CHECK: func.func @host
// CHECK-SAME: #hierarchy.step<"coalescing", "copy of A[m, k] to shared memory in @move", "a vector that divides addresses, strides, sizes and pieces never leaves a row", "16 bytes a thread where aligned, 16 sectors a request, the fewest, in whole lines">
// CHECK-SAME: "copy of B[m, k] to shared memory in @move", {{[^>]*}}, "8 bytes a thread where aligned,
// CHECK-SAME: "copy of E[m, n] to registers in @move", {{[^>]*}}, "16 bytes a thread where aligned, 16 sectors a request, the fewest, in whole lines; elsewhere through shared memory, sector by sector">
// CHECK-SAME: "copy of C[m, n] to registers in @move", {{[^>]*}}, "4 bytes a thread where aligned, 4 sectors a request, the fewest, in whole lines, through shared memory">
// CHECK-SAME: "copy of D[m, n] to registers in @move",
// CHECK-SAME: "copy of D[m, n] from registers in @move",
// CHECK-SAME: "copy of S[m, n] from registers in @sums", {{[^>]*}}, "16 bytes a thread where aligned, 16 sectors a request, the fewest, in whole lines, through shared memory; instructions, wavefronts and waits of a block: 572 for whole lines, 576 as lanes hold it">
// CHECK-SAME: "copy of S[m, n] from registers in @few_sums", {{[^>]*}}, "8 bytes a thread where aligned, 8 sectors a request, the fewest; elsewhere through shared memory, sector by sector; stays so, for instructions, wavefronts and waits of a block: {{[0-9]+}} for whole lines, 144 as lanes hold it">
// SECTORS: func.func @host
// SECTORS-SAME: "copy of S[m, n] from registers in @few_sums", {{[^>]*}}, "16 bytes a thread where aligned, 16 sectors a request, the fewest, through shared memory; instructions, wavefronts and waits of a block: 220 through a tile, 144 as lanes hold it">
// SECTORS-SAME: "copy of length[b] to registers in @beside", {{[^>]*}}, "4 bytes a thread where aligned, 1 sector a request, the fewest, through shared memory; of a block, a tile on the way spares 3 and 4 requests and costs 32 (requests, wavefronts, waits of warps at a barrier)">
func.func @host(%A: !A, %B: !B, %C: !C, %D: !D, %E: !E, %S: !S, %length: !N) {
  %one = arith.constant 1 : index
  %aligned = cuda.alignment %A, %B, %C, %D, %E : !A, !B, !C, !D, !E
  cuda.launch @move grid %one aligned %aligned (%A, %B, %C, %D, %E) : !A, !B, !C, !D, !E
  cuda.launch @sums grid %one aligned %aligned (%S) : !S
  cuda.launch @few_sums grid %one aligned %aligned (%S) : !S
  cuda.launch @beside grid %one aligned %aligned (%length, %S) : !N, !S
  func.return
}
