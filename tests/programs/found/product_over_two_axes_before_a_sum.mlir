// The sum that follows is not the one to stream: the product takes one of its axes index by index.

!X = tensor<4x8xf16, #diagram.array<[a, b]>>
!Y = tensor<4x3x8xf16, #diagram.array<[a, c, b]>>
!r = tensor<3xf32, #diagram.array<[c]>>

func.func @f(%X: !X, %Y: !Y) -> !r {
  %R = diagram.contract %X, %Y over [b, a] accumulate f32 : !X, !Y -> !r
  %P = diagram.apply @softmax(%R) over [c] : (!r) -> !r
  func.return %P : !r
}
