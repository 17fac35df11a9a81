// A kernel of which no size varies: all of its candidates fit, or none.

func.func @f(%in0: tensor<f32, #diagram.array<[]>>) -> (tensor<bf16, #diagram.array<[]>>) {
  %v0 = diagram.cast %in0 : tensor<f32, #diagram.array<[]>> -> tensor<bf16, #diagram.array<[]>>
  func.return %v0 : tensor<bf16, #diagram.array<[]>>
}
