// What a condition leaves absent of a value that is known when a stream ends stays absent in what the next stream saves.

func.func @f(%X: tensor<40x?x16xf32, #diagram.array<[c, d, a]>>, %n: tensor<40xi32, #diagram.array<[c]>> {diagram.up_to = "a"},
             %Y: tensor<40x16x?xf32, #diagram.array<[c, a, d]>>) -> tensor<40x?x16xf32, #diagram.array<[c, d, a]>>
    attributes {sizes = #diagram.sizes<d = 5>} {
  %P = diagram.contract %Y, %X over [d] accumulate f32 : tensor<40x16x?xf32, #diagram.array<[c, a, d]>>, tensor<40x?x16xf32, #diagram.array<[c, d, a]>> -> tensor<40x16xf32, #diagram.array<[c, a]>>
  %W = diagram.where %P if "a < n[c]" with (n = %n : tensor<40xi32, #diagram.array<[c]>>) : tensor<40x16xf32, #diagram.array<[c, a]>>
  %Z = diagram.map (%w = %W : tensor<40x16xf32, #diagram.array<[c, a]>>) -> tensor<40x?x16xf32, #diagram.array<[c, d, a]>> {
    diagram.yield %w : f32
  }
  func.return %Z : tensor<40x?x16xf32, #diagram.array<[c, d, a]>>
}
