// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-distribute-products{products=O}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-distribute-products{products=O}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-distribute-products' %s | filecheck %s --check-prefix PAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-distribute-products{products=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-distribute-products{products=S1}' %s | filecheck %s --check-prefix WRONG

// WRONG: %S1 is no product with a sum whose terms wait for different sums along what it sums: such are %M, %O

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x128xf16, #diagram.array<[h, x, e]>>
!k = tensor<?xf32, #diagram.array<[h]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!r = tensor<?x?xf32, #diagram.array<[h, q]>>
!O = tensor<?x?x128xf32, #diagram.array<[h, q, e]>>

// Two softmaxes, one taken off the other, become two products.
// CHECK-LABEL: func.func @differential
// CHECK-SAME:    #hierarchy.step<"diagram-distribute-products", "%O over the terms of %D16", "a sum of products is linear in its factors", "asked for"
// CHECK:         %P1 = diagram.map (%{{.*}} = %e1 : {{.*}}, %{{.*}} = %l1
// CHECK:         %P2 = diagram.map (%{{.*}} = %e2 : {{.*}}, %{{.*}} = %l2
// CHECK:         %P1_f16 = diagram.cast %P1
// CHECK-NEXT:    %O_term = diagram.contract %P1_f16, %V over [x] accumulate f32
// CHECK-NEXT:    %D16_term = diagram.map ({{.*}} = %lambda : {{.*}}, {{.*}} = %P2
// CHECK:           arith.mulf
// CHECK:         %D16_term_f16 = diagram.cast %D16_term
// CHECK-NEXT:    %O_term_b = diagram.contract %D16_term_f16, %V over [x] accumulate f32
// CHECK-NEXT:    %O = diagram.map (%[[A:.*]] = %O_term : {{.*}}, %[[B:.*]] = %O_term_b
// CHECK-NEXT:      %[[D:.*]] = arith.subf %[[A]], %[[B]] : f32
// CHECK-NEXT:      diagram.yield %[[D]] : f32
// As nobody asked for it, they stay: they may cancel.
// PAYS-LABEL: func.func @differential
// PAYS-SAME:    #hierarchy.step<"decline diagram-distribute-products", "%O", "a sum of products is linear in its factors", "its terms may cancel
// PAYS:         %O = diagram.contract %D16, %V over [x] accumulate f32
// NONE-LABEL: func.func @differential
// NONE:         %O = diagram.contract %D16, %V over [x] accumulate f32
func.func @differential(%Q1: !Q, %K1: !K, %Q2: !Q, %K2: !K, %V: !V, %lambda: !k) -> !O
    attributes {sizes = #diagram.sizes<h = 32, q = 4096, x = 4096>} {
  %S1 = diagram.contract %Q1, %K1 over [d] accumulate f32 : !Q, !K -> !S
  %m1 = diagram.reduce max %S1 over [x] : !S -> !r
  %e1 = diagram.map (%s = %S1 : !S, %m = %m1 : !r) -> !S {
    %d = arith.subf %s, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l1 = diagram.reduce add %e1 over [x] : !S -> !r
  %P1 = diagram.map (%e = %e1 : !S, %l = %l1 : !r) -> !S {
    %p = arith.divf %e, %l : f32
    diagram.yield %p : f32
  }
  %S2 = diagram.contract %Q2, %K2 over [d] accumulate f32 : !Q, !K -> !S
  %m2 = diagram.reduce max %S2 over [x] : !S -> !r
  %e2 = diagram.map (%s = %S2 : !S, %m = %m2 : !r) -> !S {
    %d = arith.subf %s, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l2 = diagram.reduce add %e2 over [x] : !S -> !r
  %P2 = diagram.map (%e = %e2 : !S, %l = %l2 : !r) -> !S {
    %p = arith.divf %e, %l : f32
    diagram.yield %p : f32
  }
  %D = diagram.map (%p = %P1 : !S, %r = %P2 : !S, %l = %lambda : !k) -> !S {
    %less = arith.mulf %l, %r : f32
    %d = arith.subf %p, %less : f32
    diagram.yield %d : f32
  }
  %D16 = diagram.cast %D : !S -> !P
  %O = diagram.contract %D16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}

// A sum of shares is no smaller than each of them: made term by term where that takes less time.
// PAYS-LABEL: func.func @both
// PAYS-SAME:    #hierarchy.step<"diagram-distribute-products", "%M over the terms of %D16", "a sum of products is linear in its factors", "estimated
// PAYS:         %M_term = diagram.contract %P1_f16, %V over [x] accumulate f32
// PAYS:         %M_term_b = diagram.contract %P2_f16, %V over [x] accumulate f32
// PAYS-NEXT:    %M = diagram.map (%[[C:.*]] = %M_term : {{.*}}, %[[E:.*]] = %M_term_b
// PAYS-NEXT:      arith.addf %[[C]], %[[E]] : f32
// NONE-LABEL: func.func @both
// NONE:         %M = diagram.contract %D16, %V over [x] accumulate f32
func.func @both(%Q1: !Q, %K1: !K, %Q2: !Q, %K2: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<h = 32, q = 4096, x = 4096>} {
  %S1 = diagram.contract %Q1, %K1 over [d] accumulate f32 : !Q, !K -> !S
  %m1 = diagram.reduce max %S1 over [x] : !S -> !r
  %e1 = diagram.map (%s = %S1 : !S, %m = %m1 : !r) -> !S {
    %d = arith.subf %s, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l1 = diagram.reduce add %e1 over [x] : !S -> !r
  %P1 = diagram.map (%e = %e1 : !S, %l = %l1 : !r) -> !S {
    %p = arith.divf %e, %l : f32
    diagram.yield %p : f32
  }
  %S2 = diagram.contract %Q2, %K2 over [d] accumulate f32 : !Q, !K -> !S
  %m2 = diagram.reduce max %S2 over [x] : !S -> !r
  %e2 = diagram.map (%s = %S2 : !S, %m = %m2 : !r) -> !S {
    %d = arith.subf %s, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l2 = diagram.reduce add %e2 over [x] : !S -> !r
  %P2 = diagram.map (%e = %e2 : !S, %l = %l2 : !r) -> !S {
    %p = arith.divf %e, %l : f32
    diagram.yield %p : f32
  }
  %D = diagram.map (%p = %P1 : !S, %r = %P2 : !S) -> !S {
    %d = arith.addf %p, %r : f32
    diagram.yield %d : f32
  }
  %D16 = diagram.cast %D : !S -> !P
  %M = diagram.contract %D16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %M : !O
}

// What is summed along x is one sum, which moves with its terms: nothing is made term by term.
// CHECK-LABEL: func.func @centred
// CHECK:         %N = diagram.contract %D16, %V over [x] accumulate f32
func.func @centred(%A: !S, %V: !V) -> !O attributes {sizes = #diagram.sizes<h = 32, q = 4096, x = 4096>} {
  %m = diagram.reduce add %A over [x] : !S -> !r
  %D = diagram.map (%a = %A : !S, %mean = %m : !r) -> !S {
    %d = arith.subf %a, %mean : f32
    diagram.yield %d : f32
  }
  %D16 = diagram.cast %D : !S -> !P
  %N = diagram.contract %D16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %N : !O
}
