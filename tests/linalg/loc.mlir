#map = affine_map<(d0) -> (d0)>
module attributes {torch.debug_module_name = "Net"} {
  func.func @forward(%arg0: tensor<4xf32> loc("x.py":1:1)) -> tensor<4xf32> attributes {llvm.emit_c_interface} {
    %0 = tensor.empty() : tensor<4xf32> loc(#loc1)
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%arg0 : tensor<4xf32>) outs(%0 : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %cst = arith.constant 1.000000e+00 : f32
      %2 = arith.negf %in {fastmath = #arith.fastmath<none>} : f32
      %3 = math.exp %2 : f32
      %4 = arith.addf %3, %cst : f32
      %5 = arith.divf %cst, %4 : f32
      linalg.yield %5 : f32
    } -> tensor<4xf32> loc(#loc1)
    return %1 : tensor<4xf32>
  }
}
#loc1 = loc("x.py":2:3)
