// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-copy-operands' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-copy-operands' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},diagram-copy-operands{axes=a,b,k}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},diagram-copy-operands{axes=k,a,b}' %s | filecheck %s --check-prefix NONE

// NONE: no product sums over axis 'k' and others that lie side by side once its operands are copied into the order [k, a, b]: such are [i, j, c] with operands=V; [b, a, k] with operands=A; [a, b, k] with operands=B

!X = tensor<?x224x224x4xf16, #diagram.array<[b, h, w, c]>>
!V = tensor<?x14x16x14x16x4xf16, #diagram.array<[b, x, i, y, j, c]>>
!W = tensor<16x16x4x768xf16, #diagram.array<[i, j, c, o]>>
!O = tensor<?x14x14x768xf32, #diagram.array<[b, x, y, o]>>

// Patches of images are copied into rows of a matrix; the weights lie so.
// CHECK-LABEL: func.func @patches
// CHECK-SAME:    #hierarchy.step<"diagram-copy-operands", "%V of %O as [.., i, j, c]", "order of axes", "estimated
// CHECK-NEXT:  %V = diagram.read %X at "b, 16 * x + i, 16 * y + j, c"
// CHECK-NEXT:  %V_copy = diagram.map (%v = %V : {{.*}}) -> tensor<?x14x14x16x16x4xf16, #diagram.array<[b, x, y, i, j, c]>> {
// CHECK-NEXT:    diagram.yield %v : f16
// CHECK-NEXT:  }
// CHECK-NEXT:  %V_copy_flat = diagram.collapse %V_copy [i, j, c] as i_j_c
// CHECK-NEXT:  %W_flat = diagram.collapse %W [i, j, c] as i_j_c : {{.*}} -> tensor<1024x768xf16, #diagram.array<[i_j_c, o]>>
// CHECK-NEXT:  %O = diagram.contract %V_copy_flat, %W_flat over [i_j_c] accumulate f32
// CHECK-NEXT:  func.return %O
func.func @patches(%X: !X, %W: !W) -> !O attributes {sizes = #diagram.sizes<b = 32>} {
  %V = diagram.read %X at "b, 16 * x + i, 16 * y + j, c" : !X -> !V
  %O = diagram.contract %V, %W over [i, j, c] accumulate f32 : !V, !W -> !O
  func.return %O : !O
}

!A = tensor<?x?x?x?xf16, #diagram.array<[a, m, b, k]>>
!B = tensor<?x?x?x?xf16, #diagram.array<[b, a, k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>

// Where it takes longer at other sizes that a launch may bring, nothing is copied, and it is said so.
// CHECK-LABEL: func.func @three
// CHECK-SAME:    #hierarchy.step<"decline diagram-copy-operands", "operands of %C", "a tenth must be saved", "estimated
// CHECK-NEXT:  %C = diagram.contract %A, %B over [a, b, k]
// ASKED-LABEL: func.func @three
// ASKED-SAME:    #hierarchy.step<"diagram-copy-operands", "%B of %C as [.., a, b, k]", "order of axes", "asked for">
// ASKED-NEXT:  %B_copy = diagram.map (%b = %B : {{.*}}) -> tensor<?x?x?x?xf16, #diagram.array<[n, a, b, k]>> {
// ASKED:       %A_flat = diagram.collapse %A [b, k] as b_k : {{.*}} -> tensor<?x?x?xf16, #diagram.array<[a, m, b_k]>>
// ASKED-NEXT:  %B_copy_flat = diagram.collapse %B_copy [b, k] as b_k : {{.*}} -> tensor<?x?x?xf16, #diagram.array<[n, a, b_k]>>
// ASKED-NEXT:  %C = diagram.contract %A_flat, %B_copy_flat over [a, b_k] accumulate f32
func.func @three(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<a = 2, m = 8, b = 2, k = 8, n = 8>} {
  %C = diagram.contract %A, %B over [a, b, k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
