// As few columns as that, of which a condition chooses one: the sum asks it again, in a kernel of its own.

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<4x?x?xf16, #diagram.array<[e, i, j]>>
!n = tensor<?xi32, #diagram.array<[t]>>
!Z = tensor<?x4x?xf32, #diagram.array<[t, e, j]>>
!Y = tensor<?x?xf32, #diagram.array<[t, j]>>

func.func @f(%X: !X, %W: !W, %n: !n {diagram.up_to = "e"}) -> !Y
    attributes {sizes = #diagram.sizes<t = 33, i = 40, j = 17>} {
  %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %K = diagram.where %Z if "e == n[t]" with (n = %n : !n) : !Z
  %Y = diagram.reduce add %K over [e] : !Z -> !Y
  func.return %Y : !Y
}
