// RUN: xdsl-opt -p 'set-machine{name=h100},hierarchy-expand-streams,convert-hierarchy-to-cuda' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},hierarchy-expand-streams,convert-hierarchy-to-cuda,warp-specialization' %s | filecheck %s --check-prefix=ROLES

// Four warps lie along the rows h, and two across them along c: both have the scores of their rows, in the same lanes,
// and each has 256 columns of the sums. So what is made of scores is a left operand in registers, as ever.

!Q = tensor<64x512xf16, #diagram.array<[h, c]>>
!C = tensor<256x512xf16, #diagram.array<[x, c]>>
!O = tensor<64x512xf32, #diagram.array<[h, c]>>
!Qd = tensor<64x512xf16, #diagram.array<[h, c], level = device>>
!Cd = tensor<256x512xf16, #diagram.array<[x, c], level = device>>
!Sr = tensor<64x256xf32, #diagram.array<[h, x], level = register>>
!Pr = tensor<64x256xf16, #diagram.array<[h, x], level = register>>
!Or = tensor<64x512xf32, #diagram.array<[h, c], level = register>>

// CHECK-LABEL: cuda.kernel @latent_kernel
// CHECK: %O_so_far = scf.for {{.*}} iter_args(%O_so_far_1 = %O_1) -> (tensor<64x512xf32, #diagram.array<[h, c], level = register, layout = #cuda.layout<register = [c:32:8, h:2:8, c:2:1], lane = [h:8:1, c:4:2], warp = [c:2:256, h:4:16]>>>)
// CHECK: %S_1 = cuda.product %q_shared, %c_shared into %S over [c] {{.*}} -> tensor<64x64xf32, {{.*}}layout = #cuda.layout<register = [x:8:8, h:2:8, x:2:1], lane = [h:8:1, x:4:2], warp = [2, h:4:16]>>>
// CHECK: %P = diagram.cast %S_1 : {{.*}} -> tensor<64x64xf16, {{.*}}layout = #cuda.layout<register = [x:4:16, x:2:8, h:2:8, x:2:1], lane = [h:8:1, x:4:2], warp = [2, h:4:16]>>>
// CHECK: %O_new = cuda.product %P, %c_shared into %O_so_far_1 over [x]
// ROLES: cuda.roles registers 24, 240 producer {
// ROLES: %S = cuda.warpgroup_product %q_shared, %c_now over [c] : memref<64x512xf16, {{.*}}extents = [64, 512], span = 64
// ROLES: %O_new = cuda.warpgroup_product %P, %c_now into %O_so_far_1 over [x] : tensor<64x64xf16,
func.func @latent(%Q: !Q, %C: !C) -> !O {
  %O = hierarchy.kernel @latent (%q = %Q : !Q as !Qd, %c = %C : !C as !Cd) -> (!O)
      schedule #hierarchy.schedule<group = [h = 64], stream = [x = 64], whole = [c = 512], warps = [h = 4, c = 2]> {
    %S = diagram.contract %q, %c over [c] accumulate f32 : !Qd, !Cd -> !Sr
    %P = diagram.cast %S : !Sr -> !Pr
    %O = diagram.contract %P, %c over [x] accumulate f32 : !Pr, !Cd -> !Or
    hierarchy.yield %O : !Or
  }
  func.return %O : !O
}
