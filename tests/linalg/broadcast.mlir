func.func @f(%a: tensor<8xf32>, %b: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %broadcasted = linalg.broadcast ins(%a : tensor<8xf32>) outs(%0 : tensor<4x8xf32>) dimensions = [0]
  %1 = linalg.add ins(%broadcasted, %b : tensor<4x8xf32>, tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = tensor.empty() : tensor<8x4xf32>
  %transposed = linalg.transpose ins(%1 : tensor<4x8xf32>) outs(%2 : tensor<8x4xf32>) permutation = [1, 0]
  return %transposed : tensor<8x4xf32>
}
