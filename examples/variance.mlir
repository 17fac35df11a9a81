// Mean and variance of every row, two results of one pass over it: the sum of squared distances from the mean is repaired
// as the mean moves.
//
//   treadle run examples/variance.mlir --size row=7 --size x=5000

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!r = tensor<?xf32, #diagram.array<[row]>>

func.func @mean_and_variance(%A: !A) -> (!r, !r)
    attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %mean = diagram.apply @mean(%A) over [x] : (!A) -> !r
  %variance = diagram.apply @variance(%A) over [x] : (!A) -> !r
  func.return %mean, %variance : !r, !r
}
