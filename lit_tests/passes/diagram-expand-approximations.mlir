// RUN: xdsl-opt -p diagram-expand-approximations %s | filecheck %s
// RUN: xdsl-opt -p diagram-expand-approximations,diagram-exp-to-exp2,diagram-fuse-multiply-adds %s | filecheck %s --check-prefix FUSED
// RUN: xdsl-opt -p diagram-expand-approximations,diagram-expand-approximations %s | filecheck %s

!S = tensor<4x8xf32, #diagram.array<[q, x]>>
!m = tensor<4xf32, #diagram.array<[q]>>

// A cap: of what a constant multiplies and divides, one factor is left.
// CHECK-LABEL: func.func @cap
// CHECK:       diagram.map (%s = %S
// CHECK-NEXT:  %[[C:.*]] = arith.constant -5.000000e-01 : f32
// CHECK-NEXT:  %[[X:.*]] = arith.mulf %s, %[[C]] : f32
// CHECK-NEXT:  %[[E:.*]] = math.exp %[[X]] : f32
// CHECK-NEXT:  %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %[[B:.*]] = arith.addf %[[E]], %[[ONE]] : f32
// CHECK-NEXT:  %[[A:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %[[R:.*]] = arith.divf %[[A]], %[[B]] fastmath<arcp> : f32
// CHECK-NEXT:  %[[TWICE:.*]] = arith.constant 1.000000e+02 : f32
// CHECK-NEXT:  %[[M:.*]] = arith.mulf %[[R]], %[[TWICE]] : f32
// CHECK-NEXT:  %[[CAP:.*]] = arith.constant 5.000000e+01 : f32
// CHECK-NEXT:  %capped = arith.subf %[[M]], %[[CAP]] : f32
// CHECK-NEXT:  diagram.yield %capped
// FUSED-LABEL: func.func @cap
// FUSED:       %[[X:.*]] = arith.mulf %s, %log2_e : f32
// FUSED-NEXT:  %[[E:.*]] = math.exp2 %[[X]] : f32
// FUSED:       %[[B:.*]] = arith.addf %[[E]], %{{.*}} : f32
// FUSED:       %[[R:.*]] = arith.divf %{{.*}}, %[[B]] fastmath<arcp> : f32
// FUSED:       %capped = math.fma %[[R]], %{{.*}}, %{{.*}} : f32
func.func @cap(%S: !S) -> !S {
  %T = diagram.map (%s = %S : !S) -> !S {
    %cap = arith.constant 50.0 : f32
    %four = arith.constant 4.0 : f32
    %scaled = arith.divf %s, %four : f32
    %t = math.tanh %scaled fastmath<afn> : f32
    %capped = arith.mulf %cap, %t : f32
    diagram.yield %capped : f32
  }
  func.return %T : !S
}

// Without a factor, and beside one: one reciprocal.
// CHECK-LABEL: func.func @both
// CHECK:       %[[R:.*]] = arith.divf %{{.*}}, %{{.*}} fastmath<arcp> : f32
// CHECK:       %[[TWICE:.*]] = arith.constant 2.000000e+00 : f32
// CHECK-NEXT:  %[[M:.*]] = arith.mulf %[[R]], %[[TWICE]] : f32
// CHECK-NEXT:  %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %t = arith.subf %[[M]], %[[ONE]] : f32
// CHECK:       %[[N:.*]] = arith.mulf %[[R]], %{{.*}} : f32
// CHECK:       %u = arith.subf %[[N]], %{{.*}} : f32
// CHECK:       %v = arith.addf %u, %t : f32
func.func @both(%S: !S) -> !S {
  %T = diagram.map (%s = %S : !S) -> !S {
    %three = arith.constant 3.0 : f32
    %t = math.tanh %s fastmath<afn> : f32
    %u = arith.mulf %t, %three : f32
    %v = arith.addf %u, %t : f32
    diagram.yield %v : f32
  }
  func.return %T : !S
}

// CHECK-LABEL: func.func @one_plus
// CHECK:       %[[E:.*]] = math.exp %{{.*}} : f32
// CHECK-NEXT:  %[[HALF:.*]] = arith.constant 5.000000e-01 : f32
// CHECK-NEXT:  %[[M:.*]] = arith.mulf %[[E]], %[[HALF]] : f32
// CHECK-NEXT:  %[[H:.*]] = arith.constant 5.000000e-01 : f32
// CHECK-NEXT:  %[[B:.*]] = arith.addf %[[M]], %[[H]] : f32
// CHECK-NEXT:  %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %[[R:.*]] = arith.divf %[[ONE]], %[[B]] fastmath<arcp> : f32
// CHECK-NEXT:  %h = arith.mulf %s, %[[R]] : f32
func.func @one_plus(%S: !S) -> !S {
  %G = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %t = math.tanh %s fastmath<afn> : f32
    %g = arith.addf %t, %one : f32
    %h = arith.mulf %s, %g : f32
    diagram.yield %h : f32
  }
  func.return %G : !S
}

// What is divided is not known: a quarter of both. That of the divisor takes no operation more, fused.
// CHECK-LABEL: func.func @quotient
// CHECK:       %[[Q:.*]] = arith.mulf %s, %{{.*}} : f32
// CHECK:       %[[E:.*]] = arith.mulf %e, %{{.*}} : f32
// CHECK-NEXT:  %[[C:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-NEXT:  %[[B:.*]] = arith.addf %[[E]], %[[C]] : f32
// CHECK-NEXT:  %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %[[R:.*]] = arith.divf %[[ONE]], %[[B]] fastmath<arcp> : f32
// CHECK-NEXT:  %g = arith.mulf %[[Q]], %[[R]] : f32
// FUSED-LABEL: func.func @quotient
// FUSED:       %e = math.exp2
// FUSED:       %[[Q:.*]] = arith.mulf %s, %{{.*}} : f32
// FUSED:       %[[B:.*]] = math.fma %e, %{{.*}}, %{{.*}} : f32
// FUSED:       %[[R:.*]] = arith.divf %{{.*}}, %[[B]] fastmath<arcp> : f32
// FUSED-NEXT:  %g = arith.mulf %[[Q]], %[[R]] : f32
func.func @quotient(%S: !S) -> !S {
  %G = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %e = math.exp %s : f32
    %divisor = arith.addf %one, %e : f32
    %g = arith.divf %s, %divisor fastmath<arcp> : f32
    diagram.yield %g : f32
  }
  func.return %G : !S
}

// A divisor of several elements: a quarter of its reciprocal, which is made once for them.
// CHECK-LABEL: func.func @row
// CHECK:       %[[C:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-NEXT:  %[[B:.*]] = arith.mulf %l, %[[C]] : f32
// CHECK-NEXT:  %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:  %[[R:.*]] = arith.divf %[[ONE]], %[[B]] fastmath<arcp> : f32
// CHECK-NEXT:  %[[D:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-NEXT:  %[[Q:.*]] = arith.mulf %[[R]], %[[D]] : f32
// CHECK-NEXT:  %a = arith.mulf %s, %[[Q]] : f32
func.func @row(%S: !S, %L: !m) -> !S {
  %A = diagram.map (%s = %S : !S, %l = %L : !m) -> !S {
    %a = arith.divf %s, %l fastmath<arcp> : f32
    diagram.yield %a : f32
  }
  func.return %A : !S
}

// Constants: 1 stays; a small one is a factor; a large one is as any number. Without a flag nothing happens.
// CHECK-LABEL: func.func @constants
// CHECK:       %a = arith.divf %one, %divisor fastmath<arcp> : f32
// CHECK:       %[[R:.*]] = arith.divf %{{.*}}, %divisor fastmath<arcp> : f32
// CHECK-NEXT:  %[[C:.*]] = arith.constant -7.500000e-01 : f32
// CHECK-NEXT:  %b = arith.mulf %[[R]], %[[C]] : f32
// CHECK:       %[[Q:.*]] = arith.mulf %nine, %{{.*}} : f32
// CHECK:       %c = arith.mulf %[[Q]], %{{.*}} : f32
// CHECK:       %d = arith.divf %s, %divisor : f32
// CHECK:       %t = math.tanh %s : f32
func.func @constants(%S: !S) -> !S {
  %G = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %part = arith.constant -0.75 : f32
    %nine = arith.constant 9.0 : f32
    %e = math.exp %s : f32
    %divisor = arith.addf %one, %e : f32
    %a = arith.divf %one, %divisor fastmath<arcp> : f32
    %b = arith.divf %part, %divisor fastmath<arcp> : f32
    %c = arith.divf %nine, %divisor fastmath<arcp> : f32
    %d = arith.divf %s, %divisor : f32
    %t = math.tanh %s : f32
    %f = arith.addf %a, %b : f32
    %g = arith.addf %c, %d : f32
    %h = arith.addf %f, %g : f32
    %i = arith.addf %h, %t : f32
    diagram.yield %i : f32
  }
  func.return %G : !S
}

// Elements that share a reciprocal where their divisors pass a test: the quotient of a quarter of 1 is theirs, and what
// is divided multiplies it; a constant goes into it.
// CHECK-LABEL: func.func @tested
// CHECK:       %[[M:.*]] = arith.mulf %e, %{{.*}} : f32
// CHECK-NEXT:  %[[C:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-NEXT:  %[[D:.*]] = arith.addf %[[M]], %[[C]] : f32
// CHECK-NEXT:  %[[Q:.*]] = arith.divf %{{.*}}, %[[D]] fastmath<arcp> {diagram.shared = 4 : i64} : f32
// CHECK-NEXT:  %g = arith.mulf %s, %[[Q]] : f32
// CHECK:       %[[T:.*]] = arith.constant 7.500000e-01 : f32
// CHECK:       %h = arith.divf %[[T]], %{{.*}} fastmath<arcp> {diagram.shared = 2 : i64} : f32
// CHECK:       %[[E:.*]] = math.exp %{{.*}} : f32
// CHECK-NEXT:  %[[H:.*]] = arith.constant 5.000000e-01 : f32
// CHECK-NEXT:  %[[A:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-NEXT:  %[[M2:.*]] = arith.mulf %[[E]], %[[A]] : f32
// CHECK-NEXT:  %[[B:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-NEXT:  %[[D2:.*]] = arith.addf %[[M2]], %[[B]] : f32
// CHECK-NEXT:  %[[R:.*]] = arith.divf %[[H]], %[[D2]] fastmath<arcp> {diagram.shared = 4 : i64} : f32
// CHECK-NEXT:  arith.mulf %[[R]], %s : f32
func.func @tested(%S: !S) -> (!S, !S, !S) {
  %G = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %e = math.exp %s : f32
    %divisor = arith.addf %one, %e : f32
    %g = arith.divf %s, %divisor fastmath<arcp> {diagram.shared = 4 : i64} : f32
    diagram.yield %g : f32
  }
  %H = diagram.map (%s = %S : !S) -> !S {
    %three = arith.constant 3.0 : f32
    %e = math.exp %s : f32
    %divisor = arith.addf %e, %three : f32
    %h = arith.divf %three, %divisor fastmath<arcp> {diagram.shared = 2 : i64} : f32
    diagram.yield %h : f32
  }
  %I = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %t = math.tanh %s fastmath<afn> {diagram.shared = 4 : i64} : f32
    %u = arith.addf %t, %one : f32
    %i = arith.mulf %u, %s : f32
    diagram.yield %i : f32
  }
  func.return %G, %H, %I : !S, !S, !S
}

// log(1 + exp(s)) is max(s, 0) and a polynomial in exp(-|s|).
// CHECK-LABEL: func.func @softplus
// CHECK:       diagram.map (%s = %S
// CHECK-NEXT:  %[[ABS:.*]] = math.absf %s : f32
// CHECK-NEXT:  %[[NEG:.*]] = arith.negf %[[ABS]] : f32
// CHECK-NEXT:  %[[U:.*]] = math.exp %[[NEG]] : f32
// CHECK:       %[[P:.*]] = math.fma %{{.*}}, %[[U]], %{{.*}} : f32
// CHECK-COUNT-6: math.fma %{{.*}}, %[[U]], %{{.*}} : f32
// CHECK-NEXT:  %[[LAST:.*]] = math.fma %{{.*}}, %[[U]], %{{.*}} : f32
// CHECK-NEXT:  %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:  %[[MOST:.*]] = arith.maximumf %s, %[[ZERO]] : f32
// CHECK-NEXT:  %l = math.fma %[[U]], %[[LAST]], %[[MOST]] : f32
// CHECK-NEXT:  diagram.yield %l
func.func @softplus(%S: !S) -> !S {
  %L = diagram.map (%s = %S : !S) -> !S {
    %e = math.exp %s : f32
    %l = math.log1p %e fastmath<afn> : f32
    diagram.yield %l : f32
  }
  func.return %L : !S
}
