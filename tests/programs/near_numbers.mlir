// Sums of the elements before a row's own whose number is at most 100 above that of the row: all of these, of the small
// numbers that tests draw, so that no position is missing between the first and the last.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!q = tensor<?xf32, #diagram.array<[q]>>
!of_q = tensor<?xi32, #diagram.array<[q]>>
!of_x = tensor<?xi32, #diagram.array<[x]>>
func.func @near_numbers(%S: !S, %of_q: !of_q, %of_x: !of_x) -> !q attributes {sizes = #diagram.sizes<q = 19, x = 37>} {
  %W = diagram.where %S if "x <= q and of_x[x] <= of_q[q] + 100" with (of_x = %of_x : !of_x, of_q = %of_q : !of_q) : !S
  %sum = diagram.reduce add %W over [x] : !S -> !q
  func.return %sum : !q
}
