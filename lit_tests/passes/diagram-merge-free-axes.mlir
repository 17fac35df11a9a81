// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-free-axes' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-free-axes' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},diagram-merge-free-axes{axes=b,t}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},diagram-merge-free-axes{axes=b,i}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},diagram-merge-free-axes{axes=h,q}' %s | filecheck %s --check-prefix ALONE

// NONE: axis 'b' does not become one with another one: no product has it and another one of these next to each other in its result and in one operand alone
// ALONE: axis 'h' does not become one with another one: %bias has 'q' alone

!X = tensor<?x?x4096xf16, #diagram.array<[b, t, i]>>
!W = tensor<4096x4096xf16, #diagram.array<[i, o]>>
!Y = tensor<?x?x4096xf32, #diagram.array<[b, t, o]>>

// Single tokens of a batch fill the rows of one tile.
// CHECK-LABEL: func.func @tokens
// CHECK-SAME:    sizes = #diagram.sizes<b = 32, t = 1, b_t = 32>
// CHECK-SAME:    #hierarchy.step<"diagram-merge-free-axes", "[b, t] as b_t", "a tuple of axes is an axis", "estimated
// CHECK-NEXT:  %X_flat = diagram.collapse %X [b, t] as b_t : tensor<?x?x4096xf16, #diagram.array<[b, t, i]>> -> tensor<?x4096xf16, #diagram.array<[b_t, i]>>
// CHECK-NEXT:  %Y_flat = diagram.contract %X_flat, %W over [i] accumulate f32 : tensor<?x4096xf16, #diagram.array<[b_t, i]>>, tensor<4096x4096xf16, #diagram.array<[i, o]>> -> tensor<?x4096xf32, #diagram.array<[b_t, o]>>
// CHECK-NEXT:  %Y = diagram.expand %Y_flat b_t as [b, t] : tensor<?x4096xf32, #diagram.array<[b_t, o]>> -> tensor<?x?x4096xf32, #diagram.array<[b, t, o]>>
// CHECK-NEXT:  func.return %Y : tensor<?x?x4096xf32, #diagram.array<[b, t, o]>>
func.func @tokens(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<b = 32, t = 1>} {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}

// Rows that fill their tiles anyway stay as they are, and it is said so; asked for, they become one axis.
// CHECK-LABEL: func.func @sentences
// CHECK-SAME:    #hierarchy.step<"decline diagram-merge-free-axes", "[b, t]", "a tenth must be saved", "estimated
// CHECK-NEXT:  %Y = diagram.contract %X, %W over [i]
// ASKED-LABEL: func.func @sentences
// ASKED-SAME:    #hierarchy.step<"diagram-merge-free-axes", "[b, t] as b_t", "a tuple of axes is an axis", "asked for">
// ASKED-NEXT:  %X_flat = diagram.collapse %X [b, t] as b_t
// ASKED-NEXT:  %Y_flat = diagram.contract %X_flat, %W over [i]
func.func @sentences(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<b = 8, t = 4096>} {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}

// A read that leaves both as they are leaves the one that they are.
// CHECK-LABEL: func.func @before
// CHECK-NEXT:  %X_flat = diagram.collapse %X [b, t] as b_t
// CHECK-NEXT:  %B = diagram.read %X_flat at "b_t, i - 1" padded : tensor<?x4096xf16, #diagram.array<[b_t, i]>> -> tensor<?x4096xf16, #diagram.array<[b_t, i]>>
// CHECK-NEXT:  %Y_flat = diagram.contract %B, %W over [i]
func.func @before(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<b = 32, t = 1>} {
  %B = diagram.read %X at "b, t, i - 1" padded : !X -> !X
  %Y = diagram.contract %B, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}

!Q = tensor<4x8x1x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<4x?x64xf16, #diagram.array<[b, x, d]>>
!S = tensor<4x8x1x?xf32, #diagram.array<[b, h, q, x]>>
!bias = tensor<1xf32, #diagram.array<[q]>>

// Of heads and queries, which an array has apart, none becomes an axis with the other; a batch, which both operands
// have, is no axis of rows.
// CHECK-LABEL: func.func @apart
// CHECK-NOT:     merge-free-axes
// CHECK:       %S = diagram.contract %Q, %K over [d]
// CHECK-NOT:   diagram.collapse
// CHECK:       func.return
func.func @apart(%Q: !Q, %K: !K, %bias: !bias) -> !S attributes {sizes = #diagram.sizes<x = 8192>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %a = %bias : !bias) -> !S {
    %t = arith.addf %s, %a : f32
    diagram.yield %t : f32
  }
  func.return %T : !S
}

!A = tensor<?x?x32xf16, #diagram.array<[s, i, a]>>
!B = tensor<?x?x32xf16, #diagram.array<[s, j, b]>>
!G = tensor<32x32x?xf16, #diagram.array<[a, b, z]>>
!P = tensor<?x32x?x32xf32, #diagram.array<[i, a, j, b]>>
!P16 = tensor<?x32x?x32xf16, #diagram.array<[i, a, j, b]>>
!R = tensor<?x?x?xf32, #diagram.array<[i, j, z]>>

// What a later product tells apart is one in the first, which is made of views, and gives one.
// CHECK-LABEL: func.func @outer
// CHECK-SAME:    #hierarchy.step<"diagram-merge-free-axes", "[i, a] of %P as i_a", "a tuple of axes is an axis", "estimated
// CHECK-SAME:    #hierarchy.step<"diagram-merge-free-axes", "[j, b] of %P as j_b", "a tuple of axes is an axis", "estimated
// CHECK-NEXT:  %A_flat = diagram.collapse %A [i, a] as i_a : tensor<?x?x32xf16, #diagram.array<[s, i, a]>> -> tensor<?x?xf16, #diagram.array<[s, i_a]>>
// CHECK-NEXT:  %B_flat = diagram.collapse %B [j, b] as j_b
// CHECK-NEXT:  [[P:%[A-Za-z_0-9]+]] = diagram.contract %A_flat, %B_flat over [s] accumulate f32 : {{.*}} -> tensor<?x?xf32, #diagram.array<[i_a, j_b]>>
// CHECK-NEXT:  [[H:%[A-Za-z_0-9]+]] = diagram.cast [[P]]
// CHECK-NEXT:  [[V:%[A-Za-z_0-9]+]] = diagram.expand [[H]] j_b as [j, b]
// CHECK-NEXT:  %P16 = diagram.expand [[V]] i_a as [i, a]
// CHECK-NEXT:  %R = diagram.contract %P16, %G over [a, b] accumulate f32
func.func @outer(%A: !A, %B: !B, %G: !G) -> !R attributes {sizes = #diagram.sizes<s = 512, i = 256, j = 256, z = 128>} {
  %P = diagram.contract %A, %B over [s] accumulate f32 : !A, !B -> !P
  %P16 = diagram.cast %P : !P -> !P16
  %R = diagram.contract %P16, %G over [a, b] accumulate f32 : !P16, !G -> !R
  func.return %R : !R
}
