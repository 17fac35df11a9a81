// Sums of the elements whose column has the number of their row, in whatever order the numbers come.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!q = tensor<?xf32, #diagram.array<[q]>>
!of_q = tensor<?xi32, #diagram.array<[q]>>
!of_x = tensor<?xi32, #diagram.array<[x]>>
func.func @mixed_numbers(%S: !S, %of_q: !of_q, %of_x: !of_x) -> !q attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %W = diagram.where %S if "of_x[x] == of_q[q]" with (of_x = %of_x : !of_x, of_q = %of_q : !of_q) : !S
  %sum = diagram.reduce add %W over [x] : !S -> !q
  func.return %sum : !q
}
