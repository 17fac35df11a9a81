// The size of `c`, which the variance divides by, was not known once there were pieces only, and none at a launch.
func.func @f(%in0: tensor<f32, #diagram.array<[]>>) -> tensor<f32, #diagram.array<[]>> {
  %v0 = diagram.map (%a0 = %in0 : tensor<f32, #diagram.array<[]>>) -> tensor<3xf32, #diagram.array<[c]>> {
    diagram.yield %a0 : f32
  }
  %v1 = diagram.apply @variance(%v0) over [c] : (tensor<3xf32, #diagram.array<[c]>>) -> tensor<f32, #diagram.array<[]>>
  func.return %v1 : tensor<f32, #diagram.array<[]>>
}
