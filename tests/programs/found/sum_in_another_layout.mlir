// A sum that lanes keep in parts lies as a later product wants it: the parts are combined as they lie.

func.func @f(%X: tensor<?x1xf32, #diagram.array<[e, b]>>) -> tensor<?xf32, #diagram.array<[e]>>
    attributes {sizes = #diagram.sizes<e = 100>} {
  %w = diagram.reduce add %X over [e] : tensor<?x1xf32, #diagram.array<[e, b]>> -> tensor<1xf32, #diagram.array<[b]>>
  %y = diagram.contract %w, %X over [b] accumulate f32 : tensor<1xf32, #diagram.array<[b]>>, tensor<?x1xf32, #diagram.array<[e, b]>> -> tensor<?xf32, #diagram.array<[e]>>
  func.return %y : tensor<?xf32, #diagram.array<[e]>>
}
