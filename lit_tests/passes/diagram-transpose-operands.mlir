// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-transpose-operands' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},diagram-transpose-operands' %s | filecheck %s --check-prefix OLD
// RUN: xdsl-opt -p 'set-machine{name=l40s},diagram-transpose-operands{operands=W}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},diagram-transpose-operands{operands=W}' %s | filecheck %s --check-prefix NONE

// NONE: there is no array %W to transpose: no product of 8-bit operands that a100 multiplies as they are sums it over another axis than its last

!X = tensor<?x?xf8E4M3FN, #diagram.array<[t, i]>>
!W = tensor<?x?xf8E4M3FN, #diagram.array<[i, o]>>
!Y = tensor<?x?xf32, #diagram.array<[t, o]>>

// What the program is given is moved by a map, and the product is one of 8 bits.
// CHECK-LABEL: func.func @large
// CHECK-SAME:    #hierarchy.step<"diagram-transpose-operands", "%W as [o, i]", "order of axes", "moved: estimated {{.*}} us as it is; at
// CHECK-NEXT:  %W_transposed = diagram.map (%[[ONE:.*]] = %W : {{.*}}) -> tensor<?x?xf8E4M3FN, #diagram.array<[o, i]>> {
// CHECK-NEXT:    diagram.yield %[[ONE]] : f8E4M3FN
// CHECK-NEXT:  }
// CHECK-NEXT:  %Y = diagram.contract %X, %W_transposed over [i] accumulate f32 : tensor<?x?xf8E4M3FN, #diagram.array<[t, i]>>, tensor<?x?xf8E4M3FN, #diagram.array<[o, i]>>
// Tensor cores that multiply no f8 take f16, however operands lie.
// OLD-LABEL: func.func @large
// OLD-NOT:   diagram.map
func.func @large(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<t = 4096, i = 4096, o = 4096>} {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}

// Where a launch takes longer than all of it, both are widened, and it is said so.
// CHECK-LABEL: func.func @small
// CHECK-SAME:    #hierarchy.step<"decline diagram-transpose-operands", "%W", "a tenth must be saved", "estimated
// CHECK-NEXT:  %Y = diagram.contract %X, %W over [i]
// Asked for, it is moved.
// ASKED-LABEL: func.func @small
// ASKED-SAME:    #hierarchy.step<"diagram-transpose-operands", "%W as [o, i]", "order of axes", "moved: asked for">
// ASKED-NEXT:  %W_transposed = diagram.map
// ASKED:       diagram.contract %X, %W_transposed over [i]
func.func @small(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<t = 64, i = 64, o = 64>} {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}

!P = tensor<?x?xf32, #diagram.array<[i, o]>>
!A = tensor<?x?xf16, #diagram.array<[i, c]>>
!B = tensor<?x?xf16, #diagram.array<[o, c]>>

// What the program makes for nobody else is made in the other order.
// CHECK-LABEL: func.func @made
// CHECK-SAME:    #hierarchy.step<"diagram-transpose-operands", "%W as [o, i]", "order of axes", "made so: estimated
// CHECK:       %W = diagram.cast %P : tensor<?x?xf32, #diagram.array<[i, o]>> -> tensor<?x?xf8E4M3FN, #diagram.array<[o, i]>>
// CHECK-NEXT:  diagram.contract %X, %W over [i]
func.func @made(%X: !X, %A: !A, %B: !B) -> !Y attributes {sizes = #diagram.sizes<t = 4096, i = 4096, o = 4096, c = 64>} {
  %P = diagram.contract %A, %B over [c] accumulate f32 : !A, !B -> !P
  %W = diagram.cast %P : !P -> !W
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}

!V = tensor<?x?xi8, #diagram.array<[i, o]>>
!U = tensor<?x?xi8, #diagram.array<[t, i]>>
!Z = tensor<?x?xi32, #diagram.array<[t, o]>>

// Of integers on an A100, too: else no tensor core multiplies them. The condition is asked of what was moved.
// OLD-LABEL: func.func @condition
// OLD-SAME:    #hierarchy.step<"diagram-transpose-operands", "%V as [o, i]", "order of axes", "moved: estimated
// OLD:       %V_transposed = diagram.map
// OLD:       %S_transposed = diagram.where %V_transposed if "i < n" with (n = %n : i32) : tensor<?x?xi8, #diagram.array<[o, i]>>
// OLD-NEXT:  diagram.contract %U, %S_transposed over [i] accumulate i32
func.func @condition(%U: !U, %V: !V, %n: i32) -> !Z attributes {sizes = #diagram.sizes<t = 2048, i = 2048, o = 2048>} {
  %S = diagram.where %V if "i < n" with (n = %n : i32) : !V
  %Z = diagram.contract %U, %S over [i] accumulate i32 : !U, !V -> !Z
  func.return %Z : !Z
}
