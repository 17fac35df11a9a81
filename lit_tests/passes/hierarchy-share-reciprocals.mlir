// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals' | filecheck %s
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals{most=2}' | filecheck %s --check-prefix TWO
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals{most=1}' | filecheck %s --check-prefix OFF
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals,hierarchy-share-reciprocals' | filecheck %s
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals,diagram-expand-approximations' | filecheck %s --check-prefix EXPANDED
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals,diagram-expand-approximations,diagram-expand-approximations' | filecheck %s --check-prefix EXPANDED
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-share-reciprocals,hierarchy-choose-sizes,hierarchy-expand-streams,diagram-expand-approximations,convert-hierarchy-to-cuda' | filecheck %s --check-prefix CUDA
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-share-reciprocals{most=3}' | filecheck %s --check-prefix THREE

!Q = tensor<4096x64xf16, #diagram.array<[q, d]>>
!K = tensor<4100x64xf16, #diagram.array<[x, d]>>
!V = tensor<4100x64xf16, #diagram.array<[x, e]>>
!Qd = tensor<4096x64xf16, #diagram.array<[q, d], level = device>>
!Kd = tensor<4100x64xf16, #diagram.array<[x, d], level = device>>
!Vd = tensor<4100x64xf16, #diagram.array<[x, e], level = device>>
!Sr = tensor<4096x4100xf32, #diagram.array<[q, x], level = register>>
!Pr = tensor<4096x4100xf16, #diagram.array<[q, x], level = register>>
!l = tensor<4096xf32, #diagram.array<[q]>>
!lr = tensor<4096xf32, #diagram.array<[q], level = register>>
!A = tensor<4096x64xf32, #diagram.array<[q, e]>>
!Ar = tensor<4096x64xf32, #diagram.array<[q, e], level = register>>

// THREE: most=3: 2 or 4 neighbours share a reciprocal, or each has its own (1)

// Powers of a cap: four share, whose roundings leave powers exact enough. In the last piece, which is not full, none do.

// CHECK-LABEL: func.func @capped(
// CHECK-SAME:  #hierarchy.step<"hierarchy-share-reciprocals", "%p of @capped", "1 / a = b / (a b)", "estimated {{[0-9.e+]+}} us where 2 share one, {{[0-9.e+]+}} us where 4 share one, {{[0-9.e+]+}} us where each has its own">
// CHECK:       %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<x = 4>} : f32

// TWO-LABEL: func.func @capped(
// TWO:       %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<x = 2>} : f32

// OFF-NOT: diagram.shared
// OFF-NOT: hierarchy.step

// EXPANDED-LABEL: func.func @capped(
// EXPANDED:      %[[E:.*]] = math.exp %{{.*}} : f32
// EXPANDED-NEXT: %[[K:.*]] = arith.constant 9.31322575e-10 : f32
// EXPANDED-NEXT: %[[M:.*]] = arith.mulf %[[E]], %[[K]] : f32
// EXPANDED-NEXT: %[[L:.*]] = arith.constant 9.31322575e-10 : f32
// EXPANDED-NEXT: %[[D:.*]] = arith.addf %[[M]], %[[L]] : f32
// EXPANDED-NEXT: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// EXPANDED-NEXT: %[[C:.*]] = arith.minimumf %[[D]], %[[ONE]] : f32
// EXPANDED-NEXT: %[[N:.*]] = arith.constant 1.000000e+00 : f32
// EXPANDED-NEXT: %[[R:.*]] = arith.divf %[[N]], %[[C]] fastmath<arcp> {diagram.shared = #diagram.sizes<x = 4>} : f32
// EXPANDED-NEXT: %[[T:.*]] = arith.constant 1.86264515e-09 : f32
// EXPANDED-NEXT: %[[P:.*]] = arith.mulf %[[R]], %[[T]] : f32
// EXPANDED-NEXT: %[[U:.*]] = arith.constant 1.000000e+00 : f32
// EXPANDED-NEXT: %t = arith.subf %[[P]], %[[U]] : f32

// CUDA-LABEL: cuda.kernel @capped_kernel
// CUDA:       scf.for
// CUDA:         arith.divf %{{.*}}, %{{.*}} fastmath<arcp> {diagram.shared = #diagram.sizes<x = 4>} : f32
// CUDA:       scf.yield
// CUDA-NOT:   diagram.shared
// CUDA:       arith.divf %{{.*}}, %{{.*}} fastmath<arcp> : f32
// CUDA-NOT:   diagram.shared
// CUDA-LABEL: cuda.kernel @shares_kernel

func.func @capped(%Q: !Q, %K: !K) -> !l {
  %l = hierarchy.kernel @capped (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd) -> (!l)
      schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !Sr
    %p = diagram.map (%s = %S : !Sr) -> !Sr {
      %t = math.tanh %s fastmath<afn> : f32
      %e = math.exp %t : f32
      diagram.yield %e : f32
    }
    %sum = diagram.reduce add %p over [x] : !Sr -> !lr
    hierarchy.yield %sum : !lr
  }
  func.return %l : !l
}

// Quotients that are rounded to f16: two share, for no more roundings are allowed.

// CHECK-LABEL: func.func @shares(
// CHECK:       %y = arith.divf %one, %d fastmath<arcp> {diagram.shared = #diagram.sizes<x = 2>} : f32

// EXPANDED-LABEL: func.func @shares(
// EXPANDED:      %[[K:.*]] = arith.constant 2.16840434e-19 : f32
// EXPANDED-NEXT: %[[M:.*]] = arith.mulf %e, %[[K]] : f32
// EXPANDED-NEXT: %[[L:.*]] = arith.constant 2.16840434e-19 : f32
// EXPANDED-NEXT: %[[D:.*]] = arith.addf %[[M]], %[[L]] : f32
// EXPANDED-NEXT: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// EXPANDED-NEXT: %[[C:.*]] = arith.minimumf %[[D]], %[[ONE]] : f32
// EXPANDED-NEXT: %[[N:.*]] = arith.constant 2.16840434e-19 : f32
// EXPANDED-NEXT: %y = arith.divf %[[N]], %[[C]] fastmath<arcp> {diagram.shared = #diagram.sizes<x = 2>} : f32
// EXPANDED-NEXT: diagram.yield %y

func.func @shares(%Q: !Q, %K: !K, %V: !V) -> !A {
  %A = hierarchy.kernel @shares (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd) -> (!A)
      schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !Sr
    %p = diagram.map (%s = %S : !Sr) -> !Sr {
      %one = arith.constant 1.0 : f32
      %e = math.exp %s : f32
      %d = arith.addf %one, %e : f32
      %y = arith.divf %one, %d fastmath<arcp> : f32
      diagram.yield %y : f32
    }
    %P16 = diagram.cast %p : !Sr -> !Pr
    %a = diagram.contract %P16, %v over [x] accumulate f32 : !Pr, !Vd -> !Ar
    hierarchy.yield %a : !Ar
  }
  func.return %A : !A
}

// The largest power is no sum: it may have passed a NaN over, which a neighbour then gets.

// CHECK-LABEL: func.func @largest(
// CHECK-NOT:   diagram.shared

func.func @largest(%Q: !Q, %K: !K) -> !l {
  %l = hierarchy.kernel @largest (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd) -> (!l)
      schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !Sr
    %p = diagram.map (%s = %S : !Sr) -> !Sr {
      %t = math.tanh %s fastmath<afn> : f32
      %e = math.exp %t : f32
      diagram.yield %e : f32
    }
    %most = diagram.reduce max %p over [x] : !Sr -> !lr
    hierarchy.yield %most : !lr
  }
  func.return %l : !l
}

// A gate behind the stream of a product: any elements of a thread share, where their divisors pass a test. What the
// kernel divides by then is a quarter, and no piece is left out.

// CHECK-LABEL: func.func @gate(
// CHECK-SAME:  #hierarchy.step<"hierarchy-share-reciprocals", "%g of @gate", "1 / a = b / (a b), tested: each has its own where a product is NaN or too large", "10 clocks of a warp an element where 4 share one, 16 where each has its own">
// CHECK:       %y = arith.divf %s, %d fastmath<arcp> {diagram.shared = 4 : i64} : f32

// TWO-LABEL: func.func @gate(
// TWO:       %y = arith.divf %s, %d fastmath<arcp> {diagram.shared = 2 : i64} : f32

// EXPANDED-LABEL: func.func @gate(
// EXPANDED:      %[[Q:.*]] = arith.divf %{{.*}}, %{{.*}} fastmath<arcp> {diagram.shared = 4 : i64} : f32
// EXPANDED-NEXT: %y = arith.mulf %s, %[[Q]] : f32

// CUDA-LABEL: cuda.kernel @gate_kernel
// CUDA:       scf.for
// CUDA:       arith.divf %{{.*}}, %{{.*}} fastmath<arcp> {diagram.shared = 4 : i64} : f32

!S = tensor<4096x4100xf32, #diagram.array<[q, x], level = register>>
!G = tensor<4096x4100xf16, #diagram.array<[q, x]>>
!Gr = tensor<4096x4100xf16, #diagram.array<[q, x], level = register>>

func.func @gate(%Q: !Q, %K: !K) -> !G {
  %G = hierarchy.kernel @gate (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd) -> (!G)
      schedule #hierarchy.schedule<group = [q = ?, x = ?], stream = [d = ?]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %g = diagram.map (%s = %S : !S) -> !S {
      %one = arith.constant 1.0 : f32
      %n = arith.negf %s : f32
      %e = math.exp %n : f32
      %d = arith.addf %one, %e : f32
      %y = arith.divf %s, %d fastmath<arcp> : f32
      diagram.yield %y : f32
    }
    %g16 = diagram.cast %g : !S -> !Gr
    hierarchy.yield %g16 : !Gr
  }
  func.return %G : !G
}

// Of a result in f32 the error would show.

// CHECK-LABEL: func.func @wide(
// CHECK-NOT:   diagram.shared

!W = tensor<4096x4100xf32, #diagram.array<[q, x]>>

func.func @wide(%Q: !Q, %K: !K) -> !W {
  %G = hierarchy.kernel @wide (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd) -> (!W)
      schedule #hierarchy.schedule<group = [q = ?, x = ?], stream = [d = ?]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %g = diagram.map (%s = %S : !S) -> !S {
      %one = arith.constant 1.0 : f32
      %e = math.exp %s : f32
      %d = arith.addf %one, %e : f32
      %y = arith.divf %s, %d fastmath<arcp> : f32
      diagram.yield %y : f32
    }
    hierarchy.yield %g : !S
  }
  func.return %G : !W
}
