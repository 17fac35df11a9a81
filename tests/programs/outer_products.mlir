// Products of every pair of columns of two features, summed over sequences, from which each pair gets a row: what sums
// over both columns tells them apart from the rows of the first product. Both factors have a batch beside their rows.

!A = tensor<?x2x?x4xf16, #diagram.array<[s, g, i, a]>>
!B = tensor<?x2x?x8xf16, #diagram.array<[s, g, j, b]>>
!W = tensor<4x8x5xf16, #diagram.array<[a, b, z]>>
!P = tensor<2x?x4x?x8xf32, #diagram.array<[g, i, a, j, b]>>
!P16 = tensor<2x?x4x?x8xf16, #diagram.array<[g, i, a, j, b]>>
!R = tensor<2x?x?x5xf32, #diagram.array<[g, i, j, z]>>

func.func @outer_products(%A: !A, %B: !B, %W: !W) -> !R attributes {sizes = #diagram.sizes<s = 9, i = 3, j = 6>} {
  %P = diagram.contract %A, %B over [s] accumulate f32 : !A, !B -> !P
  %P16 = diagram.cast %P : !P -> !P16
  %R = diagram.contract %P16, %W over [a, b] accumulate f32 : !P16, !W -> !R
  func.return %R : !R
}
