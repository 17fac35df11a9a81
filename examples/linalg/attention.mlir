// Attention as a front end writes it in `linalg`, in the syntax of current upstream MLIR: half-precision products that sum in
// f32, a softmax, and values. treadle raises it to a diagram first; the axes get names there.
//
//   treadle run examples/linalg/attention.mlir
//   treadle run examples/linalg/attention.mlir --size d1=37 --size d3=500

#keys = affine_map<(b, q, x, d) -> (b, x, d)>
#queries = affine_map<(b, q, x, d) -> (b, q, d)>
#scores = affine_map<(b, q, x, d) -> (b, q, x)>

module {
  func.func @attention(%Q: tensor<2x?x64xf16>, %K: tensor<2x?x64xf16>, %V: tensor<2x?x64xf16>) -> tensor<2x?x64xf32>
      attributes {sizes = #diagram.sizes<d1 = 50, d3 = 120>} {
    %zero = arith.constant 0.000000e+00 : f32
    %c1 = arith.constant 1 : index
    %q = tensor.dim %Q, %c1 : tensor<2x?x64xf16>
    %x = tensor.dim %K, %c1 : tensor<2x?x64xf16>

    %0 = tensor.empty(%q, %x) : tensor<2x?x?xf32>
    %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
    %S = linalg.contract indexing_maps = [#queries, #keys, #scores]
        ins(%Q, %K : tensor<2x?x64xf16>, tensor<2x?x64xf16>) outs(%1 : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>

    %T = linalg.map ins(%S : tensor<2x?x?xf32>) outs(%0 : tensor<2x?x?xf32>)
      (%in: f32) {
        %scale = arith.constant 1.250000e-01 : f32
        %scaled = arith.mulf %in, %scale fastmath<contract> : f32
        linalg.yield %scaled : f32
      }
    %P = linalg.softmax dimension(2) ins(%T : tensor<2x?x?xf32>) outs(%0 : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
    %2 = tensor.empty(%q, %x) : tensor<2x?x?xf16>
    %P16 = linalg.map { arith.truncf } ins(%P : tensor<2x?x?xf32>) outs(%2 : tensor<2x?x?xf16>)

    %3 = tensor.empty(%q) : tensor<2x?x64xf32>
    %4 = linalg.fill ins(%zero : f32) outs(%3 : tensor<2x?x64xf32>) -> tensor<2x?x64xf32>
    %O = linalg.batch_matmul ins(%P16, %V : tensor<2x?x?xf16>, tensor<2x?x64xf16>) outs(%4 : tensor<2x?x64xf32>) -> tensor<2x?x64xf32>
    return %O : tensor<2x?x64xf32>
  }
}
