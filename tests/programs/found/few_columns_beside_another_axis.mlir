// Few columns along an axis that is summed later, and another axis of the same operand: the sum stays apart.

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<4x?x?xf16, #diagram.array<[e, i, j]>>
!P = tensor<?x4xf32, #diagram.array<[t, e]>>
!Z = tensor<?x4x?xf32, #diagram.array<[t, e, j]>>
!Y = tensor<?x?xf32, #diagram.array<[t, j]>>

func.func @f(%X: !X, %W: !W, %P: !P) -> !Y attributes {sizes = #diagram.sizes<t = 33, i = 40, j = 17>} {
  %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %G = diagram.map (%z = %Z : !Z, %p = %P : !P) -> !Z {
    %g = arith.mulf %z, %p : f32
    diagram.yield %g : f32
  }
  %Y = diagram.reduce add %G over [e] : !Z -> !Y
  func.return %Y : !Y
}
