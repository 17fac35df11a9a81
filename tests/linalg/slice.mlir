func.func @f(%a: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %s = tensor.extract_slice %a[0, 2] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %0 = tensor.empty() : tensor<4x4xf32>
  %1 = linalg.exp ins(%s : tensor<4x4xf32>) outs(%0 : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
