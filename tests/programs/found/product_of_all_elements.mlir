// A product over every axis there is, more than one of which is known only at launch.

!X = tensor<?x?x3xf32, #diagram.array<[d, a, c]>>

func.func @f(%X: !X, %Y: !X) -> tensor<f32, #diagram.array<[]>> attributes {sizes = #diagram.sizes<a = 5, d = 17>} {
  %R = diagram.contract %X, %Y over [d, a, c] accumulate f32 : !X, !X -> tensor<f32, #diagram.array<[]>>
  func.return %R : tensor<f32, #diagram.array<[]>>
}
