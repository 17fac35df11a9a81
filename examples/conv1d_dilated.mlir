// 1-D convolution with stride 2 and dilation 3: Y[t] = sum over r and c of X[2 t + 3 r, c] F[r, c, f]. The same
// contraction as without, over another affine read.
//
//   treadle run examples/conv1d_dilated.mlir --size l=1000 --size f=200

!X = tensor<?x?x32xf16, #diagram.array<[b, l, c]>>
!F = tensor<5x32x?xf16, #diagram.array<[r, c, f]>>
!windows = tensor<?x?x5x32xf16, #diagram.array<[b, t, r, c]>>
!Y = tensor<?x?x?xf32, #diagram.array<[b, t, f]>>
!Y16 = tensor<?x?x?xf16, #diagram.array<[b, t, f]>>

func.func @conv1d_dilated(%X: !X, %F: !F) -> !Y16
    attributes {sizes = #diagram.sizes<b = 2, l = 204, f = 96>} {
  %windows = diagram.read %X at "b, 2 * t + 3 * r, c" : !X -> !windows
  %Y = diagram.contract %windows, %F over [r, c] accumulate f32 : !windows, !F -> !Y
  %Y16 = diagram.cast %Y : !Y -> !Y16
  func.return %Y16 : !Y16
}
