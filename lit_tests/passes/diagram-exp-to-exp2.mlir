// RUN: xdsl-opt -p diagram-exp-to-exp2 %s | filecheck %s

!Q = tensor<4x16xf16, #diagram.array<[q, d]>>
!K = tensor<8x16xf16, #diagram.array<[x, d]>>
!S = tensor<4x8xf32, #diagram.array<[q, x]>>
!Q8 = tensor<4x16xf8E4M3FN, #diagram.array<[q, d]>>
!K8 = tensor<8x16xf8E4M3FN, #diagram.array<[x, d]>>
!m = tensor<4xf32, #diagram.array<[q]>>

// Products below their maximum: one multiply-add an element, though a number stands for a maximum that is -inf.
// CHECK-LABEL: func.func @below_maximum
func.func @below_maximum(%Q: !Q, %K: !K, %before: !m) -> !S {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m = diagram.reduce max %S over [x] into %before : !S -> !m
  %safe = diagram.map (%s = %m : !m) -> !m {
    %bottom = arith.constant 0xff800000 : f32
    %is_bottom = arith.cmpf oeq, %s, %bottom : f32
    %zero = arith.constant 0.0 : f32
    %finite = arith.select %is_bottom, %zero, %s : f32
    diagram.yield %finite : f32
  }
  // CHECK:      %safe = diagram.map (%[[M:.*]] = %m : tensor<4xf32
  // CHECK-NEXT: %[[K:.*]] = arith.constant -3.40282347e+38 : f32
  // CHECK-NEXT: arith.maximumf %[[M]], %[[K]] : f32
  // CHECK:      %slope = diagram.map (%[[M:.*]] = %safe : tensor<4xf32
  // CHECK:      %[[A:.*]] = math.absf %[[M]] : f32
  // CHECK-NEXT: %[[K:.*]] = arith.constant 0x4CB17218 : f32
  // CHECK-NEXT: %[[N:.*]] = arith.cmpf olt, %[[A]], %[[K]] : f32
  // CHECK-NEXT: %[[C:.*]] = arith.constant 0.180336878 : f32
  // CHECK-NEXT: %[[T:.*]] = arith.constant 2.500000e-01 : f32
  // CHECK-NEXT: arith.select %[[N]], %[[C]], %[[T]] : f32
  // CHECK:      %offset = diagram.map (%[[M:.*]] = %safe : tensor<4xf32, {{.*}}, %[[L:.*]] = %slope : tensor<4xf32
  // CHECK-NEXT: arith.mulf %[[M]], %[[L]] : f32
  // CHECK:      %P = diagram.map (%s = %S : tensor<4x8xf32, {{.*}}, %[[L:.*]] = %slope : tensor<4xf32, {{.*}}, %[[O:.*]] = %offset : tensor<4xf32
  // CHECK-NEXT: %[[N:.*]] = arith.negf %[[O]] : f32
  // CHECK-NEXT: %[[E:.*]] = math.fma %s, %[[L]], %[[N]] : f32
  // CHECK-NEXT: %p = math.exp2 %[[E]] : f32
  // CHECK-NEXT: diagram.yield %p
  %P = diagram.map (%s = %S : !S, %r = %safe : !m) -> !S {
    %c = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %c : f32
    %top = arith.mulf %r, %c : f32
    %difference = arith.subf %scaled, %top : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// A scale so large that no power of two near it keeps the largest numbers finite: the difference first.
// CHECK-LABEL: func.func @large_scale
func.func @large_scale(%Q: !Q, %K: !K) -> !S {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  // CHECK:      %m = diagram.reduce max
  // CHECK-NEXT: %P = diagram.map
  // CHECK-NEXT: %[[D:.*]] = arith.subf %s, %r : f32
  // CHECK-NEXT: %[[C:.*]] = arith.constant 2.88539{{.*}} : f32
  // CHECK-NEXT: arith.mulf %[[D]], %[[C]] : f32
  %m = diagram.reduce max %S over [x] : !S -> !m
  %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
    %c = arith.constant 2.0 : f32
    %difference = arith.subf %s, %r : f32
    %scaled = arith.mulf %difference, %c : f32
    %p = math.exp %scaled : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// What is not below a maximum of itself, or below a maximum but exact: the difference comes first, its factor after.
// CHECK-LABEL: func.func @difference
func.func @difference(%S: !S, %r: !m, %n: !m) -> (!S, !S) {
  // CHECK:      %P = diagram.map (%s = %S : tensor<4x8xf32, {{.*}}, %t = %r : tensor<4xf32
  // CHECK-NEXT: %[[D:.*]] = arith.subf %s, %t : f32
  // CHECK-NEXT: %[[C:.*]] = arith.constant 0.180336878 : f32
  // CHECK-NEXT: %[[E:.*]] = arith.mulf %[[D]], %[[C]] : f32
  // CHECK-NEXT: %p = math.exp2 %[[E]] : f32
  %P = diagram.map (%s = %S : !S, %t = %r : !m) -> !S {
    %c = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %c : f32
    %top = arith.mulf %t, %c : f32
    %difference = arith.subf %scaled, %top : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  // CHECK:      %R = diagram.map (%s = %S : tensor<4x8xf32, {{.*}}, %t = %m : tensor<4xf32
  // CHECK-NEXT: %[[D:.*]] = arith.subf %t, %s : f32
  // CHECK-NEXT: %[[C:.*]] = arith.constant 0.72134751
  // CHECK-NEXT: arith.mulf %[[D]], %[[C]] : f32
  %m = diagram.reduce max %S over [x] : !S -> !m
  %R = diagram.map (%s = %S : !S, %t = %m : !m) -> !S {
    %c = arith.constant -0.5 : f32
    %difference = arith.subf %s, %t : f32
    %scaled = arith.mulf %difference, %c : f32
    %p = math.exp %scaled : f32
    diagram.yield %p : f32
  }
  func.return %P, %R : !S, !S
}

// Sides with different factors, a sum with a mask, and a factor of zero: only log2 e, after everything else.
// CHECK-LABEL: func.func @others
func.func @others(%S: !S, %r: !m) -> (!S, !S, !S) {
  // CHECK:      %[[T:.*]] = arith.mulf %s, %c : f32
  // CHECK-NEXT: %[[D:.*]] = arith.subf %[[T]], %t : f32
  // CHECK-NEXT: %[[L:.*]] = arith.constant 1.442695
  // CHECK-NEXT: %[[E:.*]] = arith.mulf %[[D]], %[[L]] : f32
  // CHECK-NEXT: %p = math.exp2 %[[E]] : f32
  %P = diagram.map (%s = %S : !S, %t = %r : !m) -> !S {
    %c = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %c : f32
    %difference = arith.subf %scaled, %t : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  // CHECK:      %[[M:.*]] = arith.addf %s, %u : f32
  // CHECK-NEXT: %[[D:.*]] = arith.subf %[[M]], %t : f32
  // CHECK-NEXT: %[[L:.*]] = arith.constant 1.442695
  // CHECK-NEXT: %[[E:.*]] = arith.mulf %[[D]], %[[L]] : f32
  %R = diagram.map (%s = %S : !S, %u = %P : !S, %t = %r : !m) -> !S {
    %masked = arith.addf %s, %u : f32
    %difference = arith.subf %masked, %t : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  // CHECK:      %[[Z:.*]] = arith.mulf %s, %zero : f32
  // CHECK-NEXT: %[[L:.*]] = arith.constant 1.442695
  // CHECK-NEXT: arith.mulf %[[Z]], %[[L]] : f32
  %Z = diagram.map (%s = %S : !S) -> !S {
    %zero = arith.constant 0.0 : f32
    %nothing = arith.mulf %s, %zero : f32
    %p = math.exp %nothing : f32
    diagram.yield %p : f32
  }
  func.return %P, %R, %Z : !S, !S, !S
}

// A constant factor of one value takes log2 e in.
// CHECK-LABEL: func.func @factor
func.func @factor(%S: !S) -> !S {
  // CHECK:      %[[C:.*]] = arith.constant -1.442695
  // CHECK-NEXT: %[[E:.*]] = arith.mulf %s, %[[C]] : f32
  // CHECK-NEXT: %p = math.exp2 %[[E]] : f32
  %P = diagram.map (%s = %S : !S) -> !S {
    %minus = arith.negf %s : f32
    %p = math.exp %minus : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// A scale that the program is given is part of the slope, if it is said to be above zero; a summand is part of the offset,
// where it vanishes if the slope is a power of two.
// CHECK-LABEL: func.func @given
// CHECK:      %slope = diagram.map (%[[M:.*]] = %m : {{.*}}, %[[G:.*]] = %given : f32)
// CHECK-NEXT: %[[A:.*]] = math.absf %[[M]] : f32
// CHECK-NEXT: %least = arith.constant 1.000000e-30 : f32
// CHECK-NEXT: %scale = arith.maximumf %[[G]], %least : f32
// CHECK-NEXT: %[[L:.*]] = arith.constant 1.44269502 : f32
// CHECK-NEXT: %[[F:.*]] = arith.mulf %scale, %[[L]] : f32
// CHECK-NEXT: %[[P:.*]] = arith.mulf %[[A]], %[[F]] : f32
// CHECK-NEXT: %[[D:.*]] = arith.constant 0x4B800000 : f32
// CHECK-NEXT: %[[N:.*]] = arith.cmpf olt, %[[P]], %[[D]] : f32
// CHECK:      arith.select %[[N]], %[[F]], %{{.*}} : f32
// CHECK:      %offset = diagram.map
// CHECK:      %[[E:.*]] = arith.constant -8.000000e+00 : f32
// CHECK-NEXT: math.fma %{{.*}}, %{{.*}}, %[[E]] : f32
// CHECK:      %P = diagram.map (%s = %S : {{.*}}, %[[L:.*]] = %slope : tensor<4xf32, {{.*}}, %[[O:.*]] = %offset : tensor<4xf32
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[O]] : f32
// CHECK-NEXT: %[[E:.*]] = math.fma %s, %[[L]], %[[N]] : f32
// CHECK-NEXT: %p = math.exp2 %[[E]] : f32
func.func @given(%Q: !Q, %K: !K, %given: f32) -> !S {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m = diagram.reduce max %S over [x] : !S -> !m
  %P = diagram.map (%s = %S : !S, %r = %m : !m, %g = %given : f32) -> !S {
    %least = arith.constant 1.0e-30 : f32
    %scale = arith.maximumf %g, %least : f32
    %scaled = arith.mulf %s, %scale : f32
    %top = arith.mulf %r, %scale : f32
    %difference = arith.subf %scaled, %top : f32
    %log = arith.constant 5.54517746 : f32
    %raised = arith.addf %difference, %log : f32
    %p = math.exp %raised : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// Sums of products of 8 bits lie between 2^-18 and 2^25, so one slope does for all of them, and what is added vanishes
// beside it. The number that stands for -inf is below them, and in their range.
// CHECK-LABEL: func.func @narrow
// CHECK:      %safe = diagram.map (%[[M:.*]] = %m : {{.*}}) -> {{.*}} {
// CHECK-NEXT: %[[L:.*]] = arith.constant 0xCC000000 : f32
// CHECK-NEXT: arith.maximumf %[[M]], %[[L]] : f32
// CHECK:      %slope = diagram.map
// CHECK:      %[[N:.*]] = arith.cmpf olt
// CHECK-NEXT: %[[S:.*]] = arith.constant 5.0706024e+30 : f32
// CHECK-NEXT: arith.select %[[N]], %{{.*}}, %[[S]] : f32
// CHECK:      %offset = diagram.map (%[[M:.*]] = %safe : {{.*}}, %[[L:.*]] = %slope : {{.*}}) -> {{.*}} {
// CHECK-NEXT: %[[E:.*]] = arith.constant -8.000000e+00 : f32
// CHECK-NEXT: math.fma %[[M]], %[[L]], %[[E]] : f32
func.func @narrow(%Q: !Q8, %K: !K8, %given: f32) -> !S {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q8, !K8 -> !S
  %m = diagram.reduce max %S over [x] : !S -> !m
  %safe = diagram.map (%s = %m : !m) -> !m {
    %bottom = arith.constant 0xff800000 : f32
    %is_bottom = arith.cmpf oeq, %s, %bottom : f32
    %zero = arith.constant 0.0 : f32
    %finite = arith.select %is_bottom, %zero, %s : f32
    diagram.yield %finite : f32
  }
  %P = diagram.map (%s = %S : !S, %r = %safe : !m, %g = %given : f32) -> !S {
    %least = arith.constant 1.0e-30 : f32
    %scale = arith.maximumf %g, %least : f32
    %t = arith.mulf %s, %scale : f32
    %u = arith.mulf %r, %scale : f32
    %difference = arith.subf %t, %u : f32
    %c = arith.constant 5.54517746 : f32
    %shifted = arith.addf %difference, %c : f32
    %p = math.exp %shifted : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// A number that stands for -inf and is also read by others stays what it is.
// CHECK-LABEL: func.func @read_elsewhere
// CHECK:      %safe = diagram.map
// CHECK:      arith.select
// CHECK:      %slope = diagram.map
func.func @read_elsewhere(%Q: !Q, %K: !K) -> (!S, !m) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m = diagram.reduce max %S over [x] : !S -> !m
  %safe = diagram.map (%s = %m : !m) -> !m {
    %bottom = arith.constant 0xff800000 : f32
    %is_bottom = arith.cmpf oeq, %s, %bottom : f32
    %zero = arith.constant 0.0 : f32
    %finite = arith.select %is_bottom, %zero, %s : f32
    diagram.yield %finite : f32
  }
  %P = diagram.map (%s = %S : !S, %r = %safe : !m) -> !S {
    %difference = arith.subf %s, %r : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  func.return %P, %safe : !S, !m
}

// A number of the row beside the difference is multiplied once for all its elements.
// CHECK-LABEL: func.func @beside_a_difference
func.func @beside_a_difference(%S: !S, %r: !m, %l: !m) -> !S {
  // CHECK:      %P = diagram.map (%s = %S : tensor<4x8xf32, {{.*}}, %t = %r : tensor<4xf32, {{.*}}, %g = %l : tensor<4xf32
  // CHECK-NEXT: %[[D:.*]] = arith.subf %s, %t : f32
  // CHECK-NEXT: %[[C:.*]] = arith.constant 0.180336878 : f32
  // CHECK-NEXT: %[[M:.*]] = arith.constant -1.44269502 : f32
  // CHECK-NEXT: %[[G:.*]] = arith.mulf %g, %[[M]] : f32
  // CHECK-NEXT: %[[E:.*]] = math.fma %[[D]], %[[C]], %[[G]] : f32
  // CHECK-NEXT: %p = math.exp2 %[[E]] : f32
  %P = diagram.map (%s = %S : !S, %t = %r : !m, %g = %l : !m) -> !S {
    %c = arith.constant 0.125 : f32
    %apart = arith.subf %s, %t : f32
    %scaled = arith.mulf %apart, %c : f32
    %less = arith.subf %scaled, %g : f32
    %p = math.exp %less : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}

// Products with a bias, which are rounded as they are: below their maximum, one multiply-add an element. A bias alone is
// as it was given, and so its differences are exact.
// CHECK-LABEL: func.func @bias
// CHECK:      %slope = diagram.map (%{{.*}} = %m : tensor<4xf32
// CHECK:      %offset = diagram.map (%{{.*}} = %m : tensor<4xf32, {{.*}}, %{{.*}} = %slope : tensor<4xf32
// CHECK:      %P = diagram.map (%t = %T : tensor<4x8xf32, {{.*}}, %[[L:.*]] = %slope : tensor<4xf32, {{.*}}, %[[O:.*]] = %offset : tensor<4xf32
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[O]] : f32
// CHECK-NEXT: %[[E:.*]] = math.fma %t, %[[L]], %[[N]] : f32
// CHECK-NEXT: %p = math.exp2 %[[E]] : f32
// CHECK:      %R = diagram.map (%t = %U : tensor<4x8xf32, {{.*}}, %r = %n : tensor<4xf32
// CHECK-NEXT: %[[D:.*]] = arith.subf %t, %r : f32
// CHECK-NEXT: %log2_e = arith.constant 1.44269502 : f32
// CHECK-NEXT: arith.mulf %[[D]], %log2_e : f32
func.func @bias(%Q: !Q, %K: !K, %B: !S) -> (!S, !S) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %b = %B : !S) -> !S {
    %t = arith.addf %s, %b : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !m
  %P = diagram.map (%t = %T : !S, %r = %m : !m) -> !S {
    %difference = arith.subf %t, %r : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  %U = diagram.map (%b = %B : !S) -> !S {
    %t = arith.addf %b, %b : f32
    diagram.yield %t : f32
  }
  %n = diagram.reduce max %U over [x] : !S -> !m
  %R = diagram.map (%t = %U : !S, %r = %n : !m) -> !S {
    %difference = arith.subf %t, %r : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  func.return %P, %R : !S, !S
}

// A multiple of the maximum that something else reads, too: the power is told from the maximum.
// CHECK-LABEL: func.func @multiple_read_elsewhere
// CHECK:      %m = diagram.map (%{{.*}} = %most : tensor<4xf32
// CHECK:      %slope = diagram.map (%{{.*}} = %most : tensor<4xf32
// CHECK:      %offset = diagram.map (%{{.*}} = %most : tensor<4xf32, {{.*}}, %{{.*}} = %slope : tensor<4xf32
// CHECK:      %P = diagram.map (%s = %S : tensor<4x8xf32, {{.*}}, %[[L:.*]] = %slope : tensor<4xf32, {{.*}}, %[[O:.*]] = %offset : tensor<4xf32
// CHECK-NEXT: %[[N:.*]] = arith.negf %[[O]] : f32
// CHECK-NEXT: %[[E:.*]] = math.fma %s, %[[L]], %[[N]] : f32
// CHECK-NEXT: %p = math.exp2 %[[E]] : f32
// CHECK:      func.return %P, %m
func.func @multiple_read_elsewhere(%Q: !Q, %K: !K) -> (!S, !m) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %most = diagram.reduce max %S over [x] : !S -> !m
  %m = diagram.map (%r = %most : !m) -> !m {
    %c = arith.constant 0.3 : f32
    %scaled = arith.mulf %r, %c : f32
    diagram.yield %scaled : f32
  }
  %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
    %c = arith.constant 0.3 : f32
    %scaled = arith.mulf %s, %c : f32
    %difference = arith.subf %scaled, %r : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  func.return %P, %m : !S, !m
}

// A multiple of something else stays in the difference.
// CHECK-LABEL: func.func @multiple_of_others
// CHECK-NOT: math.fma
// CHECK:     arith.subf
// CHECK:     func.return
func.func @multiple_of_others(%Q: !Q, %K: !K, %most: !m) -> (!S, !m) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m = diagram.map (%r = %most : !m) -> !m {
    %c = arith.constant 0.3 : f32
    %scaled = arith.mulf %r, %c : f32
    diagram.yield %scaled : f32
  }
  %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
    %c = arith.constant 0.3 : f32
    %scaled = arith.mulf %s, %c : f32
    %difference = arith.subf %scaled, %r : f32
    %p = math.exp %difference : f32
    diagram.yield %p : f32
  }
  func.return %P, %m : !S, !m
}
