// RUN: xdsl-opt -p 'cuda-store-tensors' %s | filecheck %s

#accumulator = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
#rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
!C = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!T = memref<?x?xf16, strided<[?, 1], offset: ?>, #diagram.array<[n, m], level = device>>
!Cs = memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #rows>>
!As = memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!W = memref<?x?xf32, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
!w = tensor<64x64xf32, #diagram.array<[m, n], level = register, layout = #accumulator>>
!c = tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #accumulator>>
!t = tensor<64x64xf16, #diagram.array<[n, m], level = register, layout = #accumulator>>

// A tile that all consumers write: it comes to lie in boxes, and a fence stands before the barrier that stood there.
// The array is an argument no more: its tensor map is.

// CHECK-LABEL: cuda.kernel @through_a_tile
// CHECK-SAME: (%m: index, %n: index, %C_map: !cuda.tensor_map<[64, 64], memref<?x?xf16, {{.*}}>>) threads 256 shared 8192 {
// CHECK-NEXT: %C_shared = cuda.shared at 0 alias : memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
// CHECK: %c = diagram.fill
// CHECK-NEXT: cuda.write %c into %C_shared : tensor<64x64xf16, {{.*}}>, memref<64x64xf16, {{.*}}#cuda.boxes
// CHECK-NEXT: cuda.tensor_fence
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.tensor_store %C_shared into %C_map[%zero, %zero] : memref<64x64xf16, {{.*}}#cuda.boxes{{.*}}, !cuda.tensor_map<[64, 64],
// CHECK-NEXT: cuda.tensor_wait pending 0
// CHECK-NEXT: }
cuda.kernel @through_a_tile (%C: !C, %m: index, %n: index) threads 256 shared 8192 {
  %C_shared = cuda.shared at 0 alias : !Cs
  %zero = arith.constant 0 : index
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %c = diagram.fill 1.000000e+00 : f16 -> !c
    cuda.write %c into %C_shared : !c, !Cs
    cuda.barrier
    cuda.copy %C_shared into %C[%zero, %zero] bounds [m < %m, n < %n] : !Cs, !C
  }
}

// Fragments that are stored turned get a tile in the place of one that is dead.

// CHECK-LABEL: cuda.kernel @from_registers
// CHECK-SAME: (%m: index, %n: index, %T_map: !cuda.tensor_map<[64, 64],
// CHECK-NEXT: %A_shared = cuda.shared at 0 :
// CHECK-NEXT: %T_shared = cuda.shared at 0 alias : memref<64x64xf16, #diagram.array<[n, m],
// CHECK: %t = diagram.fill
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.write %t into %T_shared :
// CHECK-NEXT: cuda.tensor_fence
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.tensor_store %T_shared into %T_map[%zero, %zero] :
// CHECK-NEXT: cuda.tensor_wait pending 0
cuda.kernel @from_registers (%T: !T, %m: index, %n: index) threads 256 shared 8192 {
  %A_shared = cuda.shared at 0 : !As
  %zero = arith.constant 0 : index
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %t = diagram.fill 1.000000e+00 : f16 -> !t
    cuda.store %t into %T[%zero, %zero] bounds [n < %n, m < %m] : !t, !T
  }
}

// Words go to boxes in pairs, 32 columns each, in the place of tiles that are dead.

// CHECK-LABEL: cuda.kernel @words
// CHECK-SAME: (%m: index, %n: index, %W_map: !cuda.tensor_map<[64, 32],
// CHECK: %W_shared = cuda.shared at 0 alias : memref<64x64xf32, #diagram.array<[m, n], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 32>>>
// CHECK: %w = diagram.fill
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.write %w into %W_shared :
// CHECK-NEXT: cuda.tensor_fence
// CHECK-NEXT: cuda.barrier
// CHECK-NEXT: cuda.tensor_store %W_shared into %W_map[%zero, %zero] :
// CHECK-NEXT: cuda.tensor_wait pending 0
cuda.kernel @words (%W: !W, %m: index, %n: index) threads 256 shared 16384 {
  %A_shared = cuda.shared at 0 : !As
  %B_shared = cuda.shared at 8192 : !As
  %zero = arith.constant 0 : index
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %w = diagram.fill 1.000000e+00 : f32 -> !w
    cuda.store %w into %W[%zero, %zero] bounds [m < %m, n < %n] : !w, !W
  }
}

// A bound that is not the array's end: a tensor copy would write past it.

// CHECK-LABEL: cuda.kernel @part
// CHECK: cuda.copy %C_shared into %C[%zero, %zero] bounds [m < %half] :
cuda.kernel @part (%C: !C, %half: index) threads 256 shared 8192 {
  %C_shared = cuda.shared at 0 alias : !Cs
  %zero = arith.constant 0 : index
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %c = diagram.fill 1.000000e+00 : f16 -> !c
    cuda.write %c into %C_shared : !c, !Cs
    cuda.barrier
    cuda.copy %C_shared into %C[%zero, %zero] bounds [m < %half] : !Cs, !C
  }
}

// CHECK-LABEL: func.func @host
// CHECK-SAME: #hierarchy.step<"cuda-store-tensors", "%c in @through_a_tile", {{[^>]*}}, "8,192 bytes in 1 box; 6 instructions a thread fewer">
// CHECK-SAME: #hierarchy.step<"cuda-store-tensors", "%t in @from_registers",
// CHECK-SAME: #hierarchy.step<"cuda-store-tensors", "%w in @words", {{[^>]*}}, "16,384 bytes in 2 boxes; 404 instructions, wavefronts and waits of a block, 576 instructions and lines as lanes hold it">
// CHECK-SAME: #hierarchy.step<"decline cuda-store-tensors", "%c in @part", "a tensor copy stops where the array ends", "%C is written only up to %half along 'm'">
// CHECK: %C = memref.alloc(%m, %n) :
// CHECK-NEXT: %T = memref.alloc(%n, %m) :
// CHECK-NEXT: %W = memref.alloc(%m, %n) :
// CHECK-NEXT: %mappable = cuda.mappable %C, %C, %T, %W :
// CHECK-NEXT: scf.if %mappable {
// CHECK-NEXT: %C_map = cuda.tensor_map %C :
// CHECK-NEXT: cuda.launch @through_a_tile grid %one aligned %one(%m, %n, %C_map) :
// CHECK-NEXT: %T_map = cuda.tensor_map %T :
// CHECK-NEXT: cuda.launch @from_registers grid %one aligned %one(%m, %n, %T_map) :
// CHECK-NEXT: %W_map = cuda.tensor_map %W :
// CHECK-NEXT: cuda.launch @words grid %one aligned %one(%m, %n, %W_map) :
// CHECK-NEXT: cuda.launch @part grid %one aligned %one(%C, %one) :
func.func @host(%m: index, %n: index) {
  %one = arith.constant 1 : index
  %C = memref.alloc(%m, %n) : !C
  %T = memref.alloc(%n, %m) : !T
  %W = memref.alloc(%m, %n) : !W
  %mappable = cuda.mappable %C : !C
  scf.if %mappable {
    cuda.launch @through_a_tile grid %one aligned %one (%C, %m, %n) : !C, index, index
    cuda.launch @from_registers grid %one aligned %one (%T, %m, %n) : !T, index, index
    cuda.launch @words grid %one aligned %one (%W, %m, %n) : !W, index, index
    cuda.launch @part grid %one aligned %one (%C, %one) : !C, index
  }
  func.return
}
