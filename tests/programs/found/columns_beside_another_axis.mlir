// Columns along an axis that is summed later, and another axis of the same operand: groups take one index of that.

!X = tensor<?x32xf16, #diagram.array<[t, i]>>
!W = tensor<?x32x32xf16, #diagram.array<[o, i, j]>>
!Y = tensor<?x32xf16, #diagram.array<[t, j]>>
!Z = tensor<?x?x32xf32, #diagram.array<[t, o, j]>>
!R = tensor<?x?xf32, #diagram.array<[t, o]>>

func.func @f(%X: !X, %W: !W, %Y: !Y) -> !R attributes {sizes = #diagram.sizes<t = 33, o = 5>} {
  %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %G = diagram.map (%z = %Z : !Z, %y = %Y : !Y) -> !Z {
    %w = arith.extf %y : f16 to f32
    %g = arith.mulf %z, %w : f32
    diagram.yield %g : f32
  }
  %R = diagram.reduce add %G over [j] : !Z -> !R
  func.return %R : !R
}
