// A stream whose pieces divide its axis, and whose range of positions ends within one of them.

func.func @f(%X: tensor<?x16x3xi32, #diagram.array<[b, e, d]>>) -> tensor<3x?xi32, #diagram.array<[d, b]>>
    attributes {sizes = #diagram.sizes<b = 2>} {
  %W = diagram.where %X if "d - 4 <= e <= d + 3" : tensor<?x16x3xi32, #diagram.array<[b, e, d]>>
  %P = diagram.contract %W, %X over [e] accumulate i32 : tensor<?x16x3xi32, #diagram.array<[b, e, d]>>, tensor<?x16x3xi32, #diagram.array<[b, e, d]>> -> tensor<3x?xi32, #diagram.array<[d, b]>>
  func.return %P : tensor<3x?xi32, #diagram.array<[d, b]>>
}
