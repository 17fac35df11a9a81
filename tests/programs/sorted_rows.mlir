// Rows of a product that meet other weights from some on and up to others, of which more may be met, or none.

!X = tensor<?x48xf16, #diagram.array<[m, k]>>
!W = tensor<?x48x?xf16, #diagram.array<[b, k, n]>>
!e = tensor<?xi32, #diagram.array<[b]>>
!P = tensor<?x?x?xf32, #diagram.array<[b, m, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>

func.func @sorted_rows(%X: !X, %W: !W, %first: !e {diagram.up_to = "m"}, %end: !e {diagram.up_to = "m"}) -> !C
    attributes {sizes = #diagram.sizes<b = 3, m = 24, n = 9>} {
  %P = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !P
  %Q = diagram.where %P if "first[b] <= m and m < end[b]" with (first = %first : !e, end = %end : !e) : !P
  %C = diagram.reduce add %Q over [b] : !P -> !C
  func.return %C : !C
}
