// Shares of masked sums, and a product with them along the same axis: warps would lie where the maximum reduces.

!X = tensor<?x16xf32, #diagram.array<[b, a]>>
!Y = tensor<?x16x?xf32, #diagram.array<[c, a, b]>>
!r = tensor<?xf32, #diagram.array<[b]>>
!R = tensor<?x16xf32, #diagram.array<[c, a]>>

func.func @f(%X: !X, %Y: !Y) -> !R attributes {sizes = #diagram.sizes<b = 5, c = 33>} {
  %W = diagram.where %X if "b <= a" : !X
  %S = diagram.reduce add %W over [a] : !X -> !r
  %P = diagram.apply @softmax(%S) over [b] : (!r) -> !r
  %R = diagram.contract %P, %Y over [b] accumulate f32 : !r, !Y -> !R
  func.return %R : !R
}
