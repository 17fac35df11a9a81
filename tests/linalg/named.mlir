func.func @f(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %dim = tensor.dim %a, %c0 : tensor<?x8xf32>
  %0 = tensor.empty(%dim) : tensor<?x8xf32>
  %1 = linalg.div ins(%a, %b : tensor<?x8xf32>, tensor<?x8xf32>) outs(%0 : tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = linalg.tanh ins(%1 : tensor<?x8xf32>) outs(%0 : tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = linalg.square ins(%2 : tensor<?x8xf32>) outs(%0 : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %3 : tensor<?x8xf32>
}
