func.func @f(%a: tensor<4x8xf32>) -> tensor<4x2x4xf32> {
  %expanded = tensor.expand_shape %a [[0], [1, 2]] output_shape [4, 2, 4] : tensor<4x8xf32> into tensor<4x2x4xf32>
  %0 = tensor.empty() : tensor<4x2x4xf32>
  %1 = linalg.exp ins(%expanded : tensor<4x2x4xf32>) outs(%0 : tensor<4x2x4xf32>) -> tensor<4x2x4xf32>
  return %1 : tensor<4x2x4xf32>
}
