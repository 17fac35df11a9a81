// RUN: xdsl-opt -p diagram-fuse-multiply-adds %s | filecheck %s

!S = tensor<4x8xf32, #diagram.array<[q, x]>>
!B = tensor<8xf32, #diagram.array<[x]>>
!m = tensor<4xf32, #diagram.array<[q]>>
!H = tensor<4x8xf16, #diagram.array<[q, x]>>

// A scale and a bias.
// CHECK-LABEL: func.func @bias
// CHECK:      diagram.map (%s = %S : tensor<4x8xf32, {{.*}}, %b = %B : tensor<8xf32
// CHECK-NEXT: %c = arith.constant 1.250000e-01 : f32
// CHECK-NEXT: %t = math.fma %s, %c, %b : f32
// CHECK-NEXT: diagram.yield %t
func.func @bias(%S: !S, %B: !B) -> !S {
  %T = diagram.map (%s = %S : !S, %b = %B : !B) -> !S {
    %c = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %c : f32
    %t = arith.addf %scaled, %b : f32
    diagram.yield %t : f32
  }
  func.return %T : !S
}

// Either side of a difference.
// CHECK-LABEL: func.func @differences
// CHECK:      %[[N:.*]] = arith.negf %b : f32
// CHECK-NEXT: %t = math.fma %s, %a, %[[N]] : f32
// CHECK:      %[[N:.*]] = arith.negf %s : f32
// CHECK-NEXT: %u = math.fma %[[N]], %a, %b : f32
func.func @differences(%S: !S, %A: !S, %B: !B) -> (!S, !S) {
  %T = diagram.map (%s = %S : !S, %a = %A : !S, %b = %B : !B) -> !S {
    %p = arith.mulf %s, %a : f32
    %t = arith.subf %p, %b : f32
    diagram.yield %t : f32
  }
  %U = diagram.map (%s = %S : !S, %a = %A : !S, %b = %B : !B) -> !S {
    %p = arith.mulf %s, %a : f32
    %u = arith.subf %b, %p : f32
    diagram.yield %u : f32
  }
  func.return %T, %U : !S, !S
}

// A bias that is a product, beside a constant multiple: only that is certain not to cancel.
// CHECK-LABEL: func.func @product
// CHECK:      %far = arith.mulf %a, %b : f32
// CHECK-NEXT: %t = math.fma %s, %c, %far : f32
func.func @product(%S: !S, %A: !m, %B: !B) -> !S {
  %T = diagram.map (%s = %S : !S, %a = %A : !m, %b = %B : !B) -> !S {
    %c = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %c : f32
    %far = arith.mulf %a, %b : f32
    %t = arith.addf %scaled, %far : f32
    diagram.yield %t : f32
  }
  func.return %T : !S
}

// Two products, of which the one could be the other.
// CHECK-LABEL: func.func @determinant
// CHECK-NOT: math.fma
// CHECK:     arith.subf
func.func @determinant(%A: !S, %B: !S, %C: !S, %D: !S) -> !S {
  %T = diagram.map (%a = %A : !S, %b = %B : !S, %c = %C : !S, %d = %D : !S) -> !S {
    %one = arith.mulf %a, %d : f32
    %other = arith.mulf %b, %c : f32
    %t = arith.subf %one, %other : f32
    diagram.yield %t : f32
  }
  func.return %T : !S
}

// What is subtracted comes from the same numbers, by way of a reduction: it may be meant to cancel.
// CHECK-LABEL: func.func @below_maximum
// CHECK-NOT: math.fma
// CHECK:     %t = arith.subf
func.func @below_maximum(%S: !S) -> !S {
  %M = diagram.map (%s = %S : !S) -> !S {
    %c = arith.constant 0.3 : f32
    %scaled = arith.mulf %s, %c : f32
    diagram.yield %scaled : f32
  }
  %m = diagram.reduce max %M over [x] : !S -> !m
  %T = diagram.map (%s = %S : !S, %most = %m : !m) -> !S {
    %c = arith.constant 0.3 : f32
    %scaled = arith.mulf %s, %c : f32
    %t = arith.subf %scaled, %most : f32
    diagram.yield %t : f32
  }
  func.return %T : !S
}

// A product that something else reads, too, stays; and so do numbers of other formats.
// CHECK-LABEL: func.func @others
// CHECK-NOT: math.fma
// CHECK:     func.return
func.func @others(%S: !S, %B: !B, %H: !H, %G: !H) -> (!S, !H) {
  %T = diagram.map (%s = %S : !S, %b = %B : !B) -> !S {
    %c = arith.constant 0.125 : f32
    %p = arith.mulf %s, %c : f32
    %sum = arith.addf %p, %b : f32
    %t = arith.maximumf %sum, %p : f32
    diagram.yield %t : f32
  }
  %U = diagram.map (%h = %H : !H, %g = %G : !H) -> !H {
    %p = arith.mulf %h, %h : f16
    %u = arith.addf %p, %g : f16
    diagram.yield %u : f16
  }
  func.return %T, %U : !S, !H
}
