// The sum of the squares of every row, and of everything.

!X = tensor<?x?xf32, #diagram.array<[i, j]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!s = tensor<f32, #diagram.array<[]>>

func.func @sum_of_squares(%X: !X) -> (!r, !s) attributes {sizes = #diagram.sizes<i = 9, j = 37>} {
  %rows = diagram.contract %X, %X over [j] accumulate f32 : !X, !X -> !r
  %Y = diagram.map (%a = %X : !X) -> !X {
    %b = arith.mulf %a, %a : f32
    diagram.yield %b : f32
  }
  %all = diagram.reduce add %Y over [i, j] : !X -> !s
  func.return %rows, %all : !r, !s
}
