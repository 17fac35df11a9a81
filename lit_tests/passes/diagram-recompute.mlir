// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-recompute' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-recompute,fusion' %s | filecheck %s --check-prefix=FUSED

!A = tensor<?x64xf16, #diagram.array<[q, d]>>
!B = tensor<?x64xf16, #diagram.array<[x, d]>>
!V = tensor<?x64xf16, #diagram.array<[x, e]>>
!U = tensor<?x64xf16, #diagram.array<[q, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!rows = tensor<?xf32, #diagram.array<[q]>>
!columns = tensor<?xf32, #diagram.array<[x]>>
!O = tensor<?x64xf32, #diagram.array<[q, e]>>
!G = tensor<?x64xf32, #diagram.array<[x, e]>>

// What is summed along x keeps the scores that are there; the sum along q has its own, with all that it uses of them.
// CHECK-LABEL: func.func @both_ways(
// CHECK-SAME:    #hierarchy.step<"diagram-recompute", "%S_b, %E_b, %P_b again", "recomputation",
// CHECK-SAME:      "summed along q here, and along another axis before">
// CHECK-NEXT:  %S = diagram.contract %A, %B over [d]
// CHECK-NEXT:  %S_b = diagram.contract %A, %B over [d]
// CHECK-NEXT:  %m = diagram.reduce max %S over [x]
// CHECK-NEXT:  %E = diagram.map (%s = %S : {{.*}}, %h = %m :
// CHECK:       %E_b = diagram.map (%s = %S_b : {{.*}}, %h = %m :
// CHECK:       %P = diagram.cast %E :
// CHECK-NEXT:  %P_b = diagram.cast %E_b :
// CHECK-NEXT:  %O = diagram.contract %P, %V over [x]
// CHECK-NEXT:  %G = diagram.contract %P_b, %U over [q]
// The kernel along q reads the maxima; no array of scores leaves a kernel.
// FUSED-LABEL: func.func @both_ways(
// FUSED:       %m, %O = hierarchy.kernel @both_ways_1
// FUSED:       %G = hierarchy.kernel @both_ways_2 ({{.*}}%m_1 = %m
func.func @both_ways(%A: !A, %B: !B, %V: !V, %U: !U) -> (!O, !G) attributes {sizes = #diagram.sizes<q = 200, x = 333>} {
  %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
  %m = diagram.reduce max %S over [x] : !S -> !rows
  %E = diagram.map (%s = %S : !S, %h = %m : !rows) -> !S {
    %t = arith.subf %s, %h : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %P = diagram.cast %E : !S -> !P
  %O = diagram.contract %P, %V over [x] accumulate f32 : !P, !V -> !O
  %G = diagram.contract %P, %U over [q] accumulate f32 : !P, !U -> !G
  func.return %O, %G : !O, !G
}

!deepA = tensor<?x8192xf16, #diagram.array<[q, k]>>
!deepB = tensor<?x8192xf16, #diagram.array<[x, k]>>

// A product this deep takes longer than saving what it makes.
// CHECK-LABEL: func.func @deep(
// CHECK-NOT:     diagram-recompute
// CHECK:         %S = diagram.contract
// CHECK-NEXT:    %r = diagram.reduce max %S over [x]
// CHECK-NEXT:    %c = diagram.reduce max %S over [q]
func.func @deep(%A: !deepA, %B: !deepB) -> (!rows, !columns) attributes {sizes = #diagram.sizes<q = 200, x = 333>} {
  %S = diagram.contract %A, %B over [k] accumulate f32 : !deepA, !deepB -> !S
  %r = diagram.reduce max %S over [x] : !S -> !rows
  %c = diagram.reduce max %S over [q] : !S -> !columns
  func.return %r, %c : !rows, !columns
}

// Scores that are a result are saved anyway: reading them takes less than making them again.
// CHECK-LABEL: func.func @wanted(
// CHECK-NOT:     diagram-recompute
// CHECK:         func.return %S, %r
func.func @wanted(%A: !A, %B: !B) -> (!S, !rows) attributes {sizes = #diagram.sizes<q = 200, x = 333>} {
  %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
  %r = diagram.reduce max %S over [x] : !S -> !rows
  func.return %S, %r : !S, !rows
}

// A sum along both axes goes along that of another sum first: else no kernel could be fed for both.
// CHECK-LABEL: func.func @sum_of_all(
// CHECK-SAME:    #hierarchy.step<"diagram-recompute", "%all one axis after another", "associativity of add", "">
// CHECK:         %r = diagram.reduce max %S over [x]
// CHECK-NEXT:    %[[ROWS:.*]] = diagram.reduce add %S over [x] : {{.*}} -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT:    %all = diagram.reduce add %[[ROWS]] over [q]
// CHECK-NEXT:    %c = diagram.reduce max %S_b over [q]
// FUSED-LABEL: func.func @sum_of_all(
// FUSED-NOT:   -> ({{.*}}tensor<?x?xf32
!one = tensor<f32, #diagram.array<[]>>
func.func @sum_of_all(%A: !A, %B: !B) -> (!rows, !one, !columns) attributes {sizes = #diagram.sizes<q = 4096, x = 4096>} {
  %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
  %r = diagram.reduce max %S over [x] : !S -> !rows
  %all = diagram.reduce add %S over [q, x] : !S -> !one
  %c = diagram.reduce max %S over [q] : !S -> !columns
  func.return %r, %all, %c : !rows, !one, !columns
}
