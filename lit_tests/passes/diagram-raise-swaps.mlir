// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-swaps' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-swaps' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'diagram-raise-swaps{products=P join=2}' %s | filecheck %s --check-prefix JOINED
// RUN: xdsl-opt -p 'diagram-raise-swaps{products=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-raise-swaps{products=X}' %s | filecheck %s --check-prefix WRONG

// WRONG: %X is no product of which reads swap neighbouring blocks along an axis of a static size

!X = tensor<?x1024xf16, #diagram.array<[t, i]>>
!W = tensor<1024x8x2x64xf16, #diagram.array<[i, h, r, j]>>
!P = tensor<?x8x2x64xf32, #diagram.array<[t, h, r, j]>>
!half = tensor<?x8x64xf32, #diagram.array<[t, h, j]>>
!f = tensor<?x2x64xf32, #diagram.array<[t, r, j]>>
!which = tensor<2xi32, #diagram.array<[r]>>

// Both halves, which a map chooses by position: columns are along one axis then, and positions of its parts are told
// from those along it.
// CHECK-LABEL: func.func @rotated
// CHECK-SAME:    #hierarchy.step<"diagram-raise-swaps", "%P along r by 1", "a read at positions that a permutation gives is one", "estimated
// CHECK-SAME:    #hierarchy.step<"diagram-raise-swaps", "[r, j] as r_j", "a tuple of axes is an axis"
// CHECK:         %P = diagram.contract %X, %{{.*}} over [i] {{.*}} -> tensor<?x8x128xf32, #diagram.array<[t, h, r_j]>>
// CHECK-NEXT:    %P_swapped = diagram.swap %P along r_j by 64 : tensor<?x8x128xf32, #diagram.array<[t, h, r_j]>> -> tensor<?x8x128xf32, #diagram.array<[t, h, r_j]>>
// CHECK:         arith.floordivsi
// CHECK:         arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// JOINED-LABEL: func.func @rotated
// JOINED:         diagram.swap %P along h_r_j by 64
// JOINED:         diagram.read %{{.*}} at "t, h_r_j % 128" padded
// NONE-LABEL: func.func @rotated
// NONE-NOT:     diagram.swap
// NONE:         func.func
func.func @rotated(%X: !X, %W: !W, %C: !f, %S: !f) -> !P attributes {sizes = #diagram.sizes<t = 8192>} {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %first = diagram.read %P at "t, h, 0, j" : !P -> !half
  %second = diagram.read %P at "t, h, 1, j" : !P -> !half
  %which = diagram.index -> !which
  %Y = diagram.map (%p = %P : !P, %c = %C : !f, %s = %S : !f, %n = %which : !which, %a = %first : !half, %b = %second : !half) -> !P {
    %zero = arith.constant 0 : i32
    %is_first = arith.cmpi eq, %n, %zero : i32
    %negative = arith.negf %b : f32
    %turned = arith.select %is_first, %negative, %a : f32
    %0 = arith.mulf %p, %c : f32
    %1 = arith.mulf %turned, %s : f32
    %y = arith.addf %0, %1 : f32
    diagram.yield %y : f32
  }
  func.return %Y : !P
}

!V = tensor<1024x512xf16, #diagram.array<[i, d]>>
!Q = tensor<?x512xf32, #diagram.array<[t, d]>>
!at = tensor<512xi32, #diagram.array<[d]>>

// Positions that no swap gives are read.
// CHECK-LABEL: func.func @shifted
// CHECK-NOT:     diagram.swap
// CHECK:         diagram.read %Q at "t, other[d]" padded
func.func @shifted(%X: !X, %V: !V) -> !Q attributes {sizes = #diagram.sizes<t = 8192>} {
  %Q = diagram.contract %X, %V over [i] accumulate f32 : !X, !V -> !Q
  %d = diagram.index -> !at
  %other = diagram.map (%p = %d : !at) -> !at {
    %one = arith.constant 1 : i32
    %most = arith.constant 511 : i32
    %next = arith.addi %p, %one : i32
    %round = arith.andi %next, %most : i32
    diagram.yield %round : i32
  }
  %R = diagram.read %Q at "t, other[d]" padded with (other = %other : !at) : !Q -> !Q
  %Y = diagram.map (%q = %Q : !Q, %r = %R : !Q) -> !Q {
    %y = arith.subf %q, %r : f32
    diagram.yield %y : f32
  }
  func.return %Y : !Q
}
