// A sum of products, each of which has a scale of its own for every row.

!X = tensor<?x256xbf16, #diagram.array<[t, k]>>
!W = tensor<3x256x8xbf16, #diagram.array<[e, k, n]>>
!G = tensor<?x3xf32, #diagram.array<[t, e]>>
!Y = tensor<?x3x8xf32, #diagram.array<[t, e, n]>>
!R = tensor<?x8xf32, #diagram.array<[t, n]>>

func.func @mixture_of_layers(%X: !X, %W: !W, %G: !G) -> !R attributes {sizes = #diagram.sizes<t = 13>} {
  %Y = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !Y
  %Z = diagram.map (%y = %Y : !Y, %g = %G : !G) -> !Y {
    %z = arith.mulf %y, %g : f32
    diagram.yield %z : f32
  }
  %R = diagram.reduce add %Z over [e] : !Y -> !R
  func.return %R : !R
}
