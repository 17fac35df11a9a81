// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scans{sums=C,D}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scans{sums=C,D}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scans' %s | filecheck %s --check-prefix PAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scans{sums=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-raise-scans{sums=A}' %s | filecheck %s --check-prefix WRONG

// WRONG: %A is no sum with a triangle of ones: such are %C, %D, %R

// NONE-COUNT-17: diagram.contract
// NONE-NOT: diagram.scan

!L = tensor<?x?xf32, #diagram.array<[q, x]>>
!U = tensor<?x?xf32, #diagram.array<[q, u]>>
!T = tensor<?x?xf32, #diagram.array<[x, u]>>
!r = tensor<?xf32, #diagram.array<[x]>>
!r_u = tensor<?xf32, #diagram.array<[u]>>
!L16 = tensor<?x?xf16, #diagram.array<[q, x]>>
!U16 = tensor<?x?xf16, #diagram.array<[q, u]>>
!T16 = tensor<?x?xf16, #diagram.array<[x, u]>>
!N = tensor<?x?xi32, #diagram.array<[q, x]>>
!Nu = tensor<?x?xi32, #diagram.array<[q, u]>>
!Nt = tensor<?x?xi32, #diagram.array<[x, u]>>
!G = tensor<5x9xf32, #diagram.array<[q, x]>>
!Gu = tensor<5x7xf32, #diagram.array<[q, u]>>
!Gt = tensor<9x7xf32, #diagram.array<[x, u]>>


// Of all elements up to each: the read under another name and the ones are gone.

// CHECK-LABEL: func.func @prefix
// CHECK-SAME:  derivation = [#hierarchy.step<"diagram-raise-scans", "%C along x", "a sum with a triangle of ones is a scan", "asked for">]
// CHECK-NEXT:  %C = diagram.scan add %L over x : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT:  func.return %C
// PAYS-LABEL:  func.func @prefix
// PAYS-SAME:   #hierarchy.step<"diagram-raise-scans", "%C along x", "a sum with a triangle of ones is a scan", "estimated
// PAYS-NEXT:   %C = diagram.scan add %L over x
func.func @prefix(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x" : !T
  %C = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %C : !L
}

// From each on, with the ones on the other side.

// CHECK-LABEL: func.func @suffix
// CHECK-NEXT:  %C = diagram.scan add %L over x reverse : tensor
// CHECK-NEXT:  func.return %C
func.func @suffix(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "x <= u" : !T
  %C = diagram.contract %L_u, %kept over [u] accumulate f32 : !U, !T -> !L
  func.return %C : !L
}

// Without the element itself.

// CHECK-LABEL: func.func @exclusive
// CHECK-NEXT:  %C = diagram.scan add %L over x exclusive : tensor
// CHECK-NEXT:  func.return %C
func.func @exclusive(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u < x" : !T
  %C = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %C : !L
}

// CHECK-LABEL: func.func @exclusive_suffix
// CHECK-NEXT:  %C = diagram.scan add %L over x exclusive reverse : tensor
// CHECK-NEXT:  func.return %C
func.func @exclusive_suffix(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "x < u" : !T
  %C = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %C : !L
}

// In the format of the accumulator; what was cast is cast, what the product rounded is rounded.

// CHECK-LABEL: func.func @halves
// CHECK-NEXT:  %[[WIDE:.*]] = diagram.cast %L : tensor<?x?xf16, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT:  %[[SUMS:.*]] = diagram.scan add %[[WIDE]] over x : tensor<?x?xf32
// CHECK-NEXT:  %C = diagram.cast %[[SUMS]] : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf16, #diagram.array<[q, x]>>
// CHECK-NEXT:  func.return %C
func.func @halves(%L: !L16) -> !L16 {
  %L_u = diagram.read %L at "q, u" : !L16 -> !U16
  %one = diagram.fill 1.0 : f16 -> !T16
  %kept = diagram.where %one if "u <= x" : !T16
  %C = diagram.contract %kept, %L_u over [u] accumulate f32 : !T16, !U16 -> !L16
  func.return %C : !L16
}

// CHECK-LABEL: func.func @rounded
// CHECK-NEXT:  %[[NARROW:.*]] = diagram.cast %L : tensor<?x?xf32, #diagram.array<[q, x]>> -> tensor<?x?xf16, #diagram.array<[q, x]>>
// CHECK-NEXT:  %[[BACK:.*]] = diagram.cast %[[NARROW]] : tensor<?x?xf16, #diagram.array<[q, x]>> -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT:  %C = diagram.scan add %[[BACK]] over x : tensor<?x?xf32
func.func @rounded(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %L16 = diagram.cast %L_u : !U -> !U16
  %one = diagram.fill 1.0 : f16 -> !T16
  %kept = diagram.where %one if "u <= x" : !T16
  %C = diagram.contract %kept, %L16 over [u] accumulate f32 : !T16, !U16 -> !L
  func.return %C : !L
}

// CHECK-LABEL: func.func @integers
// CHECK-NEXT:  %C = diagram.scan add %L over x : tensor<?x?xi32
func.func @integers(%L: !N) -> !N {
  %L_u = diagram.read %L at "q, u" : !N -> !Nu
  %one = diagram.fill 1 : i32 -> !Nt
  %kept = diagram.where %one if "u <= x" : !Nt
  %C = diagram.contract %kept, %L_u over [u] accumulate i32 : !Nt, !Nu -> !N
  func.return %C : !N
}

// Other conditions are no order of two positions.

// CHECK-LABEL: func.func @one_further
// CHECK:       %A = diagram.contract %kept, %L_u over [u]
// PAYS-LABEL:  func.func @one_further
// PAYS:        %A = diagram.contract %kept, %L_u over [u]
func.func @one_further(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x + 1" : !T
  %A = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %A : !L
}

// CHECK-LABEL: func.func @window
// CHECK:       %A = diagram.contract %kept, %L_u over [u]
// PAYS-LABEL:  func.func @window
// PAYS:        %A = diagram.contract %kept, %L_u over [u]
func.func @window(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x and x - u < 4" : !T
  %A = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %A : !L
}

// Twos are no ones.

// CHECK-LABEL: func.func @twos
// CHECK:       %A = diagram.contract %kept, %L_u over [u]
// PAYS-LABEL:  func.func @twos
// PAYS:        %A = diagram.contract %kept, %L_u over [u]
func.func @twos(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %two = diagram.fill 2.0 : f32 -> !T
  %kept = diagram.where %two if "u <= x" : !T
  %A = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %A : !L
}

// The axis of the sum is shorter than that of the rows, which a scan would go along.

// CHECK-LABEL: func.func @shorter
// CHECK:       %A = diagram.contract %kept, %G_u over [u]
// PAYS-LABEL:  func.func @shorter
// PAYS:        %A = diagram.contract %kept, %G_u over [u]
func.func @shorter(%G: !G) -> !G {
  %G_u = diagram.read %G at "q, u" : !G -> !Gu
  %one = diagram.fill 1.0 : f32 -> !Gt
  %kept = diagram.where %one if "u <= x" : !Gt
  %A = diagram.contract %kept, %G_u over [u] accumulate f32 : !Gt, !Gu -> !G
  func.return %A : !G
}

// What a read is padded with, nothing bounds: nor is the length of another axis, of an argument, its own.

// CHECK-LABEL: func.func @padded
// CHECK:       %A = diagram.contract %kept, %L_u over [u]
// PAYS-LABEL:  func.func @padded
// PAYS:        %A = diagram.contract %kept, %L_u over [u]
func.func @padded(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u" padded : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x" : !T
  %A = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %A : !L
}

// CHECK-LABEL: func.func @given
// CHECK:       %A = diagram.contract %kept, %L_u over [u]
// PAYS-LABEL:  func.func @given
// PAYS:        %A = diagram.contract %kept, %L_u over [u]
func.func @given(%L: !L, %L_u: !U) -> !L {
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x" : !T
  %A = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %A : !L
}

// Elements at other places.

// CHECK-LABEL: func.func @shifted
// CHECK:       %A = diagram.contract %kept, %L_u over [u]
// PAYS-LABEL:  func.func @shifted
// PAYS:        %A = diagram.contract %kept, %L_u over [u]
func.func @shifted(%L: !L) -> !L {
  %L_u = diagram.read %L at "q, u + 1" padded : !L -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x" : !T
  %A = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  func.return %A : !L
}

// One of what another gives: both are scans, of which the second reads the first.

// CHECK-LABEL: func.func @again
// CHECK-NEXT:  %C = diagram.scan add %L over x : tensor
// CHECK-NEXT:  %D = diagram.scan add %C over x : tensor
// CHECK-NEXT:  func.return %D
// PAYS-LABEL:  func.func @again
// PAYS:        %C = diagram.scan add %L over x
// PAYS-NEXT:   %D = diagram.scan add %C over x
// PAYS-NEXT:   func.return %D
func.func @again(%L: !L) -> !L {
  %one = diagram.fill 1.0 : f32 -> !T
  %L_u = diagram.read %L at "q, u" : !L -> !U
  %kept = diagram.where %one if "u <= x" : !T
  %C = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !U -> !L
  %C_u = diagram.read %C at "q, u" : !L -> !U
  %D = diagram.contract %kept, %C_u over [u] accumulate f32 : !T, !U -> !L
  func.return %D : !L
}

// One long row is made in chunks by many blocks: a scan would be by one warp.

// PAYS-LABEL:  func.func @row
// PAYS-SAME:   #hierarchy.step<"decline diagram-raise-scans", "%R", "a sum with a triangle of ones is a scan", "estimated
// PAYS:        %R = diagram.contract %kept, %L_u over [u]
func.func @row(%L: !r) -> !r attributes {sizes = #diagram.sizes<x = 262144>} {
  %L_u = diagram.read %L at "u" : !r -> !r_u
  %one = diagram.fill 1.0 : f32 -> !T
  %kept = diagram.where %one if "u <= x" : !T
  %R = diagram.contract %kept, %L_u over [u] accumulate f32 : !T, !r_u -> !r
  func.return %R : !r
}
