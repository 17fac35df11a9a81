// A variance of what a sum was multiplied into: one late value depends on another.

builtin.module {
  func.func @f(%in0: tensor<3x16xf32, #diagram.array<[d, a]>>) -> tensor<3xf32, #diagram.array<[d]>> {
    %v0 = diagram.reduce add %in0 over [a] : tensor<3x16xf32, #diagram.array<[d, a]>> -> tensor<3xf32, #diagram.array<[d]>>
    %v1 = diagram.map (%a = %in0 : tensor<3x16xf32, #diagram.array<[d, a]>>, %r = %v0 : tensor<3xf32, #diagram.array<[d]>>) -> tensor<3x16xf32, #diagram.array<[d, a]>> {
      %y = arith.mulf %a, %r : f32
      diagram.yield %y : f32
    }
    %v13 = diagram.apply @variance(%v1) over [a] : (tensor<3x16xf32, #diagram.array<[d, a]>>) -> tensor<3xf32, #diagram.array<[d]>>
    func.return %v13 : tensor<3xf32, #diagram.array<[d]>>
  }
}
