func.func @f(%a: tensor<4x8xf32>) -> tensor<?x8xf32> {
  %cast = tensor.cast %a : tensor<4x8xf32> to tensor<?x8xf32>
  %c0 = arith.constant 0 : index
  %dim = tensor.dim %cast, %c0 : tensor<?x8xf32>
  %0 = tensor.empty(%dim) : tensor<?x8xf32>
  %1 = linalg.exp ins(%cast : tensor<?x8xf32>) outs(%0 : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}
