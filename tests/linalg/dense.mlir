func.func @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %cst = arith.constant dense<2.500000e-01> : tensor<4x8xf32>
  %0 = tensor.empty() : tensor<4x8xf32>
  %1 = linalg.mul ins(%a, %cst : tensor<4x8xf32>, tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
