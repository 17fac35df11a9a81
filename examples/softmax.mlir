// Softmax of every row: large inputs do not overflow, because the law subtracts the maximum first. A row of
// any length: it is streamed twice, once for its maximum and sum, once for its result.
//
//   treadle run examples/softmax.mlir --size row=7 --size x=5000

!A = tensor<?x?xf32, #diagram.array<[row, x]>>

func.func @softmax_rows(%A: !A) -> !A
    attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %P = diagram.apply @softmax(%A) over [x] : (!A) -> !A
  func.return %P : !A
}
