// The gradient of a projection of heads: summed over positions and a batch, which lie apart in what heads gave, and of
// that only what is positive.

!O = tensor<?x2x48x8xf16, #diagram.array<[b, h, q, d]>>
!dY = tensor<?x48x12xf16, #diagram.array<[b, q, o]>>
!dW = tensor<2x8x12xf32, #diagram.array<[h, d, o]>>

func.func @weights_of_heads(%O: !O, %dY: !dY) -> !dW attributes {sizes = #diagram.sizes<b = 3>} {
  %R = diagram.map (%o = %O : !O) -> !O {
    %zero = arith.constant 0.0 : f16
    %r = arith.maximumf %o, %zero : f16
    diagram.yield %r : f16
  }
  %dW = diagram.contract %R, %dY over [b, q] accumulate f32 : !O, !dY -> !dW
  func.return %dW : !dW
}
