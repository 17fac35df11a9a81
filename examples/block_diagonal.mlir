// The diagonal blocks of a matrix of blocks: D[i] = X[i, i], rows of which are multiplied by W. A diagonal is an affine
// read that uses one axis twice.
//
//   treadle run examples/block_diagonal.mlir --size m=100 --size n=100

!X = tensor<?x?x64xf16, #diagram.array<[m, n, k]>>
!D = tensor<?x64xf16, #diagram.array<[i, k]>>
!W = tensor<64x?xf16, #diagram.array<[k, p]>>
!Y = tensor<?x?xf32, #diagram.array<[i, p]>>

func.func @block_diagonal(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<m = 33, n = 40, p = 72>} {
  %D = diagram.read %X at "i, i, k" : !X -> !D
  %Y = diagram.contract %D, %W over [k] accumulate f32 : !D, !W -> !Y
  func.return %Y : !Y
}
