// RUN: xdsl-opt %s -p hierarchy-rescale-lazily | filecheck %s
// RUN: xdsl-opt %s -p hierarchy-rescale-lazily,hierarchy-rescale-lazily | filecheck %s
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-rescale-lazily,hierarchy-choose-sizes,hierarchy-expand-streams' | filecheck %s --check-prefix STEP
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-rescale-lazily,hierarchy-choose-sizes,hierarchy-expand-streams,diagram-exp-to-exp2,convert-hierarchy-to-cuda' | filecheck %s --check-prefix CUDA

!Q = tensor<64x64xf16, #diagram.array<[q, d]>>
!K = tensor<4096x64xf16, #diagram.array<[x, d]>>
!V = tensor<4096x64xf16, #diagram.array<[x, e]>>
!Qd = tensor<64x64xf16, #diagram.array<[q, d], level = device>>
!Kd = tensor<4096x64xf16, #diagram.array<[x, d], level = device>>
!Vd = tensor<4096x64xf16, #diagram.array<[x, e], level = device>>
!S = tensor<64x4096xf32, #diagram.array<[q, x], level = register>>
!P = tensor<64x4096xf16, #diagram.array<[q, x], level = register>>
!P8 = tensor<64x4096xf8E4M3FN, #diagram.array<[q, x], level = register>>
!V8 = tensor<64x4096xf8E4M3FN, #diagram.array<[e, x]>>
!V8d = tensor<64x4096xf8E4M3FN, #diagram.array<[e, x], level = device>>
!m = tensor<64xf32, #diagram.array<[q], level = register>>
!A = tensor<64x64xf32, #diagram.array<[q, e], level = register>>
!O = tensor<64x64xf32, #diagram.array<[q, e]>>
!M = tensor<64xf32, #diagram.array<[q]>>
!Md = tensor<64xf32, #diagram.array<[q], level = device>>

// A quotient of two sums, and the logarithm of one beside the maximum, are the same whatever powers are told from.

// CHECK-LABEL: func.func @attention(
// CHECK-SAME:    #hierarchy.step<"hierarchy-rescale-lazily", "the sums of @attention along x", "sums of exp(c (s - r)) have the same quotients for every r", "%sum multiplied only when %m has moved by more than 11.09, powers by 2^8">
// CHECK:         %m = diagram.reduce max %S over [x] {diagram.slack = 11.0903549 : f32}

// STEP-LABEL: func.func @attention(
// STEP:       step (%m_so_far: {{.*}}, %l_so_far: {{.*}}, %sum_so_far: {{.*}}) {
// STEP:         %m_new = diagram.reduce max %S over [x] into %m_so_far :
// STEP-NEXT:    %m_lagging = diagram.map (%m_new_1 = %m_new : {{.*}}, %m_so_far_1 = %m_so_far : {{.*}}) -> {{.*}} {
// STEP-NEXT:      %[[GROWN:.*]] = arith.subf %m_new_1, %m_so_far_1 : f32
// STEP-NEXT:      %[[SLACK:.*]] = arith.constant 11.0903549 : f32
// STEP-NEXT:      %[[NEAR:.*]] = arith.cmpf ole, %[[GROWN]], %[[SLACK]] : f32
// STEP-NEXT:      %[[SIZE:.*]] = math.absf %m_so_far_1 : f32
// STEP-NEXT:      %[[LARGE:.*]] = arith.constant 0x4B3172{{.*}} : f32
// STEP-NEXT:      %[[FINE:.*]] = arith.cmpf olt, %[[SIZE]], %[[LARGE]] : f32
// STEP-NEXT:      %[[BOTH:.*]] = arith.andi %[[NEAR]], %[[FINE]] : i1
// STEP-NEXT:      %[[KEPT:.*]] = arith.select %[[BOTH]], %m_so_far_1, %m_new_1 : f32
// STEP-NEXT:      diagram.yield %[[KEPT]] : f32
// STEP:         %sum_repaired = diagram.map (%sum_so_far_1 = %sum_so_far : {{.*}}, %repair_1 = %repair : {{.*}}) -> {{.*}} attributes {diagram.skips_ones} {
// STEP-NEXT:      %[[PRODUCT:.*]] = arith.mulf %sum_so_far_1, %repair_1 : f32
// STEP-NEXT:      diagram.yield %[[PRODUCT]] : f32
// STEP:         hierarchy.yield %m_lagging, %l_new, %sum_new :

// CUDA-LABEL: cuda.kernel @attention_kernel
// CUDA:         scf.for
// CUDA:           %sum_repaired = diagram.map (%sum_so_far_2 = %sum_so_far_1 : {{.*}}, %repair_1 = %repair : {{.*}}) -> {{.*}} attributes {diagram.skips_ones} {
// CUDA-NEXT:        %{{.*}} = arith.mulf %sum_so_far_2, %repair_1 : f32
func.func @attention(%Q: !Q, %K: !K, %V: !V) -> (!O, !M) {
  %O, %L = hierarchy.kernel @attention (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd) -> (!O, !M)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %m = diagram.reduce max %S over [x] : !S -> !m
    %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
      %distance = arith.subf %s, %r : f32
      %half = arith.constant 0.5 : f32
      %scaled = arith.mulf %distance, %half : f32
      %power = math.exp %scaled : f32
      diagram.yield %power : f32
    }
    %l = diagram.reduce add %p over [x] : !S -> !m
    %P = diagram.cast %p : !S -> !P
    %sum = diagram.contract %P, %v over [x] accumulate f32 : !P, !Vd -> !A
    %o = diagram.map (%a = %sum : !A, %whole = %l : !m) -> !A {
      %share = arith.divf %a, %whole : f32
      diagram.yield %share : f32
    }
    %lse = diagram.map (%r = %m : !m, %whole = %l : !m) -> !m {
      %half = arith.constant 0.5 : f32
      %scaled = arith.mulf %r, %half : f32
      %log = math.log %whole : f32
      %all = arith.addf %scaled, %log : f32
      diagram.yield %all : f32
    }
    hierarchy.yield %o, %lse : !A, !m
  }
  func.return %O, %L : !O, !M
}

// So are the shares of a softmax with a sink that is in the maximum: this goes along with what lags, or does not, and all
// that is told from it goes with it.

// CHECK-LABEL: func.func @sink(
// CHECK-SAME:    #hierarchy.step<"hierarchy-rescale-lazily", "the sums of @sink along x", "sums of exp(c (s - r)) have the same quotients for every r", "%sum multiplied only when %m has moved by more than 5.545, powers by 2^8">
// CHECK:         %m = diagram.reduce max %S over [x] {diagram.slack = 5.545{{.*}} : f32}
func.func @sink(%Q: !Q, %K: !K, %V: !V, %sink: !M) -> !O {
  %O = hierarchy.kernel @sink (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd, %other = %sink : !M as !Md) -> (!O)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %m = diagram.reduce max %S over [x] : !S -> !m
    %most = diagram.map (%r = %m : !m, %z = %other : !Md) -> !m {
      %larger = arith.maximumf %r, %z : f32
      diagram.yield %larger : f32
    }
    %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
      %none = arith.constant 0xFF800000 : f32
      %is_none = arith.cmpf oeq, %r, %none : f32
      %zero = arith.constant 0.0 : f32
      %safe = arith.select %is_none, %zero, %r : f32
      %distance = arith.subf %s, %safe : f32
      %power = math.exp %distance : f32
      diagram.yield %power : f32
    }
    %l = diagram.reduce add %p over [x] : !S -> !m
    %P = diagram.cast %p : !S -> !P
    %sum = diagram.contract %P, %v over [x] accumulate f32 : !P, !Vd -> !A
    %o = diagram.map (%a = %sum : !A, %whole = %l : !m, %r = %m : !m, %from = %most : !m, %z = %other : !Md) -> !A {
      %below = arith.subf %r, %from : f32
      %brought = math.exp %below : f32
      %mine = arith.mulf %whole, %brought : f32
      %more = arith.subf %z, %from : f32
      %extra = math.exp %more : f32
      %all = arith.addf %mine, %extra : f32
      %part = arith.divf %brought, %all : f32
      %share = arith.mulf %a, %part : f32
      diagram.yield %share : f32
    }
    hierarchy.yield %o : !A
  }
  func.return %O : !O
}

// Such a maximum is told from what lags.

// CHECK-LABEL: func.func @leaves(
// CHECK-SAME:    #hierarchy.step<"decline hierarchy-rescale-lazily", "the sums of @leaves along x", "sums of exp(c (s - r)) have the same quotients for every r", "%most is told from it">
// CHECK-NOT:     diagram.slack
func.func @leaves(%Q: !Q, %K: !K, %V: !V, %sink: !M) -> (!O, !M) {
  %O, %L = hierarchy.kernel @leaves (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd, %other = %sink : !M as !Md) -> (!O, !M)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %m = diagram.reduce max %S over [x] : !S -> !m
    %most = diagram.map (%r = %m : !m, %z = %other : !Md) -> !m {
      %larger = arith.maximumf %r, %z : f32
      diagram.yield %larger : f32
    }
    %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
      %none = arith.constant 0xFF800000 : f32
      %is_none = arith.cmpf oeq, %r, %none : f32
      %zero = arith.constant 0.0 : f32
      %safe = arith.select %is_none, %zero, %r : f32
      %distance = arith.subf %s, %safe : f32
      %power = math.exp %distance : f32
      diagram.yield %power : f32
    }
    %l = diagram.reduce add %p over [x] : !S -> !m
    %P = diagram.cast %p : !S -> !P
    %sum = diagram.contract %P, %v over [x] accumulate f32 : !P, !Vd -> !A
    %o = diagram.map (%a = %sum : !A, %whole = %l : !m, %r = %m : !m, %from = %most : !m, %z = %other : !Md) -> !A {
      %below = arith.subf %r, %from : f32
      %brought = math.exp %below : f32
      %mine = arith.mulf %whole, %brought : f32
      %more = arith.subf %z, %from : f32
      %extra = math.exp %more : f32
      %all = arith.addf %mine, %extra : f32
      %part = arith.divf %brought, %all : f32
      %share = arith.mulf %a, %part : f32
      diagram.yield %share : f32
    }
    hierarchy.yield %o, %most : !A, !m
  }
  func.return %O, %L : !O, !M
}

// A sum alone is told from the maximum.

// CHECK-LABEL: func.func @sum_alone(
// CHECK-SAME:    #hierarchy.step<"decline hierarchy-rescale-lazily", "the sums of @sum_alone along x", "sums of exp(c (s - r)) have the same quotients for every r", "%sum is told from it">
// CHECK-NOT:     diagram.slack
func.func @sum_alone(%Q: !Q, %K: !K, %V: !V) -> !O {
  %O = hierarchy.kernel @sum_alone (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V as !Vd) -> (!O)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %m = diagram.reduce max %S over [x] : !S -> !m
    %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
      %distance = arith.subf %s, %r : f32
      %power = math.exp %distance : f32
      diagram.yield %power : f32
    }
    %P = diagram.cast %p : !S -> !P
    %sum = diagram.contract %P, %v over [x] accumulate f32 : !P, !Vd -> !A
    hierarchy.yield %sum : !A
  }
  func.return %O : !O
}

// Powers of 256 times 2^8 are beyond the largest f8.

// CHECK-LABEL: func.func @eight_bits(
// CHECK-SAME:    #hierarchy.step<"decline hierarchy-rescale-lazily", "the sums of @eight_bits along x", "sums of exp(c (s - r)) have the same quotients for every r", "%P has no room for powers that are 256 times as large">
// CHECK-NOT:     diagram.slack
func.func @eight_bits(%Q: !Q, %K: !K, %V: !V8) -> !O {
  %O = hierarchy.kernel @eight_bits (%q = %Q : !Q as !Qd, %k = %K : !K as !Kd, %v = %V : !V8 as !V8d) -> (!O)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %q, %k over [d] accumulate f32 : !Qd, !Kd -> !S
    %m = diagram.reduce max %S over [x] : !S -> !m
    %p = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
      %distance = arith.subf %s, %r : f32
      %power = math.exp %distance : f32
      diagram.yield %power : f32
    }
    %l = diagram.reduce add %p over [x] : !S -> !m
    %P = diagram.cast %p : !S -> !P8
    %sum = diagram.contract %P, %v over [x] accumulate f32 : !P8, !V8d -> !A
    %o = diagram.map (%a = %sum : !A, %whole = %l : !m) -> !A {
      %share = arith.divf %a, %whole : f32
      diagram.yield %share : f32
    }
    hierarchy.yield %o : !A
  }
  func.return %O : !O
}
