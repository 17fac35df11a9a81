// Heads are merged, dimensions of size 1 left away, and a product goes along both: its weights are split.
#x = affine_map<(r, k, n) -> (r, k)>
#w = affine_map<(r, k, n) -> (k, n)>
#y = affine_map<(r, k, n) -> (r, n)>
module {
  func.func @f(%x: tensor<?x1x3x4xf32>, %w: tensor<12x6xf32>) -> tensor<?x6xf32> {
    %zero = arith.constant 0.000000e+00 : f32
    %c0 = arith.constant 0 : index
    %rows = tensor.dim %x, %c0 : tensor<?x1x3x4xf32>
    %squeezed = tensor.collapse_shape %x [[0, 1], [2], [3]] : tensor<?x1x3x4xf32> into tensor<?x3x4xf32>
    %merged = tensor.collapse_shape %squeezed [[0], [1, 2]] : tensor<?x3x4xf32> into tensor<?x12xf32>
    %0 = tensor.empty(%rows) : tensor<?x12xf32>
    %positive = linalg.generic {indexing_maps = [affine_map<(r, k) -> (r, k)>, affine_map<(r, k) -> (r, k)>], iterator_types = ["parallel", "parallel"]} ins(%merged : tensor<?x12xf32>) outs(%0 : tensor<?x12xf32>) {
    ^bb0(%in: f32, %out: f32):
      %10 = math.absf %in : f32
      linalg.yield %10 : f32
    } -> tensor<?x12xf32>
    %1 = tensor.empty(%rows) : tensor<?x6xf32>
    %2 = linalg.fill ins(%zero : f32) outs(%1 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %y = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "reduction", "parallel"]} ins(%positive, %w : tensor<?x12xf32>, tensor<12x6xf32>) outs(%2 : tensor<?x6xf32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %10 = arith.mulf %a, %b : f32
      %11 = arith.addf %10, %sum : f32
      linalg.yield %11 : f32
    } -> tensor<?x6xf32>
    return %y : tensor<?x6xf32>
  }
}
