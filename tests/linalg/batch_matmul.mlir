func.func @f(%a: tensor<3x4x8xf32>, %b: tensor<3x8x6xf32>, %c: tensor<3x4x6xf32>) -> tensor<3x4x6xf32> {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<3x4x8xf32>, tensor<3x8x6xf32>) outs(%c : tensor<3x4x6xf32>) -> tensor<3x4x6xf32>
  return %0 : tensor<3x4x6xf32>
}
