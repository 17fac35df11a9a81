// RUN: xdsl-opt -p 'set-machine{name=a100},pipelining{stages=40}' %s | filecheck %s

// Without room for stages: while a turn reads one tile, the other comes.

#rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
!K = memref<?x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[x, d], level = device>>
!Ks = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #rows>>
#fragment = #cuda.layout<register = [x:8:8, d:16:4], lane = [x:8:1, d:4:1], warp = []>
!f = tensor<64x64xf16, #diagram.array<[x, d], level = register, layout = #fragment>>

func.func @step(%K: !K, %V: !K, %x: index) {
  cuda.launch @step_kernel grid %x aligned %x (%K, %V, %x) : !K, !K, index
  func.return
}

cuda.kernel @step_kernel (%K: !K, %V: !K, %x: index) threads 32 shared 16384 {
  %K_shared = cuda.shared at 0 : !Ks
  %V_shared = cuda.shared at 8192 : !Ks
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  scf.for %x0 = %zero to %x step %piece {
    cuda.barrier
    cuda.copy %K[%x0, %zero] into %K_shared : !K, !Ks
    cuda.copy %V[%x0, %zero] into %V_shared : !K, !Ks
    cuda.barrier
    %f = cuda.read %K_shared : !Ks -> !f
    %g = cuda.read %V_shared : !Ks -> !f
  }
}

// CHECK:      cuda.kernel @step_kernel
// CHECK:      scf.if %is_there {
// CHECK-NEXT:   cuda.copy async %K[%x0_ahead, %zero] into %K_shared
// CHECK:      cuda.commit
// CHECK-NEXT: scf.for %x0 = %zero to %x step %piece {
// CHECK-NEXT:   cuda.wait pending 0
// CHECK-NEXT:   cuda.barrier
// CHECK-NEXT:   cuda.copy async %V[%x0, %zero] into %V_shared
// CHECK-NEXT:   cuda.commit
// CHECK-NEXT:   %f = cuda.read %K_shared
// CHECK-NEXT:   cuda.wait pending 0
// CHECK-NEXT:   cuda.barrier
// CHECK:        scf.if %is_there_1 {
// CHECK-NEXT:     cuda.copy async %K[%x0_ahead_1, %zero] into %K_shared
// CHECK-NEXT:   }
// CHECK-NEXT:   cuda.commit
// CHECK-NEXT:   %g = cuda.read %V_shared
// CHECK-NEXT: } {pipelined}
// CHECK-NEXT: cuda.wait pending 0
