// RUN: xdsl-opt -p 'set-machine{name=a100},diagram-widen-operands' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=l40s},diagram-widen-operands' %s | filecheck %s --check-prefix=ADA

!X = tensor<?x64xf8E4M3FN, #diagram.array<[t, i]>>
!W = tensor<32x64xf8E5M2, #diagram.array<[o, i]>>
!U = tensor<64x32xf8E4M3FN, #diagram.array<[i, o]>>
!Y = tensor<?x32xf32, #diagram.array<[t, o]>>

// Each operand is widened once, whatever uses it. Arrays keep their 8 bits.
// CHECK-LABEL: func.func @two_products(%X: tensor<?x64xf8E4M3FN
// CHECK-SAME:    #hierarchy.step<"diagram-widen-operands", "%X is multiplied as f16", "every f8E4M3FN is an f16",
// CHECK-SAME:      "the tensor cores of sm_80 multiply no 8-bit floats">
// CHECK-SAME:    #hierarchy.step<"diagram-widen-operands", "%W is multiplied as f16", "every f8E5M2 is an f16",
// CHECK-NEXT:  %X_wide = diagram.cast %X : tensor<?x64xf8E4M3FN, {{.*}}> -> tensor<?x64xf16,
// CHECK-NEXT:  %W_wide = diagram.cast %W : tensor<32x64xf8E5M2, {{.*}}> -> tensor<32x64xf16,
// CHECK-NEXT:  %Y = diagram.contract %X_wide, %W_wide over [i] accumulate f32 :
// CHECK-NEXT:  %U_wide = diagram.cast %U : tensor<64x32xf8E4M3FN, {{.*}}> -> tensor<64x32xf16,
// CHECK-NEXT:  %Z = diagram.contract %X_wide, %U_wide over [i] accumulate f32 :
// CHECK-NEXT:  func.return %Y, %Z
// ADA-LABEL:   func.func @two_products(
// ADA:         "%U is multiplied as f16"
func.func @two_products(%X: !X, %W: !W, %U: !U) -> (!Y, !Y) {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  %Z = diagram.contract %X, %U over [i] accumulate f32 : !X, !U -> !Y
  func.return %Y, %Z : !Y, !Y
}

// Tensor cores multiply integers along rows of memory, too; others become i32, for sums of f16 would not be exact.
!I = tensor<?x64xi8, #diagram.array<[t, i]>>
!J = tensor<32x64xi8, #diagram.array<[o, i]>>
!K = tensor<64x32xi8, #diagram.array<[i, o]>>
!Z = tensor<?x32xi32, #diagram.array<[t, o]>>

// CHECK-LABEL: func.func @integers(
// CHECK-SAME:    #hierarchy.step<"diagram-widen-operands", "%K is multiplied as i32", "every i8 is an i32",
// CHECK-SAME:      "8-bit operands are multiplied along rows of memory, and %K[i, o] has another last axis than i">
// CHECK-NEXT:  %Z = diagram.contract %I, %J over [i] accumulate i32 : tensor<?x64xi8,
// CHECK-NEXT:  %I_wide = diagram.cast %I : tensor<?x64xi8, {{.*}}> -> tensor<?x64xi32,
// CHECK-NEXT:  %K_wide = diagram.cast %K : tensor<64x32xi8, {{.*}}> -> tensor<64x32xi32,
// CHECK-NEXT:  %Y = diagram.contract %I_wide, %K_wide over [i] accumulate i32 :
func.func @integers(%I: !I, %J: !J, %K: !K) -> (!Z, !Z) {
  %Z = diagram.contract %I, %J over [i] accumulate i32 : !I, !J -> !Z
  %Y = diagram.contract %I, %K over [i] accumulate i32 : !I, !K -> !Z
  func.return %Z, %Y : !Z, !Z
}

// Those without a sign are multiplied with any; across rows both become i32.
!P = tensor<?x64xui8, #diagram.array<[t, i]>>
!Q = tensor<64x32xui8, #diagram.array<[i, o]>>

// CHECK-LABEL: func.func @unsigned(
// CHECK-SAME:    #hierarchy.step<"diagram-widen-operands", "%P is multiplied as i32", "every ui8 is an i32",
// CHECK-SAME:    #hierarchy.step<"diagram-widen-operands", "%Q is multiplied as i32", "every ui8 is an i32",
// CHECK-NEXT:  %Z = diagram.contract %P, %J over [i] accumulate i32 : tensor<?x64xui8, {{.*}}>, tensor<32x64xi8,
// CHECK-NEXT:  %P_wide = diagram.cast %P : tensor<?x64xui8, {{.*}}> -> tensor<?x64xi32,
// CHECK-NEXT:  %Q_wide = diagram.cast %Q : tensor<64x32xui8, {{.*}}> -> tensor<64x32xi32,
// CHECK-NEXT:  %Y = diagram.contract %P_wide, %Q_wide over [i] accumulate i32 :
func.func @unsigned(%P: !P, %J: !J, %Q: !Q) -> (!Z, !Z) {
  %Z = diagram.contract %P, %J over [i] accumulate i32 : !P, !J -> !Z
  %Y = diagram.contract %P, %Q over [i] accumulate i32 : !P, !Q -> !Z
  func.return %Z, %Y : !Z, !Z
}
