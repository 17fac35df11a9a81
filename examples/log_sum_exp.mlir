// The logarithm of the sum of the exponentials of every row, without overflow. A row without elements gives -inf,
// the logarithm of nothing.
//
//   treadle run examples/log_sum_exp.mlir --size row=7 --size x=5000

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!L = tensor<?xf32, #diagram.array<[row]>>

func.func @log_sum_exp_rows(%A: !A) -> !L
    attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %L = diagram.apply @log_sum_exp(%A) over [x] : (!A) -> !L
  func.return %L : !L
}
