// RUN: xdsl-opt -p diagram-allow-approximations %s | filecheck %s

!S = tensor<4x8xf32, #diagram.array<[q, x]>>
!H = tensor<4x8xf16, #diagram.array<[q, x]>>
!m = tensor<4xf32, #diagram.array<[q]>>
!one = tensor<f32, #diagram.array<[]>>

// A cap of scores below their maximum: 60 of them in an exponent, 30 for each side of the difference. The logarithm of
// the sum of these powers does not ask for more.
// CHECK-LABEL: func.func @cap
// CHECK-SAME:  #hierarchy.step<"diagram-allow-approximations", "%t in %T", "tanh x = 2 / (1 + exp(-2 x)) - 1", "only exponents are made of it, which are off by 90 times 2^-21 at most">
// CHECK:       %t = math.tanh %s fastmath<afn> : f32
func.func @cap(%S: !S) -> (!S, !m) {
  %T = diagram.map (%s = %S : !S) -> !S {
    %cap = arith.constant 30.0 : f32
    %t = math.tanh %s : f32
    %capped = arith.mulf %t, %cap : f32
    diagram.yield %capped : f32
  }
  %W = diagram.where %T if "x <= q" : !S
  %m = diagram.reduce max %W over [x] : !S -> !m
  %P = diagram.map (%s = %W : !S, %most = %m : !m) -> !S {
    %d = arith.subf %s, %most : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %P over [x] : !S -> !m
  %L = diagram.map (%sum = %l : !m, %most = %m : !m) -> !m {
    %log = math.log %sum : f32
    %all = arith.addf %most, %log : f32
    diagram.yield %all : f32
  }
  func.return %P, %L : !S, !m
}

// So large that the powers would be off by more.
// CHECK-LABEL: func.func @large_cap
// CHECK-NOT:   #hierarchy.step
// CHECK:       %t = math.tanh %s : f32
func.func @large_cap(%S: !S) -> !S {
  %P = diagram.map (%s = %S : !S) -> !S {
    %cap = arith.constant 200.0 : f32
    %t = math.tanh %s : f32
    %capped = arith.mulf %cap, %t : f32
    %p = math.exp %capped : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// The same number as a result, as a factor, a square, or beside the logarithm of something else.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-4: {{math.tanh %s : f32}}
func.func @others(%S: !S, %R: !S) -> (!S, !S, !S, !S, !S) {
  %T = diagram.map (%s = %S : !S) -> !S {
    %t = math.tanh %s : f32
    diagram.yield %t : f32
  }
  %P = diagram.map (%t = %T : !S) -> !S {
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %U = diagram.map (%s = %S : !S, %r = %R : !S) -> !S {
    %t = math.tanh %s : f32
    %u = arith.mulf %t, %r : f32
    %p = math.exp %u : f32
    diagram.yield %p : f32
  }
  %V = diagram.map (%s = %S : !S) -> !S {
    %t = math.tanh %s : f32
    %u = arith.mulf %t, %t : f32
    %p = math.exp %u : f32
    diagram.yield %p : f32
  }
  %W = diagram.map (%s = %S : !S, %r = %R : !S) -> !S {
    %t = math.tanh %s : f32
    %log = math.log %r : f32
    %u = arith.addf %t, %log : f32
    diagram.yield %u : f32
  }
  func.return %T, %P, %U, %V, %W : !S, !S, !S, !S, !S
}

// One plus it loses no digits in the shorter form; a difference from 1 would.
// CHECK-LABEL: func.func @one_plus
// CHECK:       %t = math.tanh %s fastmath<afn> : f32
// CHECK:       %t = math.tanh %s : f32
func.func @one_plus(%S: !S) -> (!S, !S) {
  %G = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %t = math.tanh %s : f32
    %g = arith.addf %one, %t : f32
    diagram.yield %g : f32
  }
  %U = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %t = math.tanh %s : f32
    %u = arith.subf %one, %t : f32
    diagram.yield %u : f32
  }
  func.return %G, %U : !S, !S
}

// A divisor that is at least 1, and one that a number of the program keeps from zero. A sum of two signs, what may be
// zero, constants, and other formats stay; so does what is flagged already without a proof.
// CHECK-LABEL: func.func @quotients
// CHECK:       %a = arith.divf %s, %divisor fastmath<arcp> : f32
// CHECK:       %b = arith.divf %s, %safe fastmath<arcp> : f32
// CHECK:       %c = arith.divf %s, %both : f32
// CHECK:       %d = arith.divf %s, %size : f32
// CHECK:       %e = arith.divf %s, %three : f32
// CHECK:       %h = arith.divf %one, %divisor : f16
func.func @quotients(%S: !S, %H: !H) -> (!S, !S, !S, !S, !S, !H) {
  %A = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %square = arith.mulf %s, %s : f32
    %divisor = arith.addf %one, %square : f32
    %a = arith.divf %s, %divisor : f32
    diagram.yield %a : f32
  }
  %B = diagram.map (%s = %S : !S) -> !S {
    %small = arith.constant 1.0e-12 : f32
    %size = math.absf %s : f32
    %safe = arith.maximumf %size, %small : f32
    %b = arith.divf %s, %safe : f32
    diagram.yield %b : f32
  }
  %C = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %both = arith.addf %one, %s : f32
    %c = arith.divf %s, %both fastmath<fast> : f32
    diagram.yield %c : f32
  }
  %D = diagram.map (%s = %S : !S) -> !S {
    %size = math.absf %s : f32
    %d = arith.divf %s, %size fastmath<arcp> : f32
    diagram.yield %d : f32
  }
  %E = diagram.map (%s = %S : !S) -> !S {
    %three = arith.constant 3.0 : f32
    %e = arith.divf %s, %three : f32
    diagram.yield %e : f32
  }
  %G = diagram.map (%s = %H : !H) -> !H {
    %one = arith.constant 1.0 : f16
    %square = arith.mulf %s, %s : f16
    %divisor = arith.addf %one, %square : f16
    %h = arith.divf %one, %divisor : f16
    diagram.yield %h : f16
  }
  func.return %A, %B, %C, %D, %E, %G : !S, !S, !S, !S, !S, !H
}

// A sum of powers of distances from a maximum is zero, or has the power of zero in it, also where a condition leaves
// elements out of both, and where the powers are raised.
// CHECK-LABEL: func.func @softmax
// CHECK-SAME:  "%a in %A", "a quotient is a product with a reciprocal", "the divisor is zero or at least 0.25"
// CHECK:       %a = arith.divf %p, %sum fastmath<arcp> : f32
// CHECK:       %b = arith.divf %v, %raised_sum fastmath<arcp> : f32
func.func @softmax(%T: !S) -> (!S, !S) {
  %S = diagram.where %T if "x <= q" : !S
  %m = diagram.reduce max %S over [x] : !S -> !m
  %P = diagram.map (%s = %S : !S, %most = %m : !m) -> !S {
    %two = arith.constant 2.0 : f32
    %d = arith.subf %s, %most : f32
    %t = arith.mulf %d, %two : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %P over [x] : !S -> !m
  %A = diagram.map (%p = %P : !S, %sum = %l : !m) -> !S {
    %a = arith.divf %p, %sum : f32
    diagram.yield %a : f32
  }
  %R = diagram.map (%s = %S : !S, %most = %m : !m) -> !S {
    %five = arith.constant 5.0 : f32
    %d = arith.subf %s, %most : f32
    %t = arith.addf %d, %five : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %r = diagram.reduce add %R over [x] : !S -> !m
  %B = diagram.map (%v = %T : !S, %raised_sum = %r : !m) -> !S {
    %b = arith.divf %v, %raised_sum : f32
    diagram.yield %b : f32
  }
  func.return %A, %B : !S, !S
}

// Not of a sum that a condition may take the maximum from, of distances from another number or a minimum (which overflow),
// or of a row where the maximum is that of all rows.
// CHECK-LABEL: func.func @other_sums
// CHECK-NOT:   #hierarchy.step
// CHECK:       %a = arith.divf %v, %sum : f32
// CHECK:       %b = arith.divf %v, %sum : f32
// CHECK:       %c = arith.divf %v, %sum : f32
// CHECK:       %d = arith.divf %v, %sum : f32
func.func @other_sums(%S: !S, %k: !m) -> (!S, !S, !S, !S) {
  %m = diagram.reduce max %S over [x] : !S -> !m
  %W = diagram.where %S if "x <= q" : !S
  %P = diagram.map (%s = %W : !S, %most = %m : !m) -> !S {
    %t = arith.subf %s, %most : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %P over [x] : !S -> !m
  %A = diagram.map (%v = %S : !S, %sum = %l : !m) -> !S {
    %a = arith.divf %v, %sum : f32
    diagram.yield %a : f32
  }
  %K = diagram.map (%s = %S : !S, %other = %k : !m) -> !S {
    %t = arith.subf %s, %other : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %n = diagram.reduce add %K over [x] : !S -> !m
  %B = diagram.map (%v = %S : !S, %sum = %n : !m) -> !S {
    %b = arith.divf %v, %sum : f32
    diagram.yield %b : f32
  }
  %least = diagram.reduce min %S over [x] : !S -> !m
  %L = diagram.map (%s = %S : !S, %bottom = %least : !m) -> !S {
    %t = arith.subf %s, %bottom : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %o = diagram.reduce add %L over [x] : !S -> !m
  %C = diagram.map (%v = %S : !S, %sum = %o : !m) -> !S {
    %c = arith.divf %v, %sum : f32
    diagram.yield %c : f32
  }
  %all = diagram.reduce max %S over [q, x] : !S -> !one
  %N = diagram.map (%s = %S : !S, %most = %all : !one) -> !S {
    %t = arith.subf %s, %most : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %row = diagram.reduce add %N over [x] : !S -> !m
  %D = diagram.map (%v = %S : !S, %sum = %row : !m) -> !S {
    %d = arith.divf %v, %sum : f32
    diagram.yield %d : f32
  }
  func.return %A, %B, %C, %D : !S, !S, !S, !S
}

// Not where scores are rounded and their maximum is not, or the other way round: by what a maximum of 30000 goes up,
// powers of all are near zero. What is rounded before both is no less exact.
// CHECK-LABEL: func.func @rounded
// CHECK:       %a = arith.divf %v, %sum : f32
// CHECK:       %b = arith.divf %v, %sum : f32
// CHECK:       %c = arith.divf %v, %sum fastmath<arcp> : f32
func.func @rounded(%S: !S, %H: !H) -> (!S, !S, !S) {
  %m = diagram.reduce max %S over [x] : !S -> !m
  %M = diagram.cast %m : !m -> tensor<4xbf16, #diagram.array<[q]>>
  %P = diagram.map (%s = %S : !S, %most = %M : tensor<4xbf16, #diagram.array<[q]>>) -> !S {
    %wide = arith.extf %most : bf16 to f32
    %t = arith.subf %s, %wide : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %P over [x] : !S -> !m
  %A = diagram.map (%v = %S : !S, %sum = %l : !m) -> !S {
    %a = arith.divf %v, %sum : f32
    diagram.yield %a : f32
  }
  %R = diagram.cast %S : !S -> !H
  %Q = diagram.map (%r = %R : !H, %most = %m : !m) -> !S {
    %wide = arith.extf %r : f16 to f32
    %t = arith.subf %wide, %most : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %k = diagram.reduce add %Q over [x] : !S -> !m
  %B = diagram.map (%v = %S : !S, %sum = %k : !m) -> !S {
    %b = arith.divf %v, %sum : f32
    diagram.yield %b : f32
  }
  %n = diagram.reduce max %R over [x] : !H -> tensor<4xf16, #diagram.array<[q]>>
  %O = diagram.map (%r = %R : !H, %most = %n : tensor<4xf16, #diagram.array<[q]>>) -> !S {
    %wide = arith.extf %r : f16 to f32
    %more = arith.extf %most : f16 to f32
    %t = arith.subf %wide, %more : f32
    %p = math.exp %t : f32
    diagram.yield %p : f32
  }
  %o = diagram.reduce add %O over [x] : !S -> !m
  %C = diagram.map (%v = %S : !S, %sum = %o : !m) -> !S {
    %c = arith.divf %v, %sum : f32
    diagram.yield %c : f32
  }
  func.return %A, %B, %C : !S, !S, !S
}

// A softplus, written with either logarithm, is a polynomial; a logarithm of something else is not.
// CHECK-LABEL: func.func @softplus
// CHECK-SAME:  #hierarchy.step<"diagram-allow-approximations", "%l in %L", "log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))", "a polynomial is off by 2^-22 of it">
// CHECK:       %l = math.log1p %e fastmath<afn> : f32
// CHECK:       %k = math.log %more fastmath<afn> : f32
// CHECK:       %n = math.log %two : f32
func.func @softplus(%S: !S) -> (!S, !S, !S) {
  %L = diagram.map (%s = %S : !S) -> !S {
    %e = math.exp %s : f32
    %l = math.log1p %e : f32
    diagram.yield %l : f32
  }
  %K = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %e = math.exp %s : f32
    %more = arith.addf %e, %one : f32
    %k = math.log %more : f32
    diagram.yield %k : f32
  }
  %N = diagram.map (%s = %S : !S) -> !S {
    %two_ = arith.constant 2.0 : f32
    %e = math.exp %s : f32
    %two = arith.addf %e, %two_ : f32
    %n = math.log %two fastmath<afn> : f32
    diagram.yield %n : f32
  }
  func.return %L, %K, %N : !S, !S, !S
}
