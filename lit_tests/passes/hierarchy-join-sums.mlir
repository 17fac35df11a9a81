// RUN: xdsl-opt %s -p hierarchy-join-sums | filecheck %s
// RUN: xdsl-opt %s -p hierarchy-join-sums,hierarchy-join-sums | filecheck %s
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-join-sums,hierarchy-choose-sizes,hierarchy-expand-streams' | filecheck %s --check-prefix STEPS
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-join-sums,hierarchy-choose-sizes,hierarchy-expand-streams,convert-hierarchy-to-cuda,warp-specialization,pipelining' | filecheck %s --check-prefix CUDA

!A = tensor<4096x4096xf16, #diagram.array<[m, k]>>
!B = tensor<4096x4096xf16, #diagram.array<[k, n]>>
!C = tensor<4096x32xf16, #diagram.array<[m, r]>>
!D = tensor<32x4096xf16, #diagram.array<[r, n]>>
!Y = tensor<4096x4096xf32, #diagram.array<[m, n]>>
!b = tensor<4096xf32, #diagram.array<[n]>>
!Ad = tensor<4096x4096xf16, #diagram.array<[m, k], level = device>>
!Bd = tensor<4096x4096xf16, #diagram.array<[k, n], level = device>>
!Cd = tensor<4096x32xf16, #diagram.array<[m, r], level = device>>
!Dd = tensor<32x4096xf16, #diagram.array<[r, n], level = device>>
!bd = tensor<4096xf32, #diagram.array<[n], level = device>>
!Yr = tensor<4096x4096xf32, #diagram.array<[m, n], level = register>>

// A product that is known before the stream: what the stream sums begins with a multiple of it.

// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    #hierarchy.step<"hierarchy-join-sums", "%up and %base of @scaled", "a sum of two sums is one sum", "%base begins with %up_scaled">
// CHECK:         %up = diagram.contract %c, %d over [r] accumulate f32 : {{.*}}
// CHECK-NEXT:    %up_scaled = diagram.map (%up_1 = %up : {{.*}}) -> {{.*}} {
// CHECK-NEXT:      %scale = arith.constant 2.000000e+00 : f32
// CHECK-NEXT:      %scaled = arith.mulf %up_1, %scale : f32
// CHECK-NEXT:      diagram.yield %scaled : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %base = diagram.contract %a, %b over [k] accumulate f32 into %up_scaled : {{.*}}
// CHECK-NEXT:    hierarchy.yield %base

// STEPS-LABEL: func.func @scaled(
// STEPS:       %up = diagram.contract %c_piece, %d_piece over [r]
// STEPS-NEXT:  %up_scaled = diagram.map
// STEPS:       %base = hierarchy.stream [k = {{.*}}] -> {{.*}} initialise {
// STEPS-NEXT:    hierarchy.yield %up_scaled
// STEPS-NEXT:  } step (%base_so_far: {{.*}}) {
// STEPS:         %base_new = diagram.contract %a_piece, %b_piece over [k] accumulate f32 into %base_so_far
// STEPS-NEXT:    hierarchy.yield %base_new
// STEPS-NEXT:  } finish (%base_end: {{.*}}) {
// STEPS-NEXT:    hierarchy.yield %base_end

func.func @scaled(%A: !A, %B: !B, %C: !C, %D: !D) -> !Y {
  %Y = hierarchy.kernel @scaled (%a = %A : !A as !Ad, %b = %B : !B as !Bd, %c = %C : !C as !Cd, %d = %D : !D as !Dd)
      -> (!Y) schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?], whole = [r = 32]> {
    %base = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %up = diagram.contract %c, %d over [r] accumulate f32 : !Cd, !Dd -> !Yr
    %sum = diagram.map (%p = %base : !Yr, %q = %up : !Yr) -> !Yr {
      %scale = arith.constant 2.0 : f32
      %scaled = arith.mulf %q, %scale : f32
      %s = arith.addf %p, %scaled : f32
      diagram.yield %s : f32
    }
    hierarchy.yield %sum : !Yr
  }
  func.return %Y : !Y
}

// What a stream sums, and its multiple: the other product is added when the stream is finished. So are a bias and what
// else the map computes.

// CHECK-LABEL: func.func @finished(
// CHECK:         %base = diagram.contract %a, %b over [k] accumulate f32 : {{.*}}
// CHECK-NEXT:    %base_scaled = diagram.map (%base_1 = %base : {{.*}}) -> {{.*}} {
// CHECK-NEXT:      %half = arith.constant 5.000000e-01 : f32
// CHECK-NEXT:      %scaled = arith.mulf %half, %base_1 : f32
// CHECK-NEXT:      diagram.yield %scaled : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %up = diagram.contract %c, %d over [r] accumulate f32 into %base_scaled : {{.*}}
// CHECK-NEXT:    %sum = diagram.map (%bias_1 = %bias : {{.*}}, %up_1 = %up : {{.*}}) -> {{.*}} {
// CHECK-NEXT:      %s = arith.addf %bias_1, %up_1 : f32
// CHECK-NEXT:      %u = math.tanh %s : f32
// CHECK-NEXT:      diagram.yield %u : f32

// STEPS-LABEL: func.func @finished(
// STEPS:       } finish (%base_end: {{.*}}) {
// STEPS-NEXT:    %base_scaled = diagram.map (%base = %base_end :
// STEPS:         %up = diagram.contract %c_piece, %d_piece over [r] accumulate f32 into %base_scaled

func.func @finished(%A: !A, %B: !B, %C: !C, %D: !D, %E: !b) -> !Y {
  %Y = hierarchy.kernel @finished (%a = %A : !A as !Ad, %b = %B : !B as !Bd, %c = %C : !C as !Cd, %d = %D : !D as !Dd,
      %bias = %E : !b as !bd) -> (!Y) schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?],
      whole = [r = 32]> {
    %base = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %up = diagram.contract %c, %d over [r] accumulate f32 : !Cd, !Dd -> !Yr
    %sum = diagram.map (%p = %base : !Yr, %e = %bias : !bd, %q = %up : !Yr) -> !Yr {
      %half = arith.constant 0.5 : f32
      %scaled = arith.mulf %half, %p : f32
      %r = arith.addf %scaled, %e : f32
      %s = arith.addf %r, %q : f32
      %u = math.tanh %s : f32
      diagram.yield %u : f32
    }
    hierarchy.yield %sum : !Yr
  }
  func.return %Y : !Y
}

// Three products over the axis of one stream are one sum, to which each step adds all three. Nobody awaits a product
// that the next one adds to.

// CHECK-LABEL: func.func @together(
// CHECK-SAME:    "%x and %y of @together", {{.*}}, "%y begins with %x">
// CHECK-SAME:    "%y and %z of @together", {{.*}}, "%z begins with %y">
// CHECK:         %x = diagram.contract %a, %b over [k] accumulate f32 : {{.*}}
// CHECK-NEXT:    %y = diagram.contract %c, %d over [k] accumulate f32 into %x : {{.*}}
// CHECK-NEXT:    %z = diagram.contract %e, %f over [k] accumulate f32 into %y : {{.*}}
// CHECK-NEXT:    hierarchy.yield %z

// STEPS-LABEL: func.func @together(
// STEPS:       initialise {
// STEPS-NEXT:    %[[START:.*]] = diagram.fill 0.000000e+00 : f32
// STEPS-NEXT:    hierarchy.yield %[[START]]
// STEPS-NEXT:  } step (%z_so_far: {{.*}}) {
// STEPS:         %x = diagram.contract %a_piece, %b_piece over [k] accumulate f32 into %z_so_far
// STEPS:         %y = diagram.contract %c_piece, %d_piece over [k] accumulate f32 into %x
// STEPS:         %z_new = diagram.contract %e_piece, %f_piece over [k] accumulate f32 into %y
// STEPS-NEXT:    hierarchy.yield %z_new

// CUDA-LABEL:  cuda.kernel @together_kernel_specialised
// CUDA:        scf.for {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}) -> {{.*}} {
// CUDA:          %[[X:.*]] = cuda.warpgroup_product %{{.*}}, %{{.*}} into %[[SUM]] over [k]
// CUDA-NOT:      cuda.warpgroup_wait
// CUDA:          %[[Y:.*]] = cuda.warpgroup_product %{{.*}}, %{{.*}} into %[[X]] over [k]
// CUDA-NOT:      cuda.warpgroup_wait
// CUDA:          %[[Z:.*]] = cuda.warpgroup_product %{{.*}}, %{{.*}} into %[[Y]] over [k]
// CUDA:          scf.yield

func.func @together(%A: !A, %B: !B, %C: !A, %D: !B, %E: !A, %F: !B) -> !Y {
  %Y = hierarchy.kernel @together (%a = %A : !A as !Ad, %b = %B : !B as !Bd, %c = %C : !A as !Ad, %d = %D : !B as !Bd,
      %e = %E : !A as !Ad, %f = %F : !B as !Bd) -> (!Y)
      schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
    %x = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %y = diagram.contract %c, %d over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %z = diagram.contract %e, %f over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %sum = diagram.map (%p = %x : !Yr, %q = %y : !Yr, %r = %z : !Yr) -> !Yr {
      %s = arith.addf %q, %r : f32
      %t = arith.addf %p, %s : f32
      diagram.yield %t : f32
    }
    hierarchy.yield %sum : !Yr
  }
  func.return %Y : !Y
}

// Not of differences, nor of a product that is asked for elsewhere, too, nor of a multiple of what a stream sums: none
// of these is a sum to which a step could add.

// CHECK-LABEL: func.func @apart(
// CHECK-NOT:     into
// CHECK:         hierarchy.yield %difference, %several, %scaled

func.func @apart(%A: !A, %B: !B, %C: !A, %D: !B) -> (!Y, !Y, !Y) {
  %Y, %Z, %W = hierarchy.kernel @apart (%a = %A : !A as !Ad, %b = %B : !B as !Bd, %c = %C : !A as !Ad, %d = %D : !B as !Bd)
      -> (!Y, !Y, !Y) schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
    %x = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %y = diagram.contract %c, %d over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %difference = diagram.map (%p = %x : !Yr, %q = %y : !Yr) -> !Yr {
      %s = arith.subf %p, %q : f32
      diagram.yield %s : f32
    }
    %v = diagram.contract %a, %d over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %w = diagram.contract %c, %b over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %several = diagram.map (%p = %v : !Yr, %q = %w : !Yr) -> !Yr {
      %s = arith.addf %p, %q : f32
      %t = arith.mulf %s, %p : f32
      diagram.yield %t : f32
    }
    %g = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %h = diagram.contract %c, %d over [k] accumulate f32 : !Ad, !Bd -> !Yr
    %scaled = diagram.map (%p = %g : !Yr, %q = %h : !Yr) -> !Yr {
      %c2 = arith.constant 2.0 : f32
      %r = arith.mulf %p, %c2 : f32
      %t = arith.mulf %q, %c2 : f32
      %s = arith.addf %r, %t : f32
      diagram.yield %s : f32
    }
    hierarchy.yield %difference, %several, %scaled : !Yr, !Yr, !Yr
  }
  func.return %Y, %Z, %W : !Y, !Y, !Y
}
