func.func @f(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %mapped = linalg.map ins(%a, %b : tensor<4x8xf32>, tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>)
    (%in: f32, %in_0: f32, %init: f32) {
      %1 = arith.mulf %in, %in_0 : f32
      linalg.yield %1 : f32
    }
  return %mapped : tensor<4x8xf32>
}
