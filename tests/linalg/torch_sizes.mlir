// As torch-mlir writes it: sizes that are known only at launch are asserted to be equal where arrays meet.
#map = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func @f(%arg0: tensor<?x24xf16>, %arg1: tensor<?x24xf16>) -> tensor<?x24xf16> {
    %cst = arith.constant 1.000000e+00 : f16
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %arg0, %c0 : tensor<?x24xf16>
    %0 = tensor.empty(%dim) : tensor<?x24xf16>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<?x24xf16>) outs(%0 : tensor<?x24xf16>) {
    ^bb0(%in: f16, %out: f16):
      %5 = arith.negf %in : f16
      %6 = math.exp %5 : f16
      %7 = arith.addf %6, %cst : f16
      %8 = arith.divf %cst, %7 : f16
      linalg.yield %8 : f16
    } -> tensor<?x24xf16>
    %2 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%1, %arg0 : tensor<?x24xf16>, tensor<?x24xf16>) outs(%0 : tensor<?x24xf16>) {
    ^bb0(%in: f16, %in_1: f16, %out: f16):
      %5 = arith.mulf %in, %in_1 : f16
      linalg.yield %5 : f16
    } -> tensor<?x24xf16>
    %dim_0 = tensor.dim %arg1, %c0 : tensor<?x24xf16>
    %3 = arith.cmpi eq, %dim, %dim_0 : index
    cf.assert %3, "mismatched size for broadcast"
    %4 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%2, %arg1 : tensor<?x24xf16>, tensor<?x24xf16>) outs(%0 : tensor<?x24xf16>) {
    ^bb0(%in: f16, %in_1: f16, %out: f16):
      %5 = arith.mulf %in, %in_1 : f16
      linalg.yield %5 : f16
    } -> tensor<?x24xf16>
    return %4 : tensor<?x24xf16>
  }
}
