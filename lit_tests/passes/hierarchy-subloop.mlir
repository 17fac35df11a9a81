// RUN: xdsl-opt %s -p 'hierarchy-subloop{axis=d size=32}' | filecheck %s
// RUN: xdsl-opt %s -p 'hierarchy-subloop{axis=d kernel=scores}' | filecheck %s --check-prefix LEAST
// RUN: xdsl-opt %s -p 'hierarchy-subloop{axis=d size=32},hierarchy-expand-streams,convert-hierarchy-to-cuda' | filecheck %s --check-prefix CUDA
// RUN: xdsl-opt %s -p hierarchy-subloop | filecheck %s --check-prefix UNASKED
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=d size=24}' | filecheck %s --check-prefix DEPTH
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=d size=128}' | filecheck %s --check-prefix WHOLE
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=d size=-16}' | filecheck %s --check-prefix NEGATIVE
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=x size=16}' | filecheck %s --check-prefix REGISTERS
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=q}' | filecheck %s --check-prefix GROUP
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=y}' | filecheck %s --check-prefix UNKNOWN
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{size=16}' | filecheck %s --check-prefix WHICH
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-subloop{axis=d kernel=other}' | filecheck %s --check-prefix KERNEL
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-expand-streams,hierarchy-subloop{axis=d}' | filecheck %s --check-prefix LATE

!Q = tensor<?x128xf16, #diagram.array<[q, d]>>
!K = tensor<?x128xf16, #diagram.array<[x, d]>>
!V = tensor<?x64xf16, #diagram.array<[x, e]>>
!O = tensor<?x64xf32, #diagram.array<[q, e]>>
!Qd = tensor<?x128xf16, #diagram.array<[q, d], level = device>>
!Kd = tensor<?x128xf16, #diagram.array<[x, d], level = device>>
!Vd = tensor<?x64xf16, #diagram.array<[x, e], level = device>>
!S = tensor<?x?xf32, #diagram.array<[q, x], level = register>>
!P = tensor<?x?xf16, #diagram.array<[q, x], level = register>>
!Or = tensor<?x64xf32, #diagram.array<[q, e], level = register>>

// CHECK-LABEL: func.func @scores(
// CHECK-SAME:  derivation = [#hierarchy.step<"hierarchy-subloop", "%s of @scores along d", "linearity of the contraction", "4 pieces of 32 add up; registers hold 32 of 128 at once">]
// CHECK:       %O = hierarchy.kernel @scores
// CHECK-SAME:  schedule #hierarchy.schedule<group = [q = 64], stream = [x = 64], whole = [d = 128, e = 64], warps = [q = 4], subloop = [d = 32]>
// CHECK:         %s = diagram.contract %a, %b over [d]

// LEAST: subloop = [d = 16]>

// CUDA-LABEL: cuda.kernel @scores_kernel
// CUDA-NOT:   cuda.read
// CUDA:       scf.for
// CUDA:         %s_1 = cuda.product %a_shared, %b_shared into %s over [d] subloop 32 using m16n8k16
// CUDA:         %o_new = cuda.product %p, %c_shared into %o_so_far_1 over [x] using m16n8k16

// UNASKED-NOT: subloop
// UNASKED:     warps = [q = 4]> {

// DEPTH: axis 'd' of @scores cannot be walked in pieces of 24: %s is multiplied 16 deep at a time: write a multiple of 16
// WHOLE: axis 'd' of @scores cannot be walked in pieces of 128: a group holds 128 of it, which smaller pieces must cover evenly: choose one of 16, 32, 64
// NEGATIVE: axis 'd' of @scores cannot be walked in pieces of -16: write a number from 1 on
// REGISTERS: axis 'x' of @scores cannot be walked by a subloop: %p, the left operand of %o, is made in registers, at which no loop can point
// GROUP: axis 'q' cannot be walked by a subloop: no contraction of @scores sums over it
// UNKNOWN: axis 'y' cannot be walked by a subloop: @scores has no axis 'y' (there is q, d, x, e)
// WHICH: a subloop walks an axis: say which, as in hierarchy-subloop{axis=d}
// KERNEL: there is no kernel @other
// LATE: the streams of @scores are explicit already: ask for a subloop before

func.func @scores(%Q: !Q, %K: !K, %V: !V) -> !O {
  %O = hierarchy.kernel @scores (%a = %Q : !Q as !Qd, %b = %K : !K as !Kd, %c = %V : !V as !Vd) -> (!O)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = 64], whole = [d = 128, e = 64], warps = [q = 4]> {
    %s = diagram.contract %a, %b over [d] accumulate f32 : !Qd, !Kd -> !S
    %p = diagram.cast %s : !S -> !P
    %o = diagram.contract %p, %c over [x] accumulate f32 : !P, !Vd -> !Or
    hierarchy.yield %o : !Or
  }
  func.return %O : !O
}
