// RUN: xdsl-opt -p diagram-exp-to-exp2 %s | filecheck %s

!S = tensor<4x8xf32, #diagram.array<[q, x]>>
!m = tensor<4xf32, #diagram.array<[q]>>

// A term that a row shares: both terms are scaled, and each score takes one multiply-add.
// CHECK-LABEL: func.func @shared_term
func.func @shared_term(%S: !S, %m: !m) -> !S {
  // CHECK:      %[[C:.*]] = arith.constant 0.180336878 : f32
  // CHECK-NEXT: %scaled = arith.mulf %s, %[[C]] : f32
  // CHECK:      %top = arith.mulf %r, %{{.*}} : f32
  // CHECK-NEXT: %difference = arith.subf %scaled, %top : f32
  // CHECK-NEXT: %p = math.exp2 %difference : f32
  // CHECK-NOT:  math.exp %
  %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
    %c = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %c : f32
    %top = arith.mulf %r, %c : f32
    %difference = arith.subf %scaled, %top : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// No term is shared: the difference of equal numbers must stay zero, so its factor leaves it.
// CHECK-LABEL: func.func @repair
func.func @repair(%m: !m, %n: !m) -> !m {
  // CHECK:      %[[D:.*]] = arith.subf %a, %b : f32
  // CHECK:      %[[S:.*]] = arith.mulf %[[D]], %{{.*}} : f32
  // CHECK-NEXT: %f = math.exp2 %[[S]] : f32
  %F = diagram.map (%a = %m : !m, %b = %n : !m) -> !m {
    %c = arith.constant 0.125 : f32
    %old = arith.mulf %a, %c : f32
    %new = arith.mulf %b, %c : f32
    %difference = arith.subf %old, %new : f32
    %f = math.exp %difference : f32
    diagram.yield %f : f32
  }
  func.return %F : !m
}
