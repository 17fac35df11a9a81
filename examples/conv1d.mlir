// 1-D convolution: Y[t] = sum over r and c of X[t + r, c] F[r, c, f], a contraction over an affine read. The windows
// overlap in memory; nothing is copied to make them. How many there are follows from the length of X.
//
//   treadle run examples/conv1d.mlir --size l=1000 --size f=200

!X = tensor<?x?x32xf16, #diagram.array<[b, l, c]>>
!F = tensor<5x32x?xf16, #diagram.array<[r, c, f]>>
!windows = tensor<?x?x5x32xf16, #diagram.array<[b, t, r, c]>>
!Y = tensor<?x?x?xf32, #diagram.array<[b, t, f]>>
!Y16 = tensor<?x?x?xf16, #diagram.array<[b, t, f]>>

func.func @conv1d(%X: !X, %F: !F) -> !Y16
    attributes {sizes = #diagram.sizes<b = 2, l = 204, f = 96>} {
  %windows = diagram.read %X at "b, t + r, c" : !X -> !windows
  %Y = diagram.contract %windows, %F over [r, c] accumulate f32 : !windows, !F -> !Y
  %Y16 = diagram.cast %Y : !Y -> !Y16
  func.return %Y16 : !Y16
}
