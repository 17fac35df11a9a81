// Heads share keys, as a JAX program writes it (batch, length, heads, width), and leave merged with their width.
#q = affine_map<(b, n, r, t, s, d) -> (b, t, n, r, d)>
#k = affine_map<(b, n, r, t, s, d) -> (b, s, n, d)>
#p = affine_map<(b, n, r, t, s, d) -> (b, n, r, t, s)>
#id = affine_map<(b, n, r, t, s) -> (b, n, r, t, s)>
#row = affine_map<(b, n, r, t, s) -> (b, n, r, t)>
#o = affine_map<(b, n, r, t, s, d) -> (b, t, n, r, d)>
module @jit_attend {
  func.func public @attend(%q: tensor<2x?x4x16xf32>, %k: tensor<2x?x2x16xf32>, %v: tensor<2x?x2x16xf32>) -> (tensor<2x?x64xf32> {jax.result_info = "result"}) {
    %zero = arith.constant 0.000000e+00 : f32
    %low = arith.constant 0xFF800000 : f32
    %c1 = arith.constant 1 : index
    %t = tensor.dim %q, %c1 : tensor<2x?x4x16xf32>
    %s = tensor.dim %k, %c1 : tensor<2x?x2x16xf32>
    %grouped = tensor.expand_shape %q [[0], [1], [2, 3], [4]] output_shape [2, %t, 2, 2, 16] : tensor<2x?x4x16xf32> into tensor<2x?x2x2x16xf32>
    %0 = tensor.empty(%t, %s) : tensor<2x2x2x?x?xf32>
    %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<2x2x2x?x?xf32>) -> tensor<2x2x2x?x?xf32>
    %scores = linalg.generic {indexing_maps = [#q, #k, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%grouped, %k : tensor<2x?x2x2x16xf32>, tensor<2x?x2x16xf32>) outs(%1 : tensor<2x2x2x?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %9 = arith.mulf %a, %b : f32
      %10 = arith.addf %out, %9 : f32
      linalg.yield %10 : f32
    } -> tensor<2x2x2x?x?xf32>
    %2 = tensor.empty(%t) : tensor<2x2x2x?xf32>
    %3 = linalg.fill ins(%low : f32) outs(%2 : tensor<2x2x2x?xf32>) -> tensor<2x2x2x?xf32>
    %most = linalg.reduce { arith.maximumf } ins(%scores : tensor<2x2x2x?x?xf32>) outs(%3 : tensor<2x2x2x?xf32>) dimensions = [4]
    %powers = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%scores, %most : tensor<2x2x2x?x?xf32>, tensor<2x2x2x?xf32>) outs(%0 : tensor<2x2x2x?x?xf32>) {
    ^bb0(%a: f32, %m: f32, %out: f32):
      %9 = arith.subf %a, %m : f32
      %10 = math.exp %9 : f32
      linalg.yield %10 : f32
    } -> tensor<2x2x2x?x?xf32>
    %4 = linalg.fill ins(%zero : f32) outs(%2 : tensor<2x2x2x?xf32>) -> tensor<2x2x2x?xf32>
    %sum = linalg.reduce { arith.addf } ins(%powers : tensor<2x2x2x?x?xf32>) outs(%4 : tensor<2x2x2x?xf32>) dimensions = [4]
    %shares = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%powers, %sum : tensor<2x2x2x?x?xf32>, tensor<2x2x2x?xf32>) outs(%0 : tensor<2x2x2x?x?xf32>) {
    ^bb0(%a: f32, %l: f32, %out: f32):
      %9 = arith.divf %a, %l : f32
      linalg.yield %9 : f32
    } -> tensor<2x2x2x?x?xf32>
    %5 = tensor.empty(%t) : tensor<2x?x2x2x16xf32>
    %6 = linalg.fill ins(%zero : f32) outs(%5 : tensor<2x?x2x2x16xf32>) -> tensor<2x?x2x2x16xf32>
    %heads = linalg.generic {indexing_maps = [affine_map<(b, n, r, t, d, s) -> (b, n, r, t, s)>, affine_map<(b, n, r, t, d, s) -> (b, s, n, d)>, affine_map<(b, n, r, t, d, s) -> (b, t, n, r, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%shares, %v : tensor<2x2x2x?x?xf32>, tensor<2x?x2x16xf32>) outs(%6 : tensor<2x?x2x2x16xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %9 = arith.mulf %a, %b : f32
      %10 = arith.addf %out, %9 : f32
      linalg.yield %10 : f32
    } -> tensor<2x?x2x2x16xf32>
    %merged = tensor.collapse_shape %heads [[0], [1], [2, 3, 4]] : tensor<2x?x2x2x16xf32> into tensor<2x?x64xf32>
    return %merged : tensor<2x?x64xf32>
  }
}
