// Log-softmax of every row: the scores themselves, less the logarithm of the sum of their exponentials. The maximum is
// subtracted first, so nothing overflows. One stream for maximum and sum, one for the result.
//
//   treadle run examples/log_softmax.mlir --size row=7 --size x=5000

!A = tensor<?x?xf32, #diagram.array<[row, x]>>

func.func @log_softmax_rows(%A: !A) -> !A
    attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %P = diagram.apply @log_softmax(%A) over [x] : (!A) -> !A
  func.return %P : !A
}
