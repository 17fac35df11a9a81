// Sums over rows from some on and up to others, for each of several: of products of rows that are sorted by them.

!X = tensor<?x?xf16, #diagram.array<[m, k]>>
!Y = tensor<?x?xf16, #diagram.array<[m, n]>>
!e = tensor<3xi32, #diagram.array<[b]>>
!P = tensor<3x?x?xf16, #diagram.array<[b, m, n]>>
!C = tensor<3x?x?xf32, #diagram.array<[b, k, n]>>

func.func @sorted_sums(%X: !X, %Y: !Y, %first: !e {diagram.up_to = "m"}, %end: !e {diagram.up_to = "m"}) -> !C
    attributes {sizes = #diagram.sizes<m = 24, k = 6, n = 9>} {
  %P = diagram.map (%y = %Y : !Y) -> !P {
    diagram.yield %y : f16
  }
  %Q = diagram.where %P if "first[b] <= m and m < end[b]" with (first = %first : !e, end = %end : !e) : !P
  %C = diagram.contract %Q, %X over [m] accumulate f32 : !P, !X -> !C
  func.return %C : !C
}
